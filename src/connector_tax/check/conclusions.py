"""What the experiments confirm, by fixed rules on intervals: of each hook that waits, and of each tax.

A change has **removed** something where what is left is at most half of it, and the interval of what is left lies below the intervals of both
cells with nothing changed. It has not where more than half is left. In between nothing is concluded.
"""

from collections.abc import Iterator

from connector_tax.base.documents.check import Conclusion
from connector_tax.base.statistics.bootstrap import Estimate
from connector_tax.check.confirm import UNTOUCHED_AGAIN
from connector_tax.check.experiments import METRICS, STEP, Results
from connector_tax.check.findings import CONFIDENCE
from connector_tax.check.ratio_text import ratio_text
from connector_tax.check.verdict import NAMES
from connector_tax.read.figures.labels import reason_text
from connector_tax.read.stats.hook_waits import HookTimes
from connector_tax.run.measure.arranged import BUSY_BESIDE, ENGINE_ALONE, HELPERS_IDLE, UNPINNED, UNTOUCHED

CONFIRMED, NOT_CONFIRMED, OPEN = "confirmed", "not confirmed", "open"
# A hook that waits less per step is left alone.
LEAST_WAIT_US = 50.0
# At most so much is left of what was removed.
LEFT = 0.5
METRIC_NAMES = {**NAMES, STEP: "decode step p50"}
BOTH = (UNTOUCHED, UNTOUCHED_AGAIN)
OF_HOOKS = (UNPINNED, HELPERS_IDLE, ENGINE_ALONE)
CAUSES = {
    UNPINNED: "the connector keeps threads of the engine to some of its CPUs, and they had to wait for those",
    HELPERS_IDLE: "the connector's own threads were in its way, for a core or for a lock",
    ENGINE_ALONE: "the engine core had to share its core; where cores are free it has not to",
    BUSY_BESIDE: "with a core less plain loses at least half of that, without the connector's code",
}
WITH = {
    UNPINNED: "the engine's threads on all of its CPUs",
    ENGINE_ALONE: "the engine alone on a core",
    BUSY_BESIDE: "a busy process beside plain",
}


def conclusions(results: Results) -> list[Conclusion]:
    """Of every wait and every tax that is there with nothing changed, dearest hook first."""
    return [*_of_hooks(results), *_of_taxes(results)]


def waiting_hooks(results: Results) -> list[str]:
    """Hooks whose wait is above ``LEAST_WAIT_US`` with the whole interval, in both cells with nothing changed."""
    first, second = (results.own[name].hooks for name in BOTH)
    found = [
        (min(_point(first[h].wait), _point(second[h].wait)), h)
        for h in first
        if h in second and all(_low(side[h].wait) > LEAST_WAIT_US for side in (first, second))
    ]
    return [hook for _, hook in sorted(found, reverse=True)]


def standing_taxes(results: Results) -> list[str]:
    """Metrics whose tax is above zero by more than the noise floor, in both pairs of cells with nothing changed."""
    found = []
    for metric in METRICS:
        floor = results.floor(metric)
        if floor is not None and all(_low(results.tax(n, metric)) - floor > 0 for n in BOTH):
            found.append(metric)
    return found


def outcome_of(before: tuple[Estimate, Estimate], after: Estimate) -> str:
    """Whether ``after`` is ``before`` with its cause removed."""
    if after.point is None:
        return OPEN
    if after.point > LEFT * min(_point(b) for b in before):
        return NOT_CONFIRMED
    return CONFIRMED if _high(after) < min(_low(b) for b in before) else OPEN


def outcome_of_busy(before: tuple[Estimate, Estimate], busy: Estimate, floor: float) -> str:
    """Whether plain with a busy process beside it shows the tax: at least half of it, and more than the noise floor."""
    if busy.point is None:
        return OPEN
    if busy.point >= LEFT * max(_point(b) for b in before):
        return CONFIRMED if _low(busy) - floor > 0 else OPEN
    return NOT_CONFIRMED if _high(busy) < min(_low(b) for b in before) else OPEN


