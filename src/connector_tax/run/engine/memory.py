"""Whether the KV memory that ``max_model_len`` asks for fits on the card, worked out before an engine spends minutes on it.

Counted is what must be there: the weights and the KV of one request of full length. Activations and CUDA graphs come on top, so
that it fits here is no promise; that it does not is certain.
Source: vLLM, ``check_enough_kv_cache_memory`` in ``v1/core/kv_cache_utils.py``.
"""

import json
import math
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from connector_tax.base.config import EngineConfig
from connector_tax.base.errors import ConfigError
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.vllm_model.shape import model_shape
from connector_tax.run.engine.gpus import Cards, Gpu, parallel_sizes
from connector_tax.run.engine.model_files import model_folder, weights_bytes

GIB = 2**30
# Of vLLM's own the largest: 0.9 in earlier releases, 0.92 in 0.32.
DEFAULT_UTILIZATION = 0.92
BLOCK_TOKENS = 16
# float32 weights are served in 16 bits unless engine.args.dtype says otherwise.
BYTES = {"float32": 2, "bfloat16": 2, "float16": 2, "half": 2, "auto": 2}
ASKED_BYTES = {**BYTES, "float32": 4, "float": 4}
# Where the engine keeps weights or KV elsewhere, was told the size, or serves another shape, this arithmetic does not hold.
OTHERWISE = (
    *("cpu_offload_gb", "offload_group_size", "kv_cache_memory_bytes", "num_gpu_blocks_override"),
    *("quantization", "quantization_config", "hf_overrides", "hf_config_path"),
)


@dataclass(frozen=True, slots=True)
class KvNeed:
    """KV memory of one request on one card, bytes.

    Attributes:
        per_token: of layers that see every token.
        per_window_token: of layers with a sliding window, which keep ``window`` tokens at most.
    """

    per_token: float
    per_window_token: float
    window: int

    def of(self, tokens: int) -> float:
        return self.per_token * tokens + self.per_window_token * min(tokens, self.window)

    def tokens_in(self, available: float) -> int:
        """How many tokens fit, in whole blocks."""
        all_layers = self.per_token + self.per_window_token
        tokens = available / all_layers if all_layers else 0.0
        if tokens > self.window and self.per_token:
            tokens = (available - self.per_window_token * self.window) / self.per_token
        return max(0, math.floor(tokens / BLOCK_TOKENS) * BLOCK_TOKENS)


def memory_utilization(engine: EngineConfig) -> float:
    """vLLM's ``gpu_memory_utilization``, or its default.

    Raises:
        ConfigError: it is no share.
    """
    given = engine.args.get("gpu_memory_utilization") or DEFAULT_UTILIZATION
    try:
        share = float(given)
    except (TypeError, ValueError):
        share = math.nan
    if not 0 < share <= 1:
        raise ConfigError(
            f"engine.args.gpu_memory_utilization: {given!r}: wanted is a number above 0 and at most 1, such as 0.9."
        )
    return share


def too_large(engine: EngineConfig, cards: Cards, longest_tokens: int) -> str | None:
    """Why the engine cannot start on these cards, with what fits; None where it may, or where too little is known.

    Args:
        longest_tokens: of the campaign's longest request, prompt and output.
    """
    folder = model_folder(engine) if engine.kind == "vllm" and cards.gpus else None
    # Further arguments are not read here, and could be any of them.
    if folder is None or engine.extra_args or any(engine.args.get(name) for name in OTHERWISE):
        return None
    document = json.loads((folder / "config.json").read_text())
    model = {**document, **document.get("text_config", {})}
    need = kv_need(model, engine)
    tokens = engine.args.get("max_model_len") or model.get("max_position_embeddings")
    if need is None or not isinstance(tokens, int) or tokens <= 0:
        return None
    gpu = min(cards.gpus, key=lambda g: g.memory_mib or math.inf)
    if gpu.memory_mib is None:
        return None
    weights = _weights_per_card(engine, folder, model)
    utilization = memory_utilization(engine)
    available = gpu.memory_mib * 2**20 * utilization - weights
    if need.of(tokens) <= available:
        return None
    return _words(
        gpu,
        utilization,
        weights,
        tokens,
        need.of(tokens),
        available,
        need.tokens_in(available),
        longest_tokens,
    )


