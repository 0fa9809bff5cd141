"""The page's first lines and its titles where an end is open, or a connector has no number: neither reads as no tax."""

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.documents.aggregate import Interval, MainTaxRow, aggregate_of
from connector_tax.read.compare.changes import Change, Number
from connector_tax.read.figures.draw_all import FIGURES
from connector_tax.read.figures.style import Drawn, Omitted, drawing_style
from connector_tax.read.report.headline import headline
from connector_tax.read.report.tax_text import tax_text

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import ROOT
from made_pages import view_of
from whole_aggregate import typed

EXAMPLE = json.loads((ROOT / "tests" / "data" / "aggregate_example.json").read_text())
WHY = "the interval reaches requests that failed or did not finish"
LOST = "its ttft_p90 has no value in block R1: requests failed or did not finish"


@pytest.fixture
def aggregate() -> dict[str, Any]:
    return copy.deepcopy(EXAMPLE)


def main_rows(aggregate: dict[str, Any], *configs: str) -> list[dict[str, Any]]:
    return [
        t
        for t in aggregate["main_taxes"]
        if t["metric"] == "ttft_p90" and (not configs or t["config"] in configs)
    ]


def open_up(
    aggregate: dict[str, Any], *configs: str, low: float | None = -0.1, high: float | None = None
) -> None:
    for row in main_rows(aggregate, *configs):
        row |= {"point": 0.3, "low": low, "high": high, "reason": WHY, "verdict": "undetermined"}
    for row in aggregate["decomposition"]:
        if row["metric"] == "ttft_p90" and (not configs or row["config"] in configs):
            row["total"] |= {"point": 0.3, "low": low, "high": high}


def lose(aggregate: dict[str, Any], *configs: str) -> None:
    for row in main_rows(aggregate, *configs):
        row |= {"point": None, "low": None, "high": None, "reason": LOST, "verdict": "unavailable"}
    for row in aggregate["decomposition"]:
        if row["metric"] == "ttft_p90" and row["config"] in configs:
            row["total"] = {"point": None, "low": None, "high": None, "n": 0, "kind": None, "reason": LOST}


def title(name: str, aggregate: dict[str, Any]) -> str:
    with drawing_style(name):
        found = FIGURES[name](aggregate_of(aggregate))
    return found.title if isinstance(found, Drawn) else found.reason if isinstance(found, Omitted) else ""


def first(aggregate: dict[str, Any]) -> str:
    return str(headline(aggregate_of(aggregate)).sentence).replace("\xa0", " ")


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (-0.1, None, "+30 % [−10 %, no upper bound]"),
        (None, 0.4, "+30 % [no lower bound, +40 %]"),
        (None, None, "+30 % [no lower bound, no upper bound]"),
    ],
    ids=["above", "below", "both"],
)
def test_of_an_open_tax_the_headline_says_that_it_is_not_known(
    aggregate: dict[str, Any], low: float | None, high: float | None, words: str
) -> None:
    open_up(aggregate, "mooncake_both", low=low, high=high)
    ends = "an open end" if (low, high) != (None, None) else "no bounds"
    assert first(aggregate) == (
        f"Mooncake (both): whether it has a tax on TTFT p90 at ref_safe (2 req/s) is not known; the estimate is {words} (95 % interval, of one launch). "
        f"The interval has {ends} and does not exclude zero: {WHY}."
    )


def test_what_the_known_end_holds_is_said(aggregate: dict[str, Any]) -> None:
    """Failed requests are no reason to call a tax of 20 % or more unknown."""
    open_up(aggregate, "mooncake_both", low=0.2)
    assert first(aggregate).startswith(
        "Merely switching on Mooncake (both) costs at least 20 % more TTFT p90 at ref_safe (2 req/s), by its 95 % interval"
    )
    assert f"The estimate is 30 %; the upper end is open: {WHY}." in first(aggregate)
    names = "NIXL (both), Mooncake (both), Mooncake (producer) and LMCache; no difference is found for one;"
    assert (
        f"a tax for 5 of 7 connectors: the largest Mooncake + LMCache, +56 % [+52 %, +61 %]; also {names}"
        in title("fig4_tax_bars", aggregate)
    )


def test_titles_count_it_among_neither(aggregate: dict[str, Any]) -> None:
    open_up(aggregate, "mooncake_both")
    assert title("fig4_tax_bars", aggregate).endswith(
        "; not known, since the interval is open, for Mooncake (both) with +30 % [−10 %, no upper bound]; "
        "one without a number, Mooncake (consumer)"
    )
    assert title("fig7_decomposition", aggregate).endswith(
        "; a tax is found for 4 of 6 connectors beside the no-op one; not known for Mooncake (both); no number for Mooncake (consumer)"
    )


def test_figure_7_does_not_take_open_taxes_for_none(aggregate: dict[str, Any]) -> None:
    for row in aggregate["decomposition"]:
        row["total"] |= {"low": -0.1, "high": None}
    assert title("fig7_decomposition", aggregate).startswith(
        "Whether there is a tax to split is not known. TTFT p90: not known,"
    )


def test_figure_7_splits_the_tax_of_tpot_where_only_that_is_one(aggregate: dict[str, Any]) -> None:
    for row in aggregate["decomposition"]:
        if row["metric"] == "ttft_p90":
            row["total"] |= {"point": 0.0, "low": -0.1, "high": 0.1}
    assert " adds to TPOT p90, " in title("fig7_decomposition", aggregate)


