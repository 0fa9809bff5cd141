"""Which shapes a trend over one length is averaged over."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from specs import spec_of, tax_of_shape

from connector_tax.base.records.cell import Shape
from connector_tax.base.statistics.bootstrap import Estimate, unavailable
from connector_tax.read.stats.hypotheses import evidence_of
from connector_tax.read.stats.taxes import Tax, Trend, trend_of


def grid(
    lost: dict[tuple[int, int], str],
    queued: set[tuple[int, int]] = frozenset(),  # type: ignore[assignment]
) -> dict[tuple[int, int], Tax]:
    """Three lengths by three others; the tax of (length, other) is length + other / 1000."""
    return {
        (length, other): tax_of_shape(
            unavailable(lost[length, other])
            if (length, other) in lost
            else Estimate(length + other / 1000, np.full(50, length + other / 1000), 200),
            overloaded=("own",) if (length, other) in queued else (),
        )
        for length in (1, 2, 4)
        for other in (10, 20, 30)
    }


def points(trend: Trend) -> dict[int, float | None]:
    return {k: e.point for k, e in trend.by_length.items()}


def test_every_length_is_averaged_over_the_same_others() -> None:
    """One lost shape takes its other length out of all means, and not its own length out of the trend."""
    found = trend_of(grid({(4, 30): "died"}), queueing_allowed=False)
    assert found.averaged_over == (10, 20)
    assert points(found) == pytest.approx({1: 1.015, 2: 2.015, 4: 4.015})
    assert found.left_out == {30: {4: "died"}}
    assert found.missing == {}


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ((0.1, 0.2), "monotonic"),
        ((0.2, 0.1), "falling"),
        ((0.3, 0.2, 0.2), "does_not_rise"),
        ((0.1, 0.3, 0.2), "not_monotonic"),
    ],
)
def test_a_sequence_that_falls_is_not_said_to_go_up_and_down(values: tuple[float, ...], word: str) -> None:
    """Two lengths cannot."""
    own = {k: Estimate(v, np.full(50, v), 50) for k, v in zip((1, 2, 4), values, strict=False)}
    assert Trend(own, (10,), {}, {}).direction() == word


def test_a_length_without_any_tax_is_lost_with_a_reason() -> None:
    found = trend_of(grid({(4, 10): "died", (4, 20): "died", (4, 30): "cut off"}), queueing_allowed=False)
    assert found.missing == {4: "died"}
    assert found.averaged_over == (10, 20, 30)


def test_a_length_that_shares_nothing_with_the_others_is_lost() -> None:
    """More lengths are worth more than more shapes behind each."""
    lost = {(1, 10): "x", (1, 20): "x", (2, 30): "y", (4, 30): "y"}
    found = trend_of(grid(lost), queueing_allowed=False)
    assert found.averaged_over == (10, 20)
    assert found.missing == {1: "no_common_length"}


def test_a_shape_that_did_not_keep_up_counts_where_a_length_would_else_be_lost() -> None:
    """Only if it may; and only then is it said of that length."""
    all_of_4 = {(4, 10), (4, 20), (4, 30)}
    assert trend_of(grid({}, all_of_4), queueing_allowed=True).queueing == (4,)
    strict = trend_of(grid({}, all_of_4), queueing_allowed=False)
    assert strict.missing == {4: "overloaded"}
    some = trend_of(grid({}, {(4, 30)}), queueing_allowed=True)
    assert (some.queueing, some.averaged_over) == ((), (10, 20))


def test_h6_never_averages_what_did_not_keep_up_and_h5_only_where_nothing_else_is_left() -> None:
    """At 32768 prompt tokens plain is behind at every output length; its rate there is a quarter of the others'."""
    found = [
        Tax("x", "ref_safe", "b", spec_of(0.5 if i == 32768 else 2.0, i, o, "b"), metric, Estimate(0.1, np.full(50, 0.1), 200), 200, 200,
            ("plain",) if i == 32768 else ())
        for metric in ("ttft_p90", "tpot_p90") for i in (512, 32768) for o in (64, 256)
    ]  # fmt: skip
    alone = SimpleNamespace(id="x", kv_transfer_config=None)
    config: Any = SimpleNamespace(connectors=(alone,), connector_ids=("x",), phase_a_shape=Shape(8192, 128))
    evidence = evidence_of(
        found,
        [],
        {},
        config,
        0.95,
    )
    h6, h5 = evidence.by_output["x"], evidence.by_input["x"]
    assert (h6.averaged_over, h6.queueing) == ((512,), ())
    assert h6.left_out == {32768: {64: "overloaded", 256: "overloaded"}}
    assert h6.rates_per_s == {64: (2.0,), 256: (2.0,)}
    assert (h5.missing, h5.queueing) == ({}, (32768,))
    assert h5.rates_per_s == {512: (2.0,), 32768: (0.5,)}
