"""Sentences that were false of campaigns nobody had thought of: without Phase B, with two reasons at one length, with hooks that
differ by launch, with a saturation that comes and goes, with rates of another day."""

import json
import re
import shutil
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from connector_tax.base.documents.aggregate import Outputs, aggregate_of
from connector_tax.base.statistics.bootstrap import Estimate
from connector_tax.read.compare.changes import Side
from connector_tax.read.compare.comparison import compare
from connector_tax.read.compare.context import notes
from connector_tax.read.figures import fig5_shape_heatmaps
from connector_tax.read.figures.style import Drawn
from connector_tax.read.report.growth import growth_view
from connector_tax.read.report.repeats import repeats_view
from connector_tax.read.stats.outputs import _sentence
from connector_tax.read.stats.trends import _mean

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import ROOT, fail
from made_pages import page_of, view_of
from mutations import LEVELS, Mutation, answers, both, levels, lost, named_hooks, without_rates
from whole_aggregate import over_blocks

EXAMPLE = ROOT / "tests" / "data" / "aggregate_example.json"


def example() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(EXAMPLE.read_text())
    return found


def words(aggregate: dict[str, Any]) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page_of(aggregate)).split())


def without_phase_b(campaign: Any) -> None:
    for path in campaign.root.glob("*/phase_b*"):
        shutil.rmtree(path)


def sentence(aggregate: dict[str, Any], hypothesis: str, subject: str) -> str:
    found = (h for h in aggregate["hypotheses"] if (h["id"], h["subject"]) == (hypothesis, subject))
    return str(next(found)["sentence"])


def test_without_phase_b_its_hypotheses_say_that_and_nothing_of_cells_that_are_there(tmp_path: Path) -> None:
    made = Mutation(then=without_phase_b).made(tmp_path)
    for hypothesis in ("H5", "H6"):
        said = sentence(made, hypothesis, "mooncake_both")
        assert "mooncake_both: it has no run of phase B" in said
        assert "no usable cell at ref_safe" not in said


def at_shape(tokens_in: int, tokens_out: int, every: int) -> Callable[[list[Any]], list[Any]]:
    def change(records: list[Any]) -> list[Any]:
        shapes = {(r.prompt_tokens, r.completion_tokens) for r in records if r.prompt_tokens}
        return fail(every)(records) if (tokens_in, tokens_out) in shapes else records

    return change


def test_each_length_that_is_left_out_has_its_own_reason(tmp_path: Path) -> None:
    made = Mutation(
        then=lost("mooncake_both", "b", cell_id="r4_64x8"),
        changes={"mooncake_both/b": at_shape(256, 8, every=7)},
    ).made(tmp_path)
    said = sentence(made, "H5", "mooncake_both")
    assert "at 64 prompt tokens its cell of phase B is lost" in said
    assert "at 256 prompt tokens p90 falls on requests that failed" in said


def test_hooks_are_those_of_the_launch_whose_step_they_are_a_part_of(tmp_path: Path) -> None:
    def unlike(window: Any, behaviour: Any, rng: Any, most: int) -> Any:
        if behaviour.hooks_us:
            factor = float(rng.uniform(0.5, 2.0))
            behaviour = replace(behaviour, hooks_us=tuple(v * factor for v in behaviour.hooks_us))
        return named_hooks(window, behaviour, rng, most)

    made = Mutation(options={"step_lines": unlike}, then=lost("plain", "a")).made(tmp_path)
    own = {
        t["metric"]: t
        for t in made["main_taxes"]
        if (t["config"], t["reference"]) == ("mooncake_both", "ref_safe")
    }
    step, hooks, rest = (own[m] for m in ("step_p50_us", "callback_p50_us", "unexplained_us"))
    assert {t["phase"] for t in (step, hooks, rest)} == {"b"}
    assert hooks["point"] + rest["point"] == pytest.approx(step["point"])


def test_a_rate_with_nobody_saturated_is_not_called_saturated(tmp_path: Path) -> None:
    """NIXL's requests fail at 2 req/s alone, so no rate lies below every saturation rate, and 4 req/s is healthy."""

    def at_two(records: list[Any]) -> list[Any]:
        times = sorted(r.t_sched_ns for r in records)
        gap_s = (times[-1] - times[0]) / 1e9 / (len(times) - 1)
        return fail(7)(records) if abs(1 / gap_s - 2) < 0.5 else records

    made = Mutation(changes={"nixl_both/a": at_two}).made(tmp_path)
    assert "fallback_lowest_rate" in made["reference_rates"]["flags"]
    page = words(made)
    assert "no rate that all configurations measured lies below the saturation rate of each" in page
    assert "at least one of them is saturated" not in page


def test_phase_b_at_the_rates_of_another_day_is_a_problem_and_its_figure_says_which(tmp_path: Path) -> None:
    made = Mutation(then=both(without_rates, lost("nixl_both", "a"))).made(tmp_path)
    assert made["reference_rates"]["ref_safe_per_s"] == 2
    told = [p["what"] for p in made["problems"] if p["where"] == "phase B"]
    assert told == [
        "was measured at 4 req/s at phase A's shape, and ref_safe is 2: the taxes at its shapes, H5 and H6 are of that rate"
    ]
    page = words(made)
    assert "at 4 req/s, and not at ref_safe (2 req/s)" in page


