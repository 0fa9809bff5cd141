"""A tax in three parts that add up, worked out by hand."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import t
from specs import spec_of

from connector_tax.base.documents.aggregate import Decomposition, TaxPart
from connector_tax.base.statistics.bootstrap import Estimate, unavailable
from connector_tax.base.statistics.distributions import LogMean
from connector_tax.read.stats.decomposition import decompose, two_parts
from connector_tax.read.stats.taxes import Tax

CHANGED = {"scheduler_config.disable_hybrid_kv_cache_manager": {"plain": False, "own": True}}
NOOP, OWN, MATCHED = 0.04, 0.30, 0.10


def parts(points: dict[str, float | None], diff: dict[str, Any]) -> Decomposition:
    """Every resample of a tax is its point; None is a tax without a number."""
    chosen = [_main(config, point) for config, point in points.items()]
    row = next(r for r in decompose(chosen, diff, 0.95) if r.metric == "ttft_p90")
    assert row.config == "x"
    return row


def _main(config: str, point: float | None) -> Tax:
    estimate = unavailable("its cell died") if point is None else Estimate(point, np.full(50, point), 200)
    return Tax(config, "ref_safe", "a", spec_of(2.0, 4096, 256), "ttft_p90", estimate, 200, 200)


def test_a_part_that_is_missing_says_why() -> None:
    """The connector's tax is over five blocks; the no-op connector's cell died, or its tax is of one launch, and then stands whole."""
    whole = replace(_main("x", OWN), n_blocks=5)
    for noop, why in ((None, "its cell died"), (NOOP, "unlike_launches")):
        chosen = [whole, _main("noop_connector", noop)]
        (row,) = [
            r for r in decompose(chosen, {"x": {}, "noop_connector": {}}, 0.95) if r.metric == "ttft_p90"
        ]
        assert (row.total.n_blocks, row.parts) == (5, 0)
        found = row.implementation
        assert (found.reason, found.subject, found.n_blocks) == (why, "noop_connector", None)
        if noop is None:
            assert (row.framework.reason, row.framework.n_blocks) == ("its cell died", None)
            assert row.framework.subject == "noop_connector"
        else:
            assert (row.framework.point, row.framework.n_blocks) == (NOOP, 1)


def over(config: str, point: float, blocks: int) -> Tax:
    """Over blocks of 200 requests, with a standard error of 0.01 of the log ratio."""
    main = _main(config, point)
    mean = LogMean(math.log1p(point), 0.01, blocks - 1)
    estimate = replace(main.estimate, over_blocks=mean)
    return replace(main, n_blocks=blocks, n=200 * blocks, estimate=estimate)


def test_each_part_has_the_blocks_that_entered_it() -> None:
    """The no-op connector lost one block of five, matched plain two; n counts requests."""
    chosen = [over("x", OWN, 5), over("noop_connector", NOOP, 4), over("plain_matched_x", MATCHED, 3)]
    (row,) = decompose(chosen, {"x": CHANGED, "noop_connector": {}}, 0.95)
    assert {p: (getattr(row, p).n_blocks, getattr(row, p).n) for p in points_of(row)} == {
        "total": (5, 1000),
        "flags": (3, 600),
        "framework": (4, 800),
        "implementation": (3, 600),
    }
    (row,) = decompose(chosen[:2], {"x": CHANGED, "noop_connector": {}}, 0.95)
    assert {p: getattr(row, p).n_blocks for p in points_of(row)} == {
        "total": 5,
        "flags": None,
        "framework": 4,
        "implementation": 4,
    }


def test_a_framework_without_flags_is_the_no_op_connectors_tax_to_the_last_digit() -> None:
    """One tax has one interval; what nobody switches costs nothing, which nobody had to measure."""
    noop = over("noop_connector", NOOP, 4)
    (row,) = decompose([over("x", OWN, 5), noop], {"x": {}, "noop_connector": {}}, 0.95)
    main, framework = noop.row(0.95), row.framework
    assert (framework.interval, framework.n_blocks) == (main.interval, main.n_blocks)
    assert row.flags == TaxPart(point=0.0, low=0.0, high=0.0, n=0, n_blocks=None)
    assert row.parts == 3


def points_of(row: Decomposition) -> dict[str, float | None]:
    return {name: getattr(row, name).point for name in ("total", "flags", "framework", "implementation")}


def test_flags_framework_and_implementation_add_up() -> None:
    """30 % in all: 10 % by flags, 4 % by the framework, 16 % by the connector."""
    taxes = {"noop_connector": NOOP, "x": OWN, "plain_matched_x": MATCHED}
    found = parts(taxes, {"x": CHANGED, "noop_connector": {}})
    assert points_of(found) == pytest.approx(
        {"total": 0.3, "flags": 0.1, "framework": 0.04, "implementation": 0.16}
    )
    assert found.implementation.low == pytest.approx(0.16)
    assert (found.parts, found.settings) == (3, tuple(CHANGED))


def test_a_connector_that_changes_no_setting_has_no_flags_part() -> None:
    """Another number of KV blocks is no changed setting, also where an older preflight wrote it down as one."""
    fewer = {"cache_config.num_gpu_blocks": {"plain": 100, "own": 90}}
    for diff in ({}, fewer):
        found = parts({"noop_connector": NOOP, "x": OWN}, {"x": diff, "noop_connector": diff})
        assert (found.parts, found.settings, found.flags.point) == (3, (), 0)
        assert found.implementation.point == pytest.approx(0.26)


@pytest.mark.parametrize(
    ("diff", "reason"),
    [
        ({"x": CHANGED, "noop_connector": {}}, ("settings_not_measured", "x")),
        ({"noop_connector": {}}, ("settings_unknown", "x")),
        ({"x": {}, "noop_connector": CHANGED}, None),
    ],
)
def test_without_a_matched_baseline_there_are_the_two_parts_of_the_published_experiment(
    diff: dict[str, Any], reason: tuple[str, str] | None
) -> None:
    """4 % by the no-op connector and 26 % beside it, with the settings in either."""
    found = parts({"noop_connector": NOOP, "x": OWN}, diff)
    assert found.parts == 2
    assert (found.framework.point, found.implementation.point) == pytest.approx((0.04, 0.26))
    if reason is not None:
        assert found.flags.point is None
        assert (found.flags.reason, found.flags.subject) == reason


def test_why_flags_lie_in_the_other_parts_is_what_is_missing() -> None:
    """The no-op connector's settings are known, and nobody launched plain with them."""
    taxes = {"x": 0.30, "noop_connector": 0.04, "plain_matched_x": 0.10}
    found = parts(taxes, {"x": CHANGED, "noop_connector": CHANGED})
    assert (found.flags.reason, found.flags.subject) == ("settings_not_measured", "noop_connector")
    found = parts(taxes, {"x": CHANGED, "noop_connector": None})
    assert (found.flags.reason, found.flags.subject) == ("settings_unknown", "noop_connector")


