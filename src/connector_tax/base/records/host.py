"""What the host did at one moment, as it stands under ``host`` in a line of ``metrics_*.jsonl``.

What the kernel or the driver does not tell is absent. Ticks are cumulative since boot, so a cell's share is a
difference.
"""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from connector_tax.base.records.bounds import CostUs, Length, LengthOr0, Strict, Text

# A virtual GPU: what the clock goes by, as a profile of config/gpus/ and a campaign give it.

Positive = Annotated[float, Meta(gt=0)]
_ReachedShare = Annotated[float, Meta(gt=0, le=1)]
_Version = Annotated[int, Meta(ge=0, le=99)]
_Size = Annotated[int, Meta(ge=1)]
# Microseconds: a step of two weeks is a slip, and times that are sums of such are none.
_Cost = Annotated[float, Meta(ge=0, le=1e12)]
# Of an engine that has none no request would ever end.
_Room = Annotated[int, Meta(ge=1, le=10**12)]


class StepCosts(Strict, frozen=True):
    """How long a step takes on the device: the sum over what is in it, microseconds.

    Attributes:
        base_us: of every step.
        per_prefill_token_us: for each token of a prompt that the step computes.
        per_decode_seq_us: for each sequence that gets a further token.
        per_context_token_us: for each token that a sequence of the step has computed before; its keys and
            values are read.
    """

    base_us: Annotated[float, Meta(gt=0, le=1e9)]
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


class EngineCosts(Strict, frozen=True):
    """Costs and capacity of the engine without a connector; microseconds and tokens.

    A step takes ``(base + prefill tokens + decode sequences + context) * jitter``. ``jitter_cv`` is
    the coefficient of variation of that factor, ``launch_cv`` that of one factor per launch.

    Attributes:
        base_us: of every step.
        per_prefill_token_us: for each token of a prompt that the step computes.
        per_decode_seq_us: for each sequence that gets a further token.
        per_context_token_us: for each token computed before, by the step's sequences.
        schedule_us: of the scheduler before a step.
        update_us: of the scheduler after a step.
        jitter_cv: coefficient of variation of a step's factor.
        launch_cv: coefficient of variation of a launch's factor.
        max_num_seqs: sequences in one step at most.
        kv_blocks: blocks of the KV cache.
        block_size: tokens of a block.
    """

    base_us: _Cost
    per_prefill_token_us: _Cost
    per_decode_seq_us: _Cost
    per_context_token_us: _Cost
    schedule_us: _Cost
    update_us: _Cost
    jitter_cv: _Cost
    launch_cv: _Cost
    max_num_seqs: _Room
    kv_blocks: _Room
    block_size: _Room


class HostCosts(Strict, frozen=True):
    """What a GPU's model runner does on the host and a clock does not do by itself, as busy time;
    microseconds a step."""

    before_launch_us: CostUs = 0.0
    before_launch_per_seq_us: CostUs = 0.0
    after_launch_us: CostUs = 0.0


class OperatingPoint(Strict, frozen=True):
    """Where the step time is taken to be linear.

    Attributes:
        context_tokens: computed before, by each sequence that decodes.
        prefill_tokens: of a prompt that is computed in one step, beside the sequences that decode.
    """

    decode_seqs: Annotated[int, Meta(ge=2, le=10**6)] = 16
    context_tokens: LengthOr0 = 4096
    prefill_tokens: Length = 4096


class _Gpu(Strict, frozen=True, kw_only=True):
    """What a profile and the device of a campaign have in common.

    Attributes:
        name: as NVML says it.
        memory_bytes: in total, as NVML says it.
        bf16_tflops: of the data sheet, dense.
        memory_gb_per_s: of the data sheet, 10^9 bytes.
        host_link_gb_per_s: that copies between device and pinned host memory reach, each way; 10^9 bytes.
        reserved_bytes: of the memory that vLLM may use, what neither weights nor KV cache take.
        operating_point: where the step time is taken to be linear.
        host: busy time of the host in every step.
        step: measured or fitted for one model; then the profile is for that model alone. null takes the
            roofline's.
        kv_cache_bytes: likewise.
    """

    name: Annotated[str, Meta(min_length=1, max_length=96)]
    compute_capability: tuple[_Version, _Version]
    memory_bytes: _Size
    bf16_tflops: Positive
    memory_gb_per_s: Positive
    host_link_gb_per_s: Annotated[float, Meta(gt=0, le=10_000)]
    reserved_bytes: Annotated[int, Meta(ge=0)]
    operating_point: OperatingPoint = OperatingPoint()
    host: HostCosts = HostCosts()
    step: StepCosts | None = None
    kv_cache_bytes: _Size | None = None


