"""A virtual GPU: what the clock goes by, as a campaign gives it."""

from dataclasses import dataclass

from connector_tax.base.records.bounds import CostUs


@dataclass(frozen=True, slots=True)
class StepCosts:
    """How long a step takes on the device: the sum over what is in it, microseconds.

    Attributes:
        per_prefill_token_us: for each token of a prompt that the step computes.
        per_decode_seq_us: for each sequence that gets a further token.
        per_context_token_us: for each token that a sequence of the step has computed before; its keys and values are read.
    """

    base_us: CostUs
    per_prefill_token_us: CostUs
    per_decode_seq_us: CostUs
    per_context_token_us: CostUs

    def of(self, prefill_tokens: int, decode_seqs: int, context_tokens: int) -> float:
        """Microseconds of one step."""
        return (
            self.base_us
            + self.per_prefill_token_us * prefill_tokens
            + self.per_decode_seq_us * decode_seqs
            + self.per_context_token_us * context_tokens
        )


@dataclass(frozen=True, slots=True)
class HostCosts:
    """What a GPU's model runner does on the host and a clock does not do by itself, as busy time; microseconds a step."""

    before_launch_us: CostUs = 0.0
    before_launch_per_seq_us: CostUs = 0.0
    after_launch_us: CostUs = 0.0


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """Where the step time is taken to be linear.

    Attributes:
        context_tokens: computed before, by each sequence that decodes.
        prefill_tokens: of a prompt that is computed in one step, beside the sequences that decode.
    """

    decode_seqs: int
    context_tokens: int
    prefill_tokens: int


@dataclass(frozen=True, slots=True)
class VirtualGpu:
    """A profile of ``config/gpus/`` with what the campaign sets itself.

    Attributes:
        profile: name of the file, without its ending.
        name: as NVML says it.
        memory_bytes: in total, as NVML says it.
        bf16_tflops, memory_gb_per_s: of the data sheet; dense, and 10^9 bytes.
        host_link_gb_per_s: that copies between device and host reach, each way; 10^9 bytes.
        compute_share, bandwidth_share: of these two, what kernels are assumed to reach.
        step_us, dense_layer_us, moe_layer_us: time in which kernels start and end and nothing is read: once a step, and per layer.
        reserved_bytes: of the memory that vLLM may use, what neither weights nor KV cache take.
        step: given or fitted costs; None: the roofline's.
        kv_cache_bytes: likewise.
    """

    profile: str
    name: str
    compute_capability: tuple[int, int]
    memory_bytes: int
    bf16_tflops: float
    memory_gb_per_s: float
    host_link_gb_per_s: float
    compute_share: float
    bandwidth_share: float
    step_us: float
    dense_layer_us: float
    moe_layer_us: float
    reserved_bytes: int
    operating_point: OperatingPoint
    host: HostCosts
    step: StepCosts | None = None
    kv_cache_bytes: int | None = None

    @property
    def flops_per_us(self) -> float:
        """That kernels are assumed to reach."""
        return self.bf16_tflops * 1e6 * self.compute_share

    @property
    def bytes_per_us(self) -> float:
        """That kernels are assumed to read."""
        return self.memory_gb_per_s * 1e3 * self.bandwidth_share
