"""Engines that are up together: one is awake at a time, each load is served by all in turn, and nothing is measured twice."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from test_failure import GROWTH, campaign, measured, run_of

from connector_tax.base.artifacts.cells import read_cell
from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.artifacts.receipts import read_receipt
from connector_tax.base.documents.cell import CellDocument
from connector_tax.base.files import read_json, write_json
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.run.engine.process import RunningEngine
from connector_tax.run.measure import turns
from connector_tax.run.measure.turns import Turns, measure_in_turns

NAMES = {"plain": "plain", "nixl_both": "NIXL", PLAIN_AGAIN: "plain again"}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))


def faulty(folder: CampaignFolder, connector: str, fault: str) -> CampaignFolder:
    """In the launches of one configuration alone."""
    document = read_json(folder.campaign_file)
    (entry,) = (c for c in document["config"]["connectors"] if c["id"] == connector)
    entry["env"] = {**entry["env"], "CONNECTOR_TAX_FAULT": fault}
    write_json(folder.campaign_file, document)
    return folder


def in_turns(folder: CampaignFolder, said: list[str] | None = None, **then: str) -> Turns:
    say = (said if said is not None else []).append
    return measure_in_turns(folder.campaign_file, NAMES, "a", then=then, say=say)


def cells(folder: CampaignFolder, connector: str, phase: str = "a") -> list[CellDocument]:
    return [read_cell(c) for c in run_of(folder, connector, phase).finished_cells()]


def states(engine: RunningEngine) -> set[str]:
    return {p.status() for p in psutil.Process(engine.supervisor.pid).children(recursive=True)}


def test_each_load_is_served_by_all_before_the_next_and_the_order_turns(tmp_path: Path) -> None:
    folder, said = campaign(tmp_path, phase_a_rates_per_s=[10.0, 20.0]), []
    assert in_turns(folder, said) == Turns(dict.fromkeys(NAMES, ()))
    served = sorted((d for c in NAMES for d in cells(folder, c)), key=lambda d: d.window.t0_ns)
    forth = ["plain", "nixl_both", PLAIN_AGAIN]
    assert [(d.spec.rate_per_s, d.connector) for d in served] == [
        *((10.0, c) for c in forth),
        *((20.0, c) for c in reversed(forth)),
    ]
    assert all(d.summary.n_ok > 0 for d in served)
    assert said == ["launching plain, NIXL, plain again", "10 req/s", "20 req/s"]
    # Receipts come from each configuration's own measurement, which has nothing to launch for.
    for connector in NAMES:
        receipt = measured(folder, connector)
        assert (receipt.status, len(receipt.cells)) == ("measured", 2)
        assert not list(run_of(folder, connector).path.glob("attempt_*"))


def test_whoever_does_not_serve_is_stopped_and_all_are_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines: dict[str, RunningEngine] = {}
    seen: list[bool] = []
    awake = turns.awake

    @contextmanager
    def watched(engine: RunningEngine) -> Iterator[None]:
        with awake(engine):
            engines[engine.request.folder.parent.name] = engine
            others = [e for e in engines.values() if e is not engine]
            seen.append(all(states(e) == {psutil.STATUS_STOPPED} for e in others))
            assert psutil.STATUS_STOPPED not in states(engine)
            yield

    monkeypatch.setattr(turns, "awake", watched)
    in_turns(campaign(tmp_path, phase_a_rates_per_s=[10.0]))
    assert len(engines) == 3 and len(seen) == 6 and all(seen)
    assert all(e.supervisor.poll() is not None for e in engines.values())


def test_an_engine_that_dies_is_out_and_the_others_are_served(tmp_path: Path) -> None:
    folder = faulty(campaign(tmp_path, phase_a_rates_per_s=[10.0, 20.0]), "nixl_both", "die_after:8")
    found = in_turns(folder)
    (death,) = found.deaths["nixl_both"]
    assert found.not_launched is None and not found.deaths["plain"] and not found.deaths[PLAIN_AGAIN]
    assert [len(cells(folder, c)) for c in ("plain", PLAIN_AGAIN)] == [2, 2]
    assert death.cell_id not in {d.cell_id for d in cells(folder, "nixl_both")}


def kill_when_first_awake(
    monkeypatch: pytest.MonkeyPatch, victim: str, other: str, nth: int, signum: int
) -> None:
    """The engine of ``victim`` ends while it is stopped, the ``nth`` time that ``other`` is woken."""
    engines: dict[str, RunningEngine] = {}
    woken: list[str] = []
    awake = turns.awake

    @contextmanager
    def watched(engine: RunningEngine) -> Iterator[None]:
        engines[engine.request.connector.id] = engine
        woken.append(engine.request.connector.id)
        with awake(engine):
            if engine.request.connector.id == other and woken.count(other) == nth:
                for process in psutil.Process(engines[victim].supervisor.pid).children(recursive=True):
                    process.send_signal(signum)
                    with suppress(
                        psutil.NoSuchProcess
                    ):  # SIGKILL ends what is stopped, and its supervisor waits for it
                        process.send_signal(signal.SIGCONT)
                engines[victim].supervisor.wait(20)
            yield

    monkeypatch.setattr(turns, "awake", watched)


@pytest.mark.parametrize(("signum", "died"), [(signal.SIGKILL, 0), (signal.SIGSEGV, 1)])
def test_who_dies_while_it_is_stopped_has_died_unless_the_host_killed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signum: int, died: int
) -> None:
    """Three engines want memory; the kernel's choice says nothing of the connector. The other two are served on."""
    folder = campaign(tmp_path, phase_a_rates_per_s=[10.0, 20.0])
    kill_when_first_awake(monkeypatch, "nixl_both", "plain", 2, signum)
    found = in_turns(folder)
    assert len(found.deaths["nixl_both"]) == died
    assert [len(cells(folder, c)) for c in NAMES] == [2, 0, 2]