def test_who_was_asked_at_no_rate_is_not_said_to_saturate_at_none(tmp_path: Path) -> None:
    every = [lost("nixl_both", "a", cell_id=f"r{rate}_256x16") for rate in (2, 4, 8)]
    made = Mutation(then=both(*every)).made(tmp_path)
    row = next(c for c in view_of(made).configs if c.id == "nixl_both")
    assert row.saturation == "not known: no usable cell of phase A"


def test_a_saturation_rate_above_a_rate_without_a_cell_is_as_far_as_measured(tmp_path: Path) -> None:
    made = Mutation(then=lost("mooncake_both", "a")).made(tmp_path)
    rows = {c.id: c.saturation for c in view_of(made).configs}
    assert rows["mooncake_both"] == "8 req/s, as far as measured"
    assert rows["nixl_both"] == "8 req/s"
    assert "mooncake_both at 8 req/s, as far as measured" in words(made)


def test_a_mean_over_resamples_open_on_both_sides_is_open_and_warns_of_nothing() -> None:
    up, down = (np.array([1.0, sign * np.inf, 1.0, 1.0]) for sign in (1, -1))
    estimates = [Estimate(1.0, r, n=10, confidence=0.95) for r in (up, down)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _mean(estimates).point == 1.0


@pytest.mark.parametrize("high", [0.1249, 0.1201, 3.01, 0.12])
def test_what_is_excluded_is_beyond_the_interval(high: float) -> None:
    value = {"point": 0.01, "low": -0.05, "high": high, "n": 9}
    slope = {"quantity": "connector_total_us", "n_cells": 9, "cached_blocks": None, "running": None}
    slope |= {"per_1000_cached_blocks": value, "per_running_request": value}
    growth = [{"config": "nixl_both", "cells": [], "slopes": [slope]}]
    found = growth_view(aggregate_of(example() | {"growth": growth}))
    assert found is not None
    excluded = re.search(r"more than ([0-9.]+) µs per 1,000 blocks is excluded", found.sentences[0])
    assert excluded is not None and float(excluded[1]) >= high - 1e-12


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ((0.00066, 0.00039, 0.00189), "by 0.07 % [0.04 %, 0.2 %] (standard"),
        ((0.012, 0.0, 0.03), "by 1.2 % [0 %, 3.0 %] (standard"),
        (
            (0.0, 0.0, 0.01),
            "by up to 1.0 % (standard deviation) beyond what their requests explain, perhaps by nothing",
        ),
    ],
)
def test_what_launches_differ_by_has_the_digits_that_tell_it_from_nothing(
    ends: tuple[float, float, float], said: str
) -> None:
    spread = dict(zip(("point", "low", "high"), ends, strict=True))
    entry = over_blocks(0.0, -0.01, 0.01, blocks=5, between_launches=spread)
    (table,) = repeats_view(aggregate_of(example() | {"repeats": [entry]}))
    assert f"Launches of plain differ {said}" in " ".join(table.sentences)


def test_fewer_answers_than_plain_gave_are_no_prompts_without_an_answer() -> None:
    row = Outputs(
        config="nixl_both",
        phase="a",
        n_prompts=1,
        n_same=0,
        n_failed=0,
        first_difference=None,
        verdict="failed",
    )
    assert (
        _sentence(row)
        == "its accuracy pass has 1 answers, and that of plain's first launch another number of them"
    )


def test_one_campaign_before_and_after_a_block_was_lost_is_one_campaign() -> None:
    """Both sides share launches, whatever was made of them."""
    a, b, other = example(), example(), example()
    b["main_taxes"] = b["main_taxes"][1:]
    other["provenance"]["created_utc"] = "2026-11-24T00:00:00Z"
    first = Side("A", Path(), aggregate_of(a))
    same, lost_one, two = (
        notes(compare(first, Side("B", Path(), aggregate_of(x)), fail_above=0.05, deciding=("ttft_p90",)))
        for x in (example(), b, other)
    )
    assert "A and B are one campaign: they are not independent." in same
    assert "A and B are one campaign: they are not independent." in lost_one
    assert not [n for n in two if "one campaign" in n]


def test_figure_5_names_shapes_at_which_nobody_has_a_number(tmp_path: Path) -> None:
    def without_plain(campaign: Any) -> None:
        shutil.rmtree(campaign.run("plain", "b").path)

    drawn = fig5_shape_heatmaps.draw(aggregate_of(Mutation(then=without_plain).made(tmp_path)))
    assert isinstance(drawn, Drawn)
    assert len({(row["input_tokens"], row["output_tokens"]) for row in drawn.data_rows}) == 1
    assert "Not available: " in drawn.caption
    assert "and 12 more" in drawn.caption


def test_hooks_of_a_connector_whose_latencies_are_no_tax_do_not_grow(tmp_path: Path) -> None:
    """The table at the reference rates has no hooks of it either."""
    made = Mutation({"phase_d": LEVELS}, then=both(levels, answers)).made(tmp_path)
    hooks = [
        slope
        for of in made["growth"]
        if of["config"] == "nixl_both"
        for slope in of["slopes"]
        if slope["quantity"] == "connector_total_us"
    ]
    (reason,) = (s["per_1000_cached_blocks"]["reason"] for s in hooks)
    assert reason.startswith("its latencies are no tax: ")