@pytest.mark.parametrize("why", ["skipped: its module cannot be imported", "failed in phase A: it died"])
def test_without_the_no_op_connector_its_own_reason_stands(why: str) -> None:
    for row in decompose([_main("x", OWN)], {"x": CHANGED}, 0.95, why):
        for part in (row.framework, row.implementation):
            assert (part.reason, part.subject) == (why, "noop_connector")


def test_the_rest_has_an_interval_and_a_number_of_observations() -> None:
    spread = np.linspace(-0.02, 0.02, 201)
    chosen = [
        replace(_main(config, point), n=n, estimate=Estimate(point, point + spread, 200))
        for config, point, n in (("noop_connector", 0.04, 150), ("x", 0.30, 200))
    ]
    (row,) = two_parts(chosen, 0.95)
    assert (row.total.point, row.framework.point) == (0.30, 0.04)
    assert row.rest.point == pytest.approx(0.26)
    assert row.rest.low <= row.rest.point <= row.rest.high
    assert [getattr(row, k).n for k in ("total", "framework", "rest")] == [200, 150, 150]
    assert row.total.low == pytest.approx(0.281, abs=0.001)


def test_over_blocks_their_own_intervals_stand_and_the_rest_is_of_the_fewer() -> None:
    (row,) = two_parts([over("noop_connector", 0.04, 4), over("x", 0.30, 3)], 0.95)
    assert row.total.low == pytest.approx(1.30 * math.exp(-0.01 * t.isf(0.025, 2)) - 1)
    assert row.framework.high == pytest.approx(1.04 * math.exp(0.01 * t.isf(0.025, 3)) - 1)
    assert [getattr(row, k).n_blocks for k in ("total", "framework", "rest")] == [3, 4, 3]


def test_without_either_tax_there_is_no_row() -> None:
    noop, own = _main("noop_connector", 0.04), _main("x", 0.30)
    for chosen in (
        [_main("noop_connector", None), own],
        [noop, _main("x", None)],
        [own],
        [noop, _main("plain_matched_x", 0.2), replace(own, metric="tpot_p90")],
    ):
        assert two_parts(chosen, 0.95) == []