class Achieved(Strict, frozen=True):
    """The share of the data sheet's numbers that kernels are assumed to reach."""

    compute: _ReachedShare
    bandwidth: _ReachedShare


class Overhead(Strict, frozen=True):
    """Time in which kernels start and end and nothing is read: once a step, and per layer."""

    step_us: CostUs
    dense_layer_us: CostUs
    moe_layer_us: CostUs


class GpuProfile(_Gpu, frozen=True, kw_only=True):
    """The numbers that the clock of a virtual GPU goes by; one file of config/gpus/. How they become a step
    time: docs/virtual-gpu.md.

    Attributes:
        sources: where each number is from, by its key.
    """

    achieved: Achieved
    overhead: Overhead
    sources: Annotated[dict[str, Text], Meta(min_length=1)]


class VirtualGpu(_Gpu, frozen=True, kw_only=True):
    """A profile with what the campaign sets itself.

    Attributes:
        profile: name of the file, without its ending.
        compute_share, bandwidth_share: of the data sheet, what kernels are assumed to reach.
        step_us, dense_layer_us, moe_layer_us: as the profile's ``overhead`` has them.
    """

    profile: str
    compute_share: float
    bandwidth_share: float
    step_us: float
    dense_layer_us: float
    moe_layer_us: float

    @property
    def flops_per_us(self) -> float:
        """That kernels are assumed to reach."""
        return self.bf16_tflops * 1e6 * self.compute_share

    @property
    def bytes_per_us(self) -> float:
        """That kernels are assumed to read."""
        return self.memory_gb_per_s * 1e3 * self.bandwidth_share


# Nothing that a host tells of itself is beyond these; a number that is would be no number any more in a mean.
Number = Annotated[float, Meta(ge=-1e12, le=1e12)]
Ticks = Annotated[int, Meta(ge=0, lt=2**62)]


class GpuReading(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The GPU that the engine runs on.

    Attributes:
        utilisation: share of the driver's last sampling period in which a kernel ran, 0 to 1.
        clock_reasons: why the clocks are not at their maximum, by name; empty where nothing holds them down.
        errors: readings that failed, and how; what this GPU cannot tell at all is none of them.
    """

    sm_mhz: Number | None = None
    mem_mhz: Number | None = None
    temperature_c: Number | None = None
    power_w: Number | None = None
    utilisation: Number | None = None
    clock_reasons: tuple[str, ...] | None = None
    errors: tuple[str, ...] = ()


class HostReading(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The whole host, whoever runs on it.

    Attributes:
        cpu_ticks: of all cores, idle ones included.
        steal_ticks: those of them that the hypervisor gave to somebody else while a core here had work.
        cpu_mhz: of each core that says.
        cpu_work_us: CPU time of the same piece of work, each time that it was done since the reading before;
            see ``run.sampler.sampler.work_us``.
        gpu: None without an NVIDIA driver, and where the engine uses no GPU.
    """

    cpu_ticks: Ticks | None = None
    steal_ticks: Ticks | None = None
    cpu_mhz: tuple[Ticks, ...] = ()
    cpu_work_us: tuple[Number, ...] = ()
    gpu: GpuReading | None = None


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One line of ``metrics_*.jsonl``.

    Attributes:
        values: the engine's counters and gauges under canonical names; ``UNSET`` where it did not answer,
            which ``error`` says.
        host: ``UNSET`` in lines of rehearsals.
    """

    t_ns: int
    ok: bool
    values: dict[str, float] | UnsetType = UNSET
    error: str | UnsetType = UNSET
    host: HostReading | UnsetType = UNSET

    @property
    def line(self) -> str:
        return msgspec.json.encode(self).decode()
