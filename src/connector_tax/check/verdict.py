"""Decides the verdict and exit code of a check, as far as the intervals support it.

In virtual time the lower bound decides: the CPU time charged to the engine's thread. Other threads of the
process may delay it or not. In real time a tax's interval comes from the one pair of launches of plain and
plain again.

A growth is a tax minus that of another check of the same connector: the main branch's document against
today's numbers.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from connector_tax.base.errors import ConfigError
from connector_tax.base.files import read_document, shown
from connector_tax.base.statistics.decisions import independent_difference
from connector_tax.base.statistics.distributions import student_quantile
from connector_tax.check.campaign import AGAIN
from connector_tax.check.document import EXIT_CODES, Check, Code, Decided, Found, Growth, Seen, Verdict
from connector_tax.check.request import STEP, CheckRequest
from connector_tax.virtual_time import Bounds, Interval, VirtualTime

# (1.96 + 0.84) / 1.96: a growth of this multiple of its interval's half-width is detected four times in five,
# with few starts more often.
FOUR_IN_FIVE = 1.43


def read_baseline(path: Path) -> Check:
    """Read an earlier check as the baseline.

    Raises:
        ArtifactError: it is no document of ``check --json``.
        ConfigError: it has no tax in virtual time.
    """
    baseline = read_document(path, Check)
    if not baseline.found.virtual_time:
        raise ConfigError(
            f"--baseline {path}: has no tax in virtual time (verdict {baseline.verdict.code}). Give a check"
            " that came to one."
        )
    return baseline


def refuse_another(baseline: Check, current: Mapping[str, Any]) -> None:
    """Refuse a baseline of another connector, release or load.

    Raises:
        ConfigError: it differs; names the first key.
    """
    launched = baseline.found.launched
    stored = {
        "connector.kv_transfer_config": baseline.connector.kv_transfer_config,
        "model": baseline.model,
        "gpu": baseline.gpu,
        "engine_args": baseline.engine_args,
        "versions.vllm": launched and launched.versions.get("vllm"),
        "scheduling": [v.scheduling for v in baseline.found.virtual_time],
        **_load(baseline.found.virtual_time[0]),
    }
    for key, value in current.items():
        if stored[key] != value:
            raise ConfigError(
                f"--baseline: {key} is {shown(stored[key])} there and {shown(value)} here. Give a check that"
                " was asked for the same."
            )


def growth_of(baseline: Check, now: VirtualTime) -> Iterator[Growth]:
    """Yield the growth of a step's CPU time, then of each latency that both checks have.

    Raises:
        ConfigError: as ``refuse_another``.
    """
    earlier = next((v for v in baseline.found.virtual_time if v.scheduling == now.scheduling), None)
    refuse_another(baseline, _load(now) if earlier else {"scheduling": [now.scheduling]})
    assert earlier is not None, "refused"
    # Plain is the control: its CPU time per step shows each host's speed.
    earlier_us, today_us = (v.engine_us_per_step["plain"].point for v in (earlier, now))
    speed = earlier_us / today_us if earlier_us and today_us else 1.0

    def growth(metric: str, us: Interval, ratio: Interval | None) -> Growth:
        seen: Seen = "not_known"
        if us.low is not None and us.high is not None:
            seen = "grew" if us.low > 0 else "shrank" if us.high < 0 else "no_change"
        could_see = None if us.low is None or us.point is None else FOUR_IN_FIVE * (us.point - us.low)
        return Growth(now.scheduling, metric, seen, us, ratio, speed, could_see)

    us = _change(earlier.step_us, now.step_us, speed)
    yield growth(STEP, us, per_plain_step(us, now))
    earlier_taxes = {t.metric: t for t in earlier.taxes}
    for tax in now.taxes:
        if (earlier_tax := earlier_taxes.get(tax.metric)) is not None:
            us = _change(earlier_tax.difference_us, tax.difference_us, speed)
            yield growth(tax.metric, us, _change(earlier_tax.ratio, tax.ratio, speed))


def per_plain_step(us: Interval, now: VirtualTime) -> Interval:
    """Return microseconds per step relative to plain's CPU time per step."""
    plain_us = now.engine_us_per_step["plain"].point
    ends = (us.point, us.low, us.high)
    return Interval(*(None if v is None or not plain_us else v / plain_us for v in ends))


def _load(v: VirtualTime) -> dict[str, float]:
    load = {name: getattr(v, name) for name in ("rate_per_s", "input_tokens", "output_tokens")}
    return {**load, "requests of a start": v.requests // v.starts}


def _change(then: Bounds, now: Bounds, speed: float) -> Interval:
    """Return ``now - then``.

    The interval holds whether or not the connector's work scales with the host's speed as plain's does.
    """
    first, second = msgspec.structs.astuple(then.charged), msgspec.structs.astuple(now.charged)
    point = second[0] - first[0]
    if None in (*first, *second):
        return Interval(point, None, None)
    ends: Any = [
        independent_difference(first, (k * second[0], k * second[1], k * second[2])) for k in (1.0, speed)
    ]
    return Interval(point, min(low for _, low, _ in ends), max(high for *_, high in ends))


# For 95 %, with one degree of freedom.
ONE_PAIR = float(student_quantile(0.975, 1))


def judge(request: CheckRequest, found: Found, cut_short: str | None) -> Verdict:
    """Return the verdict: a tax, or its growth, is above the limit if its whole interval is.

    Args:
        cut_short: why the check did not finish; None if it did.
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
        # The tax of a connector that is off, or on a fallback, is not this connector's.
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
    lost_cells = "; ".join(found.real_time.lost) if found.real_time is not None else ""
    if not taxes or lost_cells:
        return verdict("not_judged", "not_measured", lost_cells)
    if limit is None:
        return verdict("measured", worst=taxes[0])
    too_wide = [t for t in taxes if t.low is None or t.high is None or (t.high - t.low) / 2 > limit]
    if too_wide:
        return verdict("not_judged", "wide", too_wide[0].metric, too_wide[0])
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
            and (ratio := per_plain_step(result.step_us.charged, result)).point is not None
        ):
            yield Decided(result.scheduling, STEP, ratio.point, ratio.low, ratio.high)
    rows = found.real_time.taxes if found.real_time is not None else ()
    # Two launches of one program differ too; plain and plain again are the only pair that shows by how much.
    plain_spread = {
        row.metric: ONE_PAIR * abs(row.point) for row in rows if row.config == AGAIN and row.point is not None
    }
    for row in rows:
        if row.config == request.connector_id and row.metric in request.metrics and row.point is not None:
            low = high = None
            if row.metric in plain_spread and row.low is not None and row.high is not None:
                low = min(row.low, row.point - plain_spread[row.metric])
                high = max(row.high, row.point + plain_spread[row.metric])
            yield Decided("real_time", row.metric, row.point, low, high)
