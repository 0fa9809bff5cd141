"""Cell outcomes of the load generator, made from a list of requests without a clock."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cell_specs import cell_spec

from connector_tax.base.documents.load import Summary
from connector_tax.base.records.cell import CellSpec, CellWindow
from connector_tax.base.records.request import RequestRecord
from connector_tax.run.loadgen.cell import CellOutcome
from connector_tax.run.loadgen.health import health
from connector_tax.run.loadgen.messages import SessionResult

S = 1_000_000_000
MS = 1_000_000


def spec_of(**changes: Any) -> CellSpec:
    return cell_spec(
        **{"warmup_s": 0.0, "min_completed": 0, "duration_s": 10.0, "rate_per_s": 10.0, **changes}
    )


def record(
    seq: int, at_s: float, *, e2e_s: float = 0.1, late_s: float = 0.0, **changes: Any
) -> RequestRecord:
    """Return an answer of four tokens that took ``e2e_s``."""
    due_ns = round(at_s * S)
    end_ns = due_ns + round(e2e_s * S)
    whole = RequestRecord(
        seq=seq,
        t_sched_ns=due_ns,
        t_send_ns=due_ns + round(late_s * S),
        t_first_token_ns=due_ns + round(e2e_s * S / 2),
        t_last_token_ns=end_ns,
        t_end_ns=end_ns,
        status="ok",
        prompt_tokens=8,
        completion_tokens=4,
        inflight_at_send=0,
        worker=0,
        phase="window",
    )
    return replace(whole, **changes)


def failed(seq: int, at_s: float, *, after_s: float = 0.1, error: str = "HTTP 500: no room") -> RequestRecord:
    nothing: dict[str, Any] = {"t_first_token_ns": None, "t_last_token_ns": None, "completion_tokens": None}
    return record(seq, at_s, e2e_s=after_s, status="http_error", error=error, **nothing)


def summary_of(**changes: Any) -> Summary:
    whole: dict[str, Any] = dict.fromkeys(("version", "started_utc", "base_url", "model", "api"), "")
    return Summary(**{**whole, "nonce": 0, "workers": 1, "cells": (), **changes})


def outcome_of(
    spec: CellSpec, requests: Sequence[RequestRecord], *, stop_s: float = 10.0, whole: bool = True
) -> CellOutcome:
    """Return the outcome of a cell with these requests.

    Args:
        whole: the fixed number was sent, or enough completed.
    """
    window = CellWindow(0, 0, round(stop_s * S), round((stop_s + 1) * S), whole)
    result = SessionResult(
        window=window,
        requests=list(requests),
        token_ns={},
        stall_counts=[0] * 8,
        stall_max_us=0.0,
        worker_cpu_s=[0.1],
        coordinator_cpu_s=0.1,
        worker_rss_mib=[1.0],
        wall_s=stop_s,
        aborted=None,
        deaths=[],
    )
    return CellOutcome(window, list(requests), health(spec, result), result)
