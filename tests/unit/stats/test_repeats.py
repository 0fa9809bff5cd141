"""Blocks of launches: taxes, noise floor and drift against closed forms, scipy, and counted coverage."""

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from analysed import aggregate_json
from builders import SMALL, Campaign, campaign_config
from invented_server import Behaviour
from msgspec.structs import replace
from scipy import stats

from connector_tax.base.documents.aggregate import Aggregate, Blocks, BlockTax
from connector_tax.base.plan import cells_of, run_order
from connector_tax.base.records.rates import ReferenceRates
from connector_tax.read.ingest import read_campaign
from connector_tax.read.stats.aggregate import aggregate
from connector_tax.read.stats.launches import Launch
from connector_tax.read.stats.repeats import (
    _drawn_jointly,
    found_by_blocks,
    mean_over_blocks,
    smallest_detectable,
    summarise,
)

CONFIGS = ("plain", "plain_again", "x", "y")


def launches(
    blocks: int,
    rng: np.random.Generator,
    *,
    taxes: dict[str, float] | None = None,
    launch_sd: float = 0.0,
    block_sd: float = 0.0,
    drift_per_h: float = 0.0,
    within_sd: float = 0.0,
) -> dict[tuple[str, str], Launch]:
    """A campaign of one launch every six minutes, in random order inside blocks."""
    found, k = {}, 0
    for b in range(1, blocks + 1):
        level = math.log(100) + rng.normal(0, block_sd)
        for config in rng.permutation(CONFIGS):
            value = level + math.log1p((taxes or {}).get(str(config), 0.0)) + drift_per_h * k / 10
            value += rng.normal(0, math.hypot(launch_sd, within_sd)) if launch_sd or within_sd else 0.0
            found[f"r{b}", str(config)] = Launch(f"r{b}", str(config), k / 10, value, within_sd)
            k += 1
    return found


def tax(entry: Blocks | None, config: str) -> BlockTax:
    assert entry is not None
    return next(t for t in entry.taxes if t.config == config)


def test_without_noise_the_tax_is_exact() -> None:
    """What a block is slower by as a whole cancels."""
    entry = summarise(launches(4, np.random.default_rng(1), taxes={"x": 0.3, "y": -0.1}, block_sd=0.5), 0.95)
    for config, truth in (("x", 0.3), ("y", -0.1)):
        found = tax(entry, config)
        assert (found.low, found.point, found.high) == pytest.approx((truth, truth, truth))
        assert list(found.by_block.values()) == pytest.approx([truth] * 4)


def test_the_interval_is_that_of_a_t_test() -> None:
    values = np.random.default_rng(2).normal(0.1, 0.05, 6)
    found = mean_over_blocks(values, 0.95)
    by_scipy = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert found.low == pytest.approx(math.expm1(by_scipy.low))
    assert found.high == pytest.approx(math.expm1(by_scipy.high))
    assert found.point == pytest.approx(math.exp(values.mean()) - 1)


def test_a_straight_drift_is_found_and_taken_out() -> None:
    """2 % an hour: the adjusted tax is exact, the raw one is off by where the connector happened to stand."""
    entry = summarise(launches(5, np.random.default_rng(3), taxes={"x": 0.2}, drift_per_h=0.02), 0.95)
    assert entry is not None
    assert entry.drift.change.point == pytest.approx(math.expm1(0.02 * entry.drift.hours))
    assert entry.drift.p_value < 1e-4
    assert tax(entry, "x").adjusted.point == pytest.approx(0.2)
    assert tax(entry, "x").point != pytest.approx(0.2)


