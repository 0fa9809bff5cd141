"""What the experiments confirm, by fixed rules on intervals: of each hook that waits, and of each tax.

A change has **removed** something where what is left is at most half of it, and the interval of what is left lies below the intervals of both
cells with nothing changed. It has not where more than half is left. In between nothing is concluded.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from connector_tax.check.confirm import UNTOUCHED_AGAIN
from connector_tax.check.experiments import METRICS, STEP, Results
from connector_tax.check.findings import CONFIDENCE
from connector_tax.check.verdict import NAMES
from connector_tax.intervals.bootstrap import Estimate
from connector_tax.measure.arranged import BUSY_BESIDE, ENGINE_ALONE, HELPERS_IDLE, UNPINNED, UNTOUCHED
from connector_tax.stats.hook_waits import HookTimes

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
NOT_CAUSES = {
    UNPINNED: "the CPUs that threads are kept to are not what it is for",
    HELPERS_IDLE: "the connector's own threads on a core are not what it is for",
    ENGINE_ALONE: "sharing the core is not what it is for",
    BUSY_BESIDE: "a core less costs plain less than that",
}
WITH = {
    UNPINNED: "the engine's threads on all of its CPUs",
    ENGINE_ALONE: "the engine alone on a core",
    BUSY_BESIDE: "a busy process beside plain",
}


@dataclass(frozen=True, slots=True)
class Conclusion:
    """
    Attributes:
        subject: a hook, or the name of a tax.
        change: a key of ``CAUSES``.
        words: one or more sentences.
    """

    subject: str
    change: str
    outcome: str
    words: str


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
        before = [results.own[name].hooks[hook] for name in BOTH]
        lead = f"{hook} waits: {_or(before, 'wall')} us of wall, {_or(before, 'cpu')} of CPU."
        for change in OF_HOOKS:
            own = results.own[change]
            if own.missing is not None:
                words = f"{lead} Open with {_with(results, change)}: {own.missing}."
                yield Conclusion(hook, change, OPEN, words)
            elif hook not in own.hooks or own.hooks[hook].wait.point is None:
                words = f"{lead} Open with {_with(results, change)}: it was hardly called."
                yield Conclusion(hook, change, OPEN, words)
            else:
                wait = own.hooks[hook].wait
                outcome = outcome_of((before[0].wait, before[1].wait), wait)
                yield Conclusion(
                    hook,
                    change,
                    outcome,
                    f"{lead} With {_with(results, change)} it waits {_us(wait)} us, before {_or(before, 'wait')}. {_said(outcome, change)}",
                )


def _of_taxes(results: Results) -> Iterator[Conclusion]:
    for metric in standing_taxes(results):
        before = tuple(results.tax(name, metric) for name in BOTH)
        name, floor = METRIC_NAMES[metric], results.floor(metric)
        assert floor is not None and len(before) == 2
        lead = f"{name} costs {_ratio(before[0])} and {_ratio(before[1])}."
        for change in (*OF_HOOKS, BUSY_BESIDE):
            after = results.tax(change, metric)
            if after.point is None:
                yield Conclusion(
                    name, change, OPEN, f"{lead} Open with {_with(results, change)}: {after.reason}."
                )
                continue
            busy = change == BUSY_BESIDE
            outcome = outcome_of_busy(before, after, floor) if busy else outcome_of(before, after)
            costs = "plain itself loses" if busy else "it costs"
            words = f"{lead} With {_with(results, change)} {costs} {_ratio(after)}. {_said(outcome, change)}"
            yield Conclusion(name, change, outcome, words)


def _said(outcome: str, change: str) -> str:
    if outcome == OPEN:
        return "Open: the intervals do not tell the two apart."
    if outcome == CONFIRMED:
        return f"Confirmed: {CAUSES[change]}."
    return f"Not confirmed: {NOT_CAUSES[change]}."


def _with(results: Results, change: str) -> str:
    if change == HELPERS_IDLE:
        own = results.own[change].threads
        many = "threads" if len(own) != 1 else "thread"
        return f"the connector's {len(own)} {many} idle" if own else "the connector's threads idle"
    return WITH[change]


def _or(before: list[HookTimes], what: str) -> str:
    values = [_point(getattr(times, what)) for times in before]
    return f"{min(values):,.0f} to {max(values):,.0f}"


def _us(estimate: Estimate) -> str:
    low, high = estimate.interval(CONFIDENCE)
    return f"{_point(estimate):,.0f}" + ("" if low is None or high is None else f" [{low:,.0f}, {high:,.0f}]")


def _ratio(estimate: Estimate) -> str:
    low, high = estimate.interval(CONFIDENCE)
    ends = ", ".join("open" if e is None else f"{e:+.2%}" for e in (low, high))
    return f"{_point(estimate):+.2%} [{ends}]"


def _point(estimate: Estimate) -> float:
    return float("nan") if estimate.point is None else estimate.point


def _low(estimate: Estimate) -> float:
    low = estimate.interval(CONFIDENCE)[0]
    return float("-inf") if low is None else low


def _high(estimate: Estimate) -> float:
    high = estimate.interval(CONFIDENCE)[1]
    return float("inf") if high is None else high
