"""A campaign in virtual time: right by hand, the same twice, and readable like a measured one."""

import json
from pathlib import Path
from typing import Any

import pytest
from cell_specs import cell_spec
from msgspec.structs import replace
from true_taxes import true_tax

from connector_tax.base.config import CampaignConfig, load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.config.model import PhaseBPrimeConfig, PhaseDConfig
from connector_tax.base.records.cell import CellSpec, Shape
from connector_tax.base.records.host import EngineCosts
from connector_tax.base.vllm_model.costs import NO_CONNECTOR, ConnectorCosts
from connector_tax.base.vllm_model.model import EngineModel
from connector_tax.read.ingest import read_campaign
from connector_tax.run.rehearsal.campaign import analyse, rehearse
from connector_tax.run.rehearsal.cell import simulate_cell

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


def test_steps_never_overlap_and_idle_time_is_not_in_them() -> None:
    cell = simulate_cell(spec(rate_per_s=300.0), model(), 0)
    ends = [t + s.duration_ns for t, s in cell.steps]
    starts = [t for t, _ in cell.steps]
    assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))


def test_an_overloaded_engine_drops_at_the_cap_and_times_out_in_the_drain() -> None:
    cell = simulate_cell(spec(rate_per_s=100.0), model(base_us=400_000), 0)
    statuses = {r.status for r in cell.requests}
    assert "dropped" in statuses
    assert max(r.inflight_at_send for r in cell.requests) == 8


def test_samples_tell_the_queue_once_a_second() -> None:
    cell = simulate_cell(spec(rate_per_s=100.0), model(base_us=200_000, max_num_seqs=1), 0)
    assert [t for t, _, _ in cell.samples][:3] == [0, 1000 * MS, 2000 * MS]
    assert max(waiting for _, _, waiting in cell.samples) >= 6


def test_the_truth_of_a_factor_is_the_factor_where_nothing_queues() -> None:
    found = true_tax(spec(), COSTS, ConnectorCosts(step_factor=1.3), max_num_batched_tokens=512, launches=2)
    assert found == pytest.approx({"ttft_p90": 0.3, "tpot_p90": 0.3}, abs=1e-6)


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


def test_the_same_seed_is_the_same_day(small: CampaignConfig, tmp_path: Path) -> None:
    """And another seed is another day with the same schedules."""

    alone = replace(small, connectors=small.connectors[:1], phase_b_prime=PhaseBPrimeConfig((), ()))
    alone = replace(alone, phase_a_rates_per_s=(20.0,), phase_b_input_tokens=(64,))

    def requests(folder: str, seed: int) -> str:
        root, _ = rehearse(alone, tmp_path / folder, seed=seed, processes=1)
        return next(root.glob("*_plain/phase_a/cells/r20*/requests*")).read_text()

    first = requests("a", 1)
    assert requests("b", 1) == first
    other = requests("c", 2)
    assert other != first
    assert [json.loads(line)["t_sched_ns"] for line in other.splitlines()][:20] == [
        json.loads(line)["t_sched_ns"] for line in first.splitlines()
    ][:20]


def test_a_rehearsed_campaign_with_a_stopping_rule_says_where_its_cells_ended(tmp_path: Path) -> None:
    """Two cells of one launch: steady steps end at the first look, and every interval is wider for having been looked at."""
    config = load_campaign(PROJECT_ROOT / "config" / "demo.yaml")
    ruled = replace(
        config,
        connectors=config.connectors[:2],
        phase_a_rates_per_s=config.phase_a_rates_per_s[:2],
        phase_b_input_tokens=(64,),
        phase_b_output_tokens=(8,),
        phase_b_prime=PhaseBPrimeConfig((), ()),
        cell=replace(config.cell, min_completed=25, max_completed=100, stop_half_width=0.2),
        analysis=replace(config.analysis, bootstrap_draws=200),
    )
    root, _ = rehearse(ruled, tmp_path, processes=1)
    analyse(root)
    found = json.loads((root / "aggregate.json").read_text())
    cells = [c for c in found["cells"] if c["phase"] == "a"]
    assert len(cells) == 4
    for cell in cells:
        stopping = cell["stopping"]
        assert stopping["planned"] == [25, 50, 100]
        assert 1.1 < stopping["wider"] < 1.25
        last = stopping["looks"][-1]
        assert stopping["reached"] is last["tight"]
        assert last["tight"] or last["n_planned"] == 100
        assert ("half_width_not_reached" in cell["flags"]) is not last["tight"]
        assert last["tight"] == all(w is not None and w <= 0.2 for w in last["half_widths"].values())
