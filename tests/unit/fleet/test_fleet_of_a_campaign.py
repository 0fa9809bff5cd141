"""From a campaign's step records to fleets: the costs that were put in come out, and what cannot be modelled is named."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from builders import Campaign, campaign_config

from connector_tax.base.config import CampaignConfig, load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.documents.fleet import Profile, Study
from connector_tax.base.errors import AnalysisError, ConfigError
from connector_tax.base.records.host import EngineCosts
from connector_tax.base.vllm_model.costs import NO_CONNECTOR, ConnectorCosts, load_costs
from connector_tax.fleet import calibration
from connector_tax.fleet.calibration import ALONE, FittedEngine, Resolved, calibrate, find_profile, fit_costs
from connector_tax.fleet.campaign import members_of
from connector_tax.fleet.policies import Pattern
from connector_tax.fleet.run import Member, offered, run_study, taxes
from connector_tax.fleet.simulation import arrivals, simulate
from connector_tax.fleet.study import load_study
from connector_tax.read.ingest import read_campaign
from connector_tax.run.rehearsal.campaign import rehearse

DEMO = PROJECT_ROOT / "config" / "demo.yaml"
Rehearsed = tuple[Path, CampaignConfig]


def short_study(tmp_path: Path, **changes: Any) -> Study:
    value = {
        "instances": [2],
        "patterns": [{"name": "short", "input_tokens": 64, "output_tokens": 8}],
        "slo_factor": 3,
        "loads": [0.5],
        "policies": [{"router": "least_load_push", "queue": "fifo"}],
        "warmup_s": 1,
        "duration_s": 5,
        "days": 2,
        **changes,
    }
    path = tmp_path / "fleet.yaml"
    path.write_text(json.dumps(value))
    return load_study(path)


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Rehearsed:
    """The demo in virtual time: the known costs of its model, and nothing of a host."""
    config = load_campaign(DEMO)
    wanted = ("plain", "noop_connector", "mooncake_both", "lmcache_only")
    config = msgspec.structs.replace(config, connectors=tuple(config.connector(c) for c in wanted))
    root, _ = rehearse(config, tmp_path_factory.mktemp("fleet"), processes=1)
    return root, config


RESOLVED = Resolved(max_num_batched_tokens=512, max_num_seqs=128)


def engine(*, step_us: float = 5_000, max_num_seqs: int = 1, outside_s: float = 0.0) -> FittedEngine:
    """Every step takes so long, whatever is in it."""
    costs = EngineCosts(step_us, 0, 0, 0, 0, 0, 0.0, 0.0, max_num_seqs, kv_blocks=10_000, block_size=16)
    return FittedEngine(costs, NO_CONNECTOR, outside_s, 512)


def known_costs(config: CampaignConfig, connector: str) -> tuple[EngineCosts, ConnectorCosts]:
    model = PROJECT_ROOT / str(config.engine.model_file)
    return load_costs(model, config.connector(connector).kv_transfer_config)


def _with(costs: EngineCosts, own: ConnectorCosts) -> EngineCosts:
    return msgspec.structs.replace(
        costs,
        base_us=costs.base_us * own.step_factor + own.per_step_us,
        per_prefill_token_us=costs.per_prefill_token_us * own.step_factor,
        per_decode_seq_us=costs.per_decode_seq_us * own.step_factor,
        per_context_token_us=costs.per_context_token_us * own.step_factor,
    )


@pytest.mark.parametrize("connector", ["plain", "mooncake_both", "lmcache_only"])
def test_the_costs_that_were_put_in_come_out(rehearsed: Rehearsed, connector: str) -> None:
    """Also where the connector multiplies the step: its own costs are then in every coefficient."""
    root, config = rehearsed
    cells = [c for c in read_campaign(root).cells() if c.config == connector]
    found = calibrate(cells, RESOLVED, 1)
    costs, own = known_costs(config, connector)
    fitted, truth = found.engine.costs, _with(costs, own)
    assert fitted.base_us == pytest.approx(truth.base_us, rel=0.02)
    assert fitted.per_prefill_token_us == pytest.approx(truth.per_prefill_token_us, rel=0.02)
    assert found.engine.per_prompt.per_request_us == pytest.approx(own.per_request_us, abs=60)
    # Tokens looked back on go with the sequences that do: the two are told apart by their sum at a shape.
    of_a_sequence = (c.per_decode_seq_us + 256 * c.per_context_token_us for c in (fitted, truth))
    assert next(of_a_sequence) == pytest.approx(next(of_a_sequence), rel=0.1)
    # Hooks take always the same, so the whole scatters less than the engine's own part of it.
    share = costs.base_us * own.step_factor / fitted.base_us
    assert fitted.jitter_cv == pytest.approx(costs.jitter_cv * share, abs=0.006)
    # A perfect client and no server: nothing is outside steps, but for where in a step requests happen to arrive.
    assert found.engine.outside_s < 5e-4
    assert found.typical_error < 0.02
    assert len(found.checks) == 2 * len([c for c in cells if c.usable])


def test_a_fitted_fleet_has_the_tax_of_the_true_one(rehearsed: Rehearsed, tmp_path: Path) -> None:
    """Costs from step records against the costs that were put in: the same fleet, within the days' scatter."""
    root, config = rehearsed
    study = short_study(tmp_path, days=4)
    measured = members_of(root, study, map)
    assert [m.config for m in measured.members] == list(config.connector_ids)
    true = []
    for member in measured.members:
        costs, own = known_costs(config, member.config)
        per_prompt = ConnectorCosts(per_request_us=own.per_request_us)
        fitted = FittedEngine(_with(costs, own), per_prompt, 0.0, 512)
        true.append(Member(member.config, fitted, member.profiles))
    found, truth = (
        {
            t.config: t.mean
            for t in taxes(run_study(study, m, measured.patterns, map), 0.95)
            if t.metric == "e2e_p90_s"
        }
        for m in (measured.members, true)
    )
    for config_id in config.connector_ids[1:]:
        assert found[config_id].point == pytest.approx(truth[config_id].point, abs=0.02)
    low = found["mooncake_both"].low
    assert found["mooncake_both"].point > 0.2
    assert low is not None and low > found["noop_connector"].point


