"""Titles are computed, looks are fixed, files repeat byte for byte."""

import copy
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.documents.aggregate import Interval, aggregate_of
from connector_tax.base.errors import ArtifactError
from connector_tax.read.figures.draw_all import FIGURES, draw_figures
from connector_tax.read.figures.fleet import _note as fleet_note
from connector_tax.read.figures.style import Drawn, drawing_style, look_of
from connector_tax.read.figures.words import clean, levels, listing, microseconds, percent, with_interval

sys.path.insert(0, str(Path(__file__).parents[2]))
from whole_aggregate import EXAMPLE, number


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return json.loads(EXAMPLE.read_text())


def title(name: str, aggregate: dict[str, Any]) -> str:
    with drawing_style(name):
        result = FIGURES[name](aggregate_of(aggregate))
    assert isinstance(result, Drawn)
    return result.title


def set_tax(aggregate: dict[str, Any], config: str, point: float, half: float) -> None:
    for tax in (*aggregate["taxes"], *aggregate["main_taxes"]):
        if tax["config"] == config and tax["unit"] == "ratio":
            tax |= {"point": point, "low": point - half, "high": point + half}


def main(aggregate: dict[str, Any], **taxes: tuple[float, float]) -> dict[str, Any]:
    """Configuration -> (tax, half of its interval), of TTFT and TPOT at both reference rates; those not named have 1 +- 5 %."""
    found = copy.deepcopy(aggregate)
    for config in found["configs"]:
        set_tax(found, config, *taxes.get(config, (0.01, 0.05)))
    return found


def test_figure_4_says_what_holds_for_how_many_and_names_them(example: dict[str, Any]) -> None:
    """The largest estimate is not told apart from zero, and decides nothing; a gain is one."""
    found = main(example, mooncake_both=(0.43, 0.46), nixl_both=(0.2, 0.1), lmcache_only=(-0.3, 0.1))
    assert title("fig4_tax_bars", found) == (
        "TTFT p90 at ref_safe (2 req/s): a tax for 1 of 7 connectors, NIXL (both) with +20 % [+10 %, +30 %]; "
        "a gain for 1 of 7 connectors, LMCache with −30 % [−40 %, −20 %]; no difference is found for 4; one without a number, Mooncake (consumer)"
    )


def test_figure_4_names_everyone_who_has_a_tax(example: dict[str, Any]) -> None:
    """Of more than two the largest with its number."""
    found = main(example, mooncake_both=(0.4, 0.1), nixl_both=(0.3, 0.1), lmcache_only=(0.2, 0.1))
    assert title("fig4_tax_bars", found).endswith(
        "a tax for 3 of 7 connectors: the largest Mooncake (both), +40 % [+30 %, +50 %]; also NIXL (both) and LMCache; no difference is found for 3; "
        "one without a number, Mooncake (consumer)"
    )
    assert title("fig4_tax_bars", main(example)).endswith(
        "no difference is found for 6 of 7 connectors; one without a number, Mooncake (consumer)"
    )


def test_figure_5_counts_gains_too(example: dict[str, Any]) -> None:
    aggregate = copy.deepcopy(example)
    aggregate["main_taxes"] = []
    own = [t for t in aggregate["taxes"] if t["phase"] == "b" and t["metric"] == "ttft_p90"]
    for k, tax in enumerate(own):
        tax |= {"point": -0.1 - k / 1000, "low": -0.3, "high": -0.05 if k % 2 else 0.1}
    lower = sum(k % 2 for k in range(len(own)))
    assert title("fig5_shape_heatmaps", aggregate).startswith(
        f"The TTFT tax is below zero in {lower} of {len(own)} cells and above it in none; the lowest is −"
    )
    own[0] |= {"point": 0.1, "low": 0.05, "high": 0.2}
    assert (
        f"above zero in 1 of {len(own)} cells and below it in {lower}; the tax above zero is +10 %"
        in title("fig5_shape_heatmaps", aggregate)
    )
    own[2] |= {"point": 0.3, "low": 0.05, "high": 0.4}
    assert "; the largest of these taxes is +30 %" in title("fig5_shape_heatmaps", aggregate)


