"""Taxes at equal speed of the host: exact without noise, counted coverage, and what they must not be taken for."""

import math
from dataclasses import replace

import numpy as np
import pytest

from connector_tax.base.documents.aggregate import Blocks, BlockTax, Host
from connector_tax.read.stats.hypotheses import Evidence, hypotheses_of, judge_hypotheses
from connector_tax.read.stats.launches import Launch
from connector_tax.read.stats.repeats import _drawn_jointly, mean_over_blocks, summarise

CONFIGS = ("plain", "plain_again", "a", "b", "c", "d", "e", "f", "heavy")
BLOCKS = tuple(f"r{k}" for k in range(1, 5))
SLOPE = 0.3


def host(work_us: float | None) -> Host:
    return Host(
        n=100, steal_share=0.0, cpu_mhz_p50=None, cpu_mhz_min=None, gpu=None, cpu_work_us_mean=work_us
    )


def campaign(
    rng: np.random.Generator,
    *,
    taxes: dict[str, float] | None = None,
    own_sd: float = 0.0,
    heavy_sd: float = 0.0,
    slow_share: float = 0.5,
    slows: dict[str, float] | None = None,
) -> dict[tuple[str, str], Launch]:
    """Launches on cores of two speeds; ``slows``: by how much a configuration makes the piece of work longer itself."""
    found = {}
    for k, block in enumerate(BLOCKS):
        for config in CONFIGS:
            work = math.log(210) + (rng.random() < slow_share) * 0.3 + rng.normal(0, 0.02)
            work += (slows or {}).get(config, 0.0)
            level = math.log(50) + 0.05 * k
            value = level + SLOPE * (work - math.log(210)) + math.log1p((taxes or {}).get(config, 0.0))
            sd = heavy_sd if config == "heavy" else own_sd
            value += rng.normal(0, sd) if sd else 0.0
            found[block, config] = Launch(block, config, float(k), value, 0.0, host(math.exp(work)))
    return found


def row(entry: Blocks | None, config: str) -> BlockTax:
    return next(t for t in entry.taxes if t.config == config)


def test_without_noise_slope_and_taxes_are_exact() -> None:
    entry = summarise(campaign(np.random.default_rng(1), taxes={"a": 0.1, "heavy": 0.8}), 0.95)
    assert entry is not None and entry.host_speed_slope.point == pytest.approx(SLOPE)
    for config, truth in (("a", 0.1), ("b", 0.0), ("heavy", 0.8)):
        found = row(entry, config).at_equal_host_speed
        assert [found.point, found.low, found.high] == pytest.approx([truth] * 3)
    assert entry.noise_floor.at_equal_host_speed.point == pytest.approx(0.0)


@pytest.mark.parametrize("heavy_sd", [0.01, 0.1])
def test_intervals_hold_the_truth_and_are_shorter(heavy_sd: float) -> None:
    """300 campaigns on cores of two speeds, launches that differ by 1 % else; one configuration may differ by ten times that."""
    n, held, held_heavy, slopes, shorter = 300, 0, 0, 0, []
    for seed in range(n):
        found = campaign(
            np.random.default_rng(seed), taxes={"a": 0.02, "heavy": 0.8}, own_sd=0.01, heavy_sd=heavy_sd
        )
        entry = summarise(found, 0.95)
        tax, heavy = row(entry, "a"), row(entry, "heavy").at_equal_host_speed
        own = tax.at_equal_host_speed
        held += own.low <= 0.02 <= own.high
        held_heavy += heavy.low <= 0.8 <= heavy.high
        slopes += entry.host_speed_slope.low <= SLOPE <= entry.host_speed_slope.high
        shorter.append((own.high - own.low) / (tax.high - tax.low))
    # Three standard errors of a share of 300 are 3.8 %.
    assert held / n > 0.912 and held_heavy / n > 0.912 and slopes / n > 0.912
    assert float(np.median(shorter)) < 0.5


def test_a_connector_that_slows_the_cores_itself_is_told_by_the_work() -> None:
    """Its tax through the cores is gone at equal speed, so the tax itself must stay what decides."""
    rng = np.random.default_rng(3)
    tax = row(summarise(campaign(rng, own_sd=0.002, slow_share=0.0, slows={"a": 0.2}), 0.95), "a")
    assert tax.verdict == "tax" and tax.point == pytest.approx(math.expm1(0.2 * SLOPE), abs=0.015)
    assert tax.at_equal_host_speed.point == pytest.approx(0.0, abs=0.015)
    assert tax.at_equal_host_speed.work.low > 0.1


@pytest.mark.parametrize("sd", [3e-4, 0.0])
def test_a_host_whose_speed_hardly_differs_has_no_slope(sd: float) -> None:
    """Its work differs by 0.03 %, and a slope over that would put launches' own 1 % into every tax; or not at all."""
    rng = np.random.default_rng(11)
    found = {
        k: replace(x, host=host(210.0 * math.exp(rng.normal(0, sd))))
        for k, x in campaign(rng, own_sd=0.01, slow_share=0.0).items()
    }
    entry = summarise(found, 0.95)
    assert entry is not None and entry.host_speed_slope is None


def test_draws_hold_the_error_of_the_slope() -> None:
    """Two configurations whose work differed alike from plain's share it, and their difference is free of it."""
    table = np.random.default_rng(7).normal(0.0, 0.001, (4, 2))
    drawn = _drawn_jointly(table, ["x", "y"], 4000, np.random.default_rng(8), np.array([0.05, 0.05]))
    widths = [float(np.ptp(drawn[c].interval(0.95))) for c in ("x", "y")]
    plain = mean_over_blocks(table[:, 0], 0.95)
    assert min(widths) > 10 * (plain.high - plain.low)
    gap = np.quantile(drawn["y"].replicates - drawn["x"].replicates, [0.025, 0.975])
    assert float(np.ptp(gap)) < 0.2 * min(widths)


def test_a_verdict_keeps_its_own_answer_and_has_the_other_beside_it() -> None:
    rng = np.random.default_rng(9)
    wide = _drawn_jointly(rng.normal(0.05, 0.06, (4, 1)), ["mooncake_both"], 4000, rng)
    narrow = _drawn_jointly(rng.normal(0.02, 0.01, (4, 1)), ["mooncake_both"], 4000, rng)
    evidence = Evidence(wide, {}, {}, {}, {}, 0.95, n_blocks=dict.fromkeys(wide, 4))
    h1, h2 = hypotheses_of(judge_hypotheses(evidence), evidence, narrow)[:2]
    assert (h1.outcome, h1.at_equal_host_speed.outcome) == ("undetermined", "refuted")
    assert h2.at_equal_host_speed is None, "NIXL has no number either way"
    assert all(v.at_equal_host_speed is None for v in hypotheses_of(judge_hypotheses(evidence), evidence, {}))


@pytest.mark.parametrize(
    "told",
    [None, host(None), host(0.0), host(1e-290), host(1e12)],
    ids=["no host", "no work", "0", "tiny", "huge"],
)
def test_nothing_is_said_where_one_launch_does_not_tell_a_speed_that_can_have_been(told: Host | None) -> None:
    """A damaged record, or a clock that ticks too seldom, neither ends the analysis nor becomes a number."""
    found = campaign(np.random.default_rng(5), own_sd=0.01)
    found["r2", "b"] = replace(found["r2", "b"], host=told)
    entry = summarise(found, 0.95)
    assert entry.host_speed_slope is None
    assert entry.noise_floor.at_equal_host_speed is None
    assert all(t.at_equal_host_speed is None for t in entry.taxes)