def test_a_fit_by_hand() -> None:
    """No scatter: 1000 + 10 per prompt token + 20 per sequence + 0.5 per token looked back on + 300 per prompt."""
    rng = np.random.default_rng(2)
    columns = [rng.integers(0, most, 200) for most in (500, 50, 9000, 4)]
    features = np.column_stack([np.ones(200), *columns]).astype(float)
    found, per_prompt = fit_costs(features, features @ np.array([1000.0, 10.0, 20.0, 0.5, 300.0]))
    assert per_prompt.per_request_us == pytest.approx(300)
    assert (found.base_us, found.per_prefill_token_us) == (pytest.approx(1000), pytest.approx(10))
    assert (found.per_decode_seq_us, found.per_context_token_us) == (pytest.approx(20), pytest.approx(0.5))
    assert found.jitter_cv == pytest.approx(0, abs=1e-6)


def test_a_pause_of_the_host_is_not_the_engines_scatter() -> None:
    rng = np.random.default_rng(3)
    none = np.zeros((2000, 1))
    features = np.hstack([none + 1, none, rng.integers(1, 50, (2000, 1)), none, none])
    durations = (features @ np.array([1000.0, 0, 20.0, 0, 0])) * rng.lognormal(-0.005, 0.1, 2000)
    durations[::100] *= 20
    assert fit_costs(features, durations)[0].jitter_cv == pytest.approx(0.1, abs=0.015)


def test_a_profile_is_the_highest_rate_that_keeps_the_slo() -> None:
    """One step per request and no scatter: 10 ms, alone in the engine's one place, so M/D/1 with an SLO on the wait."""
    pattern = Pattern("p", 16, 2, 1.0, slo_s=0.030)
    rates = [
        found.rate_per_s for s in range(30) if (found := find_profile(engine(), pattern, 0.05, s)) is not None
    ]
    # P(wait > 20 ms) of M/D/1 with a service of 10 ms is 5 % near 49 per second, by the recursion below.
    assert float(np.mean(rates)) == pytest.approx(_md1_rate(0.010, 0.020, 0.05), rel=0.05)


