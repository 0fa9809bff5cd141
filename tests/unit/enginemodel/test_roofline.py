"""The step time of a model on a GPU, held against sizes and decode steps that others published."""

from typing import Any

import pytest
from builders import ROOT
from virtual_gpus import LLAMA, MIXTRAL, QWEN

from connector_tax.base.config.gpu import virtual_gpu
from connector_tax.base.config.model import GpuChoice
from connector_tax.base.errors import ConfigError
from connector_tax.base.records.host import VirtualGpu
from connector_tax.base.vllm_model.shape import (
    ModelShape,
    StepLoad,
    context_token_us,
    kv_cache_bytes,
    linear_costs,
    model_shape,
    roofline_us,
    touched_experts,
)


def profile(name: str) -> VirtualGpu:
    return virtual_gpu(GpuChoice(name), "test")


def shape(config: dict[str, Any]) -> ModelShape:
    return model_shape(config, "config.json")


@pytest.mark.parametrize(
    ("config", "total", "active"),
    [(QWEN, 30.53e9, 3.35e9), (LLAMA, 8.03e9, 8.03e9), (MIXTRAL, 46.70e9, 12.88e9)],
    ids=["qwen", "llama", "mixtral"],
)
def test_models_have_as_many_parameters_as_their_cards_say(
    config: dict[str, Any], total: float, active: float
) -> None:
    assert shape(config).total == pytest.approx(total, rel=2e-3)
    found = shape(config)
    experts = found.moe_layers * found.experts_per_token * found.expert
    assert found.always + experts + found.head + found.embedding == pytest.approx(active, rel=2e-3)


