"""A campaign in virtual time: right by hand, readable like a measured one, with the clock of a virtual GPU, and the taxes of its own cost model."""

import json
from pathlib import Path
from typing import Any

import pytest
from cell_specs import cell_spec
from msgspec.structs import replace
from virtual_gpus import clocked_campaign, model_in

from connector_tax.base.config import CampaignConfig, load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.config.model import PhaseBPrimeConfig, PhaseDConfig
from connector_tax.base.documents.rates import ReferenceRatesFile
from connector_tax.base.errors import ConfigError
from connector_tax.base.plan.duration import LAUNCH_S, RELEASE_S
from connector_tax.base.records.cell import CellSpec, Shape
from connector_tax.base.records.host import EngineCosts
from connector_tax.base.vllm_model.costs import NO_CONNECTOR, ConnectorCosts, load_cost_model
from connector_tax.base.vllm_model.model import EngineModel
from connector_tax.read.ingest import read_campaign
from connector_tax.run.rehearsal.campaign import analyse, clocked_costs, rehearse
from connector_tax.run.rehearsal.cell import simulate_cell, taxes_put_in

COSTS = EngineCosts(1000, 10, 20, 0, 40, 20, 0.0, 0.0, 64, 1000, 16)
MS = 1_000_000


def spec(**changes: Any) -> CellSpec:
    own = {
        "rate_per_s": 10.0,
        "input_tokens": 100,
        "output_tokens": 3,
        "warmup_s": 1.0,
        "duration_s": 2.0,
        "min_completed": 5,
        "max_cell_s": 20.0,
        "drain_timeout_s": 1.0,
        "inflight_cap": 8,
    }
    return cell_spec(**{**own, **changes})


def model(connector: ConnectorCosts = NO_CONNECTOR, **costs: Any) -> EngineModel:
    return EngineModel(replace(COSTS, **costs), connector, max_num_batched_tokens=512, seed=0)


def test_requests_that_never_meet_have_the_latency_of_one() -> None:
    """100 ms apart, 4.04 ms each: prefill 2 ms, two decode steps of 1.02 ms."""
    cell = simulate_cell(spec(), model(), 5_000)
    assert {r.status for r in cell.requests} == {"ok"}
    assert {r.ttft_ns for r in cell.requests} == {2 * MS}
    assert {r.tpot_ns for r in cell.requests} == {1.02 * MS}
    assert cell.window.window_start_ns == 5_000 + 1_000 * MS
    assert cell.window.t_stop_ns == 5_000 + 3_000 * MS
    assert len(cell.requests) == 30
    assert sum(s.prefill_tokens for _, s in cell.steps) == 30 * 100


def test_an_overloaded_engine_drops_at_the_cap_and_times_out_in_the_drain() -> None:
    cell = simulate_cell(spec(rate_per_s=100.0), model(base_us=400_000), 0)
    statuses = {r.status for r in cell.requests}
    assert "dropped" in statuses
    assert max(r.inflight_at_send for r in cell.requests) == 8


def test_samples_tell_the_queue_once_a_second() -> None:
    cell = simulate_cell(spec(rate_per_s=100.0), model(base_us=200_000, max_num_seqs=1), 0)
    assert [t for t, _, _ in cell.samples][:3] == [0, 1000 * MS, 2000 * MS]
    assert max(waiting for _, _, waiting in cell.samples) >= 6


@pytest.fixture
def small() -> CampaignConfig:
    config = load_campaign(Path(__file__).parents[3] / "config" / "demo.yaml")
    wanted = ("plain", "noop_connector", "mooncake_both")
    return replace(
        config,
        connectors=tuple(c for c in config.connectors if c.id in wanted),
        phase_b_input_tokens=(64, 256),
        phase_b_output_tokens=(8,),
        phase_b_prime=PhaseBPrimeConfig(("plain", "mooncake_both"), (Shape(64, 8),)),
    )


def test_a_rehearsed_campaign_is_read_and_analysed_like_a_measured_one(
    small: CampaignConfig, tmp_path: Path
) -> None:
    levels = PhaseDConfig((0, 1600), (1, 2), warmup_s=0.25, duration_s=0.75)
    root, times = rehearse(replace(small, phase_d=levels), tmp_path, processes=1)
    data = read_campaign(root)
    assert data.problems == ()
    assert all(c.usable and c.steps is not None for c in data.cells())
    assert [t.runs for t in times][:2] == [3, 3]
    # Closed loops are not simulated: four cells of 1 s, a second after each, and a launch; and no cell of theirs is missed.
    assert (times[-1].phase, times[-1].runs, times[-1].cells_s) == ("d", 3, 3 * 4 * 2.0)
    analyse(root)
    aggregate = json.loads((root / "aggregate.json").read_text())
    assert {c["status"] for c in aggregate["configs"].values()} == {"measured"}
    assert any(t["point"] is not None for t in aggregate["taxes"])
    # Nobody ran it, so no host did anything meanwhile.
    assert {c["host"] for c in aggregate["cells"]} == {None}


