"""One word and an exit code; no more than the intervals hold.

In virtual time the lower bound decides: what the engine's thread was charged. Other threads of the process
may or may not delay it. In real time a tax has the interval of one pair of launches, which plain and plain
again are.
"""

from collections.abc import Iterator
from typing import Literal

from connector_tax.base.statistics.laws import student_quantile
from connector_tax.check.campaign import AGAIN
from connector_tax.check.document import EXIT_CODES, Code, Decided, Found, Verdict
from connector_tax.check.growth import of_plains_step
from connector_tax.check.request import STEP, CheckRequest

# Of 95 %, with one degree of freedom.
ONE_PAIR = float(student_quantile(0.975, 1))


def judge(request: CheckRequest, found: Found, cut_short: str | None) -> Verdict:
    """Return the verdict on what is known: a tax, or its growth, is above the limit where its whole interval
    is.

    Args:
        cut_short: why the check did not come to its end; None where it did.
    """
    limit = request.limit

    def verdict(
        code: Code, why: str | None = None, subject: str = "", worst: Decided | None = None
    ) -> Verdict:
        of: Literal["tax", "growth"] = "tax" if request.baseline is None else "growth"
        return Verdict(code, EXIT_CODES[code], limit, worst, why, subject, of)

    if found.fault is not None:
        return verdict("not_loaded", subject=found.fault.subject)
    for part in (found.launched, found.real_time):
        if part is not None and part.failure is not None:
            return verdict("not_served", subject=part.failure)
    if (served := found.launched) is not None:
        if served.answered < served.sent or not served.sent:
            return verdict("not_served", subject=f"{served.answered} of {served.sent} requests answered")
        # A tax of a connector that is off, or on a fallback, is another one's.
        if served.off is not None:
            return verdict("not_judged", "off", served.off)
    if any(not v.hooks for v in found.virtual_time):
        return verdict("not_judged", "off", "none of its hooks was called in virtual time")
    taxes = sorted(_decided(request, found), key=lambda t: -t.point)
    above = [t for t in taxes if limit is not None and t.low is not None and t.low > limit]
    if above:
        return verdict("above", worst=above[0])
    problem = found.problem or next((v.died for v in found.virtual_time if v.died), None)
    if cut_short is not None or problem is not None:
        return verdict("not_judged", cut_short or "problem", problem or "")
    lost = "; ".join(found.real_time.lost) if found.real_time is not None else ""
    if not taxes or lost:
        return verdict("not_judged", "not_measured", lost)
    if limit is None:
        return verdict("measured", worst=taxes[0])
    wide = [t for t in taxes if t.low is None or t.high is None or (t.high - t.low) / 2 > limit]
    if wide:
        return verdict("not_judged", "wide", wide[0].metric, wide[0])
    hooks = [f"{h.side}/{h.hook}" for v in found.virtual_time for h in v.hooks if not h.in_virtual_time]
    if hooks:
        return verdict("not_judged", "not_in_virtual_time", hooks[0], taxes[0])
    return verdict("not_above", worst=taxes[0])


def _decided(request: CheckRequest, found: Found) -> Iterator[Decided]:
    for growth in found.growth:
        if growth.metric in request.metrics and growth.ratio is not None and growth.ratio.point is not None:
            yield Decided(
                growth.scheduling, growth.metric, growth.ratio.point, growth.ratio.low, growth.ratio.high
            )
    for result in found.virtual_time if request.baseline is None else ():
        for tax in result.taxes:
            if tax.metric in request.metrics and (ratio := tax.ratio.charged).point is not None:
                yield Decided(result.scheduling, tax.metric, ratio.point, ratio.low, ratio.high)
        if (
            STEP in request.metrics
            and (ratio := of_plains_step(result.step_us.charged, result)).point is not None
        ):
            yield Decided(result.scheduling, STEP, ratio.point, ratio.low, ratio.high)
    rows = found.real_time.taxes if found.real_time is not None else ()
    # Two launches of one program differ as well, and of that one pair of plain is all that is known.
    apart = {
        row.metric: ONE_PAIR * abs(row.point) for row in rows if row.config == AGAIN and row.point is not None
    }
    for row in rows:
        if row.config == request.connector_id and row.metric in request.metrics and row.point is not None:
            low = high = None
            if row.metric in apart and row.low is not None and row.high is not None:
                low = min(row.low, row.point - apart[row.metric])
                high = max(row.high, row.point + apart[row.metric])
            yield Decided("real_time", row.metric, row.point, low, high)
