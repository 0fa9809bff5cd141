"""Cells of a fixed number of requests: all of them are sent, once, and the cell ends with the last answer."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from cell_specs import cell_spec
from truth_server import Reply, answer_well, truth_server

from connector_tax.base.records.target import target_of
from connector_tax.run.loadgen.cell import measure_cell
from connector_tax.run.loadgen.coordinator import worker_pool

pytestmark = pytest.mark.usefixtures("shared_worker")
OPEN = {"rate_per_s": 100.0, "inflight_cap": 64}
OFFLINE = {"rate_per_s": 0.0, "arrival": "offline"}
FINITE = {"warmup_s": 0.0, "duration_s": 0.0, "min_completed": 0, "max_cell_s": 60.0}


async def in_50_ms(reply: Reply, request: dict[str, Any], number: int) -> None:
    await asyncio.sleep(0.05)
    await answer_well(reply, request, number)


RAMP = {"arrival": "poisson", "ramp_from_per_s": 10.0, "ramp_up_s": 0.5}
LOOP = {"rate_per_s": 0.0, "arrival": "concurrency", "concurrency": 4}


@pytest.mark.parametrize(
    ("pattern", "workers"), [(OPEN, 1), (OPEN | RAMP, 2), (LOOP, 2), (OFFLINE, 1), (OFFLINE, 2)]
)
def test_every_request_is_sent_once(pattern: dict[str, Any], workers: int) -> None:
    spec = cell_spec(**{**FINITE, **pattern}, num_requests=41, workers=workers)
    start = time.monotonic()
    with truth_server(in_50_ms) as url:
        outcome = measure_cell(spec, target_of(url, "m"))
    assert time.monotonic() - start < 30, "it ends when the last one has ended, and not after max_cell_s"
    assert [r.seq for r in outcome.requests] == list(range(41))
    assert {r.status for r in outcome.requests} == {"ok"}
    assert {r.phase for r in outcome.requests} == {"window"}
    assert outcome.window.flags == ()
    assert outcome.health.bottleneck == ()


def test_offline_all_requests_are_under_way_together_and_wait_from_t0_on() -> None:
    spec = cell_spec(**FINITE, **OFFLINE, num_requests=40)
    with truth_server(in_50_ms) as url:
        outcome = measure_cell(spec, target_of(url, "m"))
    assert outcome.health.max_inflight == 40
    assert {r.t_sched_ns for r in outcome.requests} == {outcome.window.t0_ns}


def test_fewer_requests_than_workers_leave_some_of_them_idle() -> None:
    spec = cell_spec(**FINITE, **OFFLINE, num_requests=1, workers=2)
    with truth_server(answer_well) as url:
        outcome = measure_cell(spec, target_of(url, "m"))
    assert [r.status for r in outcome.requests] == ["ok"]


def test_the_requests_of_a_fixed_number_whose_worker_dies_have_records() -> None:
    """Not more of them than were to be sent: what follows the last one was never scheduled."""
    spec = cell_spec(**FINITE, rate_per_s=50.0, num_requests=60, workers=2, inflight_cap=64)
    with worker_pool(2) as pool:
        pool.revive()
        pid = pool.pid(1)

        def script(reply: Reply, request: dict[str, Any], number: int) -> Any:
            if number == 20:
                os.kill(pid, signal.SIGKILL)
            return answer_well(reply, request, number)

        with truth_server(script) as url:
            outcome = measure_cell(spec, target_of(url, "m"), pool=pool)
    assert {r.seq for r in outcome.requests} <= set(range(60))
    assert {"ok", "aborted"} >= {r.status for r in outcome.requests}
    assert any("ended by signal 9" in reason for reason in outcome.health.bottleneck)


@pytest.mark.parametrize("pattern", [OPEN, LOOP])
def test_a_time_limit_ends_a_fixed_number_early_and_leaves_no_request_without_a_record(
    pattern: dict[str, Any],
) -> None:
    spec = cell_spec(**{**FINITE, "max_cell_s": 0.5, "num_requests": 1000}, **pattern)
    with truth_server(in_50_ms) as url:
        outcome = measure_cell(spec, target_of(url, "m"))
    assert 5 < len(outcome.requests) < 100
    assert [r.seq for r in outcome.requests] == list(range(len(outcome.requests)))
    assert not outcome.window.min_completed_reached
