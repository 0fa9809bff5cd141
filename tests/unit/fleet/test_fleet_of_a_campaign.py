"""From a campaign's step records to fleets: the costs that were put in come out, and what cannot be modelled is named."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from connector_tax.config import CampaignConfig, load_campaign
from connector_tax.config.checked import PROJECT_ROOT
from connector_tax.enginemodel.costs import NO_CONNECTOR, ConnectorCosts, EngineCosts, load_costs
from connector_tax.errors import AnalysisError
from connector_tax.fleet.calibration import calibrate, fit_costs
from connector_tax.fleet.campaign import members_of
from connector_tax.fleet.engines import FittedEngine, find_profile
from connector_tax.fleet.patterns import Pattern, Profile
from connector_tax.fleet.run import Member, offered, run_study, taxes
from connector_tax.fleet.study import Study, load_study
from connector_tax.ingest import read_campaign
from connector_tax.rehearsal.campaign import rehearse

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import Campaign, campaign_config

DEMO = PROJECT_ROOT / "config" / "demo.yaml"


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
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CampaignConfig]:
    """The demo in virtual time: the known costs of its model, and nothing of a host."""
    config = load_campaign(DEMO)
    wanted = ("plain", "noop_connector", "mooncake_both")
    config = replace(config, connectors=tuple(config.connector(c) for c in wanted))
    root, _ = rehearse(config, tmp_path_factory.mktemp("fleet"))
    return root, config


@pytest.mark.parametrize("connector", ["plain", "noop_connector", "mooncake_both"])
def test_the_costs_that_were_put_in_come_out(rehearsed: tuple[Path, CampaignConfig], connector: str) -> None:
    """Also where the connector multiplies the step: its own costs are then in every coefficient."""
    root, config = rehearsed
    cells = [c for c in read_campaign(root).cells() if c.config == connector]
    found = calibrate(cells, config.engine.args, 1)
    costs, own = load_costs(
        PROJECT_ROOT / str(config.engine.model_file), config.connector(connector).kv_transfer_config
    )
    fitted = found.engine.costs
    assert fitted.base_us == pytest.approx(costs.base_us * own.step_factor + own.per_step_us, rel=0.02)
    assert fitted.per_prefill_token_us == pytest.approx(
        costs.per_prefill_token_us * own.step_factor, rel=0.02
    )
    # Tokens looked back on go with the sequences that do: the two are told apart by their sum at a shape.
    truth = (costs.per_decode_seq_us + 256 * costs.per_context_token_us) * own.step_factor
    assert fitted.per_decode_seq_us + 256 * fitted.per_context_token_us == pytest.approx(truth, rel=0.1)
    # Hooks take always the same, so the whole scatters less than the engine's own part of it.
    share = costs.base_us * own.step_factor / fitted.base_us
    assert fitted.jitter_cv == pytest.approx(costs.jitter_cv * share, abs=0.006)
    # A perfect client and no server: nothing is outside steps.
    assert found.engine.outside_s < 2e-4
    assert found.typical_error < 0.02
    assert len(found.checks) == 2 * len([c for c in cells if c.usable])


def test_a_fitted_fleet_has_the_tax_of_the_true_one(
    rehearsed: tuple[Path, CampaignConfig], tmp_path: Path
) -> None:
    """Costs from step records against the costs that were put in: the same fleet, within the days' scatter."""
    root, config = rehearsed
    study = short_study(tmp_path, days=4)
    measured = members_of(root, study, map)
    assert [m.config for m in measured.members] == ["plain", "mooncake_both", "noop_connector"]
    true = []
    for member in measured.members:
        costs, own = load_costs(
            PROJECT_ROOT / str(config.engine.model_file), config.connector(member.config).kv_transfer_config
        )
        true.append(
            Member(member.config, FittedEngine(_with(costs, own), NO_CONNECTOR, 0.0, 512), member.profiles)
        )
    found, truth = (
        {(t.config, t.metric): t.mean for t in taxes(run_study(study, m, measured.patterns, map), 0.95)}
        for m in (measured.members, true)
    )
    for config_id in ("noop_connector", "mooncake_both"):
        assert found[config_id, "e2e_p90_s"].point == pytest.approx(
            truth[config_id, "e2e_p90_s"].point, abs=0.02
        )
    assert found["mooncake_both", "e2e_p90_s"].point > 0.2
    assert found["mooncake_both", "e2e_p90_s"].low is not None
    assert found["mooncake_both", "e2e_p90_s"].low > found["noop_connector", "e2e_p90_s"].point