@pytest.mark.parametrize("block_sd", [0.0, 0.03])
@pytest.mark.parametrize("blocks", [3, 5])
def test_what_blocks_differ_by_is_no_drift(blocks: int, block_sd: float) -> None:
    """500 campaigns whose launches differ by 1 % and whose blocks differ as well, in which nothing drifts."""
    chance = np.random.default_rng(blocks)
    found = [summarise(launches(blocks, chance, launch_sd=0.01, block_sd=block_sd), 0.95) for _ in range(500)]
    false = np.mean([e.drift.p_value < 0.05 for e in found if e is not None])
    # Three standard errors of a share of 500 are 2.9 %.
    assert false < 0.079


def test_the_deviation_between_launches_has_an_interval_that_holds_it() -> None:
    """Of 400 campaigns of five blocks many have 0.0 % for an estimate, where the truth is 2 %."""
    chance, held = np.random.default_rng(8), 0
    for _ in range(400):
        entry = summarise(launches(5, chance, launch_sd=0.02, within_sd=0.02), 0.95)
        assert entry is not None
        found = entry.between_launches
        held += found.low <= 0.02 <= found.high
        assert found.point == entry.between_launch_sd
    assert held / 400 > 0.917


@pytest.mark.parametrize("blocks", [3, 10])
def test_the_tax_that_is_found_four_times_in_five_lies_in_the_interval_that_is_printed(blocks: int) -> None:
    """800 campaigns whose launches differ by 2 %; by scipy's t-test a tax of the true size is found in 80 % of 20,000."""
    chance = np.random.default_rng(blocks)
    true = smallest_detectable(0.02 * math.sqrt(1.5 / blocks), freedom=blocks - 1)
    seen = chance.normal(true, 0.02 * math.sqrt(1.5), (20_000, blocks))
    found = stats.ttest_1samp(seen, 0.0, axis=1)
    assert ((found.pvalue < 0.05) & (found.statistic > 0)).mean() == pytest.approx(0.8, abs=0.01)
    printed = [
        summarise(launches(blocks, chance, launch_sd=0.02), 0.95).noise_floor.found_4_of_5  # type: ignore[index]
        for _ in range(800)
    ]
    size = math.expm1(true)
    # Four standard errors of these shares are 3.1 % and 7.1 %.
    assert np.mean([p.low <= size <= p.high for p in printed]) == pytest.approx(0.95, abs=0.031)
    assert np.mean([p.point < size for p in printed]) == pytest.approx(0.5, abs=0.071)


def test_a_deviation_that_nobody_could_use_has_no_tax_that_is_found() -> None:
    assert found_by_blocks(50.0, 3, 3, 0.95) is None


def test_what_launches_differ_by_is_told_from_what_requests_leave_open() -> None:
    chance = np.random.default_rng(4)
    found = [
        summarise(launches(40, chance, launch_sd=0.05, within_sd=0.03), 0.95).between_launch_sd  # type: ignore[index]
        for _ in range(30)
    ]
    assert np.mean(found) == pytest.approx(0.05, rel=0.1)
    quiet = summarise(launches(40, chance, launch_sd=0.0, within_sd=0.05), 0.95)
    assert quiet is not None and quiet.between_launch_sd < 0.03


@pytest.mark.parametrize("blocks", [3, 5, 10])
def test_intervals_hold_the_truth_and_a_bootstrap_of_blocks_does_not(blocks: int) -> None:
    """Launches that differ by 5 %, a tax of 10 %: 2000 campaigns."""
    chance = np.random.default_rng(blocks)
    truth, held, held_by_bootstrap, false_alarms = math.log1p(0.1), 0, 0, 0
    n = 2000
    for _ in range(n):
        own = chance.normal(truth, 0.05, blocks) - chance.normal(0, 0.05, (2, blocks)).mean(axis=0)
        found = mean_over_blocks(own, 0.95)
        held += found.low <= 0.1 <= found.high
        means = own[chance.integers(0, blocks, (200, blocks))].mean(axis=1)
        low, high = np.quantile(means, [0.025, 0.975])
        held_by_bootstrap += low <= truth <= high
        against_itself = mean_over_blocks(chance.normal(0, 0.07, blocks), 0.95)
        false_alarms += not against_itself.low <= 0 <= against_itself.high
    # Three standard errors of a share of 2000 are 1.5 %.
    assert held / n == pytest.approx(0.95, abs=0.016)
    assert false_alarms / n == pytest.approx(0.05, abs=0.016)
    assert held_by_bootstrap / n < held / n - (0.1 if blocks <= 5 else 0.015)


