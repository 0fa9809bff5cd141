"""Step records to a GPU's profile: the costs that were put in come out, and the file is one that a campaign takes."""

import subprocess
import sys
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from msgspec import structs

from connector_tax.base.config import load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.config.gpu import virtual_gpu
from connector_tax.base.config.model import GpuChoice
from connector_tax.base.errors import AnalysisError, ConfigError
from connector_tax.base.files import read_json
from connector_tax.base.vllm_model.costs import load_costs
from connector_tax.base.vllm_model.shape import model_shape
from connector_tax.commands.fit_gpu import profile_of
from connector_tax.fleet.gpu_profile import GpuFit, fit_gpu, fit_lines, profile_text
from connector_tax.read.ingest import CampaignData, CellData, read_campaign
from connector_tax.run.rehearsal.campaign import rehearse

DEMO = PROJECT_ROOT / "config" / "demo.yaml"


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = load_campaign(DEMO)
    config = msgspec.structs.replace(config, connectors=(config.connector("plain"),))
    root, _ = rehearse(config, tmp_path_factory.mktemp("gpu_profile"), processes=1)
    return root


@pytest.fixture(scope="module")
def fit(rehearsed: Path) -> GpuFit:
    return fit_gpu(read_campaign(rehearsed))


def test_the_costs_that_were_put_in_come_out(fit: GpuFit) -> None:
    truth, _ = load_costs(PROJECT_ROOT / str(load_campaign(DEMO).engine.model_file), None)
    assert not fit.one_shape
    assert fit.costs.base_us == pytest.approx(truth.base_us, rel=0.02)
    assert fit.costs.per_prefill_token_us == pytest.approx(truth.per_prefill_token_us, rel=0.03)
    found, given = (c.per_decode_seq_us + 256 * c.per_context_token_us for c in (fit.costs, truth))
    assert found == pytest.approx(given, rel=0.1)


def test_the_command_writes_a_profile_that_a_campaign_takes(tmp_path: Path, published_campaign: Path) -> None:
    """From step records of a virtual H200, thinned to one shape: what its clock was given stands in virtual_gpu.json of its launches."""
    out = tmp_path / "mine.yaml"
    command = [
        sys.executable,
        *("-m", "connector_tax", "fit-gpu"),
        str(published_campaign),
        "--gpu",
        "h200",
    ]
    model = ["--model-config", "Qwen3-Coder-30B-A3B-Instruct"]
    done = subprocess.run([*command, *model, "--to", str(out)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "All cells have one shape" in done.stdout
    found = virtual_gpu(GpuChoice(str(out)), "test")
    truth = yaml.safe_load(next(published_campaign.glob("*_plain/phase_a/virtual_gpu.json")).read_text())
    # Whole blocks of 16 tokens: the engine has no use for what is left over.
    block_bytes = 16 * 98304
    assert 0 <= truth["kv_cache_bytes"] - found.kv_cache_bytes < block_bytes
    # At the shape that was measured the fitted step is the clock's; four sequences half through their answers.
    context = 4 * (2048 + 32)
    fitted, given = (
        s["base_us"] + 4 * s["per_decode_seq_us"] + context * s["per_context_token_us"]
        for s in (yaml.safe_load(out.read_text())["step"], truth["step"])
    )
    assert fitted == pytest.approx(given, rel=0.02)


ASKED = {
    "scheduler_config.async_scheduling": False,
    "cache_config.num_gpu_blocks": 1000,
    "cache_config.block_size": 16,
    "cache_config.cache_dtype": "auto",
    "log.attention_backend": "FLASH_ATTN",
    "log.model_runner": "V1",
    "log.moe_config": "default",
}


def resolving(data: CampaignData, *settings: dict[str, Any]) -> CampaignData:
    """As if the launches of the cells, in turn, had resolved ``settings``."""
    return engines(data, *({"settings": own} for own in settings))


def engines(data: CampaignData, *changes: dict[str, Any]) -> CampaignData:
    """As if the engines of the cells, in turn, had these of their identity's fields."""
    turn = cycle(changes)

    def told(cell: CellData) -> CellData:
        engine = structs.replace(cell.document.engine, **next(turn))
        return replace(cell, document=structs.replace(cell.document, engine=engine))

    return replace(data, runs=tuple(replace(r, cells=tuple(map(told, r.cells))) for r in data.runs))


def test_a_profile_says_with_what_settings_its_steps_were_measured(rehearsed: Path, fit: GpuFit) -> None:
    """Those of the measured launches, whatever preflight saw; the size of the cache and the host's time follow from them."""
    own = fit_gpu(resolving(read_campaign(rehearsed), ASKED))
    words = "asynchronous scheduling off, attention backend FLASH_ATTN, model runner V1, MoE config default, KV blocks 1000 (as its launches logged)"
    assert f"Settings: {words}" in fit_lines(own)
    shape = model_shape(
        read_json(PROJECT_ROOT / "config" / "models" / "Qwen3-Coder-30B-A3B-Instruct.json"), ""
    )
    base = yaml.safe_load((PROJECT_ROOT / "config" / "gpus" / "h200.yaml").read_text())
    profile = yaml.safe_load(profile_text(base, own, "mine", shape))
    assert profile["sources"]["step"].endswith(words)
    assert profile["kv_cache_bytes"] == 16000 * shape.kv_values * 2
    assert set(profile["host"].values()) == {0}
    assert "as seen in preflight" in fit.settings


def test_launches_with_other_settings_give_no_profile(rehearsed: Path) -> None:
    data = read_campaign(rehearsed)
    with pytest.raises(
        AnalysisError, match=r"plain's launches differ in log.moe_config \(engine.settings in their cells\)"
    ):
        fit_gpu(resolving(data, ASKED, {**ASKED, "log.moe_config": "E=128.json"}))
    # What is left of the memory differs from launch to launch.
    fit_gpu(resolving(data, ASKED, {**ASKED, "cache_config.num_gpu_blocks": 999}))


def test_the_profile_is_that_of_the_card_that_was_measured(rehearsed: Path) -> None:
    """All but a step's costs is taken from it, so that of another card would be wrong and look right."""
    data = read_campaign(rehearsed)
    for name, profile in (("NVIDIA H200", "h200"), ("NVIDIA H100 80GB HBM3", "h100")):
        assert profile_of(engines(data, {"gpu": (f"GPU 0: {name} (UUID: GPU-1)",)})).stem == profile
    for cards, told in (
        ((), "on no card"),
        (("GPU 0: NVIDIA H100 NVL (UUID: GPU-1)",), "on NVIDIA H100 NVL"),
    ):
        with pytest.raises(ConfigError, match=f"measured {told}.* Give --gpu"):
            profile_of(engines(data, {"gpu": cards}))
