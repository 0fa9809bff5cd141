"""The highest rate at which a server holds its limits: doubling until one fails, then bisection on a logarithmic scale."""

import math
from collections.abc import Callable

from msgspec import UNSET

from connector_tax.base.documents.load import Demand, Found, Judged, Level, LoadCell
from connector_tax.load.demand import falls_short, scatter_of, served_text
from connector_tax.load.plan import Sweep
from connector_tax.load.slo import CellLimit, percentile_name


def find_rate(sweep: Sweep, judge: Callable[[float], Judged | str], unit: str = "requests/s") -> Found:
    """
    Args:
        judge: measures a rate; a text where that came to nothing that counts, which ends the search, and why.
        unit: of the rates.
    """
    judged: list[Judged] = []
    stopped: str | None = None

    def holds(rate: float) -> bool | None:
        nonlocal stopped
        result = judge(rate)
        if isinstance(result, str):
            stopped = f"the cell at {rate:g} {unit} does not count ({result})"
            return None
        judged.append(result)
        return result.holds

    low, high, highest = rate_as_read(sweep.low_per_s), None, rate_as_read(sweep.high_per_s)
    answer = holds(low)
    if answer:
        while high is None and low < highest and answer is not None:
            rate = rate_as_read(min(2 * low, highest))
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
    return found_of(judged, stopped, unit)


def rate_as_read(rate_per_s: float) -> float:
    """As cells are named, which two rates that read alike would share with their files."""
    return float(f"{rate_per_s:g}")


def found_of(judged: list[Judged], stopped: str | None, unit: str) -> Found:
    """What the rates that were judged come to.

    Args:
        stopped: why the search ended early.
    """
    failed = [j.rate_per_s for j in judged if not j.holds]
    border = min(failed, default=math.inf)
    held = [j.rate_per_s for j in judged if j.holds]
    return Found(
        highest_per_s=max((rate for rate in held if rate < border), default=None),
        fails_per_s=None if math.isinf(border) else border,
        monotonic=all(rate < border for rate in held),
        judged=tuple(sorted(judged, key=lambda j: j.rate_per_s)),
        stopped=stopped,
        unit=unit,
    )


def never_observed(cell: LoadCell, limits: tuple[CellLimit, ...]) -> str | None:
    """A latency that a limit is of and no answer of a served cell has, as one token has no TPOT; None where each was seen."""
    if "overloaded" in cell.flags or not cell.requests.get("ok"):
        return None
    names = (m.metric for m in limits if cell.latencies[f"{m.metric}_ms"][percentile_name(m.q)].n == 0)
    return next((name.upper() for name in names), None)


def too_short(cell: LoadCell, limits: tuple[CellLimit, ...]) -> str | None:
    """Why a cell does not tell whether the server keeps up, and nothing else decides; None where it tells."""
    demand = cell.demand
    if demand is None or not demand.fills_s or "overloaded" in cell.flags or "dropped" in cell.requests:
        return None
    if not falls_short(demand)[0] or not all(_kept(cell, limit) for limit in limits):
        return None
    return (
        f"{'answers' if demand.unit == 'requests' else 'sessions'} took up to {demand.fills_s:.3g} s, so that the number in flight still grew in the middle of its window, which it "
        f"does also where the server keeps up; give --warmup {math.ceil(demand.fills_s)} or more"
    )


