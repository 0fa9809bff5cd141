"""How long a step of a model takes on a GPU, by a roofline; and the line that a virtual GPU's clock goes by.

Each part of a step takes as long as reading what it needs, or computing it, whichever is longer; parts follow one another. The
formula with its sources and what it was held against: docs/virtual-gpu.md.
"""

from dataclasses import dataclass

from connector_tax.base.errors import ConfigError
from connector_tax.base.records.gpu import StepCosts, VirtualGpu
from connector_tax.base.vllm_model.shape import BYTES, ModelShape

GB = 10**9


@dataclass(frozen=True, slots=True)
class StepLoad:
    """What one step has to do.

    Attributes:
        decode_seqs: sequences that get a further token, each with ``context_tokens`` computed before.
        prefill_tokens: of one prompt, ``prefill_context_tokens`` of which were computed in earlier steps.
    """

    decode_seqs: int
    context_tokens: int
    prefill_tokens: int = 0
    prefill_context_tokens: int = 0

    @property
    def all_context_tokens(self) -> int:
        """As the clock counts them."""
        return self.decode_seqs * self.context_tokens + self.prefill_context_tokens


def roofline_us(shape: ModelShape, gpu: VirtualGpu, load: StepLoad) -> float:
    """Microseconds of one step."""
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
    """Experts of one layer that ``tokens`` tokens need, expected, where each token's are drawn evenly: E (1 - (1 - k/E)^n)."""
    if not shape.experts:
        return 0.0
    return shape.experts * (1.0 - (1.0 - shape.experts_per_token / shape.experts) ** tokens)


def context_token_us(shape: ModelShape, gpu: VirtualGpu) -> float:
    """To read keys and values of one token; attention of a decoding sequence computes so little that reading decides."""
    return shape.kv_values * BYTES / gpu.bytes_per_us


def _part_us(gpu: VirtualGpu, parameters: float, multiplications: float) -> float:
    return max(parameters * BYTES / gpu.bytes_per_us, 2 * multiplications / gpu.flops_per_us)


def _prefill_attention_us(shape: ModelShape, gpu: VirtualGpu, load: StepLoad) -> float:
    """Each token of the prompt attends to all before it: two products of the heads' width, two operations each."""
    pairs = load.prefill_tokens * (load.prefill_context_tokens + load.prefill_tokens / 2)
    compute_us = 4 * shape.layers * shape.query_width * pairs / gpu.flops_per_us
    return max(compute_us, context_token_us(shape, gpu) * load.prefill_context_tokens)


def linear_costs(shape: ModelShape, gpu: VirtualGpu) -> StepCosts:
    """The line through the roofline at three steps around the profile's operating point.

    Through a half and twice its sequences without a prompt, and through its sequences with its prompt in one step. Context costs
    what the roofline says: there it is linear.
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
    """What is left for keys and values of the memory that vLLM may use.

    Raises:
        ConfigError: nothing is; the model does not fit on this card.
    """
    left = gpu.memory_bytes * utilization - shape.weights_bytes - gpu.reserved_bytes
    if left <= 0:
        raise ConfigError(
            f"engine.virtual_gpu: {gpu.name} has {gpu.memory_bytes / GB:.1f} GB; of {utilization:g} of it {shape.weights_bytes / GB:.1f} GB "
            f"of weights and {gpu.reserved_bytes / GB:.1f} GB for the rest leave nothing for the KV cache. Take a larger GPU or a smaller model."
        )
    return int(left)