def _of_hooks(results: Results) -> Iterator[Conclusion]:
    for hook in waiting_hooks(results):
        first, second = (results.own[name].hooks[hook] for name in BOTH)
        before = (
            f"{hook} waits {_us(first.wait)} and {_us(second.wait)} of a step: {_of_both(first, second)}."
        )
        for change in OF_HOOKS:
            own = results.own[change]
            times = own.hooks.get(hook)
            if times is None or times.wait.point is None:
                yield _open(results, hook, before, change, own.missing or "it was hardly called")
                continue
            outcome = outcome_of((first.wait, second.wait), times.wait)
            words = (
                f"With {_with(results, change)} it waits {_us(times.wait)}. {_outcome_words(outcome, change)}"
            )
            yield Conclusion(hook, before, change, outcome, words)


def _of_both(first: HookTimes, second: HookTimes) -> str:
    wall, cpu = ([f"{_point(getattr(t, what)):,.0f}" for t in (first, second)] for what in ("wall", "cpu"))
    return f"{' and '.join(wall)} us of wall, {' and '.join(cpu)} of CPU"


def _of_taxes(results: Results) -> Iterator[Conclusion]:
    for metric in standing_taxes(results):
        pair = (results.tax(UNTOUCHED, metric), results.tax(UNTOUCHED_AGAIN, metric))
        name, floor = METRIC_NAMES[metric], results.floor(metric)
        assert floor is not None, "a tax stands above a floor"
        before = f"{name} costs {_ratio(pair[0])} and {_ratio(pair[1])}."
        for change in (*OF_HOOKS, BUSY_BESIDE):
            after = results.tax(change, metric)
            if after.point is None:
                yield _open(results, name, before, change, reason_text(after.reason) or "not known")
                continue
            busy = change == BUSY_BESIDE
            kept = results.kept(change, metric)
            outcome = outcome_of_busy(pair, after, floor) if busy else outcome_of(pair, kept)
            costs = "it loses" if busy else "the connector costs"
            same = "" if busy else f", which is {_ratio(kept)} of plain with nothing changed"
            words = f"With {_with(results, change)} {costs} {_ratio(after)}{same}. {_outcome_words(outcome, change)}"
            yield Conclusion(name, before, change, outcome, words)


def _open(results: Results, subject: str, before: str, change: str, reason: str) -> Conclusion:
    return Conclusion(subject, before, change, OPEN, f"With {_with(results, change)}: open, {reason}.")


def _outcome_words(outcome: str, change: str) -> str:
    if outcome == OPEN:
        return "Open: the intervals do not tell the two apart."
    if outcome == CONFIRMED:
        return f"Confirmed: {CAUSES[change]}."
    lost = "plain loses less than half of it" if change == BUSY_BESIDE else "more than half of it is left"
    return f"Not confirmed: {lost}."


def _with(results: Results, change: str) -> str:
    if change == HELPERS_IDLE:
        own = results.own[change].threads
        many = "threads" if len(own) != 1 else "thread"
        return f"the connector's {len(own)} {many} idle" if own else "the connector's threads idle"
    return WITH[change]


def _us(estimate: Estimate) -> str:
    low, high = estimate.interval(CONFIDENCE)
    return f"{_point(estimate):,.0f} us" + (
        "" if low is None or high is None else f" [{low:,.0f}, {high:,.0f}]"
    )


def _ratio(estimate: Estimate) -> str:
    if estimate.point is None:
        return "not available"
    return ratio_text(estimate.point, *estimate.interval(CONFIDENCE))


def _point(estimate: Estimate) -> float:
    return float("nan") if estimate.point is None else estimate.point


def _low(estimate: Estimate) -> float:
    low = estimate.interval(CONFIDENCE)[0]
    return float("-inf") if low is None else low


def _high(estimate: Estimate) -> float:
    high = estimate.interval(CONFIDENCE)[1]
    return float("inf") if high is None else high
