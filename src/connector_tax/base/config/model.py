"""A campaign: as a person writes it, and as frozen values. Types, bounds and defaults of every key stand here
and nowhere else.

The JSON Schemas of ``workflow/schemas`` are made of these types, with their docstrings, by
``scripts/make_schemas.py``.
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
# Keys that enter no hash, and may change at any time.
FREE = ("analysis",)
FREE_OF_ENGINE = (
    *("python", "container", "costs", "gpu", "gpus", "mix_cards", "port", "wait_for_card_s"),
    *("ready_timeout_s", "stop_grace_s", "release_timeout_s", "release_tolerance_mib"),
)

# Arguments that count something; vLLM takes the first three with a suffix, ``32k``.
COUNTED = ("max_model_len", "max_num_batched_tokens", "max_num_seqs", "num_gpu_blocks_override", "block_size")
_Seconds = Annotated[float, Meta(ge=0, le=10**6)]
_SomeSeconds = Annotated[float, Meta(gt=0, le=10**6)]
# 4 and 4.0 stay as they are written: their text enters a hash.
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
    """Return the config of a ``campaign.json`` without what may change at any time."""
    engine = {key: value for key, value in config.get("engine", {}).items() if key not in FREE_OF_ENGINE}
    return {**{key: value for key, value in config.items() if key not in FREE}, "engine": engine}


class ContainerConfig(Strict, frozen=True):
    """The image that every engine of the campaign runs in (docs/containers.md).

    Attributes:
        image: as podman and docker name it; it has to be on this host.
        runtime: null: the first that is installed.
        mounts: folders of this host that engines may read as well, under their own paths.
    """

    image: _Image
    runtime: Runtime | None = None
    mounts: tuple[_Mount, ...] = ()


class GpuChoice(Strict, frozen=True):
    """The device of kind virtual_gpu, and of no other.

    Attributes:
        gpu: a file of config/gpus/ by its name, or a path to one.
        step: microseconds of a step in place of the profile's.
        kv_cache_bytes: memory for keys and values, in place of what the profile leaves.
        operating_point: where the roofline is taken to be linear; what is not given is the profile's.
        host: busy time of the host in every step; what is not given is the profile's.
    """

    gpu: Text
    step: StepCosts | None = None
    kv_cache_bytes: Annotated[int, Meta(ge=1, le=10**15)] | None = None
    operating_point: dict[str, int] = {}
    host: dict[str, float] = {}


class _Engine(Strict, frozen=True, kw_only=True):
    """How every server of the campaign is launched.

    Attributes:
        kind: vllm; virtual_gpu (vLLM, with a clock in place of the model; docs/virtual-gpu.md); or emulator
            (the embedded engine).
        python: the engine's interpreter, in the image where there is one; ${NAME} is taken from the
            environment. null means this one, or the image's python3.
        model: a model directory or hub id.
        served_model_name: what requests ask for.
        args: engine arguments, max_model_len: 200000 is --max-model-len 200000; true is a bare flag, false
            its --no- form, null leaves it out. ${NAME} is taken from the environment.
        extra_args: appended as they are.
        env: variables of the engine; ${NAME} is taken from the environment.
        model_file: cost model of the emulator (YAML).
        costs: what plan and status take the engine's steps to cost, in place of those of the cost model;
            enters no hash.
        gpu: first card, in the order of the PCI bus, unless CUDA_VISIBLE_DEVICES is set already.
        gpus: in place of gpu, the first card of each engine that may run beside the others
            (docs/several-gpus.md).
        mix_cards: whether launches that are compared with one another may run on different cards of one kind;
            null: only where there are none.
        wait_for_card_s: how long a card is waited for that somebody else measures on; null: 30 s with one
            card, without end with several.
        port: 0 takes a free port for each launch; of several engines each has the next one.
        ready_timeout_s: how long a launch may take until it serves.
        stop_grace_s: how long an engine that is told to end has before it is killed.
        release_timeout_s: how long an ended engine's GPU memory is waited for.
        release_tolerance_mib: by so much more may then be in use than before the launch.
        step_timing: record the engine's steps.
        pin_cpus: keep engine and load generator on different physical cores where there are enough.
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
    """How every server of the campaign is launched.

    Attributes:
        virtual_gpu: the device of kind virtual_gpu, and of no other.
        container: the image that engines run in; a text is the image alone. null: they run on the host
            itself.
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
    """How every server of the campaign is launched.

    Attributes:
        model_sha256: of the content of ``model_file``, so that another content is another measurement; None
            for vLLM.
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
        """The first card of each engine that may run at the same time."""
        return self.gpus or (self.gpu,)

    @property
    def mixes_cards(self) -> bool:
        """Whether launches that are compared with one another may run on different cards."""
        return self.kind != "vllm" if self.mix_cards is None else self.mix_cards

    @property
    def is_vllm(self) -> bool:
        """Whether it is vLLM that serves, on whatever device."""
        return self.kind != "emulator"


