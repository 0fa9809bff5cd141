"""What a measuring launch does between an engine that is ready and its first cell."""

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from builders import ROOT
from families import alive

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.artifacts.supervisor import RECORD
from connector_tax.base.config import parse_campaign
from connector_tax.base.documents.receipt import Launch, Launches
from connector_tax.base.errors import ConfigError, EngineError
from connector_tax.base.files import write_json
from connector_tax.base.plan import campaign_document
from connector_tax.run.engine.process import RunningEngine
from connector_tax.run.engine.supervised import start_supervised
from connector_tax.run.measure import preflight
from connector_tax.run.measure import preflight as preflight_module
from connector_tax.run.measure import run as measure_module
from connector_tax.run.measure.launch import archive_earlier_attempt
from connector_tax.run.measure.preflight import run_preflight
from connector_tax.run.measure.run import measure_run


@pytest.fixture
def campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CampaignFolder:
    """Plain alone, one short cell, decided by hand."""
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))
    value: dict[str, Any] = yaml.safe_load((ROOT / "config" / "demo.yaml").read_text())
    value |= {"connectors": ["plain"], "phase_b_prime": {}, "accuracy": {"prompts": 0}}
    value["phase_a"] = {"rates_per_s": [20], "input_tokens": 96, "output_tokens": 4}
    value["cell"] |= {"warmup_s": 0.1, "duration_s": 0.3, "min_completed": 6}
    document = campaign_document(parse_campaign(value, "test"), date="2026-01-01", created_utc="")
    folder = CampaignFolder(tmp_path / "demo")
    write_json(folder.campaign_file, document)
    decision = {"decision": "include", "reason": None}
    write_json(folder.preflight_status, {"step_timing_available": False, "configs": {"plain": decision}})
    return folder


def test_each_length_is_sent_once_before_the_first_cell(
    campaign: CampaignFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside every cell: none of its requests is among those that the cell counts. No card is looked for. Cells and receipt hold what
    their own launch resolved, by its step records and its log; preflight launched nothing here."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "garbage")
    status = json.loads(campaign.preflight_status.read_text())
    write_json(campaign.preflight_status, {**status, "step_timing_available": True})
    logged = "[gpu_worker.py:500] Using V2 Model Runner\n[cuda.py:416] Using AttentionBackendEnum.FLASH_ATTN backend."
    monkeypatch.setattr(RunningEngine, "log_text", lambda self: logged)
    measure_run(campaign.campaign_file, "plain", "a")
    said = capsys.readouterr().err
    assert 0 < said.index("warm-up: prompts of 96 tokens; the slowest took ") < said.index("cell r20_96x4")
    assert "garbage" not in said
    run = campaign.run("2026-01-01", "plain", "a")
    cell = json.loads(run.finished_cells()[0].cell_json.read_text())
    assert cell["verdict"] == "valid" or set(cell["reasons"]) <= set(cell["health"]["bottleneck"])
    assert cell["prefix_cache_hits_delta"] == 0
    engine = json.loads(run.receipt.read_text())["engine"]
    assert engine["transports"] is None and engine["side_channels"] is None and engine["gpu"] == []
    settings = engine["settings"]
    assert settings == cell["engine"]["settings"]
    assert settings.pop("cache_config.num_gpu_blocks") > 0
    assert settings.keys() == {
        "scheduler_config.max_num_seqs",
        "cache_config.block_size",
        "log.model_runner",
        "log.attention_backend",
    }
    assert (settings["log.model_runner"], settings["log.attention_backend"]) == ("V2", "FLASH_ATTN")


def test_an_engine_that_dies_of_its_first_prompt_has_failed_to_launch(
    campaign: CampaignFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a cell that died: no cell had begun."""
    monkeypatch.setenv("CONNECTOR_TAX_FAULT", "die_after:1")
    with pytest.raises(
        EngineError, match="did not launch in 2 tries in a row: the engine died while it was warmed up: "
    ):
        measure_run(campaign.campaign_file, "plain", "a")
    assert campaign.run("2026-01-01", "plain", "a").finished_cells() == []


@pytest.mark.parametrize("script", ["preflight", "measure"])
def test_what_any_killed_run_of_the_campaign_left_is_ended_before_anything_starts(
    campaign: CampaignFolder, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    """It holds the card or a port that the next engine wants, whichever run that belongs to."""
    left = campaign.root / "2026-01-01_nixl_both" / "phase_b"
    left.mkdir(parents=True)
    # The kernel ends the supervisor's own child with it; what that had started in a session of its own stays.
    command = ["bash", "-c", "setsid sleep 600 & sleep 600"]
    supervisor = start_supervised(command, folder=left, environment=dict(os.environ), grace_s=1.0)
    engine = wait_for(supervisor.pid, "sleep")
    supervisor.kill()
    supervisor.wait()
    assert alive(engine)

    def begin(*args: object) -> None:
        assert not alive(engine)
        raise ConfigError("far enough")

    monkeypatch.setattr(measure_module, "_begin_anew", begin)
    monkeypatch.setattr(preflight_module, "step_timing_of", begin)
    with pytest.raises(ConfigError, match="far enough"):
        if script == "measure":
            measure_run(campaign.campaign_file, "plain", "a")
        else:
            run_preflight(campaign.campaign_file)
    assert not (left / RECORD).exists()


def wait_for(root: int, name: str) -> psutil.Process:
    """A descendant of ``root`` that runs ``name`` in a session of its own."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for process in psutil.Process(root).children(recursive=True):
            with suppress(psutil.Error):
                if process.name() == name and os.getsid(process.pid) == process.pid:
                    return process
        time.sleep(0.02)
    raise AssertionError("it never started")


def test_an_interpreter_without_vllm_is_told_before_anything_is_downloaded(
    campaign: CampaignFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = json.loads(campaign.campaign_file.read_text())
    document["config"]["engine"] |= {"kind": "vllm", "python": sys.executable, "model": "org/model"}
    write_json(campaign.campaign_file, document)

    def fetch(engine: object) -> None:
        raise AssertionError("a model is downloaded for an interpreter that cannot serve it")

    monkeypatch.setattr(preflight, "fetch_model", fetch)
    with pytest.raises(ConfigError, match="this interpreter has no vLLM"):
        run_preflight(campaign.campaign_file)


def test_an_earlier_launch_is_put_aside_where_an_older_one_was_removed(campaign: CampaignFolder) -> None:
    """Somebody made room: as many folders as before are no new name."""
    run = campaign.run("2026-01-01", "plain", "a")
    (run.path / "attempt_2").mkdir(parents=True)
    run.stdout.write_text("of the third")
    assert archive_earlier_attempt(run) == 4
    assert (run.path / "attempt_3" / run.stdout.name).read_text() == "of the third"


def test_a_launch_whose_folder_was_removed_keeps_its_number(campaign: CampaignFolder) -> None:
    """``launches.json`` names it, so that no receipt has two launches of one number."""
    run = campaign.run("2026-01-01", "plain", "a")
    run.path.mkdir(parents=True)
    write_json(run.launches, Launches(launches=tuple(Launch(attempt=n, elapsed_s=1.0) for n in (1, 2))))
    run.stdout.write_text("of the second")
    assert archive_earlier_attempt(run) == 3
    assert (run.path / "attempt_2" / run.stdout.name).read_text() == "of the second"
