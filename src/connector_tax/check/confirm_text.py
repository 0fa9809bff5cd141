"""What is printed of the experiments: a table against plain, hooks that a change changed, conclusions."""

from collections import Counter
from collections.abc import Iterator
from itertools import groupby

from connector_tax.base.documents.health import MAX_LATE_SHARE
from connector_tax.base.statistics.bootstrap import Estimate
from connector_tax.check.campaigns import mode_words
from connector_tax.check.conclusions import (
    BOTH,
    LEAST_WAIT_US,
    METRIC_NAMES,
    OF_HOOKS,
    conclusions,
    standing_taxes,
    waiting_hooks,
)
from connector_tax.check.confirm import OF_CONNECTOR, UNTOUCHED_AGAIN
from connector_tax.check.experiments import METRICS, STEP, Measured, Results
from connector_tax.check.findings import CONFIDENCE
from connector_tax.check.ratio_text import ratio_text
from connector_tax.run.measure.arranged import BUSY_BESIDE, ENGINE_ALONE, HELPERS_IDLE, UNPINNED, UNTOUCHED

WORDS = {
    UNTOUCHED: "nothing changed",
    UNPINNED: "engine on all its CPUs",
    ENGINE_ALONE: "engine alone on a core",
    UNTOUCHED_AGAIN: "nothing changed",
    HELPERS_IDLE: "helper threads idle",
    BUSY_BESIDE: "busy process, plain itself",
}
CARRIES = "Wall times, taxes and waits are this host's. CPU times carry over to hosts with such cores."
LATE = (
    "The clock ran late in some of these cells: whoever waited for a step found no free core. Their taxes include that, and say nothing of "
    "a GPU's. Times of hooks do not depend on the clock."
)
# A hook that changed by less is left out.
LEAST_CHANGE_US = 1.0


def confirm_text(results: Results) -> Iterator[str]:
    yield (
        f"== experiments: one thing after the other changed from outside vLLM within one launch; {mode_words(results.mode)} scheduling, "
        f"{results.rate_per_s:g} req/s =="
    )
    yield CARRIES
    yield (
        f"{'':27}"
        + "".join(f"{METRIC_NAMES[m] + ' tax':27}" for m in METRICS)
        + "step, us (plain)   slack (plain)   late (plain)"
    )
    for name in (*OF_CONNECTOR, BUSY_BESIDE):
        yield from _row(results, name)
    for name in OF_HOOKS:
        yield from (f"    {line}" for line in _changed(results, name))
    if any(m.late_share is not None and m.late_share > MAX_LATE_SHARE for m in _all(results)):
        yield LATE
    yield from concluding(results)


def _all(results: Results) -> Iterator[Measured]:
    yield from (*results.plain.values(), *results.own.values())


def concluding(results: Results) -> Iterator[str]:
    """What follows, in sentences; that nothing does is said as well."""
    absent = dict.fromkeys(w for n in BOTH for s in (results.plain[n], results.own[n]) if (w := s.missing))
    if absent:
        yield f"Nothing can be concluded, since a cell with nothing changed says nothing: {'; '.join(absent)}"
        return
    if not standing_taxes(results):
        yield "No tax above the noise floor was there to remove."
    if not waiting_hooks(results):
        yield f"No hook is known to wait for {LEAST_WAIT_US:g} us of a step or longer."
    for before, found in groupby(conclusions(results), key=lambda c: c.before):
        yield " ".join([before, *(c.words for c in found)])


def _row(results: Results, name: str) -> Iterator[str]:
    own, plain = results.of(name), results.beside(name)
    if own.missing is not None:
        yield f"{WORDS[name]:27}not measured: {own.missing}"
        return
    taxes = "".join(f"{_ratio(results.tax(name, m)):27}" for m in METRICS)
    steps = _pair(*(side.latency[STEP].point if side.latency else None for side in (own, plain)))
    slacks = _pair(own.slack_us, plain.slack_us)
    lates = ["-" if m.late_share is None else f"{m.late_share:.1%}" for m in (own, plain)]
    late = f"{lates[0]} ({lates[1]})"
    yield f"{WORDS[name]:27}{taxes}{steps:>16}   {slacks:>13}   {late:>12}"
    if own.threads:
        counted = Counter(own.threads).items()
        yield f"    rearranged: {', '.join(name if n == 1 else f'{n} x {name}' for name, n in counted)}"


def _changed(results: Results, name: str) -> Iterator[str]:
    """Hooks whose wall or CPU time lies apart from that of both cells with nothing changed."""
    own = results.own[name]
    if own.missing is not None:
        return
    before = [results.own[n] for n in BOTH]
    if not any(all(hook in b.hooks for b in before) for hook in own.hooks):
        yield f"{WORDS[name]}: of no hook both this and its times with nothing changed are known"
        return
    lines = [
        f"{WORDS[name]}: {hook}: {what} {_us(getattr(times, what))}, before {' and '.join(_us(getattr(b.hooks[hook], what)) for b in before)}"
        for hook, times in own.hooks.items()
        if all(hook in b.hooks for b in before)
        for what in ("wall", "cpu")
        if _apart(getattr(times, what), [getattr(b.hooks[hook], what) for b in before])
    ]
    yield from lines or [f"{WORDS[name]}: no hook's time changed by more than its interval"]


def _apart(after: Estimate, before: list[Estimate]) -> bool:
    low, high = after.interval(CONFIDENCE)
    ends = [b.interval(CONFIDENCE) for b in before]
    if low is None or high is None or after.point is None:
        return False
    lows, highs = [e[0] for e in ends if e[0] is not None], [e[1] for e in ends if e[1] is not None]
    if len(lows) < len(ends) or len(highs) < len(ends):
        return False
    points = [b.point for b in before if b.point is not None]
    return (high < min(lows) or low > max(highs)) and min(
        abs(after.point - p) for p in points
    ) >= LEAST_CHANGE_US


def _ratio(estimate: Estimate) -> str:
    low, high = estimate.interval(CONFIDENCE)
    if estimate.point is None:
        return "not available"
    return ratio_text(estimate.point, low, high)


def _us(estimate: Estimate) -> str:
    low, high = estimate.interval(CONFIDENCE)
    if estimate.point is None:
        return "not known"
    return f"{estimate.point:,.1f} us" + (
        "" if low is None or high is None else f" [{low:,.1f}, {high:,.1f}]"
    )


def _pair(own: float | None, plain: float | None) -> str:
    """``9,123 (9,011)``"""
    words = ["-" if value is None else f"{value:,.0f}" for value in (own, plain)]
    return f"{words[0]} ({words[1]})"
