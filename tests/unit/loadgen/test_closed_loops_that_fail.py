"""Closed loops against servers that refuse, and a generator with a fault of its own: each ends soon and by name."""

import asyncio
import json
import re
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from cell_specs import cell_spec
from truth_server import Reply, answer_well, truth_server

from connector_tax.base.errors import EngineError
from connector_tax.base.records.target import target_of
from connector_tax.run.loadgen.cell import measure_cell

LOOP = {
    "arrival": "concurrency",
    "rate_per_s": 0.0,
    "concurrency": 4,
    "warmup_s": 0.05,
    "duration_s": 0.5,
    "max_cell_s": 60.0,
    "min_completed": 10,
}
# A window in which ten failed and none completed would end the cell at the end of its time.
LONG = {**LOOP, "duration_s": 50.0}


def test_a_closed_loop_that_is_refused_ends_and_keeps_few_records() -> None:
    """Ten failures for each of four slots in a row, with waits that grow between them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    start = time.monotonic()
    outcome = measure_cell(cell_spec(**LONG, workers=2), target_of(f"http://127.0.0.1:{port}", "m"))
    assert time.monotonic() - start < 30
    assert {r.status for r in outcome.requests} == {"connect_error"}
    assert 40 <= len(outcome.requests) < 60
    assert re.match(r"[45]\d requests failed in a row, the last as connect_error \(", outcome.health.given_up)


def test_sessions_that_fail_at_once_end_the_cell_too(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_text(json.dumps({"turns": [{"new_tokens": 9, "output_tokens": 3}]}) + "\n")

    async def unready(reply: Reply, request: dict[str, Any], number: int) -> None:
        reply.head("503 Service Unavailable", "text/plain")
        reply.body(b"loading")
        reply.end()

    with truth_server(unready) as url:
        outcome = measure_cell(cell_spec(**LONG, sessions=str(path)), target_of(url, "m"))
    assert {r.status for r in outcome.requests} == {"http_error"}
    assert len(outcome.requests) < 60
    assert "the last as http_error (HTTP 503: loading)" in outcome.health.given_up


def test_sessions_in_a_closed_loop_are_not_dropped_for_the_cap(tmp_path: Path) -> None:
    """12 sessions under way and a cap of 10: 12 are in flight, and an answer of 50 ms has a TTFT of 50 ms."""
    path = tmp_path / "one.jsonl"
    path.write_text(json.dumps({"turns": [{"new_tokens": 9, "output_tokens": 3}]}) + "\n")

    async def in_50_ms(reply: Reply, request: dict[str, Any], number: int) -> None:
        reply.head()
        await asyncio.sleep(0.05)
        ids = list(range(request["max_tokens"]))
        choice = {"index": 0, "text": "x", "token_ids": ids}
        usage = {"prompt_tokens": len(request["prompt"]), "completion_tokens": len(ids)}
        reply.body(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")
        reply.body(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n")
        reply.body(b"data: [DONE]\n\n")
        reply.end()

    spec = cell_spec(**{**LOOP, "concurrency": 12, "inflight_cap": 10}, sessions=str(path))
    with truth_server(in_50_ms) as url:
        outcome = measure_cell(spec, target_of(url, "m"))
    assert {r.status for r in outcome.requests} == {"ok"}
    assert outcome.health.max_inflight == 12
    assert outcome.health.given_up is None
    assert len(outcome.requests) < 12 * 100
    ttfts_ms = sorted((r.ttft_ns or 0) / 1e6 for r in outcome.requests)
    assert 50 <= ttfts_ms[len(ttfts_ms) // 2] < 500


# Read by every Python that starts with its folder on the path: a fault in the worker that no test can reach otherwise.
FAULT = """
from connector_tax.run.workload.prompts import RequestRenderer
render = RequestRenderer.render
def broken(self, seq):
    if seq == {seq}:
        raise KeyError(seq)
    return render(self, seq)
RequestRenderer.render = broken
"""


def broken_at(seq: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(FAULT.format(seq=seq))
    paths = [str(tmp_path), *(p for p in sys.path if p)]
    monkeypatch.setenv("PYTHONPATH", ":".join(paths))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_callback_that_raises_ends_the_cell_by_name(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The cell does not stand still until its time is over, and every arrival has a record."""
    broken_at(30, tmp_path, monkeypatch)
    spec = cell_spec(
        rate_per_s=100.0,
        warmup_s=0.05,
        duration_s=30.0,
        max_cell_s=60.0,
        inflight_cap=64,
        workers=workers,
    )
    start = time.monotonic()
    with truth_server(answer_well) as url:
        outcome = measure_cell(spec, target_of(url, "m"))
    assert time.monotonic() - start < 25
    assert "worker 0: the load generator failed: KeyError: 30" in outcome.health.bottleneck
    assert [r.seq for r in outcome.requests] == list(range(len(outcome.requests)))
    assert {"ok"} <= {r.status for r in outcome.requests} <= {"ok", "aborted"}
    assert "KeyError: 30" in capfd.readouterr().err


def test_a_worker_that_cannot_get_ready_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken_at(0, tmp_path, monkeypatch)
    with (
        truth_server(answer_well) as url,
        pytest.raises(EngineError, match="worker 0 ended with exit code 70 before the cell began"),
    ):
        measure_cell(cell_spec(rate_per_s=100.0), target_of(url, "m"))