def test_a_death_after_the_last_load_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = campaign(tmp_path, phase_a_rates_per_s=[10.0])
    kill_when_first_awake(monkeypatch, "nixl_both", "plain_again", 2, signal.SIGSEGV)
    (death,) = in_turns(folder).deaths["nixl_both"]
    assert (death.phase, death.cell_id) == ("a", "") and "SIGSEGV" in death.cause
    assert len(cells(folder, "nixl_both")) == 1


def test_an_engine_that_cannot_be_stopped_is_not_measured_beside_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connector_tax.run.engine.asleep._signal", lambda pids, signum: None)
    monkeypatch.setattr("connector_tax.run.engine.asleep.STOP_TIMEOUT_S", 0.1)
    folder = campaign(tmp_path)
    assert in_turns(folder) == Turns(dict.fromkeys(NAMES, ()))
    assert not any(cells(folder, c) for c in NAMES)


@pytest.mark.parametrize("connector", ["plain", "nixl_both"])
def test_on_an_engine_that_does_not_start_nothing_is_measured_and_it_is_named(
    tmp_path: Path, connector: str
) -> None:
    folder = faulty(campaign(tmp_path), connector, "die_at_start")
    assert in_turns(folder) == Turns({}, connector)
    assert not any(cells(folder, c) for c in NAMES)


def test_what_preflight_left_out_is_not_launched(tmp_path: Path) -> None:
    folder = campaign(tmp_path)
    status = read_json(folder.preflight_status)
    status["configs"]["nixl_both"] = {"decision": "skip", "reason": "no such module"}
    write_json(folder.preflight_status, status)
    assert in_turns(folder) == Turns({}, "nixl_both")
    assert not run_of(folder, "plain").launch_sh.exists()
    assert measured(folder, "nixl_both").reason == "no such module"


def test_the_guest_is_served_by_its_own_engine_after_the_loads(tmp_path: Path) -> None:
    folder = campaign(tmp_path, phase_a_rates_per_s=[10.0], phase_b_prime=GROWTH)
    said: list[str] = []
    in_turns(folder, said, nixl_both="b_prime")
    (guest,) = cells(folder, "nixl_both", "b_prime")
    assert said[-1] == "NIXL alone: how hooks grow"
    assert guest.window.t0_ns > max(d.window.t0_ns for c in NAMES for d in cells(folder, c))
    assert measured(folder, "nixl_both", "b_prime").status == "measured"
    assert read_receipt(run_of(folder, "nixl_both", "b_prime")).cells
