"""Were the turns of conversations sent when they should have been? Not before what they wait for, and not late."""

from collections.abc import Iterator, Sequence

import numpy as np

from connector_tax.base.documents.health import SessionHealth
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.records.sessions import Session
from connector_tax.base.units import s_to_ns

# The traffic specification calls a dependent turn a violation that is sent more than 5 s after it was ready.
LATE_S = 5.0


def session_health(requests: Sequence[RequestRecord], sessions: tuple[Session, ...]) -> SessionHealth:
    """Counts, and the delay of dependent turns behind their being ready; microseconds.

    ``early`` counts turns sent before all they wait for had ended and ``wait_s`` was over: it has to be 0.
    """
    placed = {(r.session, r.turn): r for r in requests if r.session is not None and r.turn is not None}
    delays_ns = np.array(list(_delays_ns(placed, sessions)), dtype=np.float64)
    failed = {r.session for r in placed.values() if r.status != "ok"}
    return SessionHealth(
        sessions=len({number for number, _ in placed}),
        sessions_with_a_failure=len(failed),
        turns=len(placed),
        dependent_turns=int(delays_ns.size),
        early=int((delays_ns < 0).sum()),
        late=int((delays_ns > s_to_ns(LATE_S)).sum()),
        delay_us={f"p{q}": float(np.percentile(delays_ns, q)) / 1e3 for q in (50, 99)}
        if delays_ns.size
        else {},
    )


def _delays_ns(placed: dict[tuple[int, int], RequestRecord], sessions: tuple[Session, ...]) -> Iterator[int]:
    for (number, k), record in placed.items():
        turn = sessions[number % len(sessions)].turns[k]
        ends = [placed[number, parent].t_end_ns for parent in turn.after if (number, parent) in placed]
        known = [end for end in ends if end is not None]
        if turn.after and record.t_send_ns is not None and len(known) == len(turn.after):
            yield record.t_send_ns - max(known) - s_to_ns(turn.wait_s)
