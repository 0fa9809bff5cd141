"""The sentence on how many connectors have a tax: what it counts, whom it names, and in which order."""

import sys
from pathlib import Path

import pytest

from connector_tax.base.documents.aggregate import Interval, aggregate_of
from connector_tax.read.figures.claims import told_apart

sys.path.insert(0, str(Path(__file__).parents[2]))
from whole_aggregate import example

LABELS = {
    "noop_connector": "No-op",
    "mooncake_both": "M",
    "nixl_both": "N",
    "lmcache_only": "L",
    "multi": "M + L",
}
STATES = {c: {"label": label, "status": "measured", "reason": None} for c, label in LABELS.items()}
AGGREGATE = aggregate_of({**example(), "configs": STATES})
TAX, GAIN, NEITHER = Interval(0.3, 0.2, 0.4), Interval(-0.3, -0.4, -0.2), Interval(0.1, -0.1, 0.3)


def said(*values: Interval, without: tuple[str, ...] = (), beside: str = "") -> str:
    return told_apart(AGGREGATE, dict(zip(LABELS, values, strict=False)), without=without, beside=beside)


def test_of_many_the_largest_has_its_number_and_all_others_are_named() -> None:
    assert said(Interval(0.2, 0.1, 0.3), TAX, Interval(0.25, 0.1, 0.4), NEITHER, NEITHER) == (
        "a tax for 3 of 5 connectors: the largest M, +30 % [+20 %, +40 %]; also N and No-op; "
        "no difference is found for the other 2"
    )
    assert said(GAIN, Interval(-0.2, -0.3, -0.1), Interval(-0.5, -0.6, -0.4)).startswith(
        "a gain for 3 of 3 connectors: the largest N, −50 % [−60 %, −40 %]; also No-op and M"
    )


def test_who_has_neither_is_said_in_full() -> None:
    assert said(TAX, NEITHER).endswith("; no difference is found for the other one")


@pytest.mark.parametrize("low", [-0.1, None], ids=["one end open", "no bounds"])
def test_of_an_open_interval_nothing_is_said_of_how_many_ends(low: float | None) -> None:
    (words,) = said(Interval(0.3, low, None)).split(" for ")[:1]
    assert words == "not known, since the interval is open,"


def test_of_open_intervals_the_largest_has_its_number() -> None:
    values = [Interval(x, -0.1, None) for x in (0.1, 0.4, 0.2)]
    assert said(*values) == (
        "not known, since the interval is open, for 3 of 3 connectors: the largest estimate M, +40 % [−10 %, no upper bound]; "
        "also N and No-op"
    )


WIDE = Interval(0.4, -0.2, 0.9)


def test_of_an_interval_that_is_too_wide_no_difference_is_not_claimed() -> None:
    """More than 100 points about zero; of latencies alone, since microseconds have no such width."""
    why = "not resolved here, since the interval is wider than 100 points, for"
    assert said(TAX, NEITHER, WIDE) == (
        f"a tax for 1 of 3 connectors, No-op with +30 % [+20 %, +40 %]; no difference is found for one; {why} N with +40 % [−20 %, +90 %]"
    )
    assert said(NEITHER, WIDE).startswith(f"no difference is found for 1 of 2 connectors; {why} M with")
    assert said(WIDE) == f"{why} No-op with +40 % [−20 %, +90 %]"
    assert said(WIDE, Interval(0.1, -0.9, 1.5), WIDE) == (
        f"{why} 3 of 3 connectors: the widest interval M, +10 % [−90 %, +150 %]; also No-op and N"
    )
    assert said(Interval(0.4, -0.2, 0.8)).startswith("no difference is found for No-op")
    found = {"nixl_both": Interval(4, -20, 90)}
    assert told_apart(AGGREGATE, found, unit="us").startswith("no difference is found for N with +4.0 µs")


def test_everyone_without_a_number_is_named() -> None:
    assert said(TAX, without=("mooncake_both", "nixl_both", "lmcache_only", "multi")).endswith(
        "; 4 without a number, M, N, L and M + L"
    )


def test_whom_the_count_leaves_out_is_said() -> None:
    assert said(TAX, NEITHER, beside=" beside the no-op one").startswith(
        "a tax for 1 of 2 connectors beside the no-op one, "
    )


def test_where_nobody_has_a_number_nobody_is_counted() -> None:
    assert said(without=("mooncake_both", "nixl_both")) == "none of 2 connectors has a number"
    assert said(without=("nixl_both",)) == "no connector has a number"