@pytest.mark.parametrize("blocks", [3, 4, 8])
def test_what_is_drawn_for_hypotheses_has_the_interval_of_the_table(blocks: int) -> None:
    """One tax has one interval, also where its end is close to a threshold."""
    for seed in range(50):
        rng = np.random.default_rng(seed)
        table = rng.normal(0.1, 0.03, (blocks, 2))
        drawn = _drawn_jointly(table, ["x", "y"], 2000, rng)
        for k, config in enumerate(("x", "y")):
            exact = mean_over_blocks(table[:, k], 0.95)
            assert drawn[config].interval(0.95) == (exact.low, exact.high)


def test_draws_of_configurations_that_share_their_blocks_move_together() -> None:
    """Their difference is what they do not share."""
    rng = np.random.default_rng(1)
    shared, own = rng.normal(0, 0.05, (6, 1)), rng.normal(0, 0.005, (6, 2))
    drawn = _drawn_jointly(shared + own, ["x", "y"], 4000, rng)
    gap = np.diff(own, axis=1)
    half = mean_over_blocks(gap[:, 0], 0.95)
    x, y = drawn["x"].replicates, drawn["y"].replicates
    low, high = np.quantile(y - x, [0.025, 0.975])
    assert (high - low) == pytest.approx(half.high - half.low, rel=0.25)
    assert np.corrcoef(x, y)[0, 1] > 0.95


def test_a_lost_block_leaves_what_two_configurations_share_through_plain() -> None:
    """Plain differs by 3 % from block to block, connectors by 1 %. Sum and difference are held as often as promised.

    Drawn as if nothing were shared, 90 % of sums are, and differences are twice as wide.
    """
    rng, n, held, wide = np.random.default_rng(3), 600, {"sum": 0, "gap": 0, "sum apart": 0}, np.zeros(2)
    for _ in range(n):
        table = rng.normal(0, 0.03, (6, 1)) + rng.normal(0, 0.01, (6, 2))
        table[rng.integers(6), 1] = math.nan
        drawn = _drawn_jointly(table, ["x", "y"], 500, rng)
        assert [drawn[c].n for c in ("x", "y")] == [6, 5]
        x, y = (np.log1p(drawn[c].replicates) for c in ("x", "y"))
        apart = rng.permutation(y)
        for name, values in (("sum", x + y), ("gap", x - y), ("sum apart", x + apart)):
            low, high = np.quantile(values, [0.025, 0.975])
            held[name] += bool(low <= 0 <= high)
        wide += np.ptp(np.quantile([x - y, x - apart], [0.025, 0.975], axis=1), axis=0)
    assert held["sum"] / n == pytest.approx(0.95, abs=0.03)
    assert held["gap"] / n == pytest.approx(0.96, abs=0.03)
    assert held["sum apart"] < held["sum"] - 0.02 * n
    assert wide[0] < 0.6 * wide[1]
    own = mean_over_blocks(table[~np.isnan(table[:, 1]), 1], 0.95)
    assert drawn["y"].interval(0.95) == (own.low, own.high)


def test_two_blocks_are_no_evidence() -> None:
    assert summarise(launches(2, np.random.default_rng(5)), 0.95) is None


def test_a_block_without_both_plains_does_not_count() -> None:
    found = launches(4, np.random.default_rng(6), taxes={"x": 0.1})
    lost = found["r2", "plain_again"]
    found["r2", "plain_again"] = Launch(lost.block, lost.config, lost.start_h, math.nan, math.nan)
    entry = summarise(found, 0.95)
    assert entry is not None and entry.blocks == 3
    del found["r3", "x"]
    left = summarise(found, 0.95)
    assert left is not None and [t.config for t in left.taxes] == ["y"]