def kv_need(model: Foreign, engine: EngineConfig) -> KvNeed | None:
    """From the model's ``config.json``; None where it does not say enough of layers, heads and types.

    In doubt the least is counted, so that no model is refused that would have fitted: layers without KV of their own (Mamba,
    linear attention, shared) are left out, and a sliding window is taken at its word. A connector that does not know the
    hybrid KV-cache manager makes such layers keep every token.
    """
    sizes = parallel_sizes(engine)
    layers, hidden, heads = (
        model.get(k) for k in ("num_hidden_layers", "hidden_size", "num_attention_heads")
    )
    width = _element_bytes(model, engine)
    if not isinstance(layers, int) or not isinstance(hidden, int) or not isinstance(heads, int):
        return None
    if width is None or model.get("is_encoder_decoder") or _has_untold_layers(model):
        return None
    if model.get("kv_lora_rank"):  # latent attention: one vector per token, the same on every card
        per_layer = float(width * (model["kv_lora_rank"] + model.get("qk_rope_head_dim", 0)))
    else:
        kv_heads = model.get("num_key_value_heads") or heads
        head_dim = model.get("head_dim") or hidden // heads
        per_layer = float(2 * width * head_dim * math.ceil(kv_heads / sizes["tensor_parallel_size"]))
    window = model.get("sliding_window") or model.get("attention_chunk_size")
    if model.get("use_sliding_window") is False:
        window = None
    only = "full_attention" if window is None else "sliding_attention"
    kinds = (model.get("layer_types") or [only] * layers)[: layers - (model.get("num_kv_shared_layers") or 0)]
    share = per_layer / sizes["pipeline_parallel_size"]
    full = sum("full" in kind or kind == "attention" for kind in kinds)
    windowed = sum("sliding" in kind or "chunked" in kind for kind in kinds)
    if not isinstance(window, int):
        full, windowed, window = full + windowed, 0, 0
    return KvNeed(share * full, share * windowed, window)


def _has_untold_layers(model: Foreign) -> bool:
    """Whether some layers keep a state instead of KV, and no list says which."""
    hints = ("mamba", "ssm", "attn_layer_", "hybrid_", "full_attention_interval", "linear_")
    return not model.get("layer_types") and any(key.startswith(hints) for key in model)


def _element_bytes(model: Foreign, engine: EngineConfig) -> int | None:
    """Of the KV cache; None for a type whose size is not known here."""
    cache = str(engine.args.get("kv_cache_dtype") or "auto")
    if cache.startswith("fp8"):
        return 1
    if cache != "auto":
        return ASKED_BYTES.get(cache)
    asked = str(engine.args.get("dtype") or "auto")
    if asked != "auto":
        return ASKED_BYTES.get(asked, 2)
    return BYTES.get(str(model.get("dtype") or model.get("torch_dtype") or "auto"), 2)


def _weights_per_card(engine: EngineConfig, folder: Path, model: Foreign) -> float:
    """Bytes, as many as the weights' files have, or without files (``load_format: dummy``) the model's shape.

    In doubt the least here as well: 0 for a shape that is not known, and no norms or biases.
    """
    sizes = parallel_sizes(engine)
    parts = sizes["tensor_parallel_size"] * sizes["pipeline_parallel_size"]
    if engine.args.get("enable_expert_parallel"):
        parts *= sizes["data_parallel_size"]
    stored = 4 if "float32" in (model.get("dtype"), model.get("torch_dtype")) else 2
    served = ASKED_BYTES.get(str(engine.args.get("dtype") or "auto"), 2)
    size = weights_bytes(folder)
    # vLLM takes quantised weights from that file as well.
    if size is None and not (folder / "hf_quant_config.json").is_file():
        with suppress(ConfigError):
            size = model_shape(model, str(folder)).total * stored
    return (size or 0) / parts * min(1.0, served / stored)


def _words(
    gpu: Gpu,
    utilization: float,
    weights: float,
    tokens: int,
    needed: float,
    available: float,
    fitting: int,
    longest: int,
) -> str:
    assert gpu.memory_mib is not None
    less = (
        f" less {weights / GIB:.1f} GiB of weights" if weights else " (weights, of unknown size, not counted)"
    )
    if fitting >= longest:
        remedy = (
            f"engine.args.max_model_len: {fitting} or less fits, less what activations take; "
            f"the longest request of this campaign has {longest} tokens."
        )
    else:
        remedy = (
            f"At most {fitting} tokens fit, and the longest request of this campaign has {longest}: "
            "take a larger card, more of them (tensor_parallel_size), or shorter shapes."
        )
    return (
        f"engine.args.max_model_len: {tokens} tokens need {needed / GIB:.1f} GiB of KV memory, and {gpu} has "
        f"{max(available, 0) / GIB:.1f} GiB for it: {gpu.memory_mib / 1024:.1f} GiB x {utilization:g}{less}. vLLM would refuse to start. {remedy}"
    )
