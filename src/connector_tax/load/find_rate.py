"""Finds the highest rate that meets the limits: doubling until one fails, then bisection on a log scale."""

import math
from collections.abc import Callable
from dataclasses import replace

from msgspec import UNSET

from connector_tax.base.documents.load import Found, Judged, Level, LoadCell
from connector_tax.load.measured import falls_short, scatter_of, served_text
from connector_tax.load.output import level_text
from connector_tax.load.plan import CellLimit, Content, Sweep, percentile_name
from connector_tax.read.figures.words import label


def find_rate(sweep: Sweep, judge: Callable[[float], Judged | str], unit: str = "requests/s") -> Found:
    """Find the highest rate at which ``judge`` says that the limits hold.

    Args:
        judge: measures a rate; returns a reason instead of a result to end the search.
        unit: of the rates.
    """
    judged: list[Judged] = []
    stopped = None
    low, high, highest = 0.0, math.inf, rate_as_read(sweep.high_per_s)
    rate = rate_as_read(sweep.low_per_s)
    while low < rate < high:
        result = judge(rate)
        if isinstance(result, str):
            stopped = f"the cell at {rate:g} {unit} does not count ({result})"
            break
        judged.append(result)
        low, high = (rate, high) if result.holds else (low, rate)
        if math.isinf(high):
            rate = rate_as_read(min(2 * low, highest))
        else:
            rate = float(f"{math.sqrt(low * high):.4g}") if high > low * (1 + sweep.precision) else low
    return found_of(judged, stopped, unit)


def chosen_by(probe: LoadCell, sweep: Sweep, content: Content) -> tuple[Sweep, Content]:
    """Choose the lowest rate and the cell's duration from a closed-loop probe, and print the choice."""
    per_s, answer = probe.throughput.requests_per_s, probe.latencies["e2e_ms"]["p50"].point
    answer_s = (answer or 0.0) / 1e3
    low = float(f"{per_s / 4:.2g}")
    warmup_s, duration_s = (
        given if given is not None else float(f"{min(max(answers * answer_s, least), most):.2g}")
        for given, answers, least, most in ((sweep.warmup_s, 1, 2, 30), (sweep.duration_s, 3, 10, 60))
    )
    print(
        f"{per_s:.3g} requests/s of {answer_s:.3g} s: rates double from {low:g} until the server does not "
        f"keep up, {warmup_s + duration_s:g} s each, and then come close to the highest that it holds.\n",
        flush=True,
    )
    spec = replace(content.spec, warmup_s=warmup_s, duration_s=duration_s, min_completed=0)
    return Sweep(low, sweep.high_per_s, sweep.precision), content._replace(spec=spec)


def rate_as_read(rate_per_s: float) -> float:
    """Return the rate rounded as in cell names, since rates that print alike would share files."""
    return float(f"{rate_per_s:g}")


def found_of(judged: list[Judged], stopped: str | None, unit: str) -> Found:
    """Return the search result from the judged rates.

    Args:
        stopped: why the search ended early.
    """
    # The search never measures above a failed rate or below one that held.
    return Found(
        highest_per_s=max((j.rate_per_s for j in judged if j.holds), default=None),
        fails_per_s=min((j.rate_per_s for j in judged if not j.holds), default=None),
        monotonic=True,
        judged=tuple(sorted(judged, key=lambda j: j.rate_per_s)),
        stopped=stopped,
        unit=unit,
    )


def never_observed(cell: LoadCell, limits: tuple[CellLimit, ...]) -> str | None:
    """Return the first limited latency that no answer of a served cell has (TPOT of one token), or None."""
    if "overloaded" in cell.flags or not cell.requests.get("ok"):
        return None
    return next((m.metric.upper() for m in limits if _level(cell, m).n == 0), None)


