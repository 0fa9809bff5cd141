"""The no-op connector's tax and the rest, worked out by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t
from specs import spec_of

from connector_tax.base.documents.aggregate import Metric, TwoParts
from connector_tax.base.statistics.bootstrap import Estimate, unavailable
from connector_tax.base.statistics.student import LogMean
from connector_tax.read.stats.decomposition import two_parts
from connector_tax.read.stats.taxes import Tax

SPREAD = np.linspace(-0.02, 0.02, 201)


def main(config: str, point: float | None, metric: Metric = "ttft_p90", blocks: int = 1, n: int = 200) -> Tax:
    """Over blocks with a standard error of 0.02 of the log ratio; ``n``: of the tax, while plain's side has 200."""
    estimate = unavailable("its cell died") if point is None else Estimate(point, point + SPREAD, 200)
    if blocks > 1 and point is not None:
        estimate = replace(estimate, over_blocks=LogMean(math.log1p(point), 0.02, blocks - 1))
    shape = spec_of(2.0, 4096, 256)
    return Tax(config, "ref_safe", "a", shape, metric, estimate, n, 210, n_blocks=blocks)


def rows(*chosen: Tax) -> list[TwoParts]:
    return two_parts(list(chosen), 0.95)


def test_the_rest_has_an_interval_and_a_number_of_observations() -> None:
    (row,) = rows(main("noop_connector", 0.04), main("x", 0.30))
    assert (row.total.point, row.framework.point) == (0.30, 0.04)
    assert row.rest.point == pytest.approx(0.26)
    assert row.rest.low <= row.rest.point <= row.rest.high
    assert [getattr(row, k).n for k in ("total", "framework", "rest")] == [200] * 3
    assert row.total.low == pytest.approx(0.281, abs=0.001)


def test_over_blocks_their_own_intervals_stand_and_the_rest_is_of_the_fewer() -> None:
    (row,) = rows(main("noop_connector", 0.04, blocks=4), main("x", 0.30, blocks=3))
    assert row.total.low == pytest.approx(1.30 * math.exp(-0.02 * t.isf(0.025, 2)) - 1)
    assert row.framework.high == pytest.approx(1.04 * math.exp(0.02 * t.isf(0.025, 3)) - 1)
    assert [getattr(row, k).n_blocks for k in ("total", "framework", "rest")] == [3, 4, 3]


def test_one_launch_and_blocks_are_not_subtracted() -> None:
    (row,) = rows(main("noop_connector", 0.04), main("x", 0.30, blocks=3))
    assert row.rest.point is None
    assert (row.rest.reason, row.rest.subject) == ("unlike_launches", "noop_connector")
    assert row.rest.n_blocks is None


def test_without_either_tax_there_is_no_row() -> None:
    assert rows(main("noop_connector", None), main("x", 0.30)) == []
    assert rows(main("noop_connector", 0.04), main("x", None)) == []
    assert rows(main("x", 0.30)) == []
    assert rows(main("noop_connector", 0.04), main("plain_matched_x", 0.2), main("x", 0.3, "tpot_p90")) == []


def test_n_counts_requests_of_every_part_and_the_rest_has_the_fewer() -> None:
    (row,) = rows(main("noop_connector", 0.04, blocks=4, n=150), main("x", 0.30, blocks=5))
    assert [getattr(row, k).n for k in ("total", "framework", "rest")] == [200, 150, 150]
