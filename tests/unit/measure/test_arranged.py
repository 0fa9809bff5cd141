"""One launch of the embedded engine, a cell for each change; each lies in a campaign of its own and says what held."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import DATE, campaign_config

from connector_tax.base.artifacts.cells import read_cell
from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.artifacts.receipts import read_receipt
from connector_tax.base.documents.preflight import PreflightStatus
from connector_tax.base.files import write_json
from connector_tax.base.plan import campaign_document
from connector_tax.read.ingest import read_campaign
from connector_tax.run.engine.threads import Alike, Thread
from connector_tax.run.measure import arranged
from connector_tax.run.measure.arranged import (
    BUSY_BESIDE,
    ENGINE_ALONE,
    UNPINNED,
    UNTOUCHED,
    Arrangement,
    NotPossible,
    measure_arranged,
)

PLAIN = {("engine_core", "zmq"): Alike(1, 1.0)}
ORDER = (UNTOUCHED, ENGINE_ALONE, BUSY_BESIDE)


def place(root: Path, change: str, seed: int) -> Arrangement:
    config = campaign_config(
        campaign=f"confirm-{change.replace('_', '-')}",
        connectors=["plain", "noop_connector"],
        seed=seed,
        phase_a={"rates_per_s": [20], "input_tokens": 32, "output_tokens": 4},
        cell={"warmup_s": 0.2, "duration_s": 0.5, "min_completed": 6, "max_cell_s": 5},
        phase_b_prime={"configs": ["plain"]},
        accuracy={"prompts": 0},
    )
    folder = CampaignFolder(root / config.campaign)
    write_json(folder.campaign_file, campaign_document(config, date=DATE, created_utc=f"{DATE}T00:00:00Z"))
    write_json(folder.preflight_status, PreflightStatus(step_timing_available=True, configs={}))
    return Arrangement(folder.campaign_file, change)


@pytest.fixture(scope="module")
def campaigns(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CampaignFolder]:
    root = tmp_path_factory.mktemp("confirm")
    arrangements = [place(root, change, 7 + k) for k, change in enumerate(ORDER)]
    found = measure_arranged(arrangements, "plain", {})
    assert all(alike.number >= 1 for alike in found.values())
    return {a.change: CampaignFolder(a.campaign_file.parent) for a in arrangements}


def test_each_cell_says_what_held_during_it_and_can_be_read_as_any_other(
    campaigns: dict[str, CampaignFolder],
) -> None:
    for change in (UNTOUCHED, BUSY_BESIDE):
        (cell,) = read_campaign(campaigns[change].root).cells()
        assert cell.document.arrangement.change == change
        assert cell.document.campaign == campaigns[change].root.name
        assert cell.requests and cell.left_out == ()


def test_all_cells_are_of_one_launch_with_prompts_of_their_own(campaigns: dict[str, CampaignFolder]) -> None:
    cells = [read_campaign(campaigns[c].root).cells()[0].document for c in (UNTOUCHED, BUSY_BESIDE)]
    assert cells[0].window.drained_ns < cells[1].window.t0_ns
    assert cells[0].spec.seed != cells[1].spec.seed
    assert [(f.root / f"{DATE}_plain" / "phase_a" / "launch.sh").is_file() for f in campaigns.values()] == [
        True,
        False,
        False,
    ]


def test_a_change_that_is_not_possible_ends_as_a_receipt_with_the_reason(
    campaigns: dict[str, CampaignFolder],
) -> None:
    receipt = read_receipt(campaigns[ENGINE_ALONE].run(DATE, "plain", "a"))
    assert receipt.status == "not_needed"
    assert receipt.reason == "the engine has no process of its own for its core"


def test_the_busy_process_is_there_for_its_cell_and_gone_afterwards(
    campaigns: dict[str, CampaignFolder],
) -> None:
    run = campaigns[BUSY_BESIDE].run(DATE, "plain", "a")
    (cell,) = run.finished_cells()
    assert not psutil.pid_exists(read_cell(cell).arrangement.pid)


def test_the_busy_process_takes_a_core() -> None:
    with arranged.CHANGES[BUSY_BESIDE](SimpleNamespace(), {}) as held:  # type: ignore[arg-type]
        process = psutil.Process(held.pid)
        before = process.cpu_times().user
        while process.cpu_times().user < before + 0.1:
            assert process.is_running()


def test_an_engine_that_does_not_start_leaves_a_reason_in_every_receipt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(run: Any, pending: Any) -> Any:
        raise arranged.LaunchError("plain: the engine died while starting: no such class\nIts log: x")

    monkeypatch.setattr(arranged, "launched", fails)
    arrangements = [place(tmp_path, change, k) for k, change in enumerate(ORDER)]
    assert measure_arranged(arrangements, "plain", {}) == {}
    for a in arrangements:
        receipt = read_receipt(CampaignFolder(a.campaign_file.parent).run(DATE, "plain", "a"))
        assert receipt.reason == "plain: the engine died while starting: no such class"


def test_helpers_are_not_made_idle_by_a_check_that_is_idle_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison would say that nothing changed, and mean nothing."""
    own = (Thread("engine_core", "poller", 1, 2, 9.0),)
    monkeypatch.setattr(arranged, "threads_of", lambda engine: own)
    monkeypatch.setattr(arranged, "only_on_free_cores", lambda threads: pytest.fail("it was done"))
    monkeypatch.setattr(arranged.os, "sched_getscheduler", lambda tid: os.SCHED_IDLE)
    with pytest.raises(NotPossible, match="itself runs in the class SCHED_IDLE"):
        with arranged.CHANGES["helpers_idle"](SimpleNamespace(), PLAIN):  # type: ignore[arg-type]
            pass


def test_no_thread_is_taken_for_the_connector_s_where_plain_s_are_not_known() -> None:
    with pytest.raises(NotPossible, match="plain's threads are not known"):
        with arranged.CHANGES["helpers_idle"](SimpleNamespace(), {}):  # type: ignore[arg-type]
            pass


@pytest.mark.parametrize(
    ("change", "reason"),
    [("helpers_idle", "no busy thread that plain's has not"), (UNPINNED, "may use all its CPUs anyway")],
)
def test_what_an_engine_has_nothing_of_is_not_changed(
    monkeypatch: pytest.MonkeyPatch, change: str, reason: str
) -> None:
    own = (Thread("engine_core", "main", os.getpid(), os.getpid(), 9.0),)
    monkeypatch.setattr(arranged, "threads_of", lambda engine: own)
    with pytest.raises(NotPossible, match=reason):
        with arranged.CHANGES[change](SimpleNamespace(), PLAIN):  # type: ignore[arg-type]
            pass
