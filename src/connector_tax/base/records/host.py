"""Readings of the host, as under ``host`` in a line of ``metrics_*.jsonl``, and types of a virtual GPU.

What kernel or driver do not report is absent. Ticks are cumulative since boot, so a cell's share is a
difference.
"""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from connector_tax.base.records.bounds import CostUs, Length, LengthOr0, Strict, Text

# A virtual GPU's clock, from a profile of config/gpus/ and a campaign.

Positive = Annotated[float, Meta(gt=0)]
_ReachedShare = Annotated[float, Meta(gt=0, le=1)]
_Version = Annotated[int, Meta(ge=0, le=99)]
_Size = Annotated[int, Meta(ge=1)]
# Microseconds: a step of two weeks is a mistake, and sums of longer ones would not be times.
_Cost = Annotated[float, Meta(ge=0, le=1e12)]
# With a capacity of zero no request would ever end.
_Room = Annotated[int, Meta(ge=1, le=10**12)]


class StepCosts(Strict, frozen=True):
    """A step's time on the device: the sum of its parts, microseconds.

    Attributes:
        base_us: per step.
        per_prefill_token_us: per prompt token that the step computes.
        per_decode_seq_us: per sequence that gets another token.
        per_context_token_us: per token that the step's sequences have computed before, whose KV is read.
    """

    base_us: Annotated[float, Meta(gt=0, le=1e9)]
    per_prefill_token_us: CostUs
    per_decode_seq_us: CostUs
    per_context_token_us: CostUs

    def of(self, prefill_tokens: int, decode_seqs: int, context_tokens: int) -> float:
        """Return the microseconds of one step."""
        return (
            self.base_us
            + self.per_prefill_token_us * prefill_tokens
            + self.per_decode_seq_us * decode_seqs
            + self.per_context_token_us * context_tokens
        )


class EngineCosts(Strict, frozen=True):
    """Costs and capacity of the engine without a connector; microseconds and tokens.

    A step takes ``(base + prefill tokens + decode sequences + context) * jitter``. ``jitter_cv`` is the
    coefficient of variation of that factor, ``launch_cv`` that of one factor per launch.

    Attributes:
        base_us: per step.
        per_prefill_token_us: per prompt token that the step computes.
        per_decode_seq_us: per sequence that gets another token.
        per_context_token_us: per token that the step's sequences have computed before.
        schedule_us: of the scheduler before a step.
        update_us: of the scheduler after a step.
        jitter_cv: coefficient of variation of a step's factor.
        launch_cv: coefficient of variation of a launch's factor.
        max_num_seqs: most sequences in one step.
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
    """Host work of a GPU's model runner that a clock lacks, as busy time; microseconds per step."""

    before_launch_us: CostUs = 0.0
    before_launch_per_seq_us: CostUs = 0.0
    after_launch_us: CostUs = 0.0


class OperatingPoint(Strict, frozen=True):
    """The point around which the step time is made linear.

    Attributes:
        context_tokens: computed before, by each decoding sequence.
        prefill_tokens: of a prompt computed in one step, beside the decoding sequences.
    """

    decode_seqs: Annotated[int, Meta(ge=2, le=10**6)] = 16
    context_tokens: LengthOr0 = 4096
    prefill_tokens: Length = 4096


class _Gpu(Strict, frozen=True, kw_only=True):
    """The part that a profile and a campaign's device share.

    Attributes:
        name: as NVML reports it.
        memory_bytes: in total, as NVML reports it.
        bf16_tflops: of the data sheet, dense.
        memory_gb_per_s: of the data sheet, 10^9 bytes.
        host_link_gb_per_s: reached by copies between device and pinned host memory, each way; 10^9 bytes.
        reserved_bytes: of the memory that vLLM may use, the part for neither weights nor KV cache.
        operating_point: the point around which the step time is made linear.
        host: busy time of the host in every step.
        step: measured or fitted for one model, to which the profile then applies alone. null: from the
            roofline.
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
    """The assumed share of the data sheet's numbers that kernels reach."""

    compute: _ReachedShare
    bandwidth: _ReachedShare


class Overhead(Strict, frozen=True):
    """Time in which kernels start and end and nothing is read: per step and per layer."""

    step_us: CostUs
    dense_layer_us: CostUs
    moe_layer_us: CostUs


class GpuProfile(_Gpu, frozen=True, kw_only=True):
    """The numbers behind a virtual GPU's clock, one file of config/gpus/; see docs/virtual-gpu.md.

    Attributes:
        sources: the source of each number, by its key.
    """

    achieved: Achieved
    overhead: Overhead
    sources: Annotated[dict[str, Text], Meta(min_length=1)]


class VirtualGpu(_Gpu, frozen=True, kw_only=True):
    """A profile with the campaign's own values.

    Attributes:
        profile: the file's name, without its suffix.
        compute_share, bandwidth_share: assumed share of the data sheet that kernels reach.
        step_us, dense_layer_us, moe_layer_us: as in the profile's ``overhead``.
    """

    profile: str
    compute_share: float
    bandwidth_share: float
    step_us: float
    dense_layer_us: float
    moe_layer_us: float

    @property
    def flops_per_us(self) -> float:
        """Assumed rate of kernels."""
        return self.bf16_tflops * 1e6 * self.compute_share

    @property
    def bytes_per_us(self) -> float:
        """Assumed rate of reads by kernels."""
        return self.memory_gb_per_s * 1e3 * self.bandwidth_share


# No reading of a host is larger; a larger one would overflow a mean.
Number = Annotated[float, Meta(ge=-1e12, le=1e12)]
Ticks = Annotated[int, Meta(ge=0, lt=2**62)]


class GpuReading(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The GPU that the engine runs on.

    Attributes:
        utilisation: share of the driver's last sampling period in which a kernel ran, 0 to 1.
        clock_reasons: names of the reasons that hold the clocks below their maximum; empty without any.
        errors: readings that failed, and how; readings that this GPU does not support do not count.
    """

    sm_mhz: Number | None = None
    mem_mhz: Number | None = None
    temperature_c: Number | None = None
    power_w: Number | None = None
    utilisation: Number | None = None
    clock_reasons: tuple[str, ...] | None = None
    errors: tuple[str, ...] = ()


class HostReading(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The whole host, with all its processes.

    Attributes:
        cpu_ticks: of all cores, idle ones included.
        steal_ticks: the part of them that the hypervisor gave to others while a core here had work.
        cpu_mhz: of each core that reports it.
        cpu_work_us: CPU times of a fixed piece of work since the previous reading; see
            ``run.sampler.sampler.work_us``.
        gpu: None without an NVIDIA driver, and if the engine uses no GPU.
    """

    cpu_ticks: Ticks | None = None
    steal_ticks: Ticks | None = None
    cpu_mhz: tuple[Ticks, ...] = ()
    cpu_work_us: tuple[Number, ...] = ()
    gpu: GpuReading | None = None


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One line of ``metrics_*.jsonl``.

    Attributes:
        values: the engine's counters and gauges under canonical names; ``UNSET`` if it did not answer, as
            ``error`` says.
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