def test_figure_6_gives_the_difference_with_its_interval_where_there_is_one(example: dict[str, Any]) -> None:
    aggregate = copy.deepcopy(example)
    for tax in aggregate["taxes"]:
        if tax["metric"] == "step_p50_us":
            clear = tax["config"] == "nixl_both"
            tax |= {"point": 200.0, "low": 100.0 if clear else -100.0, "high": 300.0}
    assert title("fig6_step_cdf", aggregate).endswith(
        "] at 2 req/s; a longer one for 1 of 7 connectors, NIXL (both) with +200 µs [+100 µs, +300 µs]; no difference is found for 5; one without a number, Mooncake (consumer)"
    )


def test_figure_8_says_whether_taxes_add_up(example: dict[str, Any]) -> None:
    """As the verdict has it; inside the noise nothing is claimed."""
    stack = "multi_mooncake_lmcache"
    parts = {"mooncake_both": (0.20, 0.02), "lmcache_only": (0.10, 0.02)}
    for whole, outcome, words in [
        (0.32, "supported", "add up: "),
        (0.60, "refuted", "cost more: "),
        (0.20, "refuted", "cost less: "),
        (0.32, "undetermined", "add up is undetermined: "),
    ]:
        aggregate = main(example, **parts, **{stack: (whole, 0.02)})
        h4 = next(h for h in aggregate["hypotheses"] if h["id"] == "H4")
        h4 |= {"outcome": outcome, "numbers": {"sum_of_parts": number(0.3, 0.28, 0.33)}}
        assert f"{words}+30 % [+28 %, +33 %] as a sum, " in title("fig8_additivity", aggregate)
    assert "cannot be held against 30 % of the stack's tax" in title(
        "fig8_additivity", main(example, **parts, **{stack: (0.01, 0.02)})
    )
    assert "is a gain" in title("fig8_additivity", main(example, **parts, **{stack: (-0.3, 0.02)}))


def test_figure_7_names_every_part_that_is_told_apart_from_zero(example: dict[str, Any]) -> None:
    """With its interval, and in no words that a ratio of two estimates would have to hold."""
    aggregate = copy.deepcopy(example)
    whole = "Of the +44 % [+40 %, +48 %] that Mooncake + LMCache adds to TTFT p90, "
    others = "; a tax is found for 5 of 6 connectors beside the no-op one; no number for Mooncake (consumer)"
    assert title("fig7_decomposition", aggregate) == (
        f"{whole}+42 % [+37 %, +47 %] is its own code; not told apart from zero: vLLM's connector framework{others}"
    )
    for row in aggregate["decomposition"]:
        row["flags"] = number(0.3, 0.2, 0.4)
        row["implementation"] = number(0.12, 0.1, 0.2)
    assert title("fig7_decomposition", aggregate) == (
        f"{whole}+30 % [+20 %, +40 %] is engine settings that it switches and +12 % [+10 %, +20 %] is its own code; "
        f"not told apart from zero: vLLM's connector framework{others}"
    )
    for row in aggregate["decomposition"]:
        row["flags"]["low"] = row["implementation"]["low"] = -0.1
    assert title("fig7_decomposition", aggregate).startswith("No part of the +44 % [+40 %, +48 %]")