def test_a_rehearsed_campaign_with_a_stopping_rule_says_where_its_cells_ended(tmp_path: Path) -> None:
    """Steady steps end at the first look, and every interval is wider for having been looked at."""
    config = load_campaign(PROJECT_ROOT / "config" / "demo.yaml")
    ruled = replace(
        config,
        connectors=config.connectors[:2],
        phase_a_rates_per_s=config.phase_a_rates_per_s[:1],
        phase_b_input_tokens=(),
        phase_b_output_tokens=(),
        phase_b_prime=PhaseBPrimeConfig((), ()),
        cell=replace(config.cell, min_completed=25, max_completed=100, stop_half_width=0.2),
        analysis=replace(config.analysis, bootstrap_draws=200),
    )
    root, _ = rehearse(ruled, tmp_path, processes=1)
    analyse(root)
    found = json.loads((root / "aggregate.json").read_text())
    cells = [c for c in found["cells"] if c["phase"] == "a"]
    assert len(cells) == 2
    for cell in cells:
        stopping = cell["stopping"]
        assert stopping["planned"] == [25, 50, 100]
        assert 1.1 < stopping["wider"] < 1.25
        last = stopping["looks"][-1]
        assert stopping["reached"] is last["tight"]
        assert last["tight"] or last["n_planned"] == 100
        assert ("half_width_not_reached" in cell["flags"]) is not last["tight"]
        assert last["tight"] == all(w is not None and w <= 0.2 for w in last["half_widths"].values())


DEMO = load_campaign(PROJECT_ROOT / "config" / "demo.yaml")
RATES = ReferenceRatesFile(ref_safe_per_s=20.0, ref_load_per_s=40.0, b_prime_needed=True)
COSTLY_STEPS = """
engine: {base_us: 2000, per_prefill_token_us: 10, per_decode_seq_us: 0, per_context_token_us: 0, schedule_us: 10, update_us: 10,
         jitter_cv: 0, launch_cv: 0, max_num_seqs: 64, kv_blocks: 10000, block_size: 16}
connectors:
  MooncakeConnector/kv_both: {step_factor: 1.5}
"""


def test_a_step_that_takes_half_as_long_again_is_found_as_that(tmp_path: Path) -> None:
    """At a load at which no request waits for another, and without jitter, TPOT of every request grows by that factor."""
    path = tmp_path / "model.yaml"
    path.write_text(COSTLY_STEPS)
    config = replace(
        DEMO,
        connectors=tuple(c for c in DEMO.connectors if c.id in ("plain", "mooncake_both")),
        engine=replace(DEMO.engine, model_file=str(path), model_sha256=None),
        phase_a_rates_per_s=(1.0, 2.0),
        cell=replace(DEMO.cell, duration_s=10.0, max_cell_s=30.0, min_completed=8),
    )
    rates = ReferenceRatesFile(ref_safe_per_s=1.0, ref_load_per_s=2.0, b_prime_needed=True)
    found = taxes_put_in(config, rates, launches=2)
    assert found == taxes_put_in(config, rates, launches=2)
    assert {(t.config, t.metric, t.rate_per_s) for t in found.taxes} == {
        ("mooncake_both", m, r) for m in ("ttft_p90", "tpot_p90") for r in (1.0, 2.0)
    }
    assert [t.tax for t in found.taxes] == pytest.approx([0.5] * 4, abs=0.01)


def test_another_engine_has_no_model() -> None:
    config = replace(DEMO, engine=replace(DEMO.engine, kind="vllm"))
    with pytest.raises(ConfigError, match=r"engine.kind is vllm. Only the embedded engine"):
        taxes_put_in(config, RATES)


BASE, _ = load_cost_model(PROJECT_ROOT / "config" / "engine_model.yaml")
STEP = {"base_us": 4000, "per_prefill_token_us": 15, "per_decode_seq_us": 20, "per_context_token_us": 0.02}


def test_steps_are_the_clocks_and_the_host_is_the_files(tmp_path: Path) -> None:
    """No jitter either: a clock has none. 45,391 blocks of 16 tokens are what the weights leave of an H200."""
    config = clocked_campaign(model_in(tmp_path / "m"), args={"max_num_seqs": 64})
    engine = clocked_costs(config.engine, BASE)
    assert engine.base_us == pytest.approx(7924.6, abs=0.1)
    assert (engine.jitter_cv, engine.max_num_seqs, engine.kv_blocks) == (0.0, 64, 45391)
    assert (engine.schedule_us, engine.launch_cv) == (BASE.schedule_us, BASE.launch_cv)


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


def test_an_unknown_models_cache_stays_the_files(tmp_path: Path) -> None:
    model = model_in(tmp_path / "m", {"architectures": ["OPTForCausalLM"]})
    config = clocked_campaign(model, {"step": STEP, "kv_cache_bytes": 10**9})
    own = clocked_costs(config.engine, BASE)
    assert (own.base_us, own.kv_blocks) == (4000, BASE.kv_blocks)
