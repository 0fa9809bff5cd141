"""What is to be known of a cell beside its numbers: why it is not to be believed, what cut it, how requests failed."""

from collections.abc import Mapping, Sequence

from connector_tax.base.documents.load import Cut
from connector_tax.base.opening import printable
from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.statistics.cell import in_window
from connector_tax.read.figures.labels import label
from connector_tax.run.loadgen.cell import CellOutcome
from connector_tax.run.loadgen.health import LIMIT_P50, LIMIT_P99

# Of the text of a failure so much is shown.
MOST_CHARS = 200


def said(codes: Mapping[str, Sequence[object] | None]) -> tuple[str, ...]:
    """Return the words of the codes that hold, each with its numbers."""
    return tuple(label("load", code).format(*values) for code, values in codes.items() if values)


def not_believed(spec: CellSpec, outcome: CellOutcome) -> tuple[str, ...]:
    """Why the numbers are the client's or nobody's."""
    session, requests = outcome.session, outcome.requests
    none_ok = not any(r.status == "ok" for r in requests)
    none_counted = not none_ok and requests and not in_window(requests, outcome.window)
    codes = {
        "aborted": session.aborted and (session.aborted,),
        # A server that does not keep up is what was measured, and has its flag.
        "given_up": (session.given_up,) if session.given_up and not outcome.window.overloaded else None,
        "none_ok": (first_failure(requests) or "-",) if none_ok else None,
        "none_counted": (len(requests), spec.warmup_s) if none_counted else None,
    }
    return (*said(codes), *(outcome.health.bottleneck or ()))


def is_late(spec: CellSpec, outcome: CellOutcome) -> bool:
    """Whether the client's own lateness shows; all of an offline batch is due at T0, and no client sends it at once."""
    return bool(outcome.health.client_limited) and spec.arrival != "offline"


def first_failure(requests: Sequence[RequestRecord]) -> str | None:
    """As a status and the text of its error; of what the client itself dropped none."""
    failed = next((r for r in requests if r.status not in ("ok", "dropped")), None)
    return None if failed is None else f"{failed.status} ({printable(failed.error or '', MOST_CHARS)})"


def flags_of(spec: CellSpec, outcome: CellOutcome, *, cut: Cut | None, hit: bool | None) -> tuple[str, ...]:
    """
    Args:
        hit: whether the server's prefix cache had some of the prompts, and should not have had; None where nobody knows.

    Of a fixed number ``not_all_sent`` stands for ``min_completed_not_reached``."""
    own = [f for f in outcome.window.flags if spec.num_requests is None or f != "min_completed_not_reached"]
    return (
        *own,
        *(("not_all_sent",) if cut is not None else ()),
        *(("client_limited",) if is_late(spec, outcome) else ()),
        *(("client_stalled",) if outcome.health.client_stalled is True else ()),
        *(("resends",) if outcome.health.resends else ()),
        *(("prefix_cache_hits",) if hit else ()),
        *(("prefix_cache_unchecked",) if hit is None else ()),
    )


def remarks_of(spec: CellSpec, outcome: CellOutcome, cut: Cut | None) -> tuple[str, ...]:
    """In words for table and page. A client that was late is a remark, as its flag is in a campaign; one that was the bottleneck is not believed."""
    requests, health, session = outcome.requests, outcome.health, outcome.session
    n, dropped = len(requests), sum(r.status == "dropped" for r in requests)
    late = [
        f"{value:.1%} of {name.replace('_', ' ').upper().replace('P', 'p')}"
        for name, value in (health.send_to_schedule_difference or {}).items()
        if value is not None and abs(value) > (LIMIT_P50 if name.endswith("p50") else LIMIT_P99)
    ]
    return said(
        {
            "given_up": (session.given_up,) if session.given_up and outcome.window.overloaded else None,
            "dropped": (dropped, n, spec.inflight_cap) if dropped else None,
            "cut": None if cut is None else (cut.sent, cut.planned, cut.why),
            "stalled": (session.stall_max_us / 1e3,) if health.client_stalled is True else None,
            "late": (", ".join(late), LIMIT_P50, LIMIT_P99)
            if is_late(spec, outcome) and not health.bottleneck
            else None,
            "resent": (sum(r.resends > 0 for r in requests), n, health.resends) if health.resends else None,
        }
    )