def test_a_configuration_that_lost_a_block_keeps_the_others() -> None:
    found = launches(5, np.random.default_rng(6), taxes={"x": 0.1})
    before = tax(summarise(found, 0.95), "y")
    del found["r3", "x"]
    entry = summarise(found, 0.95)
    assert entry is not None and entry.blocks == 5
    assert sorted(tax(entry, "x").by_block) == ["r1", "r2", "r4", "r5"]
    assert tax(entry, "x").n == 4
    after = tax(entry, "y")
    assert replace(after, adjusted=None) == replace(before, adjusted=None)


@pytest.fixture(scope="module")
def value(tmp_path_factory: pytest.TempPathFactory) -> Aggregate:
    plain = Behaviour(noise=0.05)
    config = campaign_config(**SMALL, repeats=2)
    behaviours = {
        "plain": plain,
        "plain_again": plain,
        "noop_connector": plain,
        "mooncake_both": plain.taxed(0.3),
        "nixl_both": plain.taxed(0.2),
    }
    campaign = Campaign(tmp_path_factory.mktemp("repeats"), config, behaviours)
    campaign.measure_everything()
    return aggregate(read_campaign(campaign.root))


def test_a_campaign_with_repeats_has_taxes_over_blocks(value: Aggregate) -> None:
    safe = next(e for e in value.repeats if (e.reference, e.metric) == ("ref_safe", "tpot_p90"))
    assert safe.blocks == 4
    assert tax(safe, "mooncake_both").point == pytest.approx(0.3, abs=0.03)
    assert abs(tax(safe, "noop_connector").point) < 0.03
    assert abs(safe.noise_floor.point) < 0.05
    assert safe.drift.hours > 0


def test_every_block_has_an_order_and_a_load_of_its_own() -> None:
    config = campaign_config(**SMALL, repeats=3)
    assert config.phases[-3:] == ("r1", "r2", "r3")
    orders = [run_order(config, p) for p in ("r1", "r2", "r3")]
    assert all(sorted(o) == sorted((*config.connector_ids, "plain_again")) for o in orders)
    assert len(set(orders)) > 1
    first, second = (cells_of(config, "plain", p, ReferenceRates(2.0, 4.0)) for p in ("r1", "r2"))
    assert [c.cell_id for c in first] == [c.cell_id for c in second] == ["r2_256x16", "r4_256x16"]
    assert {c.seed for c in first}.isdisjoint(c.seed for c in second)
    assert first == cells_of(config, "plain_again", "r1", ReferenceRates(2.0, 4.0))
    assert len(cells_of(config, "plain", "r1", ReferenceRates(2.0, 2.0))) == 1


def test_blocks_that_are_not_whole_are_named(tmp_path: Path) -> None:
    """Fewer than three whole ones: the taxes are those of one launch, and that is said."""
    plain = Behaviour(noise=0.05)
    config = campaign_config(**SMALL, repeats=2)
    campaign = Campaign(tmp_path, config, dict.fromkeys((*config.connector_ids, "plain_again"), plain))
    campaign.measure_everything()
    shutil.rmtree(campaign.run("plain_again", "r2").path)
    shutil.rmtree(campaign.run("plain_again", "b").path)
    found = aggregate_json(read_campaign(campaign.root))
    assert found["repeats"] == []
    lost = [p for p in found["problems"] if p["code"] == "no_cell_in_block"]
    assert [(p["subject"], *p["names"]) for p in lost] == [
        ("phase_b", "plain_again"),
        ("phase_r2", "plain_again"),
    ]
    (few,) = [p for p in found["problems"] if p["code"] == "few_blocks"]
    assert few["numbers"] == {"complete": 2, "of": 4, "needed": 3}
