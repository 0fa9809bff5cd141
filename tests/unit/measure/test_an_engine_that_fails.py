"""An engine that hangs, dies beside a cell, in the accuracy pass or in preflight, or leaves its card in use: what is launched again, what is kept, and what is said."""

import signal
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest
from builders import ABOUT
from cell_specs import cell_spec
from host_faults import DATE, ROOT, small_campaign
from made_outcomes import record

from connector_tax.base.artifacts.cells import read_cell
from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.artifacts.receipts import read_receipt
from connector_tax.base.config import load_campaign
from connector_tax.base.documents.cell import IdleUse, OutputsFile
from connector_tax.base.documents.receipt import PreflightStatus
from connector_tax.base.errors import EngineError
from connector_tax.base.files import read_document, read_json, write_json
from connector_tax.base.plan import cells_of
from connector_tax.run.engine import process
from connector_tax.run.engine.gpus import Gpu
from connector_tax.run.engine.process import LaunchRequest, RunningEngine, running_engine
from connector_tax.run.loadgen import cell as load_cell
from connector_tax.run.loadgen.coordinator import worker_pool
from connector_tax.run.measure import cell
from connector_tax.run.measure import run as run_module
from connector_tax.run.measure.cell import Bench, measure_one_cell
from connector_tax.run.measure.preflight import run_preflight
from connector_tax.run.measure.run import measure_run


def test_an_engine_that_hangs_costs_its_cell_two_launches_and_no_other_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hangs at its 14th request: in each launch's first cell of many requests, and never in one of few, which comes after it here."""
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cell, "HUNG_AFTER_S", 0.5)
    folder = small_campaign(tmp_path, rates=(60.0, 10.0))
    document = read_json(folder.campaign_file)
    document["config"]["accuracy"]["prompts"] = 0
    document["config"]["engine"]["env"]["CONNECTOR_TAX_FAULT"] = "hang_after:14"
    write_json(folder.campaign_file, document)
    deaths = measure_run(folder.campaign_file, "noop_connector", "a")
    run = folder.run(DATE, "noop_connector", "a")
    assert [d.cell_id for d in deaths] == ["r60_256x16"] * 2
    assert all(
        d.cause.startswith("it hangs: it gave no token within 0.5 s though nobody else asked") for d in deaths
    )
    first, second = (read_cell(run.cell(c)) for c in ("r10_256x16", "r60_256x16"))
    assert first.verdict == "valid"
    assert second.verdict == "invalid" and second.reasons[0].startswith("engine died: it hangs: ")
    assert read_receipt(run).status == "measured"


