"""A model's ``config.json`` -> the sizes that determine its step time.

Covers decoders with full attention (grouped or not) and gated MLPs, dense or mixtures of experts. Others are
refused by name, since a formula for half of a model would still be believed.
"""

from dataclasses import dataclass

from connector_tax.base.errors import ConfigError
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.host import StepCosts, VirtualGpu

# vLLM's architectures with the layers counted here.
ARCHITECTURES = (
    *("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"),
    *("MixtralForCausalLM", "Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM"),
)
# Bytes per weight and per computed value; vLLM also serves float32 checkpoints in two bytes.
BYTES = 2
INSTEAD = (
    "Give engine.virtual_gpu.step and engine.virtual_gpu.kv_cache_bytes (measured or fitted) for this model."
)


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Parameter counts and attention sizes.

    Attributes:
        layers: all; ``moe_layers`` of them are mixtures of experts.
        always: parameters that every token uses, without embedding and head: attention, dense MLPs, shared
            experts, routers.
        experts: of one layer; 0 without any.
        experts_per_token: per token and layer.
        expert: parameters of one expert.
        head: parameters of the output head; ``embedding`` those of the input embedding, 0 if shared with the
            head.
        kv_values: numbers per token in the KV cache, over all layers.
        query_width: over all heads of a layer.
    """

    layers: int
    moe_layers: int
    always: int
    experts: int
    experts_per_token: int
    expert: int
    head: int
    embedding: int
    kv_values: int
    query_width: int

    @property
    def total(self) -> int:
        """Parameters in memory."""
        return self.always + self.moe_layers * self.experts * self.expert + self.head + self.embedding

    @property
    def weights_bytes(self) -> int:
        return self.total * BYTES


def model_shape(config: Foreign, where: str) -> ModelShape:
    """Return the shape from the model's ``config.json``, by the keys of Hugging Face's transformers.

    Args:
        where: the file, for messages.

    Raises:
        ConfigError: the formula does not cover the model, or the file lacks a size; names a remedy.
    """
    if not isinstance(config, dict):
        raise ConfigError(
            f"{where}: wanted is a model's config.json, a JSON object, not {type(config).__name__}."
        )
    if (strange := _not_counted(config)) is not None:
        raise ConfigError(f"{where}: {strange}, which the roofline does not count. {INSTEAD}")
    layers, hidden, heads = (
        _size(config, k, where) for k in ("num_hidden_layers", "hidden_size", "num_attention_heads")
    )
    kv_heads = config.get("num_key_value_heads") or heads
    head_dim = config.get("head_dim") or hidden // heads
    attention = hidden * head_dim * (2 * heads + 2 * kv_heads)
    experts = int(config.get("num_experts") or config.get("num_local_experts") or 0)
    moe_layers = sum(_is_moe(config, layer) for layer in range(layers)) if experts else 0
    always = layers * attention
    if moe_layers < layers:
        always += (layers - moe_layers) * 3 * hidden * _size(config, "intermediate_size", where)
    always += moe_layers * hidden * (experts + 3 * int(config.get("shared_expert_intermediate_size") or 0))
    vocabulary = hidden * _size(config, "vocab_size", where)
    width = config.get("moe_intermediate_size") or config.get("intermediate_size") or 0
    return ModelShape(
        layers=layers,
        moe_layers=moe_layers,
        always=always,
        experts=experts if moe_layers else 0,
        experts_per_token=_size(config, "num_experts_per_tok", where) if moe_layers else 0,
        expert=3 * hidden * int(width) if moe_layers else 0,
        head=vocabulary,
        embedding=0 if config.get("tie_word_embeddings") else vocabulary,
        kv_values=2 * layers * kv_heads * head_dim,
        query_width=heads * head_dim,
    )


def _not_counted(config: Foreign) -> str | None:
    """Return the part of the model that the formula does not cover, if any."""
    if config.get("kv_lora_rank"):
        return "latent attention (kv_lora_rank)"
    window = config.get("sliding_window") or config.get("attention_chunk_size")
    if window and config.get("use_sliding_window") is not False:
        return f"attention over a window of {window} tokens"
    kinds = config.get("layer_types") or []
    if not isinstance(kinds, list):
        return f"layer_types that is no list ({kinds!r:.40})"
    others = sorted({str(k) for k in kinds} - {"full_attention"})
    if others:
        return f"layers of kind {', '.join(others)}"
    for key in ("quantization_config", "compression_config"):
        if config.get(key):
            return f"quantised weights ({key})"
    names = config.get("architectures") or []
    if not names or names[0] not in ARCHITECTURES:
        return f"architecture {names[0] if names else 'not named'} (known: {', '.join(ARCHITECTURES)})"
    return None


def _is_moe(config: Foreign, layer: int) -> bool:
    """Source: transformers' ``Qwen3MoeDecoderLayer``; others have neither key, and experts in all layers."""
    step = config.get("decoder_sparse_step") or 1
    return layer not in (config.get("mlp_only_layers") or ()) and (layer + 1) % step == 0