def test_figure_7_calls_no_part_of_the_whole_what_is_more_than_it(example: dict[str, Any]) -> None:
    """The settings gain, and the connector's own code costs more than the whole tax."""
    aggregate = copy.deepcopy(example)
    for row in aggregate["decomposition"]:
        row["flags"] = number(-0.1, -0.15, -0.05)
        row["implementation"] = number(0.52, 0.45, 0.6)
        row["framework"] = number(0.02, -0.01, 0.05)
    assert title("fig7_decomposition", aggregate).startswith(
        "Mooncake + LMCache adds +44 % [+40 %, +48 %] to TTFT p90: +52 % [+45 %, +60 %] is its own code and −10 % [−15 %, −5.0 %] is engine "
        "settings that it switches; not told apart from zero: vLLM's connector framework; a tax is found for"
    )
    for row in aggregate["decomposition"]:
        row["flags"] = number(-0.1, -0.25, 0.05)
    assert not title("fig7_decomposition", aggregate).startswith("Of ")


def as_baselines(aggregate: dict[str, Any]) -> dict[str, Any]:
    """Nothing but plain with the settings of connectors has a number."""
    found = copy.deepcopy(aggregate)
    for name in ("nixl_both", "lmcache_only"):
        found["configs"][f"plain_matched_{name}"] = found["configs"][name] | {"label": f"plain as {name}"}
    for key in ("taxes", "main_taxes", "attribution"):
        found[key] = [
            row | {"config": f"plain_matched_{row['config']}"}
            for row in found[key]
            if row["config"] in ("nixl_both", "lmcache_only")
        ]
    return found


def test_plain_with_a_connectors_settings_is_no_connector_with_a_tax(example: dict[str, Any]) -> None:
    aggregate = as_baselines(example)
    assert (
        title("fig4_tax_bars", aggregate)
        == "TTFT p90 at ref_safe (2 req/s): none of 7 connectors has a number"
    )
    assert title("fig9_attribution", aggregate) == "None of 7 connectors has a number"
    assert title("fig5_shape_heatmaps", aggregate) == "No connector has a TTFT tax at any shape"


def test_figure_7_splits_the_largest_tax_that_is_one(example: dict[str, Any]) -> None:
    """The largest estimate may be nothing while others are something."""
    aggregate = copy.deepcopy(example)
    for row in aggregate["decomposition"]:
        if row["config"] == "multi_mooncake_lmcache":
            row["total"]["low"] = -0.1
    assert title("fig7_decomposition", aggregate).startswith(
        "Of the +31 % [+26 %, +36 %] that Mooncake (both) adds"
    )
    for row in aggregate["decomposition"]:
        row["total"] |= {"point": -0.3, "low": -0.4, "high": -0.2}
    assert "a gain for 5 of 6 connectors" in title("fig7_decomposition", aggregate)


def test_figure_9_says_how_much_is_spent_in_hooks(example: dict[str, Any]) -> None:
    """Of the longest step that is told apart from plain's, with the share's own interval."""
    aggregate = copy.deepcopy(example)
    assert title("fig9_attribution", aggregate) == (
        "A longer decoding step for 6 of 7 connectors: the largest Mooncake + LMCache, +2,500 µs [+2,475 µs, +2,525 µs]; also Mooncake (both), "
        "NIXL (both), Mooncake (producer), LMCache and no-op connector; one without a number, Mooncake (consumer). 76 % [74 %, 78 %] of what Mooncake + LMCache adds is spent "
        "in hooks"
    )
    for entry in aggregate["attribution"]:
        if entry["config"] == "multi_mooncake_lmcache":
            entry["difference_us"]["low"] = -1.0
    assert title("fig9_attribution", aggregate).startswith(
        "A longer decoding step for 5 of 7 connectors: the largest Mooncake (both), "
    )
    for entry in aggregate["attribution"]:
        entry["difference_us"] |= {"point": -200.0, "low": -300.0, "high": -100.0}
        entry["in_hooks_share"] = None
    assert title("fig9_attribution", aggregate).startswith("A shorter decoding step for 6 of 7 connectors")


