"""A campaign as written and as frozen values; the only place with types, bounds and defaults of every key.

``scripts/make_schemas.py`` makes the JSON Schemas of ``workflow/schemas`` from these types and docstrings.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from connector_tax.base.records.bounds import (
    CampaignName,
    Foreign,
    Length,
    OutputLength,
    Strict,
    Text,
    VariableName,
)
from connector_tax.base.records.cell import PHASES, Phase, Shape, is_repeat
from connector_tax.base.records.connector import PLAIN_AGAIN, ConnectorSpec
from connector_tax.base.records.host import EngineCosts, StepCosts, VirtualGpu
from connector_tax.base.units import token_count

ONLY_WHERE_SET = ("model_sha256", "virtual_gpu", "gpus", "mix_cards", "wait_for_card_s", "container", "costs")
Runtime = Literal["podman", "docker"]
# Keys that enter no hash and may change at any time.
FREE = ("analysis",)
FREE_OF_ENGINE = (
    *("python", "container", "costs", "gpu", "gpus", "mix_cards", "port", "wait_for_card_s"),
    *("ready_timeout_s", "stop_grace_s", "release_timeout_s", "release_tolerance_mib"),
)

# Arguments that count; vLLM accepts the first three with a suffix, ``32k``.
COUNTED = ("max_model_len", "max_num_batched_tokens", "max_num_seqs", "num_gpu_blocks_override", "block_size")
_Seconds = Annotated[float, Meta(ge=0, le=10**6)]
_SomeSeconds = Annotated[float, Meta(gt=0, le=10**6)]
# 4 and 4.0 stay as written, since their text enters a hash.
_AsWritten = Annotated[int, Meta(gt=0, le=10**6)] | Annotated[float, Meta(gt=0, le=10**6)]
_AsWrittenOr0 = Annotated[int, Meta(ge=0, le=10**8)] | Annotated[float, Meta(ge=0, le=10**8)]
_Count = Annotated[int, Meta(ge=1, le=10**6)]
_Requests = Annotated[int, Meta(ge=6, le=10**9)]
_Card = Annotated[int, Meta(ge=0, le=1000)]
_TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Image = Annotated[str, Meta(pattern="^[^-]")]
_Mount = Annotated[str, Meta(pattern=r"^(/|\$\{)")]
_ArgumentName = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]*\Z")]
_Whole = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_Number = Annotated[float, Meta(ge=-(2**63), le=2**63 - 1)]
_Rate = Annotated[float, Meta(ge=1e-6, le=10**6)]


def without_free_keys(config: Foreign) -> Foreign:
    """Return the config of a ``campaign.json`` without the keys that may change at any time."""
    engine = {key: value for key, value in config.get("engine", {}).items() if key not in FREE_OF_ENGINE}
    return {**{key: value for key, value in config.items() if key not in FREE}, "engine": engine}


class ContainerConfig(Strict, frozen=True):
    """The image that every engine of the campaign runs in (docs/containers.md).

    Attributes:
        image: the name for podman or docker; it must be on this host.
        runtime: null: the first that is installed.
        mounts: further folders of this host that engines may read, at the same paths.
    """

    image: _Image
    runtime: Runtime | None = None
    mounts: tuple[_Mount, ...] = ()


class GpuChoice(Strict, frozen=True):
    """The device of kind virtual_gpu; for no other kind.

    Attributes:
        gpu: the name of a file in config/gpus/, or a path to one.
        step: microseconds of a step, in place of the profile's.
        kv_cache_bytes: memory of the KV cache, in place of what the profile leaves.
        operating_point: where the roofline is made linear; the profile's values by default.
        host: busy time of the host in every step; the profile's values by default.
    """

    gpu: Text
    step: StepCosts | None = None
    kv_cache_bytes: Annotated[int, Meta(ge=1, le=10**15)] | None = None
    operating_point: dict[str, int] = {}
    host: dict[str, float] = {}


class _Engine(Strict, frozen=True, kw_only=True):
    """The launch of every server of the campaign.

    Attributes:
        kind: vllm; virtual_gpu (vLLM with a clock in place of the model; docs/virtual-gpu.md); or emulator
            (the embedded engine).
        python: the engine's interpreter, inside its image if any; ${NAME} is read from the environment. null:
            this interpreter, or the image's python3.
        model: a model directory or hub id.
        served_model_name: the model name in requests.
        args: engine arguments; max_model_len: 200000 is --max-model-len 200000, true a bare flag, false its
            --no- form, null leaves it out. ${NAME} is read from the environment.
        extra_args: appended unchanged.
        env: environment variables of the engine; ${NAME} is read from the environment.
        model_file: cost model of the emulator (YAML).
        costs: assumed costs of the engine's steps for plan and status, in place of the cost model's; enters
            no hash.
        gpu: first card in PCI bus order, unless CUDA_VISIBLE_DEVICES is set already.
        gpus: in place of gpu, the first card of each engine that may run beside the others
            (docs/several-gpus.md).
        mix_cards: allow launches that are compared with one another on different cards of one kind; null:
            only without cards.
        wait_for_card_s: how long to wait for a card that another process measures on; null: 30 s with one
            card, forever with several.
        port: 0 takes a free port per launch; with several engines each has the next one.
        ready_timeout_s: longest time until a launch serves.
        stop_grace_s: time for an engine to end before it is killed.
        release_timeout_s: longest wait for an ended engine's GPU memory.
        release_tolerance_mib: GPU memory that may then be in use beyond the amount before the launch.
        step_timing: record the engine's steps.
        pin_cpus: keep engine and load generator on different physical cores if there are enough.
    """

    kind: Literal["vllm", "virtual_gpu", "emulator"]
    python: str | None = None
    model: Text
    served_model_name: Text
    args: dict[_ArgumentName, _Whole | _Number | str | bool | None] = {}
    extra_args: tuple[str, ...] = ()
    env: dict[VariableName, str] = {}
    model_file: str | None = None
    costs: EngineCosts | None = None
    gpu: _Card = 0
    port: Annotated[int, Meta(ge=0, le=65535)] = 0
    ready_timeout_s: _AsWritten = 900
    stop_grace_s: _AsWritten = 20
    release_timeout_s: _AsWrittenOr0 = 60
    release_tolerance_mib: Annotated[int, Meta(ge=0, le=10**9)] = 512
    step_timing: bool = True
    pin_cpus: bool = True
    gpus: Annotated[tuple[_Card, ...], Meta(min_length=1, max_length=64)] | None = None
    mix_cards: bool | None = None
    wait_for_card_s: _AsWrittenOr0 | None = None


class EngineYaml(_Engine, frozen=True, kw_only=True):
    """The launch of every server of the campaign.

    Attributes:
        virtual_gpu: the device of kind virtual_gpu; for no other kind.
        container: the image that engines run in; a text is the image alone. null: engines run on the host.
    """

    virtual_gpu: GpuChoice | None = None
    container: ContainerConfig | _Image | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind == "virtual_gpu" and self.virtual_gpu is None:
            raise ValueError(
                "virtual_gpu: missing, but engine.kind is virtual_gpu. Say which GPU the clock goes by, for"
                " instance {gpu: h200}"
            )
        if self.kind != "virtual_gpu" and self.virtual_gpu is not None:
            raise ValueError(
                f"virtual_gpu: given, but engine.kind is {self.kind}, which has a device of its own. Leave"
                " the section out, or set engine.kind to virtual_gpu"
            )
        if self.kind != "vllm" and self.costs is not None:
            raise ValueError(
                f"costs: given, but engine.kind is {self.kind}, whose steps have costs. Leave the section out"
            )
        if self.kind == "emulator" and self.model_file is None:
            raise ValueError(
                "model_file: null, but engine.kind is emulator. Give a cost model, for instance"
                " config/engine_model_demo.yaml"
            )
        if self.kind != "emulator" and self.python is None and self.container is None:
            raise ValueError(
                f"python: null, but engine.kind is {self.kind}. Give the interpreter that has vLLM, for"
                " instance ${ENGINE_PYTHON} with that variable set"
            )


class EngineConfig(_Engine, frozen=True, kw_only=True):
    """The launch of every server of the campaign, resolved.

    Attributes:
        model_sha256: checksum of ``model_file``, so that other content is another measurement; None for vLLM.
        virtual_gpu: the device of kind ``virtual_gpu``; None for every other.
    """

    model_sha256: str | None = None
    virtual_gpu: VirtualGpu | None = None
    container: ContainerConfig | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in COUNTED:
            token_count(self.args.get(name))

    @property
    def slots(self) -> tuple[int, ...]:
        """The first card of each engine that may run concurrently."""
        return self.gpus or (self.gpu,)

    @property
    def mixes_cards(self) -> bool:
        """Allow launches that are compared with one another on different cards."""
        return self.kind != "vllm" if self.mix_cards is None else self.mix_cards

    @property
    def is_vllm(self) -> bool:
        return self.kind != "emulator"


class CellConfig(Strict, frozen=True):
    """The protocol of every cell (docs/measurement.md).

    Attributes:
        arrival: the arrival process of requests.
        gamma_shape: for arrival gamma: 1 is Poisson, above 1 more regular, below 1 burstier.
        workers: load-generator processes.
        warmup_s: shortest warm-up, whose requests do not count.
        duration_s: shortest window; overload is judged from 6 s on, by one sample of the queue per second.
        min_completed: fewest completed requests of the window; fewer than 6 have no percentiles.
        max_cell_s: longest time from the cell's start to its last request.
        drain_timeout_s: longest wait for requests in flight after that.
        inflight_cap: an open loop drops arrivals beyond this many requests in flight.
        token_id_low, token_id_high: range from which prompts draw their token ids.
        stop_half_width: end a cell at an interim analysis at which p90 of TTFT and of TPOT are known to this
            half-width, as a share; null fixes its length beforehand. Requires max_completed.
        max_completed: with stop_half_width, the last interim analysis; they are at min_completed, twice that
            and so on.
    """

    arrival: Literal["fixed", "poisson", "gamma"] = "fixed"
    gamma_shape: _AsWritten | None = None
    workers: Annotated[int, Meta(ge=1, le=64)] = 1
    warmup_s: _Seconds = 10.0
    duration_s: _SomeSeconds = 60.0
    min_completed: _Requests = 200
    max_cell_s: _SomeSeconds = 900.0
    drain_timeout_s: _SomeSeconds = 120.0
    inflight_cap: _Count = 256
    token_id_low: _TokenId = 1000
    token_id_high: _TokenId = 100_000
    stop_half_width: Annotated[float, Meta(gt=0, lt=1)] | None = None
    max_completed: _Requests | None = None

    def __post_init__(self) -> None:
        if self.token_id_low >= self.token_id_high:
            raise ValueError(
                f"token_id_low: {self.token_id_low} is not below cell.token_id_high ({self.token_id_high});"
                " prompts draw their token ids from between the two"
            )
        if (self.gamma_shape is not None) != (self.arrival == "gamma"):
            raise ValueError(
                f"gamma_shape: {self.gamma_shape}, but cell.arrival is {self.arrival}. Give a shape with"
                " arrival gamma, and with no other"
            )
        if (self.stop_half_width is None) != (self.max_completed is None):
            raise ValueError(
                f"stop_half_width: {self.stop_half_width}, cell.max_completed: {self.max_completed}. A"
                " stopping rule wants both, the width at which a cell may end and the requests after which"
                " it does; else leave both out"
            )
        if self.max_completed is not None and self.max_completed <= self.min_completed:
            raise ValueError(
                f"max_completed: {self.max_completed} is not above cell.min_completed ({self.min_completed}),"
                " at which the first look is taken"
            )
        if self.max_cell_s < self.warmup_s + self.duration_s:
            raise ValueError(
                f"max_cell_s: {self.max_cell_s:g} is shorter than warm-up plus window ({self.warmup_s:g} +"
                f" {self.duration_s:g} s); no cell could ever finish"
            )


class PhaseA(Strict, frozen=True, kw_only=True):
    """Every configuration at every rate.

    Attributes:
        rates_per_s: requests per second; only rates that double have the third criterion of saturation.
        input_tokens: prompt length of Phase A's shape.
        output_tokens: output length of Phase A's shape.
        stop_after_overloaded: a configuration's sweep ends after this many overloaded rates in a row; null
            measures every rate.
    """

    rates_per_s: Annotated[tuple[_Rate, ...], Meta(min_length=1)]
    input_tokens: Length
    output_tokens: OutputLength
    stop_after_overloaded: _Count | None = None


class PhaseB(Strict, frozen=True):
    """All prompt lengths x output lengths at ref_safe; without lengths there is no Phase B.

    Attributes:
        input_tokens: prompt lengths.
        output_tokens: output lengths.
    """

    input_tokens: tuple[Length, ...] = ()
    output_tokens: tuple[OutputLength, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.input_tokens) != bool(self.output_tokens):
            raise ValueError(
                f"input_tokens: {[*self.input_tokens]}, output_tokens: {[*self.output_tokens]}. Give both, or"
                " neither: without lengths there is no Phase B"
            )


class PhaseBPrime(Strict, frozen=True):
    """Shapes at which some configurations are measured under load.

    Attributes:
        configs: ids of connectors of this campaign.
        shapes: each as [input tokens, output tokens].
    """

    configs: tuple[str, ...] = ()
    shapes: tuple[tuple[Length, OutputLength], ...] = ()


class PhaseBPrimeConfig(Strict, frozen=True):
    configs: tuple[str, ...]
    shapes: tuple[Shape, ...]


class PhaseC(Strict, frozen=True):
    """Conversations at ref_safe: turns wait for one another and share history, so they hit the prefix cache.

    Attributes:
        sessions: session files (docs/formats.md), relative to the project's root, one cell each; without any
            there is no Phase C.
        warmup_s: about the length of a session.
    """

    sessions: tuple[Text, ...] = ()
    warmup_s: _Seconds = 30.0


class SessionFile(Strict, frozen=True):
    """A file of conversations, with what the plan needs.

    Attributes:
        sha256: checksum of its content, so that other content is another measurement.
        turns_per_session: mean; times the session rate it is the request rate.
    """

    path: str
    sha256: str
    turns_per_session: float


class PhaseCConfig(Strict, frozen=True):
    """Conversations at the reference rate; none if ``sessions`` is empty.

    Attributes:
        warmup_s: in place of ``cell.warmup_s``: until the number of concurrent sessions stops growing.
    """

    sessions: tuple[SessionFile, ...]
    warmup_s: float


class PhaseDConfig(Strict, frozen=True):
    """Hook times and latencies by blocks in the prefix cache and by running requests (docs/measurement.md).

    Attributes:
        cached_tokens: tokens in the prefix cache before a cell, one level after the other; without levels
            there is no Phase D.
        running: requests in flight (closed loop), each number at every level.
        input_tokens: prompt length of a cell's requests.
        output_tokens: output length of a cell's requests.
        warmup_s: in place of cell.warmup_s.
        duration_s: short, since what a cell computes is cached, too.
        min_completed: in place of cell.min_completed.
    """

    cached_tokens: tuple[Annotated[int, Meta(ge=0, le=10**12)], ...] = ()
    running: Annotated[tuple[_Count, ...], Meta(min_length=1)] = (1, 8, 32)
    input_tokens: Length = 128
    output_tokens: OutputLength = 256
    warmup_s: _Seconds = 2.0
    duration_s: _SomeSeconds = 10.0
    min_completed: _Requests = 10

    @property
    def shape(self) -> Shape:
        return Shape(self.input_tokens, self.output_tokens)


class AccuracyConfig(Strict, frozen=True):
    """A fixed set of prompts after the cells of each launch; answers are compared with plain's.

    Attributes:
        prompts: 0 skips the pass.
        input_tokens: length of each prompt.
        output_tokens: length of each answer.
    """

    prompts: Annotated[int, Meta(ge=0, le=10**6)] = 16
    input_tokens: Length = 256
    output_tokens: Length = 32


class AnalysisConfig(Strict, frozen=True):
    """Settings of the analysis, which enter no hash and may change at any time.

    Attributes:
        bootstrap_draws: resamples behind an interval.
        confidence: confidence level of every interval of the analysis.
        time_budget_h: longest wanted duration of a campaign; the report says whether it was kept.
    """

    bootstrap_draws: Annotated[int, Meta(ge=200, le=100_000)] = 2000
    confidence: Annotated[float, Meta(gt=0.5, lt=1)] = 0.95
    time_budget_h: _AsWritten = 6


class _Campaign(Strict, frozen=True, kw_only=True):
    """The part that the written and the frozen campaign share.

    Attributes:
        seed: root of every random stream (schedules, prompts, run order, resampling).
        observer_effect: measure in Phase B what recording costs, with an interval: Phase A's shape with and
            without the step recorder.
        repeats: blocks after the other phases: each launches every configuration once more at ref_safe and
            ref_load, plain twice, in its own random order. With repeats, Phases A and B are blocks as well.
        repeat_requests: completed requests of a cell of those blocks, whose window lasts no longer than they
            take; null: as in other cells.
    """

    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 20260526
    phase_d: PhaseDConfig = PhaseDConfig()
    observer_effect: bool = False
    repeats: Annotated[int, Meta(ge=0, le=99)] = 0
    repeat_requests: Annotated[int, Meta(ge=20, le=10**9)] | None = None
    cell: CellConfig = CellConfig()
    accuracy: AccuracyConfig = AccuracyConfig()
    analysis: AnalysisConfig = AnalysisConfig()


class CampaignYaml(_Campaign, frozen=True, kw_only=True):
    """One campaign; every parameter that shapes a measurement. Choosing values: docs/config.md.

    Attributes:
        campaign: names the folder under results/.
        allow_inline: keys that look like secrets and hold none (docs/secrets.md).
        connectors_file: describes the connectors; relative to the project's root.
        connectors: ids of the configurations to measure; must contain plain, the baseline.
    """

    campaign: CampaignName
    allow_inline: tuple[str, ...] = ()
    connectors_file: str = "config/connectors.yaml"
    connectors: tuple[str, ...]
    engine: EngineYaml
    phase_a: PhaseA
    phase_b: PhaseB = PhaseB()
    phase_b_prime: PhaseBPrime = PhaseBPrime()
    phase_c: PhaseC = PhaseC()

    def __post_init__(self) -> None:
        super().__post_init__()
        if "plain" not in self.connectors:
            raise ValueError("connectors: holds no 'plain'; every tax is taken against it, so add it")
        for k, connector_id in enumerate(self.phase_b_prime.configs):
            if connector_id not in self.connectors:
                raise ValueError(
                    f"phase_b_prime.configs[{k}]: {connector_id!r} is not among this campaign's connectors"
                    f" ({', '.join(self.connectors)})"
                )


class CampaignConfig(_Campaign, frozen=True, kw_only=True):
    """One campaign, resolved: the ``config`` of ``campaign.json``.

    Attributes:
        phase_a_stop_after_overloaded: as in ``PhaseA``.
    """

    campaign: str
    engine: EngineConfig
    connectors: tuple[ConnectorSpec, ...]
    phase_a_rates_per_s: tuple[float, ...]
    phase_a_shape: Shape
    phase_b_input_tokens: tuple[int, ...]
    phase_b_output_tokens: tuple[int, ...]
    phase_b_prime: PhaseBPrimeConfig
    phase_c: PhaseCConfig
    phase_a_stop_after_overloaded: int | None = None

    def to_json(self) -> Any:
        """Return the form in ``campaign.json``, without unset ``ONLY_WHERE_SET`` keys, to keep old hashes."""
        value = msgspec.to_builtins(self)
        for name in ONLY_WHERE_SET:
            if value["engine"][name] is None:
                del value["engine"][name]
        return value

    def connector(self, connector_id: str) -> ConnectorSpec:
        if connector_id == PLAIN_AGAIN:
            return replace(self.connector("plain"), id=PLAIN_AGAIN, label="plain vLLM, again")
        return next(c for c in self.connectors if c.id == connector_id)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Phase A, the others that have cells, then the blocks of repeats."""
        blocks = tuple(f"r{k}" for k in range(1, self.repeats + 1))
        asked = {
            "a": True,
            "b": bool(self.phase_b_input_tokens) or self.observer_effect,
            "b_prime": bool(self.phase_b_prime.configs and self.phase_b_prime.shapes),
            "c": bool(self.phase_c.sessions),
            "d": bool(self.phase_d.cached_tokens),
        }
        return (*(p for p in PHASES if asked[p]), *blocks)

    def members(self, phase: Phase) -> tuple[str, ...]:
        """Return the configurations that a phase launches; a block has plain twice."""
        block = is_repeat(phase) or (self.repeats > 0 and phase in ("a", "b"))
        return (*self.connector_ids, PLAIN_AGAIN) if block else self.connector_ids

    @property
    def connector_ids(self) -> tuple[str, ...]:
        return tuple(c.id for c in self.connectors)