def test_layers_without_experts_and_shared_experts_are_counted() -> None:
    """Every other layer dense; a shared expert is passed by every token; a tied head lies in memory once."""
    half = shape({**QWEN, "decoder_sparse_step": 2})
    assert half.moe_layers == 24
    assert half.always - shape(QWEN).always == 24 * (3 * 2048 * 6144 - 2048 * 128)
    assert shape({**QWEN, "mlp_only_layers": [0, 1]}).moe_layers == 46
    shared = shape({**QWEN, "shared_expert_intermediate_size": 1024})
    assert shared.always - shape(QWEN).always == 48 * 3 * 2048 * 1024
    tied = shape({**QWEN, "tie_word_embeddings": True})
    assert shape(QWEN).total - tied.total == 2048 * 151936


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kv_lora_rank": 512}, "latent attention"),
        ({"sliding_window": 4096}, "attention over a window of 4096 tokens"),
        ({"architectures": ["OPTForCausalLM"]}, "architecture OPTForCausalLM"),
        ({"num_hidden_layers": None}, "num_hidden_layers: None"),
    ],
)
def test_what_the_formula_does_not_know_is_refused_with_the_way_out(
    change: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        shape({**QWEN, **change})
    assert words in str(caught.value)
    assert "Give engine.virtual_gpu.step and engine.virtual_gpu.kv_cache_bytes" in str(caught.value)


def test_a_window_that_is_switched_off_is_none() -> None:
    assert shape({**QWEN, "sliding_window": 4096, "use_sliding_window": False}) == shape(QWEN)


def test_experts_are_touched_as_evenly_drawn_ones_are() -> None:
    qwen = shape(QWEN)
    assert touched_experts(qwen, 1) == pytest.approx(8)
    assert touched_experts(qwen, 2) == pytest.approx(8 + 8 * 15 / 16)
    assert touched_experts(qwen, 8192) == pytest.approx(128)
    assert touched_experts(shape(LLAMA), 8) == 0


def test_a_small_step_reads_and_a_large_one_computes() -> None:
    """By hand, for an 8B model on an H200: 15.0 GB of weights at 3.84 TB/s; 4,096 tokens at 494 TFLOP/s."""
    llama, h200 = shape(LLAMA), profile("h200")
    idle_us = 200 + 32 * 45
    assert roofline_us(llama, h200, StepLoad(1, 0)) - idle_us == pytest.approx(15.01e9 / 3.84e6, rel=0.01)
    computed_us = (2 * 6.98e9 * 4096 + 4 * 32 * 4096 * 4096**2 / 2) / 494.5e6
    read_us = 2 * 128256 * 4096 / 3.84e6
    assert roofline_us(llama, h200, StepLoad(0, 0, 4096)) - idle_us == pytest.approx(
        computed_us + read_us, rel=0.01
    )


# Median inter-token latency in ms by sequences that run, BF16 on one H100, release of February 2026 of the ML.ENERGY leaderboard
# (public/data/tasks/sourcegraph-fim.json and lm-arena-chat.json); contexts are not published, some 500 tokens are taken.
CODER_H100 = {8: 12.36, 16: 16.88, 32: 21.85, 64: 27.55, 89: 30.75}
LLAMA_H100 = {8: 7.32, 16: 7.91, 32: 8.91, 64: 11.50, 96: 14.08, 128: 16.48}


@pytest.mark.parametrize(("running", "ms"), CODER_H100.items())
def test_a_mixture_of_experts_decodes_as_published(running: int, ms: float) -> None:
    predicted_ms = roofline_us(shape(QWEN), profile("h100"), StepLoad(running, 500)) / 1e3
    assert predicted_ms == pytest.approx(ms, rel=0.12)


@pytest.mark.parametrize(("running", "ms"), [p for p in LLAMA_H100.items() if p[0] <= 32])
def test_a_dense_model_decodes_as_published_while_few_run(running: int, ms: float) -> None:
    """Above that the roofline is too short, by a third at 128: work per sequence on host and device is not in it."""
    predicted_ms = roofline_us(shape(LLAMA), profile("h100"), StepLoad(running, 500)) / 1e3
    assert predicted_ms == pytest.approx(ms, rel=0.12)


def test_the_line_meets_the_roofline_where_it_says() -> None:
    qwen, h200 = shape(QWEN), profile("h200")
    at, costs = h200.operating_point, linear_costs(qwen, h200)
    for load in (
        StepLoad(at.decode_seqs // 2, 0),
        StepLoad(2 * at.decode_seqs, at.context_tokens),
        StepLoad(at.decode_seqs, at.context_tokens, at.prefill_tokens),
    ):
        own = costs.of(
            load.prefill_tokens,
            load.decode_seqs,
            load.decode_seqs * load.context_tokens + load.prefill_context_tokens,
        )
        assert own == pytest.approx(roofline_us(qwen, h200, load))
    assert costs.per_context_token_us == context_token_us(qwen, h200)


def test_what_is_left_for_the_kv_cache_is_what_weights_leave() -> None:
    left = kv_cache_bytes(shape(QWEN), profile("h200"), 0.9)
    assert left == pytest.approx(150754820096 * 0.9 - 2 * 30.53e9 - 3 * 2**30, rel=1e-3)


def test_a_model_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"NVIDIA L40S has 48.3 GB; of 0.9 of it 61.1 GB of weights"):
        kv_cache_bytes(shape(QWEN), profile("l40s"), 0.9)


def rows_of(heading: str) -> list[str]:
    text = (ROOT / "docs" / "virtual-gpu.md").read_text()
    section = text.split(f"### {heading}\n", 1)[1].split("\n#", 1)[0]
    return [line for line in section.splitlines() if line.startswith("| ")][1:]


@pytest.mark.parametrize("gpu", ["h20", "h200", "h100", "a100"])
def test_the_docs_print_each_profiles_line(gpu: str) -> None:
    costs = linear_costs(shape(QWEN), profile(gpu))
    blocks = kv_cache_bytes(shape(QWEN), profile(gpu), 0.9) // (shape(QWEN).kv_values * 2 * 16)
    row = (
        f"| {gpu} | {costs.base_us:,.0f} | {costs.per_prefill_token_us:.1f} | {costs.per_decode_seq_us:.0f} | "
        f"{costs.per_context_token_us:.4f} | {blocks:,} |"
    )
    assert row in rows_of("The four numbers, Qwen3-Coder-30B-A3B")