def test_figure_3_names_the_knee(example: dict[str, Any]) -> None:
    """Where nothing saturates it says so instead."""
    assert title("fig3_throughput", example).startswith("Plain saturates at 8 req/s; 3 of 7")
    aggregate = copy.deepcopy(example)
    for entry in aggregate["saturation"].values():
        entry["saturation_rate_per_s"] = None
    assert (
        title("fig3_throughput", aggregate)
        == "Every configuration that was measured keeps up with the requested rate up to 32 req/s"
    )


def test_figure_3_claims_nothing_of_rates_without_a_number(example: dict[str, Any]) -> None:
    """A configuration that lost its highest rate did not keep up with it, as far as anybody knows."""
    aggregate = copy.deepcopy(example)
    for entry in aggregate["saturation"].values():
        entry["saturation_rate_per_s"] = None
    for cell in aggregate["cells"]:
        if (cell["config"], cell["phase"], cell["rate_per_s"]) == ("nixl_both", "a", 32):
            cell["usable"] = False
    assert title("fig3_throughput", aggregate).endswith(
        "up to 32 req/s, as far as measured: NIXL (both) to 16 req/s"
    )


def test_figures_1_and_2_give_levels_with_their_intervals(example: dict[str, Any]) -> None:
    assert re.match(
        r"At 2 req/s TTFT p90 is \d+ ms \[\d+ ms, \d+ ms\] without a connector; with one of 6 from \d+ ms \[\d+ ms, \d+ ms\] "
        r"\(no-op connector\) to \d+ ms \[\d+ ms, \d+ ms\] \(Mooncake \+ LMCache\), one launch each$",
        title("fig1_ttft_vs_rate", example),
    )


def test_captions_count_requests_and_exclusions(example: dict[str, Any]) -> None:
    """n and what was left out stand below every picture."""
    with drawing_style("x"):
        result = FIGURES["fig5_shape_heatmaps"](aggregate_of(example))
    assert isinstance(result, Drawn)
    assert "n = 200 requests per cell" in result.caption
    assert "mooncake_consumer (skipped)" in result.caption
    assert "mooncake_producer r2_32768x1024 (engine died in it)" in result.caption


def test_the_largest_shape_tax_says_if_it_holds_queueing(example: dict[str, Any]) -> None:
    """A tax where plain or the connector did not keep up is no property of the shape alone."""
    aggregate = copy.deepcopy(example)
    own = [
        t
        for t in aggregate["taxes"]
        if t["phase"] == "b" and t["metric"] == "ttft_p90" and t["low"] is not None
    ]
    largest = max((t for t in own if t["low"] > 0), key=lambda t: t["point"])
    for tax in own:
        tax["overloaded"] = ["own"] if tax is largest else []
    with drawing_style("x"):
        result = FIGURES["fig5_shape_heatmaps"](aggregate_of(aggregate))
    assert isinstance(result, Drawn)
    assert result.title.endswith("where a side did not keep up")
    assert "In 1 of " in result.caption and "those taxes hold queueing" in result.caption


def test_a_picture_of_the_embedded_engine_says_so(example: dict[str, Any]) -> None:
    """PNGs travel without their page."""
    aggregate = copy.deepcopy(example)
    aggregate["provenance"]["versions"] = {"python": "3.11.9", "emulator": True}
    with drawing_style("x"):
        result = FIGURES["fig4_tax_bars"](aggregate_of(aggregate))
    assert isinstance(result, Drawn)
    assert any(t.get_text().startswith("Embedded engine") for t in result.figure.texts)


def test_known_configurations_look_different_in_colour_and_in_grey() -> None:
    """Eight colours and eight markers for eight configurations."""
    aggregate = json.loads(EXAMPLE.read_text())
    looks = [look_of(c) for c in aggregate["configs"]]
    assert len({x.colour for x in looks}) == len({x.marker for x in looks}) == 8


def test_an_unknown_configuration_always_looks_the_same() -> None:
    """Its look depends on its id alone."""
    assert look_of("shiny_new") == look_of("shiny_new")
    assert look_of("shiny_new").marker


