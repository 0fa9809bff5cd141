"""KV memory worked out before a launch: numbers against vLLM's own messages and hand-worked ones."""

import json
from pathlib import Path
from typing import Any

import pytest
from builders import ROOT, campaign_config
from msgspec.structs import replace

from connector_tax.base.config import EngineConfig, longest_request_tokens
from connector_tax.run.engine.gpu_host import GIB, too_large
from connector_tax.run.engine.gpus import Cards, Gpu

CAMPAIGN, H200 = campaign_config("config.yaml"), campaign_config("h200.yaml")
QWEN: dict[str, Any] = json.loads(
    (ROOT / "config" / "models" / "Qwen3-Coder-30B-A3B-Instruct.json").read_text()
)


def card(gib: float) -> Cards:
    return Cards((Gpu(3, "GPU-x", "NVIDIA H20", int(gib * 1024), "GPU-x"),), 0)


@pytest.fixture
def engine(tmp_path: Path) -> EngineConfig:
    """The published campaign's engine on a model directory with 57 GiB of weights, which take no room."""
    (tmp_path / "config.json").write_text(json.dumps(QWEN))
    with open(tmp_path / "model.safetensors", "wb") as weights:
        weights.truncate(57 * GIB)
    return replace(CAMPAIGN.engine, model=str(tmp_path))


def test_what_fits_is_not_spoken_of(engine: EngineConfig) -> None:
    assert too_large(engine, card(96), longest_request_tokens(CAMPAIGN)) is None
    assert too_large(engine, Cards((), 0), 1) is None
    assert too_large(replace(engine, model="org/not-here"), card(1), 1) is None
    assert too_large(CAMPAIGN.engine, card(1), 1) is None


def test_without_a_share_vllms_largest_default_counts(engine: EngineConfig) -> None:
    """0.92 in 0.32: of 83 GiB 19.4 are left beside the weights, and of 0.9 of them too few."""
    args = {k: v for k, v in engine.args.items() if k != "gpu_memory_utilization"}
    assert too_large(replace(engine, args=args), card(83), 1) is None
    assert too_large(replace(engine, args={**args, "gpu_memory_utilization": 0.9}), card(83), 1) is not None


def test_a_card_with_less_is_named_with_what_fits(engine: EngineConfig) -> None:
    """80 GiB x 0.9 - 57 GiB = 15 GiB = 163,840 tokens of 96 KiB, as worked out by hand."""
    told = str(too_large(engine, card(80), longest_request_tokens(CAMPAIGN)))
    assert "max_model_len: 200000 tokens need 18.3 GiB of KV memory" in told
    assert (
        "GPU 3: NVIDIA H20 (UUID: GPU-x) has 15.0 GiB for it: 80.0 GiB x 0.9 less 57.0 GiB of weights" in told
    )
    assert "max_model_len: 163840 or less fits" in told
    assert "the longest request of this campaign has 33792 tokens" in told


def test_where_not_even_the_campaign_fits_that_is_said(engine: EngineConfig) -> None:
    told = str(too_large(engine, card(64), longest_request_tokens(CAMPAIGN)))
    assert "At most 6544 tokens fit, and the longest request of this campaign has 33792" in told
    told = str(too_large(engine, card(40), 1))
    assert "has 0.0 GiB for it" in told and "At most 0 tokens fit" in told


@pytest.mark.parametrize(
    ("model", "args", "gib"),
    [
        ({}, {}, 18.3),
        ({}, {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}, 4.6),
        ({}, {"kv_cache_dtype": "fp8_e4m3"}, 9.2),
        ({}, {"dtype": "float32"}, 36.6),
        ({"torch_dtype": "float32"}, {}, 18.3),  # vLLM serves it in 16 bits
        ({"head_dim": None}, {}, 9.2),  # 2048 / 32 = 64
    ],
)
def test_other_models_and_other_splits(
    engine: EngineConfig, model: dict[str, Any], args: dict[str, Any], gib: float
) -> None:
    (Path(engine.model) / "config.json").write_text(json.dumps({**QWEN, **model}))
    told = str(too_large(replace(engine, args={**engine.args, **args}), card(20), 1))
    assert f"200000 tokens need {gib} GiB" in told


