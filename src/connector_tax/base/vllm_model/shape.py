"""A model's ``config.json`` to the sizes that its step time follows from.

Decoders with full attention (grouped or not) and gated MLPs, dense or mixtures of experts. Whatever else a model has, it is
refused by name: a formula that leaves out half of a model would be believed all the same.
"""

from dataclasses import dataclass

from connector_tax.base.errors import ConfigError
from connector_tax.base.records.bounds import Foreign

# vLLM's architectures whose layers are as counted here.
ARCHITECTURES = (
    *("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"),
    *("MixtralForCausalLM", "Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM"),
)
# Of weights and of what is computed; vLLM serves models that were stored in float32 with two bytes as well.
BYTES = 2
INSTEAD = (
    "Give engine.virtual_gpu.step and engine.virtual_gpu.kv_cache_bytes (measured or fitted) for this model."
)


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Numbers of parameters, and what attention works on.

    Attributes:
        layers: all; ``moe_layers`` of them are mixtures of experts.
        always: parameters that every token passes, without embedding and head: attention, dense MLPs, shared experts, routers.
        experts: of one layer; 0 without any.
        experts_per_token: that one token passes in a layer.
        expert: parameters of one expert.
        head: parameters of the output head; ``embedding`` those of the input embedding, 0 where it is the head's own.
        kv_values: numbers that one token leaves in the KV cache, over all layers.
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
        """Parameters that lie in memory."""
        return self.always + self.moe_layers * self.experts * self.expert + self.head + self.embedding

    @property
    def active(self) -> int:
        """Parameters that one token passes, embedding and head included, as model cards count them."""
        experts = self.moe_layers * self.experts_per_token * self.expert
        return self.always + experts + self.head + self.embedding

    @property
    def weights_bytes(self) -> int:
        return self.total * BYTES


def model_shape(config: Foreign, where: str) -> ModelShape:
    """From the model's own ``config.json``, by the keys of Hugging Face's transformers.

    Args:
        where: the file, for messages.

    Raises:
        ConfigError: the model has something that the formula does not know, or the file lacks a size; says what would do.
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
    """What of the model no formula here covers; None where it is one of those that are."""
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
    """Source: ``Qwen3MoeDecoderLayer`` of transformers; others have neither key and are mixtures throughout."""
    step = config.get("decoder_sparse_step") or 1
    return layer not in (config.get("mlp_only_layers") or ()) and (layer + 1) % step == 0


def _size(config: Foreign, key: str, where: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{where}: {key}: {value!r}, wanted is a whole number above 0. {INSTEAD}")
    return value