def _md1_rate(service_s: float, wait_s: float, share: float) -> float:
    """Bisection on Lindley's recursion."""
    gaps = np.random.default_rng(0).exponential(1.0, 200_000)
    low, high = 1.0, 99.0
    while high - low > 0.1:
        middle = (low + high) / 2
        sums = np.concatenate([[0.0], np.cumsum(service_s - gaps[1:] / middle)])
        waits = sums - np.minimum.accumulate(sums)
        low, high = (middle, high) if (waits > wait_s).mean() <= share else (low, middle)
    return low


def test_an_slo_that_an_idle_engine_misses_has_no_profile() -> None:
    assert find_profile(engine(), Pattern("p", 16, 2, 1.0, slo_s=0.009), 0.05, 0) is None
    # 10 ms of work each: no SLO makes more than 100 per second of it, but for the twentieth that a window may lag behind.
    for slo_s in (0.3, 5.0):
        found = find_profile(engine(), Pattern("p", 16, 2, 1.0, slo_s=slo_s), 0.05, 1)
        assert 80 < found.rate_per_s < 100 / 0.95 * 1.02, slo_s


def test_loads_are_relative_to_plain() -> None:
    patterns = [Pattern("a", 1, 2, 3.0, 1.0), Pattern("b", 1, 2, 1.0, 1.0)]
    found = offered(patterns, {"a": Profile(10.0, 1.0), "b": Profile(2.0, 1.0)}, 4, 0.5)
    assert [p.rate_per_s for p in found] == [pytest.approx(7.5), pytest.approx(2.5)]
    assert pytest.approx(4 * 0.5) == 7.5 / 10 + 2.5 / 2


def test_an_engine_without_costs_is_refused() -> None:
    with pytest.raises(AnalysisError, match="no rate up to 100000 per second is too much"):
        find_profile(engine(step_us=0, outside_s=1e-4), Pattern("p", 16, 2, 1.0, 1e-3), 0.05, 1)


def test_what_is_beside_steps_is_in_the_instance_too() -> None:
    """At its profile's rate an engine holds as much as its capacity, however long a request takes to reach it."""
    for outside_s in (0.0, 0.03):
        own = engine(max_num_seqs=8, outside_s=outside_s)
        pattern = Pattern("p", 16, 4, 40.0, slo_s=1.0)
        idle = own.idle(pattern, 0)
        assert idle["e2e_mean_s"] == pytest.approx(0.02 + outside_s)
        assert idle["wait_mean_s"] == pytest.approx(0.005 + outside_s)
        due = arrivals([pattern], 60.0, 1)
        instance = own.instance({"p": Profile(1.0, 1.0)}, 0)
        day = simulate(due, [instance], ALONE, begin_s=10.0, end_s=60.0, seed=0)
        e2e_s = np.mean([((r.t_end_ns or 0) - r.t_sched_ns) / 1e9 for r in day.requests])
        assert day.loads[0] == pytest.approx(len(day.requests) / 50 * e2e_s, rel=0.02)


def test_what_cannot_be_modelled_is_left_out_with_its_reason(rehearsed: Rehearsed, tmp_path: Path) -> None:
    """An SLO that plain keeps and slower connectors cannot, even idle; and a prompt longer than any that was measured."""
    measured = members_of(rehearsed[0], short_study(tmp_path, slo_factor=1.2), map)
    reason = "cannot keep the SLO of short at any rate, so it has no profile"
    assert measured.source.left_out == {"lmcache_only": reason, "mooncake_both": reason}
    assert [m.config for m in measured.members] == ["plain", "noop_connector"]
    assert measured.source.notes == ("measured on the embedded engine: its taxes are made up",)
    own = {"name": "long", "input_tokens": 2000, "output_tokens": 8}
    measured = members_of(rehearsed[0], short_study(tmp_path, patterns=[own]), map)
    assert "beyond the prompts that were measured (64 to 512 tokens): long (2000)" in measured.source.notes


