"""The three criteria and the two reference rates, worked out by hand."""

import pytest

from connector_tax.stats.saturation import RatePoint, judge_saturation


def point(
    rate: float, *, throughput: float = 1.0, waiting: float | None = 0.0, ttft: float | None = 100.0
) -> RatePoint:
    return RatePoint(rate, throughput, waiting, ttft)


def test_a_healthy_sweep_has_no_saturation_rate() -> None:
    found = judge_saturation([point(1), point(2), point(4)])
    assert found.saturation_rate_per_s is None
    assert found.fired(4) == []


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
    assert found.fired(4) == [name]


@pytest.mark.parametrize("healthy", [point(4, throughput=0.95), point(4, waiting=1.0), point(4, ttft=150.0)])
def test_a_value_on_the_threshold_does_not_fire(healthy: RatePoint) -> None:
    assert judge_saturation([point(2), healthy]).saturation_rate_per_s is None


def test_growth_is_unknown_where_half_the_rate_was_not_measured() -> None:
    """Null, not false: an unmeasured baseline is no evidence of health."""
    found = judge_saturation([point(3), point(4)])
    assert found.criteria[4]["ttft_growth"] is None


def test_a_p90_lost_to_failures_has_grown_without_bound() -> None:
    found = judge_saturation([point(2), point(4, ttft=None)])
    assert found.criteria[4]["ttft_growth"] is True


def test_waiting_is_unknown_without_samples() -> None:
    assert judge_saturation([point(2, waiting=None)]).criteria[2]["waiting"] is None


def test_a_healthy_rate_above_a_saturated_one_is_flagged() -> None:
    found = judge_saturation([point(1), point(2, waiting=9), point(4)])
    assert found.saturation_rate_per_s == 2
    assert found.non_monotonic == (4,)