def test_who_left_nothing_unanswered_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a queue the client gives requests up itself; an engine that answers now was only busy."""
    monkeypatch.setattr(cell, "HUNG_AFTER_S", 0.5)
    campaign = load_campaign(ROOT / "config" / "demo.yaml")

    for fault in ("hang_after:1", ""):
        request = LaunchRequest(
            campaign.engine, campaign.connector("plain"), tmp_path / f"f{fault[:4]}", fault=fault
        )
        with running_engine(request) as engine:
            engine.wait_ready()
            for status in ("ok", "timeout", "aborted"):
                said = cell.hangs(engine, cell_spec(), [record(0, 0.0, status=status)])
                assert (said or "").startswith("it hangs: ") == bool(fault and status != "ok"), (
                    fault,
                    status,
                )


def test_an_engine_that_hangs_is_not_waited_for_at_every_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    monkeypatch.setattr(load_cell, "OUTPUT_TIMEOUT_S", 0.3)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        found = load_cell.collect_outputs(
            f"http://127.0.0.1:{silent.getsockname()[1]}",
            "m",
            seed=1,
            prompts=3,
            input_tokens=4,
            output_tokens=2,
            token_ids=(100, 200),
        )
    assert found == [{"error": "no answer within 0.3 s"}, *[{"error": "no answer to an earlier prompt"}] * 2]


CONFIG = Path(__file__).parents[3] / "config"


def test_an_engine_killed_between_two_cells_is_a_death(tmp_path: Path) -> None:
    """Its port is closed before its supervisor is gone; in between, ``/metrics`` answers nobody."""
    campaign = load_campaign(CONFIG / "demo.yaml")
    run = CampaignFolder(tmp_path).run("2026-01-01", "plain", "a")
    cell = cells_of(campaign, "plain", "a")[0]
    request = LaunchRequest(campaign.engine, campaign.connector("plain"), run.path)
    with worker_pool(1) as pool, running_engine(request) as engine:
        engine.wait_ready()
        for process in psutil.Process(engine.supervisor.pid).children(recursive=True):
            process.send_signal(signal.SIGKILL)
        bench = Bench(
            engine=engine, pool=pool, raw_metrics=run.raw_metrics, step_log=None, about=ABOUT, idle=IdleUse()
        )
        for last_try in (False, True):
            death = measure_one_cell(cell, run.cell(cell.cell_id), bench, last_try=last_try)
            assert death == "killed by SIGKILL; the log gives no reason"
            assert run.cell(cell.cell_id).path.exists() == last_try


@pytest.mark.parametrize(("kills", "answered", "late_s"), [(2, False, 0.0), (1, True, 2.5)])
def test_an_engine_killed_in_the_accuracy_pass_is_asked_again_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kills: int,
    answered: bool,
    late_s: float,
) -> None:
    """
    Args:
        late_s: by how much later its supervisor says so: it first ends what is left of an engine, such as the core whose API server was killed.
    """
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))
    killed, finished = [], set[int]()
    collect = run_module.collect_outputs

    def after_a_kill(*given: Any, **named: Any) -> Any:
        (cell,) = run.finished_cells()
        finished.add(cell.cell_json.stat().st_ino)
        if len(killed) < kills:
            engine = next(
                p
                for p in psutil.Process().children(recursive=True)
                if "emulator" in " ".join(p.cmdline()[:4])
            )
            supervisor = engine.parent()
            assert supervisor is not None and "connector_tax.run.engine.supervisor" in supervisor.cmdline()
            if late_s:
                supervisor.suspend()
                threading.Timer(late_s, supervisor.resume).start()
            engine.kill()
            killed.append(engine)
        return collect(*given, **named)

    monkeypatch.setattr(run_module, "collect_outputs", after_a_kill)
    folder = small_campaign(tmp_path)
    run = folder.run(DATE, "noop_connector", "a")
    measure_run(folder.campaign_file, "noop_connector", "a")
    assert "the engine died in the accuracy pass, another launch is asked" in capsys.readouterr().err
    (cell,) = run.finished_cells()
    assert finished == {cell.cell_json.stat().st_ino}, "its cell was measured again"
    (output,) = read_document(run.outputs, OutputsFile).outputs
    assert ("token_ids" in output) is answered
    assert len(list(run.path.glob("attempt_*"))) == 1


CARD = Gpu(0, "GPU-aa", "NVIDIA H20", 97_871, "GPU-aa")


def test_a_card_that_is_not_given_back_costs_no_finished_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(process, "RELEASE_POLL_S", 0.0)
    # The driver alone is a stand-in: the embedded engine has no card.
    used_mib = [9000]
    monkeypatch.setattr(process, "memory_before", lambda _: {CARD: 100})
    monkeypatch.setattr(process, "memory_used_mib", lambda _: used_mib[0])
    folder = small_campaign(tmp_path, rates=(20.0, 40.0), connectors=("plain",))
    run = folder.run(DATE, "plain", "a")
    document = read_json(folder.campaign_file)
    document["config"]["engine"]["release_timeout_s"] = 0.0
    write_json(folder.campaign_file, document)
    with pytest.raises(
        EngineError, match=r"GPU 0: NVIDIA H20 .*: 9000 MiB in use .* 100 MiB before it started"
    ):
        measure_run(folder.campaign_file, "plain", "a")
    kept = {c.path.name: c.cell_json.stat().st_ino for c in run.finished_cells()}
    assert sorted(kept) == ["r20_256x16", "r40_256x16"]
    assert not run.receipt.exists(), "nothing failed: the next start makes the receipt"
    used_mib[0] = 100
    measure_run(folder.campaign_file, "plain", "a")
    assert read_receipt(run).status == "measured"
    assert {c.path.name: c.cell_json.stat().st_ino for c in run.finished_cells()} == kept


SECRET = "planted-key-of-a-killed-end"


def test_what_an_engine_printed_before_its_launch_was_killed_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PLANTED", SECRET)
    folder = small_campaign(tmp_path)
    document = read_json(folder.campaign_file)
    document["config"]["engine"]["args"]["api_key"] = "${PLANTED}"
    write_json(folder.campaign_file, document)
    measure_run(folder.campaign_file, "noop_connector", "a")
    run = folder.run(DATE, "noop_connector", "a")
    log = run.path / "vllm_stderr.log"
    launched = run.launch_sh.stat().st_mtime_ns
    log.write_text(f"non-default args: {{'api_key': ['{SECRET}']}}\n")
    run.receipt.unlink()
    measure_run(folder.campaign_file, "noop_connector", "a")
    assert run.receipt.is_file() and run.launch_sh.stat().st_mtime_ns == launched
    assert log.is_file() and SECRET not in log.read_text()


@pytest.mark.parametrize(("kills", "decision"), [(1, "include"), (2, "skip")])
def test_an_engine_killed_in_preflight_is_tried_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int, decision: str
) -> None:
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))
    folder = small_campaign(tmp_path, connectors=("plain", "noop_connector"))
    folder.preflight_status.unlink()
    wait, killed = RunningEngine.wait_ready, []

    def killed_first(engine: RunningEngine) -> None:
        if engine.request.connector.id == "noop_connector" and len(killed) < kills:
            killed.append(engine)
            engine.supervisor.kill()
        wait(engine)

    monkeypatch.setattr(RunningEngine, "wait_ready", killed_first)
    run_preflight(folder.campaign_file)
    found = read_document(folder.preflight_status, PreflightStatus).configs["noop_connector"]
    assert found.decision == decision
    assert found.reason is None or found.reason.startswith(
        "ready: noop_connector: the engine died while starting: killed by SIGKILL"
    )
