"""What a number of hours buys: many launches where launches differ, many requests where they do not."""

import math

import pytest
from scipy import stats

from connector_tax.run.rehearsal.outlook import Costs, Spread, proposal, splits


def on_one_card(blocks: int, launch_s: float) -> float:
    """An hour, and three launches a block."""
    return 3600.0 + blocks * 3 * launch_s


COSTS = Costs(on_one_card, launch_s=100.0, request_s=0.5, blocks_beside=0, requests_beside=100)


def best(spread: Spread) -> tuple[int, int]:
    found = min(splits([spread], COSTS, 4.0, 0.95), key=lambda s: s.worst)
    return found.repeats, found.requests


def test_where_launches_differ_requests_are_few() -> None:
    """Kalibera & Jones: requests a launch = sqrt(cost ratio x variance ratio) = sqrt(200 x 0.01 x 100 / 1) = 14 at most here."""
    assert best(Spread("ttft_p90", between=0.03, within=0.003, requests=100)) == (32, 20)


def test_where_launches_are_alike_requests_are_many() -> None:
    repeats, requests = best(Spread("ttft_p90", between=0.0, within=0.05, requests=100))
    assert requests >= 200
    assert repeats < 20


def test_the_width_is_students_over_blocks() -> None:
    """By hand: 10,800 s beside the fixed hour, 3 x (100 + 100 x 0.5) s a block, so 24 blocks."""
    spread = Spread("tpot_p90", between=0.02, within=0.01, requests=100)
    (found,) = [s for s in splits([spread], COSTS, 4.0, 0.95) if s.requests == 100]
    assert found.repeats == 24
    width = stats.t.ppf(0.975, 23) * math.sqrt(1.5 * (0.02**2 + 0.01**2) / 24)
    assert found.half_widths["tpot_p90"] == pytest.approx(width)
    assert found.hours == pytest.approx(4.0)
    (wanted_less,) = [s for s in splits([spread], COSTS, 4.0, 0.8) if s.requests == 100]
    assert wanted_less.half_widths["tpot_p90"] == pytest.approx(
        width * stats.t.ppf(0.9, 23) / stats.t.ppf(0.975, 23)
    )
    assert "half of the headline's expected 80 % interval" in "\n".join(proposal([spread], COSTS, 4.0, 0.8))


def test_blocks_that_the_other_phases_are_count_with_their_own_requests() -> None:
    spread = Spread("tpot_p90", between=0.0, within=0.01, requests=100)
    beside = Costs(on_one_card, 100.0, 0.5, blocks_beside=2, requests_beside=400)
    (found,) = [s for s in splits([spread], beside, 1.4, 0.95) if s.requests == 100]
    assert found.repeats == 3
    variance = 1.5 * (3 * 1e-4 + 2 * 0.25e-4) / 25
    assert found.half_widths["tpot_p90"] == pytest.approx(stats.t.ppf(0.975, 4) * math.sqrt(variance))


def test_too_few_hours_are_said() -> None:
    (line,) = proposal([Spread("ttft_p90", 0.01, 0.01, 100)], COSTS, 1.05, 0.95)
    assert line.startswith("1.05 h leave no room for 3 blocks: everything else takes 1.0 h.")
    assert "no blocks of launches there" in proposal([], COSTS, 6, 0.95)[0]