def _size(config: Foreign, key: str, where: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{where}: {key}: {value!r}, wanted is a whole number above 0. {INSTEAD}")
    return value


# A step's time on a GPU, by a roofline, and its linear fit for a virtual GPU's clock.

GB = 10**9


@dataclass(frozen=True, slots=True)
class StepLoad:
    """The work of one step.

    Attributes:
        decode_seqs: sequences that get another token, each with ``context_tokens`` computed before.
        prefill_tokens: of one prompt, after ``prefill_context_tokens`` computed in earlier steps.
    """

    decode_seqs: int
    context_tokens: int
    prefill_tokens: int = 0
    prefill_context_tokens: int = 0


def roofline_us(shape: ModelShape, gpu: VirtualGpu, load: StepLoad) -> float:
    """Return the microseconds of one step."""
    tokens = load.decode_seqs + load.prefill_tokens
    sampled = load.decode_seqs + (load.prefill_tokens > 0)
    parts_us = (
        _part_us(gpu, shape.always, shape.always * tokens),
        _part_us(
            gpu,
            shape.moe_layers * touched_experts(shape, tokens) * shape.expert,
            shape.moe_layers * shape.experts_per_token * shape.expert * tokens,
        ),
        _part_us(gpu, shape.head, shape.head * sampled),
        context_token_us(shape, gpu) * load.decode_seqs * load.context_tokens,
        _prefill_attention_us(shape, gpu, load),
    )
    dense_layers = shape.layers - shape.moe_layers
    launches_us = gpu.step_us + gpu.dense_layer_us * dense_layers + gpu.moe_layer_us * shape.moe_layers
    return sum(parts_us) + launches_us


def touched_experts(shape: ModelShape, tokens: int) -> float:
    """Return the expected number of a layer's experts for evenly drawn ``tokens``: E (1 - (1 - k/E)^n)."""
    if not shape.experts:
        return 0.0
    return shape.experts * (1.0 - (1.0 - shape.experts_per_token / shape.experts) ** tokens)


def context_token_us(shape: ModelShape, gpu: VirtualGpu) -> float:
    """Return the time to read one token's KV, which bounds the attention of a decoding sequence."""
    return shape.kv_values * BYTES / gpu.bytes_per_us


def _part_us(gpu: VirtualGpu, parameters: float, multiplications: float) -> float:
    return max(parameters * BYTES / gpu.bytes_per_us, 2 * multiplications / gpu.flops_per_us)


def _prefill_attention_us(shape: ModelShape, gpu: VirtualGpu, load: StepLoad) -> float:
    """Each prompt token attends to all before it: two products of the heads' width, two operations each."""
    pairs = load.prefill_tokens * (load.prefill_context_tokens + load.prefill_tokens / 2)
    compute_us = 4 * shape.layers * shape.query_width * pairs / gpu.flops_per_us
    return max(compute_us, context_token_us(shape, gpu) * load.prefill_context_tokens)


def linear_costs(shape: ModelShape, gpu: VirtualGpu) -> StepCosts:
    """Return the line through the roofline at three steps around the profile's operating point.

    They are half and twice its sequences without a prompt, and its sequences with its prompt in one step. The
    cost of context is the roofline's, which is linear there.
    """
    at = gpu.operating_point
    few, many = max(1, at.decode_seqs // 2), 2 * at.decode_seqs
    few_us, many_us = (roofline_us(shape, gpu, StepLoad(n, 0)) for n in (few, many))
    per_seq_us = (many_us - few_us) / (many - few)
    base_us = few_us - per_seq_us * few
    mixed_us = roofline_us(shape, gpu, StepLoad(at.decode_seqs, 0, at.prefill_tokens))
    decode_us = base_us + per_seq_us * at.decode_seqs
    return StepCosts(
        base_us=base_us,
        per_prefill_token_us=max(0.0, mixed_us - decode_us) / at.prefill_tokens,
        per_decode_seq_us=per_seq_us,
        per_context_token_us=context_token_us(shape, gpu),
    )


def kv_cache_bytes(shape: ModelShape, gpu: VirtualGpu, utilization: float) -> int:
    """Return the memory left for the KV cache of what vLLM may use.

    Raises:
        ConfigError: nothing is left; the model does not fit on this card.
    """
    left = gpu.memory_bytes * utilization - shape.weights_bytes - gpu.reserved_bytes
    if left <= 0:
        raise ConfigError(
            f"engine.virtual_gpu: {gpu.name} has {gpu.memory_bytes / GB:.1f} GB; of {utilization:g} of it"
            f" {shape.weights_bytes / GB:.1f} GB of weights and {gpu.reserved_bytes / GB:.1f} GB for the rest"
            " leave nothing for the KV cache. Take a larger GPU or a smaller model."
        )
    return int(left)