def too_short(cell: LoadCell, limits: tuple[CellLimit, ...]) -> str | None:
    """Return why the cell is too short to judge the server; None if it suffices, or a limit decides."""
    demand = cell.demand
    if demand is None or not demand.fills_s or "overloaded" in cell.flags or "dropped" in cell.requests:
        return None
    if not falls_short(demand)[0] or any(_ends_ms(cell, limit)[1] > limit.limit_ms for limit in limits):
        return None
    return label("load", f"too_short_{demand.unit}").format(demand.fills_s, math.ceil(demand.fills_s))


def judge_cell(cell: LoadCell, rate_per_s: float, limits: tuple[CellLimit, ...]) -> Judged:
    """Judge whether a cell was served and meets every limit.

    The latencies of an overloaded cell only reflect its length.
    """
    demand, failed = cell.demand, _failed(cell)
    assert demand is not None, "a search measures open loops"
    by_chance = 0.0 if failed.point is None or failed.low is None else failed.point - failed.low
    short, for_sure = falls_short(demand, by_chance * demand.due, scatter=scatter_of(cell.spec))
    overloaded = "overloaded" in cell.flags
    served = not (overloaded or short)
    reasons = [] if served else [served_text(demand, rate_per_s)]
    # (holds, may be otherwise) for each condition: by chance, or because the client stalled.
    verdicts = [(served, not (served or overloaded or for_sure))]
    stalled_ms = (cell.health.loop_stall_max_us or 0.0) / 1e3 if "client_stalled" in cell.flags else 0.0
    stalls = False
    for limit in limits:
        low, point, high = _ends_ms(cell, limit)
        holds_limit, unsure = point <= limit.limit_ms, low - stalled_ms <= limit.limit_ms < high
        stalls |= unsure and low > limit.limit_ms
        verdicts.append((holds_limit, unsure))
        if not holds_limit or unsure:
            level = _level(cell, limit)
            measured_text = f"{level_text(level)} ms"
            if level.point is None:
                measured_text = level.reason or "unavailable"
                measured_text += f": {level_text(failed, 100)} % of all" if failed.point else ""
            reasons.append(f"{limit}: {measured_text}")
    holds = all(holds_limit for holds_limit, _ in verdicts)
    sure = (False, False) in verdicts or not any(unsure for _, unsure in verdicts)
    dropped = cell.requests.get("dropped")
    if not holds and dropped:
        reasons.append(label("load", "capped_cell").format(dropped, cell.spec.inflight_cap))
        return Judged(rate_per_s, holds, False, tuple(reasons), capped=True)
    # A late client's delay is part of the latencies that exceed their limits.
    is_late = not holds and "client_limited" in cell.flags
    if is_late:
        reasons.append(label("load", "late_cell"))
    elif stalls:
        reasons.append(label("load", "away_cell").format(stalled_ms))
    return Judged(rate_per_s, holds, sure and not is_late, tuple(reasons))


def _level(cell: LoadCell, limit: CellLimit) -> Level:
    return cell.latencies[f"{limit.metric}_ms"][percentile_name(limit.q)]


def _failed(cell: LoadCell) -> Level:
    return Level(None) if cell.failed is UNSET else cell.failed


def _ends_ms(cell: LoadCell, limit: CellLimit) -> tuple[float, float, float]:
    """Return lower bound, point and upper bound of a limit's percentile; an unknown bound is infinite.

    A percentile that falls on failed requests is infinite. If the long-run failure rate may be low enough
    that another cell's percentile would not, the lower bound is that of the percentiles below it.
    """
    level, failed = _level(cell, limit), _failed(cell)
    if (point := level.point) is not None:
        low, high = level.low, level.high
        return -math.inf if low is None else low, point, math.inf if high is None else high
    if failed.low is None or failed.low >= 1 - limit.q / 100:
        return math.inf, math.inf, math.inf
    below = [
        other.point if other.low is None else other.low
        for q, other in cell.latencies[f"{limit.metric}_ms"].items()
        if other.point is not None and float(q.removeprefix("p")) < limit.q
    ]
    return max(below, default=0.0), math.inf, math.inf