def test_weights_that_are_stored_wider_than_they_are_served_count_half(engine: EngineConfig) -> None:
    document = {**QWEN, "torch_dtype": "float32"}
    (Path(engine.model) / "config.json").write_text(json.dumps(document))
    assert too_large(engine, card(64), 1) is None
    wide = replace(engine, args={**engine.args, "dtype": "float32"})
    assert "less 57.0 GiB of weights" in str(too_large(wide, card(80), 1))


def dummy(folder: Path, model: str = "Qwen3-Coder-30B-A3B-Instruct", **changes: Any) -> EngineConfig:
    """The engine of config/h200.yaml, whose weights are random and no files, on the shape of ``model``."""
    shape = json.loads((ROOT / "config" / "models" / f"{model}.json").read_text())
    (folder / "config.json").write_text(json.dumps({**shape, **changes}))
    return replace(H200.engine, model=str(folder))


# As NVML tells it: 79.6 GiB.
H100 = Cards((Gpu(0, "GPU-h", "NVIDIA H100 80GB HBM3", 81_559, "GPU-h"),), 0)


def test_weights_that_are_no_files_count_by_the_models_shape(tmp_path: Path) -> None:
    """30,531,911,680 parameters of two bytes are 56.87 GiB; 0.9 x 79.65 - 56.87 = 14.81 GiB, at 96 KiB each 161,792 tokens.

    Source: the model's card says 30.5B parameters.
    """
    told = str(too_large(dummy(tmp_path), H100, longest_request_tokens(H200)))
    assert "max_model_len: 200000 tokens need 18.3 GiB of KV memory" in told
    assert "has 14.8 GiB for it: 79.6 GiB x 0.9 less 56.9 GiB of weights" in told
    assert "max_model_len: 161792 or less fits" in told
    fitting = dummy(tmp_path)
    for tokens, fits in ((161_792, True), (161_809, False)):
        engine = replace(fitting, args={**fitting.args, "max_model_len": tokens})
        assert (too_large(engine, H100, 1) is None) == fits
    assert too_large(fitting, card(140), 1) is None
    assert too_large(replace(fitting, args={**fitting.args, "tensor_parallel_size": 2}), H100, 1) is None


def test_an_embedding_that_is_the_heads_own_counts_once(tmp_path: Path) -> None:
    """595,984,384 parameters, of which 155,582,464 are the embedding."""
    for tied, gib in ((True, 1.1), (False, 1.4)):
        engine = dummy(tmp_path, "Qwen3-0.6B", tie_word_embeddings=tied)
        assert f"less {gib} GiB of weights" in str(too_large(engine, card(20), 1))


@pytest.mark.parametrize(
    "unknown",
    [
        {"quantization_config": {"quant_method": "fp8"}},
        {"architectures": ["SomethingElseForCausalLM"]},
        {"vocab_size": None},
        {"kv_lora_rank": 512},
    ],
)
def test_nothing_is_concluded_of_a_model_whose_shape_is_not_known(
    tmp_path: Path, unknown: dict[str, Any]
) -> None:
    assert too_large(dummy(tmp_path, **unknown), card(16), 1) is None


def test_nothing_is_concluded_of_weights_that_are_quantised_by_a_file_beside_them(tmp_path: Path) -> None:
    (tmp_path / "hf_quant_config.json").touch()
    assert too_large(dummy(tmp_path), card(16), 1) is None


def test_nothing_is_concluded_where_memory_is_set_otherwise(engine: EngineConfig) -> None:
    for name in ("cpu_offload_gb", "kv_cache_memory_bytes", "offload_group_size", "hf_overrides"):
        assert too_large(replace(engine, args={**engine.args, name: 10}), card(40), 1) is None
    assert too_large(replace(engine, extra_args=("--quantization=fp8",)), card(40), 1) is None
    assert too_large(replace(engine, args={**engine.args, "kv_cache_dtype": "nvfp4"}), card(40), 1) is None


def test_random_weights_count_as_wide_as_they_are_served(tmp_path: Path) -> None:
    engine = dummy(tmp_path, torch_dtype="float32")
    assert "less 56.9 GiB of weights" in str(too_large(engine, H100, 1))
    wide = replace(engine, args={**engine.args, "dtype": "float32"})
    assert "less 113.7 GiB of weights" in str(too_large(wide, card(140), 1))
