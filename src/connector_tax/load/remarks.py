"""What is to be known of a cell beside its numbers: why it is not to be believed, what cut it, how requests failed."""

from collections.abc import Sequence

from connector_tax.base.documents.load import Cut
from connector_tax.base.opening import printable
from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.statistics.cell import in_window
from connector_tax.run.loadgen.cell import CellOutcome
from connector_tax.run.loadgen.health import LIMIT_P50, LIMIT_P99

# Of the text of a failure so much is shown.
MOST_CHARS = 200


def not_believed(spec: CellSpec, outcome: CellOutcome) -> tuple[str, ...]:
    """Why the numbers are the client's or nobody's."""
    aborted, given_up = outcome.session.aborted, outcome.session.given_up
    failed = first_failure(outcome.requests)
    why = f": the first failed as {failed}" if failed is not None else ""
    nothing = f"no request succeeded{why}" if not any(r.status == "ok" for r in outcome.requests) else None
    if nothing is None and outcome.requests and not in_window(outcome.requests, outcome.window):
        nothing = f"no request is counted: all {len(outcome.requests):,} were sent in the warm-up of {spec.warmup_s:g} s (--warmup)"
    return (
        *([f"ended early: {aborted}"] if aborted else []),
        # A server that does not keep up is what was measured, and has its flag.
        *([f"given up: {given_up}"] if given_up and not outcome.window.overloaded else []),
        *([nothing] if nothing else []),
        *(outcome.health.bottleneck or ()),
    )


def is_late(spec: CellSpec, outcome: CellOutcome) -> bool:
    """Whether the client's own lateness shows; all of an offline batch is due at T0, and no client sends it at once."""
    return bool(outcome.health.client_limited) and spec.arrival != "offline"


def _late(outcome: CellOutcome) -> list[str]:
    parts = [
        f"{value:.1%} of {name.replace('_', ' ').upper().replace('P', 'p')}"
        for name, value in (outcome.health.send_to_schedule_difference or {}).items()
        if value is not None and abs(value) > (LIMIT_P50 if name.endswith("p50") else LIMIT_P99)
    ]
    return [
        f"client late: its own lateness is {', '.join(parts)}; {LIMIT_P50:.0%} is allowed at p50, {LIMIT_P99:.0%} at p99"
    ]


def _stalled(outcome: CellOutcome) -> list[str]:
    away_ms = outcome.session.stall_max_us / 1e3
    return [
        f"client stalled: a load-generating process was away for {away_ms:,.0f} ms at once, and stamped late what came in that time"
    ]


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
    resent = sum(r.resends > 0 for r in outcome.requests)
    n = outcome.health.resends
    dropped = sum(r.status == "dropped" for r in outcome.requests)
    given_up = outcome.session.given_up if outcome.window.overloaded else None
    return (
        *([f"given up: {given_up}"] if given_up else []),
        *(
            [
                f"{dropped:,} of {len(outcome.requests):,} requests were not sent, since {spec.inflight_cap:,} were in flight, which is "
                "the client's own cap (--inflight-cap)"
            ]
            if dropped
            else []
        ),
        *(
            [f"cut short: {cut.sent:,} of {cut.planned:,} requests were sent: {cut.why}"]
            if cut is not None
            else []
        ),
        *(_stalled(outcome) if outcome.health.client_stalled is True else []),
        *(_late(outcome) if is_late(spec, outcome) and not outcome.health.bottleneck else []),
        *(
            [
                f"{resent:,} of {len(outcome.requests):,} requests were sent again ({n:,} times in all): the server closed the "
                "connections that it had kept open, and their latency holds that"
            ]
            if n
            else []
        ),
    )
