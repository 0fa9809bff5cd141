"""The modelled scheduler, step by step, against sums worked out by hand."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from connector_tax.base.errors import ConfigError
from connector_tax.base.records.host import EngineCosts
from connector_tax.base.vllm_model.costs import (
    ANY_OTHER,
    NO_CONNECTOR,
    ConnectorCosts,
    connector_costs,
    load_cost_model,
)
from connector_tax.base.vllm_model.model import EngineModel, StepResult

COSTS = EngineCosts(
    base_us=1000,
    per_prefill_token_us=10,
    per_decode_seq_us=20,
    per_context_token_us=0.5,
    schedule_us=40,
    update_us=20,
    jitter_cv=0.0,
    launch_cv=0.0,
    max_num_seqs=8,
    kv_blocks=100,
    block_size=16,
)


def engine(
    connector: ConnectorCosts = NO_CONNECTOR, *, budget: int = 64, seed: int = 0, **costs: object
) -> EngineModel:
    return EngineModel(replace(COSTS, **costs), connector, max_num_batched_tokens=budget, seed=seed)  # type: ignore[arg-type]


def run(model: EngineModel) -> list[StepResult]:
    steps = []
    while model.has_work:
        steps.append(model.step())
    return steps


def test_one_request_costs_what_the_sums_say() -> None:
    """40 prompt tokens, 3 outputs: one prefill step, then two decode steps over 40 and 41 tokens of context."""
    model = engine()
    model.add(1, 40, 3)
    assert [s.duration_ns for s in run(model)] == [1_400_000, 1_040_000, 1_040_500]


def test_the_first_token_comes_with_the_end_of_the_prompt() -> None:
    """100 prompt tokens at 64 per step: two chunks, and the token only after the second."""
    model = engine()
    model.add(1, 100, 2)
    steps = run(model)
    assert [s.prefill_tokens for s in steps] == [64, 36, 0]
    assert [s.tokens for s in steps] == [[], [1], [1]]
    assert steps[-1].finished == [1]


def test_the_token_budget_is_shared_running_first() -> None:
    """A decoding request keeps its token; the newcomer's prompt gets what is left of the budget."""
    model = engine()
    model.add(1, 10, 5)
    model.step()
    model.add(2, 100, 1)
    step = model.step()
    assert (step.decode_tokens, step.prefill_tokens) == (1, 63)


def test_a_step_factor_multiplies_the_step() -> None:
    """A connector that adds 30 % to the step time adds 30 % to every step."""
    plain, taxed = engine(), engine(ConnectorCosts(step_factor=1.3))
    for model in (plain, taxed):
        model.add(1, 40, 4)
    for a, b in zip(run(plain), run(taxed), strict=True):
        assert b.duration_ns == pytest.approx(1.3 * a.duration_ns, abs=1)


def test_connector_costs_add_per_step_per_request_and_per_token() -> None:
    taxed = engine(
        ConnectorCosts(
            build_meta_us=1,
            get_finished_us=2,
            start_load_kv_us=3,
            outside_us=4,
            per_request_us=50,
            per_token_us=0.1,
        )
    )
    taxed.add(1, 40, 2)
    assert [s.duration_ns for s in run(taxed)] == [
        1_400_000 + 10_000 + 50_000 + 4_000,
        1_040_000 + 10_000 + 100,
    ]


def test_a_stack_costs_the_sum_of_its_parts() -> None:
    known = {
        "A/kv_both": ConnectorCosts(outside_us=5, step_factor=1.1),
        "B/kv_both": ConnectorCosts(outside_us=7, step_factor=1.2),
        "MultiConnector/kv_both": ConnectorCosts(build_meta_us=1),
    }
    children = [{"kv_connector": "A", "kv_role": "kv_both"}, {"kv_connector": "B", "kv_role": "kv_both"}]
    multi = {
        "kv_connector": "MultiConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"connectors": children},
    }
    found = connector_costs(known, multi, Path("m.yaml"))
    assert (found.build_meta_us, found.outside_us) == (1, 12)
    assert found.step_factor == pytest.approx(1.3)


