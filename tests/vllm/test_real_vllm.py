"""Real vLLM on the CPU: launched, step timing brought in, measured, and no file of it changed."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from connector_tax.base.artifacts.layout import CampaignFolder, CellFolder, RunFolder
from connector_tax.base.config import parse_campaign
from connector_tax.base.plan.start import begin_campaign
from connector_tax.base.records.cell import CellWindow
from connector_tax.read.ingest.steps import StepTable, read_steps

sys.path.insert(0, str(Path(__file__).parents[1]))
from step_rows import read_step_file

pytestmark = pytest.mark.vllm
ROOT = Path(__file__).parents[2]
# Its folder, and vLLM's files before and after it.
Campaign = tuple[CampaignFolder, dict[str, str], dict[str, str]]


def vllm_tree(engine_python: str) -> dict[str, str]:
    """SHA-256 of every Python file of the installed vLLM."""
    code = "import importlib.util as u; print(u.find_spec('vllm').submodule_search_locations[0])"
    folder = Path(
        subprocess.run([engine_python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    )
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*.py"))
    }


@pytest.fixture(scope="module")
def campaign(engine_python: str, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """One short cell of plain and of the no-op connector, through the pipeline's own doors."""
    work = tmp_path_factory.mktemp("vllm")
    config = yaml.safe_load((ROOT / "config" / "vllm-cpu.yaml").read_text())
    config["connectors"] = ["plain", "noop_connector"]
    config["phase_b_prime"] = {}
    config["phase_a"]["rates_per_s"] = [4]
    config["cell"].update(warmup_s=1, duration_s=4, min_completed=10)
    config["engine"]["ready_timeout_s"] = 600  # others run beside it
    environment = {**os.environ, "ENGINE_PYTHON": engine_python, "TINY_MODEL": str(tiny_model)}
    # Locks of its own: other tests measure beside it.
    environment["CONNECTOR_TAX_CACHE"] = str(work / "cache")

    def door(*arguments: str) -> None:
        subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, check=True)

    before = vllm_tree(engine_python)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ENGINE_PYTHON", "TINY_MODEL"):
            patch.setenv(name, environment[name])
        folder = CampaignFolder(begin_campaign(parse_campaign(config, "vllm-cpu"), work).parent)
    decision = {"decision": "include", "reason": None}
    folder.preflight.mkdir(parents=True)
    folder.preflight_status.write_text(
        json.dumps(
            {"step_timing_available": True, "configs": {"plain": decision, "noop_connector": decision}}
        )
    )
    for connector in config["connectors"]:
        arguments = ("--campaign-file", str(folder.campaign_file), "--connector", connector, "--phase", "a")
        door("scripts/measure.py", *arguments)
    door("scripts/revert_patch.py", "--campaign-file", str(folder.campaign_file))
    return folder, before, vllm_tree(engine_python)


def run_of(folder: CampaignFolder, connector: str) -> RunFolder:
    return next(r for r in folder.runs() if r.connector_id == connector)


def steps_of(cell: CellFolder) -> StepTable:
    window = CellWindow.from_json(json.loads(cell.cell_json.read_text())["window"])
    return read_steps(cell.engine_step, window)


@pytest.mark.parametrize("connector", ["plain", "noop_connector"])
def test_requests_are_served_and_measured(campaign: Campaign, connector: str) -> None:
    run = run_of(campaign[0], connector)
    cell = json.loads(run.finished_cells()[0].cell_json.read_text())
    # A host that is busy with other things may spoil a cell, and says so; nothing else may, and a quiet one streams.
    assert set(cell["reasons"]) <= set(cell["health"]["bottleneck"])
    assert "host_busy" in cell["flags"] or cell["health"]["whole_answer_share"] < 0.5
    assert cell["summary"]["statuses"] == {"ok": cell["summary"]["n_window"]}
    assert cell["prefix_cache_hits_delta"] == 0
    assert cell["engine"]["versions"]["vllm"].startswith("0.32")
    assert cell["steps"]["iterations"] > 100
    assert {"api_server", "engine_core", "worker"} <= set(cell["cpu"]["loaded_s"])
    assert "openai.api_server`" not in run.stderr.read_text()  # no word of deprecation
    assert "step_records_incomplete" not in cell["flags"], cell["steps"]


@pytest.mark.parametrize("connector", ["plain", "noop_connector"])
def test_the_receipt_holds_what_its_own_launch_resolved(campaign: Campaign, connector: str) -> None:
    """From the header of its step records and from its log; preflight launched nothing."""
    settings = json.loads(run_of(campaign[0], connector).receipt.read_text())["engine"]["settings"]
    tokens = settings["cache_config.num_gpu_blocks"] * settings["cache_config.block_size"]
    assert int(settings["log.kv_cache_tokens"].replace(",", "")) == tokens
    assert settings["scheduler_config.async_scheduling"] is False  # vLLM has none on a CPU
    assert settings["log.model_runner"] == "V1"  # V2 needs Triton


@pytest.mark.parametrize("connector", ["plain", "noop_connector"])
def test_every_step_is_recorded_and_its_parts_fit(campaign: Campaign, connector: str) -> None:
    """At least one step per output token that was served alone; hooks never exceed their step."""
    run = run_of(campaign[0], connector)
    table = steps_of(run.finished_cells()[0])
    assert table.n > 100
    assert (table.connector_total_us <= table.step_duration_us).all()
    assert (table.round_trip_us >= 0).all()


def test_worker_rows_join_the_schedulers_steps(
    campaign: Campaign,
) -> None:
    """The step id travels with the connector's metadata into the worker's process."""
    cell = run_of(campaign[0], "noop_connector").finished_cells()[0]
    found = read_step_file(cell.engine_step)
    pids = {h["process"]: h["pid"] for h in found.headers}
    assert pids["scheduler"] != pids["worker"]
    table = steps_of(cell)
    assert table.n_unjoined <= 0.001 * table.n
    assert (table.connector_total_us > 0).mean() > 0.999
    called = {name for name, n in zip(table.hooks.names, table.hooks.calls.sum(axis=0), strict=True) if n}
    assert {"scheduler/build_connector_meta", "scheduler/request_finished_all_groups"} <= called
    assert {"worker/bind_connector_metadata", "worker/save_kv_layer", "worker/get_finished"} <= called


def test_plain_has_no_hooks(campaign: Campaign) -> None:
    table = steps_of(run_of(campaign[0], "plain").finished_cells()[0])
    assert (table.connector_total_us == 0).all()


def test_vllm_is_given_back_byte_for_byte(
    campaign: Campaign,
) -> None:
    _, before, after = campaign
    assert after == before


def test_the_no_op_connector_changes_no_token(
    campaign: Campaign,
) -> None:
    """The accuracy pass got ids from vLLM itself, and plain's and the connector's are the same."""
    folder, _, _ = campaign
    plain, noop = (
        json.loads(run_of(folder, c).outputs.read_text())["outputs"] for c in ("plain", "noop_connector")
    )
    assert len(plain) == 8
    assert all(len(answer["token_ids"]) == 16 for answer in plain)
    assert noop == plain