def test_a_model_that_is_not_like_what_was_measured_is_left_out(
    rehearsed: Rehearsed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = calibration.fit_costs

    def wrong_for_large_steps(*given: Any) -> Any:
        costs, per_prompt = real(*given)
        factor = 1.6 if costs.base_us > 2500 else 1.0
        return msgspec.structs.replace(costs, base_us=costs.base_us * factor), per_prompt

    monkeypatch.setattr(calibration, "fit_costs", wrong_for_large_steps)
    left_out = members_of(rehearsed[0], short_study(tmp_path), map).source.left_out
    assert list(left_out) == ["mooncake_both"]
    assert re.search(
        r"misses the measured latencies by \d\d% at the median; up to 25%", left_out["mooncake_both"]
    )


def test_a_request_that_no_memory_holds_is_refused_and_not_waited_for(
    rehearsed: Rehearsed, tmp_path: Path
) -> None:
    settings = rehearsed[0] / "engine_diff.json"
    before = settings.read_text()
    diff = json.loads(before)
    diff["plain"]["cache_config.num_gpu_blocks"] = 40
    settings.write_text(json.dumps(diff))
    pattern = {"name": "huge", "input_tokens": 640, "output_tokens": 8}
    try:
        with pytest.raises(AnalysisError, match="its KV memory is too small for one request of huge"):
            members_of(rehearsed[0], short_study(tmp_path, patterns=[pattern]), map)
    finally:
        settings.write_text(before)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ({"input_tokens": 4090}, "'short' has 4090 + 8 tokens, the campaign's engine takes 4096"),
        ({"slo_s": 1, "profile": {"rate_per_s": 4, "e2e_s": 0.5}}, "'short' has a profile of its own"),
    ],
)
def test_what_a_campaign_cannot_give_is_one_message(
    rehearsed: Rehearsed, tmp_path: Path, pattern: dict[str, Any], message: str
) -> None:
    own = {"name": "short", "input_tokens": 64, "output_tokens": 8, **pattern}
    with pytest.raises(ConfigError, match=re.escape(message)):
        members_of(rehearsed[0], short_study(tmp_path, patterns=[own], duration_s=9), map)


def test_where_sequences_hardly_met_what_another_costs_is_not_guessed(
    rehearsed: Rehearsed,
) -> None:
    cells = [
        c for c in read_campaign(rehearsed[0]).cells() if c.config == "plain" and c.cell_id == "r20_256x16"
    ]
    with pytest.raises(
        AnalysisError, match=r"has \d+ step records in valid cells, \d+ of them of two sequences"
    ):
        calibrate(cells, RESOLVED, 1)


def test_with_one_prompt_length_a_prompt_and_its_tokens_cost_one_thing(
    rehearsed: Rehearsed,
) -> None:
    cells = [c for c in read_campaign(rehearsed[0]).cells() if c.config == "lmcache_only" and c.phase == "a"]
    found = calibrate(cells, RESOLVED, 1)
    assert found.input_lengths == (256,)
    assert found.engine.per_prompt.per_request_us == 0
    # 30 us per token times 1.05, and 1 ms per prompt of 256.
    assert found.engine.costs.per_prefill_token_us == pytest.approx(31.5 + 1000 / 256, rel=0.05)


def test_a_campaign_without_step_records_is_one_message(tmp_path: Path) -> None:
    config = campaign_config(connectors=["plain"], phase_b_prime={"configs": ["plain"], "shapes": [[64, 16]]})
    campaign = Campaign(tmp_path / "c", config, step_timing=False)
    campaign.measure("plain")
    with pytest.raises(
        AnalysisError, match="plain cannot be put into a fleet: it has 0 step records in valid cells"
    ):
        members_of(tmp_path / "c", short_study(tmp_path), map)


def test_closed_loops_say_nothing_of_a_fleet_and_blocks_do(rehearsed: Rehearsed) -> None:
    """Arrivals of a closed loop are the engine's own, and cannot be sent to a model again."""
    cells = [c for c in read_campaign(rehearsed[0]).cells() if c.config == "plain"]
    loop = replace(cells[0].spec, phase="d", arrival="concurrency", concurrency=2, rate_per_s=0.0)
    with_loop = [*cells, replace(cells[0], phase="d", spec=loop)]
    assert calibrate(with_loop, RESOLVED, 1) == calibrate(cells, RESOLVED, 1)
    found = calibrate([replace(c, phase="r1") for c in cells if c.phase == "b"], RESOLVED, 1)
    assert {c.phase for c in found.checks} == {"r1"}
    assert found.input_lengths == (64, 256, 512)
