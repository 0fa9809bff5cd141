"""The highest rate at which a server holds its limits: doubling until one fails, then bisection on a logarithmic scale."""

import math
from collections.abc import Callable

from connector_tax.base.statistics.overload import MIN_THROUGHPUT_RATIO
from connector_tax.load.plan import Sweep
from connector_tax.load.results import Found, Judged, Level, LoadCell
from connector_tax.load.slo import CellLimit


def find_rate(sweep: Sweep, judge: Callable[[float], Judged | None]) -> Found:
    """
    Args:
        judge: measures a rate; None where that came to nothing that counts, which ends the search.
    """
    judged: list[Judged] = []

    def holds(rate: float) -> bool | None:
        result = judge(rate)
        if result is not None:
            judged.append(result)
        return None if result is None else result.holds

    low, high = sweep.low_per_s, None
    answer = holds(low)
    if answer:
        while high is None and low < sweep.high_per_s and answer is not None:
            rate = min(2 * low, sweep.high_per_s)
            answer = holds(rate)
            if answer:
                low = rate
            elif answer is not None:
                high = rate
        while high is not None and high / low > 1 + sweep.precision and answer is not None:
            rate = float(f"{math.sqrt(low * high):.4g}")
            if not low < rate < high:
                break
            answer = holds(rate)
            if answer:
                low = rate
            elif answer is not None:
                high = rate
    return _found(judged, None if answer is not None else "a cell at the next rate does not count")


def _found(judged: list[Judged], stopped: str | None) -> Found:
    failed = [j.rate_per_s for j in judged if not j.holds]
    border = min(failed, default=math.inf)
    held = [j.rate_per_s for j in judged if j.holds]
    return Found(
        highest_per_s=max((rate for rate in held if rate < border), default=None),
        fails_per_s=None if math.isinf(border) else border,
        monotonic=all(rate < border for rate in held),
        judged=tuple(sorted(judged, key=lambda j: j.rate_per_s)),
        stopped=stopped,
    )


def judge_cell(cell: LoadCell, rate_per_s: float, limits: tuple[CellLimit, ...]) -> Judged:
    """Whether a cell holds every limit, and was served: in an overloaded one latencies say how long it was."""
    why: list[str] = []
    share = cell.throughput.requests_per_s / rate_per_s
    served = "overloaded" not in cell.flags and share >= MIN_THROUGHPUT_RATIO
    if not served:
        why.append(f"served {cell.throughput.requests_per_s:.3g} of {rate_per_s:g} requests/s")
    holds, fails_for_sure, open_ = served, not served, False
    for limit in limits:
        level = cell.latencies[f"{limit.metric}_ms"][f"p{limit.q:g}"]
        kept = level.point is not None and level.point <= limit.limit_ms
        holds = holds and kept
        reaches = _reaches(level, limit.limit_ms)
        fails_for_sure = fails_for_sure or not (kept or reaches)
        open_ = open_ or reaches
        if not kept or reaches:
            found = level.reason or "unavailable" if level.point is None else f"{level.point:.4g} ms"
            ends = (
                ""
                if level.low is None and level.high is None
                else f" [{_end(level.low)}, {_end(level.high)}]"
            )
            why.append(f"{limit}: {found}{ends}")
    return Judged(rate_per_s, holds, fails_for_sure or not open_, tuple(why))


def _reaches(level: Level, limit_ms: float) -> bool:
    """Whether the interval holds values on both sides of the limit, as far as is known."""
    if level.point is None:
        return False
    low = -math.inf if level.low is None else level.low
    high = math.inf if level.high is None else level.high
    return low <= limit_ms < high


def _end(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