def test_two_runs_write_the_same_bytes(example: dict[str, Any], tmp_path: Path) -> None:
    """No dates, no random ids: a figure changes only if its numbers do."""
    found = []
    for place in ("one", "two"):
        root = tmp_path / place
        root.mkdir()
        (root / "aggregate.json").write_text(json.dumps(example))
        draw_figures(root)
        found.append({p.name: p.read_bytes() for p in (root / "figures").iterdir()})
    assert found[0] == found[1]
    assert {f"{name}.{kind}" for name in FIGURES for kind in ("svg", "png", "csv")} <= set(found[0])
    assert json.loads(found[0]["omitted.json"]) == {}


def test_a_figure_that_is_left_out_leaves_no_old_picture(example: dict[str, Any], tmp_path: Path) -> None:
    """The folder is replaced as a whole; the index has the reason."""
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "fig6_step_cdf.svg").write_text("old")
    poor = {**example, "step_timing_available": False}
    poor |= {"cells": [], "taxes": [], "main_taxes": [], "decomposition": []}
    (tmp_path / "aggregate.json").write_text(json.dumps(poor))
    entries = draw_figures(tmp_path)
    assert not any(e.drawn for e in entries)
    assert sorted(p.name for p in (tmp_path / "figures").iterdir()) == ["index.json", "omitted.json"]
    assert set(json.loads((tmp_path / "figures" / "omitted.json").read_text())) == set(FIGURES)


def test_an_aggregate_of_another_schema_is_refused(tmp_path: Path) -> None:
    """With what would do."""
    (tmp_path / "aggregate.json").write_text('{"schema_version": 99}')
    with pytest.raises(ArtifactError, match=r"schema 99, this version reads 1.*connector-tax analyze"):
        draw_figures(tmp_path)


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (0.312, "+31 %"),
        (0.0312, "+3.1 %"),
        (-0.5, "−50 %"),
        (0.0, "0 %"),
        (-0.0001, "0 %"),
        (12.5, "+1,250 %"),
    ],
)
def test_percent(ratio: float, text: str) -> None:
    """One decimal below ten; zero has no sign."""
    assert percent(ratio) == text


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval(0.0004, 0.0001, 0.012), "+0.04 % [+0.01 %, +1.2 %]"),
        (Interval(-0.0004, -0.012, -0.000002), "−0.04 % [−1.2 %, −0.0002 %]"),
        (Interval(0.0004, -0.0001, 0.012), "+0.04 % [−0.01 %, +1.20 %]"),
        (Interval(0.0, 0.0, 0.0), "0 % [0 %, 0 %]"),
    ],
)
def test_what_excludes_zero_does_not_read_as_zero(interval: Interval, text: str) -> None:
    assert with_interval(interval) == text


def test_numbers_as_people_read_them() -> None:
    """Units follow the size; an open interval says so."""
    for value, text in ((12_345.0, "12.3 s"), (1234.5, "1,234 ms"), (23.456, "23.5 ms")):
        assert levels([Interval(value, None, None)]) == [f"{text} [unbounded, unbounded]"]
    assert microseconds(-1234) == "−1,234 µs"
    assert with_interval(Interval(0.3, 0.1, None)) == "+30 % [+10 %, no upper bound]"
    assert with_interval(Interval(0.3, None, None)) == "+30 % [no lower bound, no upper bound]"
    assert listing(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    assert clean("a\x00b\n c", 4) == "a b…"


def test_a_fleets_picture_says_that_it_is_modelled_and_that_there_are_notes() -> None:
    """Whole names and abbreviations, on one line however many notes there are."""
    engine, long = (
        "measured on the embedded engine: its taxes are made up",
        "plain: 9 requests in flight, " * 9,
    )
    assert fleet_note([engine, long, long], False) == (
        f"Modelled fleets, not measured ones; {engine}; 2 notes in fleet.json"
    )
    assert fleet_note([], True) == ""
