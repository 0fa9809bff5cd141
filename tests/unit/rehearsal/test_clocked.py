"""A campaign on a virtual GPU is rehearsed with that GPU's step time."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace
from virtual_gpus import clocked_campaign, model_in

from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.errors import ConfigError
from connector_tax.base.plan.duration import LAUNCH_S, RELEASE_S
from connector_tax.base.vllm_model.costs import load_cost_model
from connector_tax.run.rehearsal.campaign import clocked_costs, rehearse

BASE, _ = load_cost_model(PROJECT_ROOT / "config" / "engine_model.yaml")
STEP = {"base_us": 4000, "per_prefill_token_us": 15, "per_decode_seq_us": 20, "per_context_token_us": 0.02}


def test_steps_are_the_clocks_and_the_host_is_the_files(tmp_path: Path) -> None:
    """No jitter either: a clock has none. 45,391 blocks of 16 tokens are what the weights leave of an H200."""
    config = clocked_campaign(model_in(tmp_path / "m"), args={"max_num_seqs": 64})
    engine = clocked_costs(config.engine, BASE)
    assert engine.base_us == pytest.approx(7924.6, abs=0.1)
    assert (engine.jitter_cv, engine.max_num_seqs, engine.kv_blocks) == (0.0, 64, 45391)
    assert (engine.schedule_us, engine.launch_cv) == (BASE.schedule_us, BASE.launch_cv)


def test_an_unknown_models_cache_stays_the_files(tmp_path: Path) -> None:
    model = model_in(tmp_path / "m", {"architectures": ["OPTForCausalLM"]})
    config = clocked_campaign(model, {"step": STEP, "kv_cache_bytes": 10**9})
    own = clocked_costs(config.engine, BASE)
    assert (own.base_us, own.kv_blocks) == (4000, BASE.kv_blocks)


def test_a_model_that_is_not_here_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="step time follows from it"):
        rehearse(clocked_campaign(tmp_path / "nowhere"), tmp_path, processes=1)


def test_a_rehearsed_campaign_takes_as_long_as_its_launches(tmp_path: Path) -> None:
    """And its steps last as long as the clock says: one request alone is one decoding sequence a step."""
    config = clocked_campaign(
        model_in(tmp_path / "m"),
        {"step": STEP, "kv_cache_bytes": 10**10},
    )
    small = replace(config, phase_a_rates_per_s=(1.0,), connectors=config.connectors[:1])
    small = replace(small, phase_b_input_tokens=(64,), phase_b_output_tokens=(8,), repeats=0)
    root, times = rehearse(small, tmp_path / "results", processes=1)
    assert times[0].overhead_s == LAUNCH_S["virtual_gpu"] + RELEASE_S["virtual_gpu"]
    steps = next(root.rglob("engine_step_A_*.jsonl")).read_text().splitlines()
    decoding = [r for r in map(json.loads, steps) if r.get("kind") == "step" and not r["prefill_tokens"]]
    assert decoding and all(4020 <= r["step_duration_us"] < 4500 for r in decoding)
    document = json.loads((root / "campaign.json").read_text())["config"]["engine"]
    assert (document["kind"], "virtual_gpu" in document) == ("emulator", False)
