"""Open files: as many as the system allows, refused beforehand where they are too few, and booked as the client's where they ran out."""

import asyncio
import os
import resource
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from cell_specs import cell_spec
from truth_server import Reply, answer_well, truth_server

from connector_tax.base.errors import ConfigError
from connector_tax.base.records.target import target_of
from connector_tax.run.loadgen.cell import measure_cell
from connector_tax.run.loadgen.coordinator import worker_pool
from connector_tax.run.loadgen.descriptors import check_limit, files_needed

FAN = (
    '{"turns": [{"new_tokens": 9, "output_tokens": 3}, {"new_tokens": 4, "output_tokens": 2, "after": [0]}, '
    '{"new_tokens": 4, "output_tokens": 2, "after": [0]}, {"new_tokens": 4, "output_tokens": 2, "after": [1, 2]}]}\n'
)


@pytest.mark.parametrize(
    ("changes", "files"),
    [
        ({"inflight_cap": 100}, 164),
        ({"inflight_cap": 100, "workers": 3}, 98),
        ({"arrival": "max_throughput", "rate_per_s": 0.0, "inflight_cap": 100}, 164),
        ({"arrival": "concurrency", "rate_per_s": 0.0, "concurrency": 1000, "workers": 4}, 314),
    ],
)
def test_a_load_takes_a_file_for_each_request_in_flight(changes: dict[str, Any], files: int) -> None:
    assert files_needed(cell_spec(**changes)) == files


def test_conversations_take_as_many_as_their_branches(tmp_path: Path) -> None:
    path = tmp_path / "fan.jsonl"
    path.write_text(FAN)
    spec = cell_spec(arrival="concurrency", rate_per_s=0.0, concurrency=50, sessions=str(path))
    assert files_needed(spec) == 2 * 50 + 64


def test_a_load_beyond_the_limit_is_refused_with_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (100, 4096))
    check_limit(cell_spec(arrival="concurrency", rate_per_s=0.0, concurrency=4032))
    with pytest.raises(ConfigError, match=r"5000 requests .* 1 .* take 5064 open files .* limit is 4096"):
        check_limit(cell_spec(arrival="concurrency", rate_per_s=0.0, concurrency=5000))
    check_limit(cell_spec(arrival="concurrency", rate_per_s=0.0, concurrency=5000, workers=2))


def test_a_worker_opens_as_many_files_as_it_may() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, soft), hard))
    try:
        with worker_pool(1) as pool:
            pool.revive()
            found = resource.prlimit(pool.pid(0), resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found[0] == (1 << 20 if hard == resource.RLIM_INFINITY else min(hard, 1 << 20))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_client_that_runs_out_of_files_says_so_and_does_not_blame_the_server(host: str) -> None:
    """30 in flight with room for a dozen connections: some are answered, the others are the client's own failures.

    Without files it cannot look up a name again; the address that it knows stays.
    """

    async def slow(reply: Reply, request: dict[str, Any], number: int) -> None:
        await asyncio.sleep(0.1)
        await answer_well(reply, request, number)

    spec = cell_spec(
        arrival="concurrency",
        rate_per_s=0.0,
        concurrency=30,
        warmup_s=0.05,
        duration_s=0.5,
        max_cell_s=5.0,
    )
    with worker_pool(1) as pool, truth_server(slow) as url:
        pool.revive()
        room = len(os.listdir(f"/proc/{pool.pid(0)}/fd")) + 14
        resource.prlimit(pool.pid(0), resource.RLIMIT_NOFILE, (room, room))
        outcome = measure_cell(spec, target_of(url.replace("127.0.0.1", host), "m"), pool=pool)
    assert {r.status for r in outcome.requests} == {"ok", "aborted"}
    unsent = [r for r in outcome.requests if r.status == "aborted"]
    assert all((r.error or "").startswith("the client has no socket left: ") for r in unsent)
    assert outcome.health.requests_without_socket == len(unsent)
    assert any(said.startswith("client out of sockets: ") for said in outcome.health.bottleneck)