def test_a_full_cache_throws_out_the_newest_and_computes_it_again() -> None:
    """Two requests of 4 blocks each cannot both grow in 8 blocks; the second is recomputed, not lost."""
    model = engine(budget=256, kv_blocks=8)
    model.add(1, 63, 20)
    model.add(2, 63, 20)
    steps = run(model)
    assert model.preemptions > 0
    finished = [f for s in steps for f in s.finished]
    assert finished == [1, 2]
    assert sum(s.tokens.count(2) for s in steps) == 20
    assert model.free_blocks == 8


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 200), st.integers(1, 40)), min_size=1, max_size=20),
    st.integers(16, 300),
    st.integers(20, 60),
    st.integers(0, 99),
)
def test_blocks_never_leak_and_every_request_gets_all_its_tokens(
    requests: list[tuple[int, int]], budget: int, blocks: int, seed: int
) -> None:
    model = engine(budget=budget, kv_blocks=blocks)
    rng = random.Random(seed)
    wanted = {}
    produced: dict[int, int] = {}
    for number, (prompt, outputs) in enumerate(requests):
        if model.fits(prompt, outputs):
            wanted[number] = outputs
            model.add(number, prompt, outputs)
            for _ in range(rng.randrange(3)):
                if model.has_work:
                    _count(model, produced, budget)
    while model.has_work:
        _count(model, produced, budget)
    assert produced == wanted
    assert model.free_blocks == blocks


def _count(model: EngineModel, produced: dict[int, int], budget: int) -> None:
    step = model.step()
    assert 0 <= model.free_blocks <= model.costs.kv_blocks
    assert 0 < step.prefill_tokens + step.decode_tokens <= budget
    for request in step.tokens:
        produced[request] = produced.get(request, 0) + 1


def test_a_cancelled_request_gives_its_blocks_back() -> None:
    model = engine()
    model.add(1, 40, 10)
    model.add(2, 40, 10)
    model.step()
    model.cancel(1)
    model.cancel(2)
    assert not model.has_work
    assert model.free_blocks == COSTS.kv_blocks


def test_jitter_has_mean_one() -> None:
    model = engine(jitter_cv=0.2, per_context_token_us=0, budget=4)
    model.add(1, 1, 1000)
    model.step()
    durations = [s.duration_ns for s in run(model)]
    assert sum(durations) / len(durations) == pytest.approx(1_020_000, rel=0.03)


@pytest.mark.parametrize("name", ["engine_model.yaml", "engine_model_demo.yaml"])
def test_the_shipped_cost_models_know_the_eight(name: str) -> None:
    import yaml

    config = Path(__file__).parents[3] / "config"
    connectors = yaml.safe_load((config / "connectors.yaml").read_text())
    _, known = load_cost_model(config / name)
    known.pop(ANY_OTHER, None)
    for connector in yaml.safe_load((config / "demo.yaml").read_text())["connectors"]:
        connector_costs(known, connectors[connector]["kv_transfer_config"], config / name)


def test_an_unknown_connector_is_named_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"no costs for Other/kv_both\. Known: A/kv_both"):
        connector_costs(
            {"A/kv_both": NO_CONNECTOR}, {"kv_connector": "Other", "kv_role": "kv_both"}, Path("m.yaml")
        )


def test_an_unknown_connector_costs_what_the_model_says_of_any_other() -> None:
    other = ConnectorCosts(outside_us=7)
    asked = {"kv_connector": "Other", "kv_role": "kv_both"}
    assert connector_costs({"A/kv_both": NO_CONNECTOR, ANY_OTHER: other}, asked, Path("m.yaml")) == other


def test_a_hook_can_cost_by_the_blocks_that_are_cached() -> None:
    """40 prompt tokens fill two blocks of 16 in the first step, the 48th token the third; a step pays for what it finds."""
    taxed, plain = engine(ConnectorCosts(build_meta_us=5, per_cached_block_us=10)), engine()
    for model in (taxed, plain):
        model.add(1, 40, 10)
    steps, without = run(taxed), run(plain)
    assert [s.build_meta_us for s in steps] == [5.0, *[25.0] * 8, 35.0]
    for own, base in zip(steps, without, strict=True):
        assert own.duration_ns - base.duration_ns == round(own.build_meta_us * 1000)
    taxed.add(2, 32, 1)
    assert [s.build_meta_us for s in run(taxed)] == [35.0]
    assert taxed.cached_blocks == 5


def test_no_more_blocks_are_cached_than_there_are_and_none_twice() -> None:
    """After a preemption a request is computed again; its blocks were known. Leading cached tokens are known, too."""
    model = engine(budget=256, kv_blocks=8)
    model.add(1, 63, 20)
    model.add(2, 63, 20)
    run(model)
    assert model.preemptions > 0
    assert model.cached_blocks == 8
    again = engine()
    again.add(1, 48, 1, cached=32)
    run(again)
    assert again.cached_blocks == 1