def _with(costs: EngineCosts, own: ConnectorCosts) -> EngineCosts:
    return replace(
        costs,
        base_us=costs.base_us * own.step_factor + own.per_step_us,
        per_prefill_token_us=costs.per_prefill_token_us * own.step_factor,
        per_decode_seq_us=costs.per_decode_seq_us * own.step_factor,
        per_context_token_us=costs.per_context_token_us * own.step_factor,
    )


def test_a_fit_by_hand() -> None:
    """No scatter: 1000 + 10 per prompt token + 20 per sequence + 0.5 per token looked back on + 300 per prompt."""
    rng = np.random.default_rng(2)
    columns = [rng.integers(0, most, 200) for most in (500, 50, 9000, 4)]
    features = np.column_stack([np.ones(200), *columns]).astype(float)
    found, per_prompt = fit_costs(features, features @ np.array([1000.0, 10.0, 20.0, 0.5, 300.0]), 256)
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
    assert fit_costs(features, durations, 256)[0].jitter_cv == pytest.approx(0.1, abs=0.015)


def test_a_profile_is_the_highest_rate_that_keeps_the_slo() -> None:
    """One step per request and no scatter: 10 ms, alone in the engine's one place, so M/D/1 with an SLO on the wait."""
    costs = EngineCosts(5_000, 0, 0, 0, 0, 0, 0.0, 0.0, max_num_seqs=1, kv_blocks=10_000, block_size=16)
    engine = FittedEngine(costs, NO_CONNECTOR, 0.0, 512)
    pattern = Pattern("p", 16, 2, 1.0, slo_s=0.030)
    rates = [
        found.rate_per_s for s in range(30) if (found := find_profile(engine, pattern, 0.05, s)) is not None
    ]
    # P(wait > 20 ms) of M/D/1 with a service of 10 ms is 5 % at 54.8 per second (recursion below, a million arrivals).
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
    engine = FittedEngine(EngineCosts(5_000, 0, 0, 0, 0, 0, 0.0, 0.0, 1, 10_000, 16), NO_CONNECTOR, 0.0, 512)
    assert find_profile(engine, Pattern("p", 16, 2, 1.0, slo_s=0.009), 0.05, 0) is None


def test_loads_are_relative_to_plain() -> None:
    patterns = [Pattern("a", 1, 2, 3.0, 1.0), Pattern("b", 1, 2, 1.0, 1.0)]
    found = offered(patterns, {"a": Profile(10.0, 1.0), "b": Profile(2.0, 1.0)}, 4, 0.5)
    assert [p.rate_per_s for p in found] == [pytest.approx(7.5), pytest.approx(2.5)]
    assert pytest.approx(4 * 0.5) == 7.5 / 10 + 2.5 / 2


def test_what_cannot_be_modelled_is_left_out_with_its_reason(
    rehearsed: tuple[Path, CampaignConfig], tmp_path: Path
) -> None:
    """An SLO that plain keeps and a slower connector cannot, even idle."""
    measured = members_of(rehearsed[0], short_study(tmp_path, slo_factor=1.2), map)
    assert measured.source.left_out == {
        "mooncake_both": "misses the SLO of short even when idle, so it has no profile"
    }
    assert [m.config for m in measured.members] == ["plain", "noop_connector"]


def test_a_campaign_without_step_records_is_one_message(tmp_path: Path) -> None:
    config = campaign_config(connectors=["plain"], phase_b_prime={"configs": ["plain"], "shapes": [[64, 16]]})
    campaign = Campaign(tmp_path / "c", config, step_timing=False)
    campaign.measure("plain")
    with pytest.raises(AnalysisError, match="0 step records of valid cells, 50 are needed"):
        members_of(tmp_path / "c", short_study(tmp_path), map)