def test_figure_8_judges_no_open_stack(aggregate: dict[str, Any]) -> None:
    open_up(aggregate, "multi_mooncake_lmcache")
    assert title("fig8_additivity", aggregate).startswith(
        "Whether Mooncake + LMCache has a tax is not known, +30 % [−10 %, no upper bound], so additivity cannot be held against"
    )


def test_figure_5_says_of_how_many_it_is_not_known(aggregate: dict[str, Any]) -> None:
    aggregate["main_taxes"] = []
    own = [t for t in aggregate["taxes"] if t["phase"] == "b" and t["metric"] == "ttft_p90"]
    for tax in own:
        tax |= {"point": 0.2, "low": -0.1, "high": None}
    n = len(own)
    assert title("fig5_shape_heatmaps", aggregate) == (
        f"At no shape is a connector's TTFT tax told apart from zero ({n} cells; of {n} it is not known)"
    )


def test_the_table_gives_the_reason_beside_the_verdict(aggregate: dict[str, Any]) -> None:
    open_up(aggregate, "mooncake_both")
    found = tax_text(typed(main_rows(aggregate, "mooncake_both")[0], MainTaxRow))
    assert found.verdict == "undetermined, of one launch"
    assert WHY in found.overloaded


def test_a_connector_that_lost_its_number_is_named_with_its_reason(aggregate: dict[str, Any]) -> None:
    lose(aggregate, "mooncake_both")
    assert first(aggregate).startswith("Merely switching on Mooncake + LMCache costs ")
    assert first(aggregate).endswith(f" Mooncake (both) has no number: {LOST}.")
    (counted,) = [
        d for d in headline(aggregate_of(aggregate)).details if d.startswith("TTFT p90 at ref_safe")
    ]
    assert " of 7 connectors: " in counted
    assert "; 2 without a number, Mooncake (consumer) and Mooncake (both). " in counted
    assert "; no number for Mooncake (consumer) and Mooncake (both)" in title("fig7_decomposition", aggregate)
    assert f"mooncake_both: {LOST}" in title("fig8_additivity", aggregate)


def test_one_that_is_not_the_subject_is_named_as_well(aggregate: dict[str, Any]) -> None:
    lose(aggregate, "nixl_both")
    assert first(aggregate).startswith("Merely switching on Mooncake (both) costs ")
    assert first(aggregate).endswith(f" NIXL (both) has no number: {LOST}.")


def test_no_launch_stands_in_for_a_tax_that_blocks_lost(aggregate: dict[str, Any]) -> None:
    """Phase A's launch and Phase B's of its shape have numbers; tables and Figure 5 take the tax that was chosen."""
    lose(aggregate, "nixl_both")
    view = view_of(aggregate)
    rows = [r for table in view.taxes for r in table.rows if r.id == "nixl_both"]
    assert [r.taxes[0].range for r in rows] == [LOST, LOST]
    shapes = [r for r in view.shape_taxes if r.label == "NIXL (both)"]
    lost = [r.shape for r in shapes if r.taxes[0].text == "not available"]
    assert lost == ["4,096 x 256"] * 2 and len(shapes) > 2
    with drawing_style("fig5"):
        found = FIGURES["fig5_shape_heatmaps"](aggregate_of(aggregate))
    assert isinstance(found, Drawn) and "of 52 cells" in found.title
    assert "nixl_both 4096x256" in found.caption.partition("Not available: ")[2]


def test_where_nobody_has_a_number_the_reason_is_the_taxs(aggregate: dict[str, Any]) -> None:
    lose(aggregate)
    for row in main_rows(aggregate):
        row |= {"point": None}
    lose(aggregate, *aggregate["configs"])
    assert first(aggregate).startswith(
        "No connector's tax on TTFT p90 could be measured at ref_safe and Phase A's shape (no-op connector, "
    )
    assert f"Mooncake (both), NIXL (both), LMCache and Mooncake + LMCache, each: {LOST}; " in first(aggregate)


@pytest.mark.parametrize(
    ("value", "regression", "word"),
    [
        (Interval(0.1, -0.05, None), False, "not known"),
        (Interval(0.1, 0.05, None), False, "worse"),
        (Interval(0.1, 0.05, None), True, "worse"),
        (Interval(-0.1, None, -0.05), False, "better"),
        (Interval(-0.1, -0.2, -0.05), False, "better"),
        (Interval(0.0, -0.2, 0.05), False, "not told apart"),
    ],
    ids=["open", "rise", "regression", "fall", "better", "nothing"],
)
def test_a_change_with_an_open_end_is_not_called_nothing(
    value: Interval, regression: bool, word: str
) -> None:
    assert Change("a", "ttft_p90", Number(None), Number(None), value, regression).word == word


def test_a_small_tax_is_told_apart_from_its_ends(aggregate: dict[str, Any]) -> None:
    for row in main_rows(aggregate, "mooncake_both"):
        row |= {"point": 0.00101, "low": 0.00098, "high": 0.00104, "verdict": "tax"}
    assert "costs 0.101 % more TTFT p90" in first(aggregate)
    assert "interval 0.098 % to 0.104 %" in first(aggregate)


def test_one_that_was_never_measured_is_named_and_one_that_was_skipped_counts(
    aggregate: dict[str, Any],
) -> None:
    """Preflight's reason stands in the table of configurations."""
    aggregate["main_taxes"] = [t for t in aggregate["main_taxes"] if t["config"] != "nixl_both"]
    aggregate["configs"]["nixl_both"] |= {"status": "missing", "reason": "not measured yet"}
    assert first(aggregate).endswith(" NIXL (both) has no number: it was not measured yet.")
