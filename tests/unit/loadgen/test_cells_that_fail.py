"""Cells with a server that refuses, a generator with a fault of its own, or a full disk: each ends soon and by name."""

import asyncio
import json
import re
import socket
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from cell_specs import cell_spec
from truth_server import DONE, Reply, answer_well, token_event, truth_server, usage_event

from connector_tax.base.errors import EngineError
from connector_tax.base.records.target import target_of
from connector_tax.run.loadgen.cell import measure_cell
from connector_tax.run.loadgen.coordinator import worker_pool
from connector_tax.run.loadgen.messages import Observe

LOOP: dict[str, Any] = {"arrival": "concurrency", "rate_per_s": 0.0, "concurrency": 4}
OPEN: dict[str, Any] = {"rate_per_s": 100.0, "inflight_cap": 64}
# A cell that is not told otherwise goes on for a minute.
LONG: dict[str, Any] = {"warmup_s": 0.05, "duration_s": 50.0, "max_cell_s": 60.0, "min_completed": 10}


def test_a_closed_loop_that_is_refused_ends_and_keeps_few_records() -> None:
    """Ten failures for each of four slots in a row, with waits that grow between them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    spec = cell_spec(**LONG, **LOOP, workers=2)
    outcome = measure_cell(spec, target_of(f"http://127.0.0.1:{port}", "m"))
    assert {r.status for r in outcome.requests} == {"connect_error"}
    assert 40 <= len(outcome.requests) < 60
    assert re.match(r"[45]\d requests failed in a row, the last as connect_error \(", outcome.health.given_up)


def test_sessions_in_a_closed_loop_are_not_dropped_for_the_cap(tmp_path: Path) -> None:
    """12 sessions under way and a cap of 10: 12 are in flight, and an answer of 50 ms has a TTFT of 50 ms."""
    path = tmp_path / "one.jsonl"
    path.write_text(json.dumps({"turns": [{"new_tokens": 9, "output_tokens": 3}]}) + "\n")

    async def in_50_ms(reply: Reply, request: dict[str, Any], number: int) -> None:
        reply.head()
        await asyncio.sleep(0.05)
        reply.body(token_event() * 3 + usage_event(9, 3) + DONE)
        reply.end()

    short = {**LONG, "duration_s": 0.5}
    spec = cell_spec(**{**LOOP, **short, "concurrency": 12, "inflight_cap": 10}, sessions=str(path))
    with truth_server(in_50_ms) as url:
        outcome = measure_cell(spec, target_of(url, "m"))
    assert {r.status for r in outcome.requests} == {"ok"}
    assert outcome.health.max_inflight == 12 and outcome.health.given_up is None
    ttfts_ms = sorted((r.ttft_ns or 0) / 1e6 for r in outcome.requests)
    assert 50 <= ttfts_ms[len(ttfts_ms) // 2] < 500


RENDERER = "connector_tax.run.workload.prompts import RequestRenderer"
SCHEDULER = "connector_tax.run.workload.schedulers import ClosedLoop"


def broken(
    folder: Path, patch: pytest.MonkeyPatch, whose: str, name: str, seq: int, once: Path | None = None
) -> None:
    """Have every Python that starts raise in that method of ``whose`` for one request: a fault of a worker's own."""
    (folder / "sitecustomize.py").write_text(
        f"import os\nfrom {whose} as T\n"
        f"was, once = T.{name}, {str(once or '')!r}\n"
        "def broken(self, seq, *rest):\n"
        f"    if seq == {seq} and not (once and os.path.exists(once)):\n"
        "        if once:\n            open(once, 'w').close()\n"
        "        raise KeyError(seq)\n"
        "    return was(self, seq, *rest)\n"
        f"T.{name} = broken\n"
    )
    patch.setenv("PYTHONPATH", ":".join([str(folder), *(p for p in sys.path if p)]))


@pytest.mark.parametrize(
    ("whose", "name", "load", "workers"),
    [
        (RENDERER, "render", OPEN, 2),
        (RENDERER, "answered", OPEN, 1),
        (RENDERER, "lengths", LOOP, 1),
        (SCHEDULER, "ended", LOOP, 1),
    ],
)
def test_a_callback_that_raises_ends_the_cell_by_name(
    whose: str,
    name: str,
    load: dict[str, Any],
    workers: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Also out of the parser of HTTP, which would take it for a fault of the server's. Every arrival has a record."""
    broken(tmp_path, monkeypatch, whose, name, 30)
    start = time.monotonic()
    with truth_server(answer_well) as url:
        outcome = measure_cell(cell_spec(**LONG, **load, workers=workers), target_of(url, "m"))
    assert time.monotonic() - start < 25
    assert "worker 0: the load generator failed: KeyError: 30" in outcome.health.bottleneck
    assert [r.seq for r in outcome.requests] == list(range(len(outcome.requests)))
    assert {"ok"} <= {r.status for r in outcome.requests} <= {"ok", "aborted"}
    assert "KeyError: 30" in capfd.readouterr().err


def test_one_worker_of_two_that_dies_at_hand_out_ends_the_cell_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one is ready, and nobody waits until time is up, which would be said; in the next cell both are there."""
    broken(tmp_path, monkeypatch, RENDERER, "render", 0, once=tmp_path / "once")
    spec = cell_spec(**OPEN, workers=2, num_requests=40, drain_timeout_s=60.0)
    died = "worker 0 ended with exit code 70 before the cell began"
    with worker_pool(2) as pool, truth_server(answer_well) as url:
        with pytest.raises(EngineError, match=died):
            measure_cell(spec, target_of(url, "m"), pool=pool)
        following = measure_cell(spec, target_of(url, "m"), pool=pool)
    assert Counter(r.status for r in following.requests) == {"ok": 40}
    assert {r.worker for r in following.requests} == {0, 1}


@pytest.mark.parametrize(("log", "load"), [("events_worker0.jsonl", LOOP), ("events_session.jsonl", OPEN)])
def test_an_event_log_on_a_full_disk_is_given_up_by_name_and_the_cell_is_not(
    log: str, load: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / log).symlink_to("/dev/full")
    more = {"rate_per_s": 1000.0, "inflight_cap": 600} if load is OPEN else {}
    spec = cell_spec(**{**LONG, **load, **more}, num_requests=600, drain_timeout_s=60.0)
    with truth_server(answer_well) as url:
        outcome = measure_cell(spec, target_of(url, "m"), observe=Observe(event_log=tmp_path))
    assert Counter(r.status for r in outcome.requests) == {"ok": 600}
    said = "the event log ends early: [Errno 28] No space left on device"
    who = "worker 0: " if "worker" in log else ""
    assert f"{who}{said}" in outcome.health.bottleneck
    (other,) = {"events_worker0.jsonl", "events_session.jsonl"} - {log}
    assert all(json.loads(line) for line in (tmp_path / other).read_text().splitlines())
