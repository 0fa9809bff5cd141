"""Engines that take turns, starts that fail or are stopped, and a vLLM that cannot be driven."""

import socket
import tempfile
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from virtual_gpu.needed import missing_in
from virtual_gpus import IDENTITY
from virtual_time.needed import NEEDED

from connector_tax.base.documents.identity import GpuDocument
from connector_tax.base.errors import EngineError
from connector_tax.base.records.host import HostCosts, StepCosts
from connector_tax.virtual_time import EngineSpec, Load, cells, measure_many
from connector_tax.virtual_time.engines import Engines, interleaved


class Engine:
    """Answers with so many slices, then with its name."""

    def __init__(self, name: str, slices: int, turns: list[str]) -> None:
        self.name, self.left, self.turns, self.told = name, slices, turns, []
        self.running = False

    def resume(self) -> None:
        self.running = True

    def pause(self) -> None:
        self.running = False

    def tell(self, what: Any) -> None:
        self.told.append(what)

    def hear(self, check: Any) -> Any:
        assert self.running, "a stopped engine answers nothing"
        self.turns.append(self.name)
        self.left -= 1
        return {"more": True} if self.left else {"found": self.name}


@pytest.mark.parametrize(
    ("slices", "turns"),
    [
        ({"A": 4, "B": 4}, "AB BA AB BA"),
        ({"A": 3, "B": 3, "C": 3}, "ABC BCA CAB"),
        ({"A": 1, "B": 3}, "AB B B"),
    ],
)
def test_every_engine_takes_every_place_of_a_turn_as_often(slices: dict[str, int], turns: str) -> None:
    taken: list[str] = []
    running = [Engine(name, n, taken) for name, n in slices.items()]
    found = interleaved(running, {"the": "cell"}, lambda: None)  # type: ignore[arg-type]
    assert "".join(taken) == turns.replace(" ", "")
    assert [f["found"] for f in found] == list(slices)
    assert all(e.told[0] == {"the": "cell"} and not any(e.told[1:]) for e in running)
    assert not any(e.running for e in running), "whoever is not asked is stopped"


@pytest.fixture
def fails_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Starts without engines; the one that is put in here fails."""
    failing: list[int] = []

    class Started:
        def __init__(self, specs: Any, scheduling: str, start: int, check: Any) -> None:
            self.start, self.check = start, check

        def __enter__(self) -> "Started":
            return self

        def __exit__(self, *raised: object) -> None:
            self.end()

        def end(self) -> None:
            return

        def started(self) -> list[Any]:
            self.check()
            if self.start in failing:
                raise EngineError("connector: the engine in virtual time ended: out of memory.")
            return [SimpleNamespace(facts={"start": self.start}, cpu_s=1.0)] * 2

    monkeypatch.setattr(cells, "Engines", Started)
    monkeypatch.setattr(
        cells, "_one_start", lambda running, load, start, check: [f"plain {start}", f"own {start}"]
    )
    return failing


def test_a_failure_after_two_starts_keeps_what_they_said(fails_at: list[int]) -> None:
    fails_at.append(2)
    said: list[str] = []
    plain, own = measure_many([None, None], Load(), scheduling="sync", starts=5, say=said.append)  # type: ignore[list-item]
    assert (plain.starts, own.starts) == (["plain 0", "plain 1"], ["own 0", "own 1"])
    assert "out of memory" in said[-1]
    assert plain.died == own.died == "connector: the engine in virtual time ended: out of memory."


def test_a_failure_before_that_is_the_callers_to_tell(fails_at: list[int]) -> None:
    fails_at.append(1)
    with pytest.raises(EngineError, match="out of memory"):
        measure_many([None, None], Load(), scheduling="sync", starts=5)  # type: ignore[list-item]


def test_who_stops_gets_what_is_known(fails_at: list[int]) -> None:
    stop = Event()

    def say(line: str) -> None:
        if "start 2" in line:
            stop.set()

    found = measure_many([None, None], Load(), scheduling="sync", starts=5, stop=stop, say=say)  # type: ignore[list-item]
    assert [len(m.starts) for m in found] == [1, 1]
    with pytest.raises(EngineError, match="before the first start"):
        measure_many([None, None], Load(), scheduling="sync", starts=5, stop=stop)  # type: ignore[list-item]


def test_an_engine_gets_the_values_that_its_settings_refer_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_PASSWORD", "4711")
    monkeypatch.setattr(
        Engines, "_importer", lambda self, spec: SimpleNamespace(fork=lambda what, check: told.append(what))
    )
    device = GpuDocument(
        name="g", memory_bytes=1, kv_cache_bytes=1, step=StepCosts(**IDENTITY["step"]), host=HostCosts()
    )
    spec = EngineSpec(
        "own",
        "python",
        Path("model"),
        device,
        {"kv_connector_extra_config": {"password": "${REDIS_PASSWORD}"}},
    )
    engines, told = Engines([spec], "sync", 0, lambda: None), []
    engines._folder = tmp_path
    with socket.socket(socket.AF_UNIX) as listener:
        engines._fork(spec, 0, 1, listener)
    assert told[0]["wanted"]["kv_transfer_config"] == {"kv_connector_extra_config": {"password": "4711"}}


def test_engines_are_reached_whatever_folder_is_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("long" * 30)))
    with Engines([], "sync", 0, lambda: None) as engines, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(engines._new_folder() / "socket"))


def test_requests_that_end_early_give_no_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    """One without a token has its first before it came."""
    running = [SimpleNamespace(spec=SimpleNamespace(label="NoOp"))]
    monkeypatch.setattr(cells, "interleaved", lambda running, cell, check: [{"tokens": [16, 0, 16, 3]}])
    with pytest.raises(EngineError, match="NoOp: 2 of 4 requests ended without their 16 tokens"):
        cells._cells(running, Load(), 4, "c0", lambda: None)  # type: ignore[arg-type]


def test_a_vllm_that_lacks_what_is_driven_is_told_by_name(tmp_path: Path) -> None:
    core = tmp_path / "v1" / "engine" / "core.py"
    core.parent.mkdir(parents=True)
    core.write_text("class EngineCore:\n    def add_request(self, request): ...\n")
    missing = missing_in(tmp_path, {"v1/engine/core.py": NEEDED["v1/engine/core.py"]})
    assert missing is not None
    assert "v1/engine/core.py has no EngineCore.post_step" in missing
    assert "add_request takes (request), not (request, request_wave)" in missing
