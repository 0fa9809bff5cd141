"""Sentences that were false of campaigns nobody had thought of: without Phase B, with two reasons at one length, with hooks that
differ by launch, with a saturation that comes and goes, with rates of another day."""

import json
import shutil
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.base.statistics.bootstrap import Estimate
from connector_tax.read.compare.comparison import Side, compare
from connector_tax.read.compare.text import notes
from connector_tax.read.stats.trends import _mean

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import ROOT, fail
from mutations import LEVELS, Mutation, answers, both, levels, lost, named_hooks

EXAMPLE = ROOT / "tests" / "data" / "aggregate_example.json"


def example() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(EXAMPLE.read_text())
    return found


def without_phase_b(campaign: Any) -> None:
    for path in campaign.root.glob("*/phase_b*"):
        shutil.rmtree(path)


def judged(aggregate: dict[str, Any], hypothesis: str, subject: str) -> dict[str, Any]:
    return next(h for h in aggregate["hypotheses"] if (h["id"], h["subject"]) == (hypothesis, subject))


def test_without_phase_b_its_hypotheses_say_that_and_nothing_of_cells_that_are_there(tmp_path: Path) -> None:
    made = Mutation(then=without_phase_b).made(tmp_path)
    for hypothesis in ("H5", "H6"):
        missing = judged(made, hypothesis, "mooncake_both")["missing"]
        assert missing == [{"reason": "no_phase_b", "subject": "mooncake_both"}]


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
    (why,) = judged(made, "H5", "mooncake_both")["numbers"]["left_out"].values()
    assert why == {"64": "cell_lost", "256": "requests_failed"}


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


def test_a_mean_over_resamples_open_on_both_sides_is_open_and_warns_of_nothing() -> None:
    up, down = (np.array([1.0, sign * np.inf, 1.0, 1.0]) for sign in (1, -1))
    estimates = [Estimate(1.0, r, n=10, confidence=0.95) for r in (up, down)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _mean(estimates).point == 1.0


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
    assert "A and B are one campaign and not independent." in same
    assert "A and B are one campaign and not independent." in lost_one
    assert not [n for n in two if "one campaign" in n]


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
    assert reason == "answers_differ"