def judge_cell(cell: LoadCell, rate_per_s: float, limits: tuple[CellLimit, ...]) -> Judged:
    """Whether a cell holds every limit, and was served: in an overloaded one latencies say how long it was."""
    assert cell.demand is not None, "a search measures open loops"
    why: list[str] = []
    overloaded = "overloaded" in cell.flags
    failed = _failed_by_chance(cell, cell.demand)
    short, for_sure = falls_short(cell.demand, failed, scatter=scatter_of(cell.spec))
    served = not (overloaded or short)
    if not served:
        why.append(served_text(cell.demand, rate_per_s))
    holds, fails_for_sure = served, overloaded or for_sure
    # What fails by chance alone is open as well.
    open_ = not served and not fails_for_sure
    stalled_ms = (cell.health.loop_stall_max_us or 0.0) / 1e3 if "client_stalled" in cell.flags else 0.0
    stalls = False
    for limit in limits:
        level = _level(cell, limit)
        kept = _kept(cell, limit)
        holds = holds and kept
        reaches = _reaches(level, limit.limit_ms) or _may_fail_by_chance(cell, limit)
        by_stall = (
            not (kept or reaches) and level.point is not None and _low(level) - stalled_ms <= limit.limit_ms
        )
        stalls = stalls or by_stall
        fails_for_sure = fails_for_sure or not (kept or reaches or by_stall)
        open_ = open_ or reaches or by_stall
        if not kept or reaches:
            found = _why_none(cell, level) if level.point is None else f"{level.point:.4g} ms"
            ends = (
                ""
                if level.low is None and level.high is None
                else f" [{_end(level.low)}, {_end(level.high)}]"
            )
            why.append(f"{limit}: {found}{ends}")
    if not holds and (dropped := cell.requests.get("dropped")):
        cap = f"{dropped:,} requests were dropped at the client's own cap of {cell.spec.inflight_cap:,} in flight (--inflight-cap)"
        return Judged(rate_per_s, holds, False, (*why, cap), capped=True)
    if not holds and "client_limited" in cell.flags:
        # What it was late by is in the latencies that did not keep their limits.
        return Judged(rate_per_s, holds, False, (*why, "the client was late"))
    if stalls:
        why.append(f"the client was away for {stalled_ms:,.0f} ms at once")
    return Judged(rate_per_s, holds, fails_for_sure or not open_, tuple(why))


def _level(cell: LoadCell, limit: CellLimit) -> Level:
    return cell.latencies[f"{limit.metric}_ms"][percentile_name(limit.q)]


def _low(level: Level) -> float:
    assert level.point is not None
    return level.point if level.low is None else level.low


def _kept(cell: LoadCell, limit: CellLimit) -> bool:
    point = _level(cell, limit).point
    return point is not None and point <= limit.limit_ms


def _failed_by_chance(cell: LoadCell, demand: Demand) -> float:
    """By how much the requests that failed exceed the lower end of their share, as far as that is known."""
    if cell.failed is UNSET or cell.failed.point is None or cell.failed.low is None:
        return 0.0
    return (cell.failed.point - cell.failed.low) * demand.due


def _reaches(level: Level, limit_ms: float) -> bool:
    """Whether the interval holds values on both sides of the limit, as far as is known."""
    if level.point is None:
        return False
    low = -math.inf if level.low is None else level.low
    high = math.inf if level.high is None else level.high
    return low <= limit_ms < high


def _may_fail_by_chance(cell: LoadCell, limit: CellLimit) -> bool:
    """Whether a percentile that falls on failures may be one that does not: so few requests may fail in the long run, as far as is known,
    and no lower percentile is beyond the limit for sure.
    """
    if _level(cell, limit).point is not None or cell.failed is UNSET or cell.failed.low is None:
        return False
    lower = [
        level
        for q, level in cell.latencies[f"{limit.metric}_ms"].items()
        if level.point is not None and float(q.removeprefix("p")) < limit.q
    ]
    return cell.failed.low < 1 - limit.q / 100 and all(_low(level) <= limit.limit_ms for level in lower)


def _why_none(cell: LoadCell, level: Level) -> str:
    reason = level.reason or "unavailable"
    if cell.failed is UNSET or cell.failed.point is None or cell.failed.low is None or not cell.failed.point:
        return reason
    share, low, high = (
        f"{100 * v:.2g}" if v is not None and v < 0.995 else "100"
        for v in (cell.failed.point, cell.failed.low, cell.failed.high)
    )
    return f"{reason}: {share} % [{low}, {high}] of all"


def _end(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
