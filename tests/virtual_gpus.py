"""Engines of kind ``virtual_gpu``, and published model shapes."""

import json
from pathlib import Path
from typing import Any

from builders import SMALL, campaign_config

from connector_tax.base.config import CampaignConfig

# Qwen/Qwen3-Coder-30B-A3B-Instruct, without keys that no formula reads.
QWEN: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 6144,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "vocab_size": 151936,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
# meta-llama/Llama-3.1-8B-Instruct.
LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}
# mistralai/Mixtral-8x7B-Instruct-v0.1.
MIXTRAL: dict[str, Any] = {
    "architectures": ["MixtralForCausalLM"],
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "sliding_window": None,
    "vocab_size": 32000,
}


def model_in(folder: Path, config: dict[str, Any] = QWEN) -> Path:
    """Write a model's folder with only its ``config.json``, as a virtual GPU needs."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def clocked_campaign(model: Path | str, gpu: dict[str, Any] | None = None, **engine: Any) -> CampaignConfig:
    """Return a small campaign on a virtual H200, or on ``gpu``; its interpreter is ``true``."""
    own = {
        "kind": "virtual_gpu",
        "python": "/bin/true",
        "model": str(model),
        "served_model_name": "m",
        "virtual_gpu": {"gpu": "h200", **(gpu or {})},
        "model_file": None,
        "args": {"max_model_len": 8192},
        **engine,
    }
    return campaign_config(**{**SMALL, "engine": own})


# The engine's identity in a cell.
IDENTITY: dict[str, Any] = {
    "profile": "h200",
    "sha256": "0123456789abcdef",
    "schema": 1,
    "name": "NVIDIA H200",
    "compute_capability": [9, 0],
    "memory_bytes": 150754820096,
    "kv_cache_bytes": 71394289254,
    "step": {
        "base_us": 7924.571,
        "per_prefill_token_us": 12.162733,
        "per_decode_seq_us": 295.654824,
        "per_context_token_us": 0.0256,
    },
    "host": {"before_launch_us": 0.0, "before_launch_per_seq_us": 0.0, "after_launch_us": 0.0},
}
CLOCK: dict[str, Any] = {
    "steps": 1000,
    "lateness_us": {"p50": 40.0, "p99": 90.0, "max": 400.0},
    "late_share": 0.0051,
    "device_busy_share": 0.8,
    "slack_us": {"p10": 7000.0, "p50": 8000.0},
}
