"""The campaign as frozen values; names and units as in ``docs/config.md``."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.cell import PHASES, Phase, Shape, is_repeat
from connector_tax.base.records.connector import PLAIN_AGAIN, ConnectorSpec
from connector_tax.base.records.host import VirtualGpu

ONLY_WHERE_SET = ("model_sha256", "virtual_gpu", "gpus", "mix_cards", "wait_for_card_s", "container")
Runtime = Literal["podman", "docker"]
# Keys that enter no hash, and may change at any time.
FREE = ("analysis",)
FREE_OF_ENGINE = (
    *("python", "container", "gpu", "gpus", "mix_cards", "port", "wait_for_card_s"),
    *("ready_timeout_s", "stop_grace_s", "release_timeout_s", "release_tolerance_mib"),
)


def without_free_keys(config: Foreign) -> Foreign:
    """Return the config of a ``campaign.json`` without what may change at any time."""
    engine = {key: value for key, value in config.get("engine", {}).items() if key not in FREE_OF_ENGINE}
    return {**{key: value for key, value in config.items() if key not in FREE}, "engine": engine}


@dataclass(frozen=True, slots=True)
class ContainerConfig:
    """The image that every engine of the campaign runs in.

    Attributes:
        runtime: None: the first that is installed and has the image.
        mounts: folders of this host that engines see as well, under their own paths and to read.
    """

    image: str
    runtime: Runtime | None = None
    mounts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How every server of the campaign is launched.

    Attributes:
        kind: ``vllm``; ``virtual_gpu`` (vLLM, with a clock in place of the model); or ``emulator`` (the embedded engine).
        python: the engine's interpreter, in the image where there is one; None means this one, or the image's python3.
        model: a model directory or hub id; ``served_model_name`` is what requests ask for.
        args: engine arguments, ``{"max_model_len": 200000}`` -> ``--max-model-len 200000``; true is
            a bare flag, false its ``--no-`` form, null leaves it out.
        extra_args: appended verbatim.
        model_file: the emulator's cost model (YAML); None for vLLM.
        model_sha256: of its content, so that another content is another measurement; None for vLLM.
        gpu: first card, in the order of the PCI bus, unless CUDA_VISIBLE_DEVICES is set already; see ``run/engine/gpus.py``.
        virtual_gpu: the device of kind ``virtual_gpu``; None for every other.
        gpus: first cards of as many engines as may run side by side; None: one engine, on ``gpu``.
        mix_cards: whether launches that are compared with one another may run on different cards; None: where there are no cards.
        wait_for_card_s: how long a card that somebody else holds is waited for; None: see ``run/measure/locks.py``.
        container: None: engines run on the host itself.
    """

    kind: Literal["vllm", "virtual_gpu", "emulator"]
    python: str | None
    model: str
    served_model_name: str
    args: Foreign
    extra_args: tuple[str, ...]
    env: dict[str, str]
    model_file: str | None
    gpu: int
    port: int
    ready_timeout_s: float
    stop_grace_s: float
    release_timeout_s: float
    release_tolerance_mib: int
    step_timing: bool
    pin_cpus: bool
    # With defaults, since campaigns of versions before have none of these.
    model_sha256: str | None = None
    virtual_gpu: VirtualGpu | None = None
    gpus: tuple[int, ...] | None = None
    mix_cards: bool | None = None
    wait_for_card_s: float | int | None = None
    container: ContainerConfig | None = None

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


@dataclass(frozen=True, slots=True)
class CellConfig:
    """The protocol of every cell; see ``docs/measurement.md``.

    Attributes:
        stop_half_width, max_completed: the stopping rule; campaigns without one have neither.
    """

    arrival: Literal["fixed", "poisson", "gamma"]
    gamma_shape: float | int | None
    workers: int
    warmup_s: float
    duration_s: float
    min_completed: int
    max_cell_s: float
    drain_timeout_s: float
    inflight_cap: int
    token_id_low: int
    token_id_high: int
    stop_half_width: float | int | None = None
    max_completed: int | None = None


@dataclass(frozen=True, slots=True)
class PhaseBPrimeConfig:
    configs: tuple[str, ...]
    shapes: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class SessionFile:
    """A file of conversations and what the plan has to know of it.

    Attributes:
        sha256: of its content, so that another content is another measurement.
        turns_per_session: mean; a session rate times this is a request rate.
    """

    path: str
    sha256: str
    turns_per_session: float


@dataclass(frozen=True, slots=True)
class PhaseCConfig:
    """Conversations at the reference rate; none where ``sessions`` is empty.

    Attributes:
        warmup_s: instead of ``cell.warmup_s``: until as many sessions are under way as will be.
    """

    sessions: tuple[SessionFile, ...]
    warmup_s: float


@dataclass(frozen=True, slots=True)
class PhaseDConfig:
    """What a connector costs by how much is cached and how many run; none where ``cached_tokens`` is empty.

    Attributes:
        cached_tokens: levels that the prefix cache is filled to, in tokens, from the lowest up.
        running: requests in flight, each of them at every level.
        warmup_s, duration_s, min_completed: instead of those of ``cell``. Cells are short, since they fill the cache themselves.
    """

    cached_tokens: tuple[int, ...] = ()
    running: tuple[int, ...] = (1, 8, 32)
    input_tokens: int = 128
    output_tokens: int = 256
    warmup_s: float = 2.0
    duration_s: float = 10.0
    min_completed: int = 10

    @property
    def shape(self) -> Shape:
        return Shape(self.input_tokens, self.output_tokens)


@dataclass(frozen=True, slots=True)
class AccuracyConfig:
    """Prompts whose answers are compared with plain's; none if ``prompts`` is 0."""

    prompts: int
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class AnalysisConfig:
    bootstrap_draws: int
    confidence: float
    time_budget_h: float


@dataclass(frozen=True, slots=True)
class CampaignConfig:
    """One campaign: ``campaign`` names the folder under ``results/``.

    Attributes:
        phase_a_stop_after_overloaded: a configuration's sweep ends after so many overloaded rates in a row; None measures all.
        repeats: blocks in which every configuration is launched once more, plain twice. Where there are any, Phases A and B
            are blocks as well: plain is launched twice in them.
        repeat_requests: completed requests of a cell of those blocks; None measures them as any other cell.
        observer_effect: Phase B measures Phase A's shape twice, with the engine's recorder and without.
    """

    campaign: str
    seed: int
    engine: EngineConfig
    connectors: tuple[ConnectorSpec, ...]
    phase_a_rates_per_s: tuple[float, ...]
    phase_a_shape: Shape
    phase_b_input_tokens: tuple[int, ...]
    phase_b_output_tokens: tuple[int, ...]
    phase_b_prime: PhaseBPrimeConfig
    phase_c: PhaseCConfig
    phase_d: PhaseDConfig
    observer_effect: bool
    repeats: int
    cell: CellConfig
    accuracy: AccuracyConfig
    analysis: AnalysisConfig
    # With defaults, since campaigns of the version before have neither.
    repeat_requests: int | None = None
    phase_a_stop_after_overloaded: int | None = None

    def to_json(self) -> Any:
        """As ``campaign.json`` has it. Without what a campaign has not of ``ONLY_WHERE_SET``: its hash is what it was before there was any."""
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
