"""What a cell asked of the server, by its schedule: in its window, and in all."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from msgspec import UNSET, UnsetType

from connector_tax.base.documents.load import Cut, Demand, LoadCell
from connector_tax.base.records.cell import CellSpec, CellWindow
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.records.sessions import read_sessions
from connector_tax.base.statistics.cell import in_window
from connector_tax.base.statistics.overload import MIN_THROUGHPUT_RATIO
from connector_tax.base.units import MOST_NS, s_to_ns
from connector_tax.read.figures.words import label
from connector_tax.run.loadgen.cell import CellOutcome
from connector_tax.run.workload.arrivals import OPEN_LOOP

# The end of what is not over.
NEVER_NS = MOST_NS
# Four that are all longer than four others are so by chance in one of 70 cases.
FEWEST_OF_A_THIRD = 4
# When something came due, and when it was over.
Span = tuple[int, int]


def demand_of(spec: CellSpec, outcome: CellOutcome) -> Demand | None:
    """Return what came due, and what was done; None for loads without a rate."""
    if spec.arrival not in OPEN_LOOP:
        return None
    requests, ramp = outcome.requests, spec.ramp_from_per_s is not None
    spans = _spans(spec, requests, outcome.window.t_stop_ns)
    window = outcome.window if ramp else _when_full(spans, outcome.window)
    start_ns, stop_ns = window.window_start_ns, window.t_stop_ns
    return Demand(
        unit="requests" if spec.sessions is None else "sessions",
        arrived=sum(start_ns <= at_ns < stop_ns for at_ns, _ in spans),
        due=len(in_window(requests, window)),
        done=len(done_in(requests, window)),
        in_flight=(_in_flight(requests, start_ns), _in_flight(requests, stop_ns)),
        over_s=window.window_s,
        fills_s=UNSET if ramp else _fills_s(spans, outcome.window),
    )


def done_in(requests: Sequence[RequestRecord], window: CellWindow) -> list[RequestRecord]:
    """Return requests that were complete in the window, whenever they were due."""
    return [
        r
        for r in requests
        if r.t_done_ns is not None and window.window_start_ns <= r.t_done_ns < window.t_stop_ns
    ]


def _spans(spec: CellSpec, requests: list[RequestRecord], stop_ns: int) -> list[Span]:
    """Return what arrives: requests, or sessions, each with all of its turns so far, in which it asks for
    more.

    A request that failed in the cell was in flight until then; one that the end of the cell cut off would
    have gone on.
    """
    if spec.sessions is None:
        return [
            (r.t_sched_ns, end_ns if r.status == "ok" or end_ns < stop_ns else NEVER_NS)
            for r, end_ns in zip(requests, map(ended_ns, requests), strict=True)
        ]
    turns: dict[int | None, list[RequestRecord]] = {}
    for r in requests:
        turns.setdefault(r.session, []).append(r)
    return sorted(
        (
            min(r.t_sched_ns for r in those),
            max((r.t_done_ns for r in those if r.t_done_ns is not None), default=NEVER_NS),
        )
        for those in turns.values()
    )


def ended_ns(request: RequestRecord) -> int:
    """Return when a request was complete or had failed."""
    found = request.t_end_ns if request.t_done_ns is None else request.t_done_ns
    return NEVER_NS if found is None else found


def _fills_s(spans: list[Span], window: CellWindow) -> float | UnsetType:
    """Return how long the longest lasted of those that began in the cell's first quarter, where it was over
    after the window's middle.

    Unset elsewhere, and where answers get longer from one to the next: so they do behind a queue, and not by
    their length.
    """
    lengths_ns = _lengths_ns(spans, window.t0_ns + (window.t_stop_ns - window.t0_ns) // 4)
    longest_ns = max(lengths_ns, default=0)
    if _gets_longer(lengths_ns) or window.t0_ns + longest_ns <= _middle_ns(window):
        return UNSET
    return longest_ns / 1e9


def _middle_ns(window: CellWindow) -> int:
    return (window.window_start_ns + window.t_stop_ns) // 2


def _lengths_ns(spans: list[Span], before_ns: int) -> list[int]:
    """Of what came due before that time and was over at some time."""
    return [over_ns - due_ns for due_ns, over_ns in spans if over_ns < NEVER_NS and due_ns < before_ns]


def _gets_longer(e2e_ns: list[int]) -> bool:
    """Whether nearly each answer of the last third takes longer than each of the first one, and by half at
    the median: so they do behind a queue of several slots. Long answers of one time have the server's load in
    common, whichever of them came first.
    """
    third = len(e2e_ns) // 3
    if third < FEWEST_OF_A_THIRD:
        return False
    first, last = sorted(e2e_ns[:third]), e2e_ns[-third:]
    longer = sum(bisect_left(first, later) for later in last)
    return longer >= 0.95 * third**2 and median(last) > 1.5 * median(first)


def _when_full(spans: list[Span], window: CellWindow) -> CellWindow:
    """From when on as many requests end as begin: T0 and the longest answer, or session, of those that began
    before the window's middle.

    Until then what is in flight grows, however well the server keeps up, and would count as left over.
    """
    middle_ns = _middle_ns(window)
    full_ns = min(window.t0_ns + max(_lengths_ns(spans, middle_ns), default=0), middle_ns)
    return replace(window, window_start_ns=max(window.window_start_ns, full_ns))


def _in_flight(requests: list[RequestRecord], at_ns: int) -> int:
    return sum(r.status != "dropped" and r.t_sched_ns < at_ns <= ended_ns(r) for r in requests)


def planned_of(spec: CellSpec) -> int | None:
    """Return the requests of a fixed number, all turns of sessions; None for a cell that ends by time."""
    n = spec.num_requests
    if n is None or spec.sessions is None:
        return n
    sessions = read_sessions(Path(spec.sessions))
    if sessions[0].arrival_s is not None and spec.arrival in OPEN_LOOP:
        n = min(n, len(sessions))
    rounds, rest = divmod(n, len(sessions))
    turns = [len(session.turns) for session in sessions]
    return rounds * sum(turns) + sum(turns[:rest])


def cut_of(spec: CellSpec, outcome: CellOutcome) -> Cut | None:
    """Return what was sent of a fixed number; None where all of it was, and for other cells."""
    planned, session, window = planned_of(spec), outcome.session, outcome.window
    sent = sum(
        r.status != "dropped" and not (r.status == "aborted" and r.t_send_ns is None)
        for r in outcome.requests
    )
    if planned is None or window.min_completed_reached or sent >= planned:
        return None
    in_time = window.t_stop_ns - window.t0_ns < s_to_ns(spec.max_cell_s)
    died = session.deaths[0] if session.deaths and in_time else None
    limit = f"a cell lasts {spec.max_cell_s:g} s at most (--max-seconds)"
    return Cut(sent=sent, planned=planned, why=session.aborted or session.given_up or died or limit)


def scatter_of(spec: CellSpec) -> float:
    """The variance of how many arrive in a time, over their mean: 1 for Poisson arrivals, and more for
    bursts."""
    if spec.arrival == "gamma":
        return 1 / (spec.gamma_shape or 1.0)
    return 0.0 if spec.arrival == "fixed" else 1.0


def falls_short(demand: Demand, failed: float = 0.0, *, scatter: float = 0.0) -> tuple[bool, bool]:
    """Whether less was completed than came due, and whether that is beyond chance.

    What is left over is held against what arrived: of sessions a turn that waits keeps later ones from coming
    due, so that their turns fall short of one another by less than the server falls short of the sessions.
    One request more in flight at the end than at the start is no overload. Chance moves the numbers in flight
    by about their square root.

    Args:
        failed: so many of the requests that are left over may be so since they failed, and not since the
            server falls behind.
        scatter: ``scatter_of`` the cell: chance also moves how many come due, by about the square root of
            this times their number.
    """
    moved = max(sum(demand.in_flight), demand.arrived * scatter)
    left = demand.due - demand.done
    allowed = max((1 - MIN_THROUGHPUT_RATIO) * demand.arrived, 1.0)
    return left > allowed, left - failed - 2 * math.sqrt(moved) > allowed


def saturated(cell: LoadCell) -> bool:
    """Whether the server did not keep up with the cell's rate, as far as the cell tells."""
    demand = cell.demand
    if demand is None or demand.fills_s:
        return "overloaded" in cell.flags
    return "overloaded" in cell.flags or falls_short(demand, scatter=scatter_of(cell.spec))[0]


def served_text(demand: Demand, rate_per_s: float) -> str:
    """By what came due in the window, which chance or sessions make another number than the rate."""
    return label("load", f"served_{demand.unit}").format(demand, rate_per_s)


def unserved(spec: CellSpec, demand: Demand | None) -> str | None:
    """What is served by an open loop's server that does not keep up with it, so that its queue grows as long
    as the cell lasts.

    None where it keeps up or may do so, and where the cell does not tell: answers are long, or a ramp or
    sessions that go on ask for more as it goes on, so that the number in flight grows without a queue. A
    request that failed in the window, or was dropped, waits in no queue; one that failed after the window's
    end did.
    """
    rises = spec.ramp_from_per_s is not None or spec.sessions is not None
    if demand is None or not spec.rate_per_s or demand.fills_s or rises:
        return None
    at_start, at_end = demand.in_flight
    failed = demand.due - (at_end - at_start) - demand.done
    falls = falls_short(demand, max(failed, 0), scatter=scatter_of(spec))[1]
    return served_text(demand, spec.rate_per_s) if falls else None