class CellConfig(Strict, frozen=True):
    """The protocol of every cell (docs/measurement.md).

    Attributes:
        arrival: how requests follow one another.
        gamma_shape: for arrival gamma: 1 is Poisson, above 1 more regular, below 1 burstier.
        workers: load-generator processes.
        warmup_s: shortest warm-up, whose requests do not count.
        duration_s: shortest window; overload is judged from 6 s on, by one sample of the queue a second.
        min_completed: fewest completed requests of the window; fewer than 6 have no percentiles.
        max_cell_s: longest time from the cell's beginning to its last request.
        drain_timeout_s: how long requests in flight are waited for after that.
        inflight_cap: an open loop drops arrivals beyond so many requests in flight.
        token_id_low, token_id_high: prompts draw their token ids from between the two.
        stop_half_width: end a cell at a look at which p90 of TTFT and of TPOT are known to so much, as a
            share; null fixes its length beforehand. Wants max_completed.
        max_completed: with stop_half_width, the last look; looks are at min_completed, twice that and so on.
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
        rates_per_s: requests per second; rates that double have the third criterion of saturation.
        input_tokens: prompt length of Phase A's shape.
        output_tokens: output length of Phase A's shape.
        stop_after_overloaded: a configuration's sweep ends after so many rates in a row at which it was
            overloaded; null measures every rate.
    """

    rates_per_s: Annotated[tuple[_Rate, ...], Meta(min_length=1)]
    input_tokens: Length
    output_tokens: OutputLength
    stop_after_overloaded: _Count | None = None


class PhaseB(Strict, frozen=True):
    """Every prompt length with every output length at ref_safe; none leaves Phase B out.

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
    """Shapes that some configurations are measured at under load.

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
    """Conversations at ref_safe: turns wait for one another and share what was said, so the prefix cache is
    hit.

    Attributes:
        sessions: session files (docs/formats.md), relative to the project's root, one cell each; none leaves
            Phase C out.
        warmup_s: about the length of a session.
    """

    sessions: tuple[Text, ...] = ()
    warmup_s: _Seconds = 30.0


class SessionFile(Strict, frozen=True):
    """A file of conversations and what the plan has to know of it.

    Attributes:
        sha256: of its content, so that another content is another measurement.
        turns_per_session: mean; a session rate times this is a request rate.
    """

    path: str
    sha256: str
    turns_per_session: float


class PhaseCConfig(Strict, frozen=True):
    """Conversations at the reference rate; none where ``sessions`` is empty.

    Attributes:
        warmup_s: instead of ``cell.warmup_s``: until as many sessions are under way as will be.
    """

    sessions: tuple[SessionFile, ...]
    warmup_s: float


class PhaseDConfig(Strict, frozen=True):
    """Hook times and latencies by how many blocks the prefix cache holds and how many requests run
    (docs/measurement.md).

    Attributes:
        cached_tokens: tokens that the prefix cache is filled to before a cell, one level after the other;
            none leaves Phase D out.
        running: requests in flight (closed loop), each of them at every level.
        input_tokens: prompt length of a cell's requests.
        output_tokens: output length of a cell's requests.
        warmup_s: instead of cell.warmup_s.
        duration_s: short, since what a cell computes is cached, too.
        min_completed: instead of cell.min_completed.
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
        prompts: 0 leaves the pass out.
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
        confidence: of every interval of the analysis.
        time_budget_h: what a campaign may take; the report says whether it did.
    """

    bootstrap_draws: Annotated[int, Meta(ge=200, le=100_000)] = 2000
    confidence: Annotated[float, Meta(gt=0.5, lt=1)] = 0.95
    time_budget_h: _AsWritten = 6


class _Campaign(Strict, frozen=True, kw_only=True):
    """What is written and what is frozen of a campaign alike.

    Attributes:
        seed: root of every random stream (schedules, prompts, run order, resampling).
        observer_effect: Phase B measures Phase A's shape with and without the step recorder: what recording
            costs, with an interval.
        repeats: blocks after the other phases: each launches every configuration once more at ref_safe and
            ref_load, plain twice, in its own random order. Where there are any, Phases A and B are blocks as
            well.
        repeat_requests: completed requests of a cell of those blocks, and its window is no longer than they
            take; null measures it as any other.
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
        allow_inline: keys that look as if a secret stood under them, and hold none (docs/secrets.md).
        connectors_file: where the connectors are described; relative to the project's root.
        connectors: ids of the configurations to measure; must hold plain, the baseline.
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
        phase_a_stop_after_overloaded: as ``PhaseA`` has it.
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
        """As ``campaign.json`` has it. Without what a campaign has not of ``ONLY_WHERE_SET``: its hash is
        what it was before there was any."""
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
        """The configurations that a phase launches; a block has plain twice."""
        block = is_repeat(phase) or (self.repeats > 0 and phase in ("a", "b"))
        return (*self.connector_ids, PLAIN_AGAIN) if block else self.connector_ids

    @property
    def connector_ids(self) -> tuple[str, ...]:
        return tuple(c.id for c in self.connectors)
