"""Sentences that were false of campaigns nobody had thought of: without Phase B, with two reasons at one length, with hooks that
differ by launch, with a saturation that comes and goes, with rates of another day."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import fail
from mutations import LEVELS, MUTATIONS, Mutation, answers, both, levels, lost, named_hooks


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
    numbers = judged(made, "H5", "mooncake_both")["numbers"]
    assert numbers["left_out"] == {"8": {"64": "cell_lost", "256": "requests_failed"}}
    assert numbers["averaged_over"] == [16], "no mean over lengths is one over those that are left"


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


def test_a_configuration_that_had_a_say_in_the_rates_and_is_gone_is_named(tmp_path: Path) -> None:
    value = MUTATIONS["everything of a connector lost"].made(tmp_path)
    (problem,) = [p for p in value["problems"] if p["subject"] == "reference_rates.json"]
    assert (problem["code"], problem["names"]) == ("no_say_in_rates", ["mooncake_both"])


def test_launches_whose_requests_failed_tell_of_the_host_all_the_same(tmp_path: Path) -> None:
    value = MUTATIONS["requests of plain's block failed"].made(tmp_path)
    assert [e["n_launches"] for e in value["host_drift"]] == [10]
    assert value["repeats"] == []
