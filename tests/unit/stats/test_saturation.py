"""The three criteria and the two reference rates, worked out by hand; then engines whose capacity is known by hand."""

from statistics import median

import pytest

from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.host import EngineCosts
from connector_tax.base.vllm_model.costs import NO_CONNECTOR
from connector_tax.base.vllm_model.model import EngineModel
from connector_tax.read.ingest import CellData
from connector_tax.read.ingest.samples import Samples
from connector_tax.read.stats.reference import RatePoint, Saturation, judge_saturation, rate_point
from connector_tax.run.rehearsal.cell import simulate_cell


def point(
    rate: float, *, throughput: float = 1.0, waiting: float | None = 0.0, ttft: float | None = 100.0
) -> RatePoint:
    return RatePoint(rate, throughput, waiting, ttft)


def test_a_healthy_sweep_has_no_saturation_rate() -> None:
    found = judge_saturation([point(1), point(2), point(4)])
    assert found.saturation_rate_per_s is None
    assert found.criteria[4].fired == ()


@pytest.mark.parametrize(
    ("saturated", "name"),
    [
        (point(4, throughput=0.94), "throughput"),
        (point(4, waiting=1.5), "waiting"),
        (point(4, ttft=151.0), "ttft_growth"),
    ],
)
def test_each_criterion_fires_alone(saturated: RatePoint, name: str) -> None:
    found = judge_saturation([point(1), point(2), saturated])
    assert found.saturation_rate_per_s == 4
    assert found.criteria[4].fired == (name,)


@pytest.mark.parametrize("healthy", [point(4, throughput=0.95), point(4, waiting=1.0), point(4, ttft=150.0)])
def test_a_value_on_the_threshold_does_not_fire(healthy: RatePoint) -> None:
    assert judge_saturation([point(2), healthy]).saturation_rate_per_s is None


def test_growth_is_unknown_where_half_the_rate_was_not_measured() -> None:
    """Null, not false: an unmeasured baseline is no evidence of health."""
    found = judge_saturation([point(3), point(4)])
    assert found.criteria[4].ttft_growth is None


def test_a_p90_lost_to_failures_has_grown_without_bound() -> None:
    found = judge_saturation([point(2), point(4, ttft=None)])
    assert found.criteria[4].ttft_growth is True


def test_waiting_is_unknown_without_samples() -> None:
    assert judge_saturation([point(2, waiting=None)]).criteria[2].waiting is None


def test_a_healthy_rate_above_a_saturated_one_is_flagged() -> None:
    found = judge_saturation([point(1), point(2, waiting=9), point(4)])
    assert found.saturation_rate_per_s == 2
    assert found.non_monotonic == (4,)


def test_growth_is_not_judged_where_arrivals_are_random() -> None:
    """At random twice the load is far more than half as long again in the queue, and the engine keeps up."""
    points = [RatePoint(r, 1.0, 0.0, ttft, random_arrivals=True) for r, ttft in ((2, 100.0), (4, 900.0))]
    found = judge_saturation(points)
    assert (found.criteria[4].ttft_growth, found.numbers[4].ttft_growth) == (None, None)
    assert found.saturation_rate_per_s is None
    lost = [points[0], RatePoint(4, 1.0, 0.0, None, random_arrivals=True)]
    assert judge_saturation(lost).criteria[4].ttft_growth is None


STEP_US = 10_000


def sweep(
    rates: list[float],
    *,
    output_tokens: int,
    at_once: int,
    warmup_s: float,
    seed: int,
    arrival: str = "fixed",
) -> Saturation:
    """Phase A against an engine in which every step takes 10 ms, whatever is in it, give or take 3 %."""
    costs = EngineCosts(STEP_US, 0, 0, 0, 40, 20, 0.03, 0.01, at_once, 10_000, 16)
    model = EngineModel(costs, NO_CONNECTOR, max_num_batched_tokens=8192, seed=seed)
    points, now_ns = [], 0
    for rate in rates:
        load = ("a", rate, 16, output_tokens, arrival, warmup_s, 20.0, 50, 60.0, 20.0, 256, seed, 10, 100)
        spec = CellSpec(*load)  # type: ignore[arg-type]
        cell = simulate_cell(spec, model, now_ns)
        now_ns = cell.window.drained_ns
        window = cell.window
        waiting = [w for t, _, w in cell.samples if window.window_start_ns <= t < window.t_stop_ns]
        samples = Samples(median(waiting), None, len(waiting), 0)
        points.append(
            rate_point(CellData("plain", "a", spec.cell_id, spec, window, {}, cell.requests, samples, None))
        )
    return judge_saturation(points)


@pytest.mark.parametrize(("at_once", "true_rate"), [(2, 32), (4, 64), (8, 128), (16, None)])
def test_the_saturation_rate_is_the_first_beyond_what_the_engine_can_do(
    at_once: int, true_rate: float | None
) -> None:
    """A request holds one of the places for ten steps of 10 ms, so each place serves ten per second.

    At the lowest rate a step is always under way already: from an idle engine on, waiting for it would double TTFT.
    """
    for seed in range(3):
        found = sweep([16, 32, 64, 128], output_tokens=10, at_once=at_once, warmup_s=1.0, seed=seed)
        assert found.saturation_rate_per_s == true_rate
        if true_rate is not None:
            assert found.numbers[true_rate].throughput_ratio == pytest.approx(
                10 * at_once / true_rate, rel=0.05
            )


@pytest.mark.parametrize("arrival", ["poisson", "gamma"])
def test_random_arrivals_are_held_against_what_was_sent(arrival: str) -> None:
    """Twenty engines with three times the room: fewer than 95 % of the nominal rate come by chance, and all are served."""
    ratios = []
    for seed in range(20):
        found = sweep([4, 8], output_tokens=10, at_once=32, warmup_s=1.0, seed=seed, arrival=arrival)
        assert found.saturation_rate_per_s is None
        ratios += [n.throughput_ratio for n in found.numbers.values()]
    assert all(r is not None and r > 0.95 for r in ratios)
