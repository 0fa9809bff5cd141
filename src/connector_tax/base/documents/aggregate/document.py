"""``aggregate.json`` of one campaign as one frozen object: read, queried and written.

Every number has its interval. docs/measurement.md defines the numbers, docs/formats.md what may change under
one ``schema_version``. Unknown keys are dropped.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal, get_args

import msgspec

from connector_tax.base.documents.aggregate.cells import Cell, MeasuredCell, cell_of
from connector_tax.base.documents.aggregate.taxes import (
    Amplification,
    Attribution,
    Burns,
    Decomposition,
    FailedBlock,
    Growth,
    HostDrift,
    ObserverEffect,
    Power,
    PutIn,
    Repeats,
    TaxRow,
    TwoParts,
)
from connector_tax.base.documents.aggregate.values import (
    Conclusion,
    ConfigStatus,
    Count,
    Digits,
    HypothesisId,
    LatencyMetric,
    NBlocks,
    Outcome,
    Phase,
    Problem,
    Quantity,
    Rate,
    Scalar,
)
from connector_tax.base.documents.identity import Change, kinds_of
from connector_tax.base.documents.rates import ReferenceRatesFile, SaturationOf
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import printable, read_json

SCHEMA_VERSION: Literal[1] = 1
PLAIN = "plain"

# --- Connectors, and where numbers come from

SourceKind = Literal["embedded_engine", "virtual_gpu", "gpu", "cpu", "unknown"]
RowVerdict = Literal["tax", "gain", "noise", "none", "open", "failed", "skipped", "missing"]
ReasonCode = Literal[
    "skipped",
    "run_failed",
    "not_measured",
    "plain_missing",
    "no_reference_rate",
    "answers_differ",
    "ttft_excluded",
    "requests_failed",
    "saturated",
    "cell_left_out",
    "no_number",
]
# In the order of the page's footnotes.
Mark = Literal[
    "partial",
    "overloaded",
    "other_phase",
    "fewer_blocks",
    "open_interval",
    "ttft_excluded",
    "answers_differ",
    "copies_kv",
    "copy_clocked",
    "spins",
    "hooks_unknown",
]
MARKS: tuple[Mark, ...] = get_args(Mark)


class MeasuredOn(msgspec.Struct, frozen=True, kw_only=True):
    """The source of a campaign's numbers.

    Attributes:
        device: the card, the card of a virtual GPU's profile, or the CPU; empty if unknown.
    """

    kind: SourceKind
    device: str = ""

    @property
    def text(self) -> str:
        """The form in the ``source`` column of a CSV."""
        return f"{self.kind}: {self.device}" if self.device else self.kind


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """The reason of a missing number.

    Attributes:
        subject: the configuration concerned.
    """

    code: ReasonCode
    subject: str


class ConnectorRow(msgspec.Struct, frozen=True, kw_only=True):
    """One connector at ``ref_safe``, judged by its ``main_taxes`` and by plain against itself in ``repeats``.

    Attributes:
        verdict: ``tax`` or ``gain`` if an interval excludes zero and its estimate is outside the noise floor;
            ``noise`` if it is inside; ``open`` if an interval has an open end or is too wide, or a latency
            has no number.
        clear: the latencies that decide a ``tax`` or ``gain``.
        reason: why a latency has no number; null if both have one.
        marks: qualifications of the row.
    """

    config: str
    verdict: RowVerdict
    clear: tuple[LatencyMetric, ...] = ()
    reason: Reason | None = None
    marks: tuple[Mark, ...] = ()


Arrival = Literal["fixed", "poisson", "gamma"]
EngineKind = Literal["vllm", "virtual_gpu", "emulator"]
RANDOM: tuple[Arrival, ...] = ("poisson", "gamma")


class VirtualGpu(msgspec.Struct, frozen=True, kw_only=True):
    """The clock in place of a GPU; unknown in a campaign without cells.

    Attributes:
        step: microseconds of a step and its increments, by name.
        host: microseconds that a GPU's runner would take on the host, by name.
    """

    profile: str = ""
    sha256: str = ""
    name: str = ""
    step: dict[str, float] = {}
    host: dict[str, float] = {}


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of the numbers: the newest cell's and the campaign's.

    Attributes:
        arrival: of Phases A to B' and of blocks.
        cards: if several engines could run side by side: card -> the phases measured on it.
        mixed_cards: likewise: phases whose cells ran on several cards, although they are compared with one
            another.
        side_by_side: likewise: most engines measured at the same time.
        container: only if engines ran in one, as in ``cell.json``; its image's digest is among ``versions``.
        virtual_gpu: only with a virtual GPU, as in ``cell.json``; ``clock`` reads it.
        settings: further settings of the config that shape a measurement, by their names there; ``engine``
            and ``connectors`` hold a launch's parameters.
        order: phase -> configurations.
        confidence: of every interval.
    """

    engine_kind: EngineKind | None = None
    model: str | None = None
    engine_args: dict[str, Scalar] = {}
    arrival: Arrival | None = None
    versions: dict[str, Scalar] = {}
    gpu: tuple[str, ...] = ()
    cards: dict[str, tuple[Phase, ...]] | msgspec.UnsetType = msgspec.UNSET
    mixed_cards: tuple[Phase, ...] | msgspec.UnsetType = msgspec.UNSET
    side_by_side: Count | msgspec.UnsetType = msgspec.UNSET
    container: dict[str, Scalar] | msgspec.UnsetType = msgspec.UNSET
    virtual_gpu: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    host: dict[str, Scalar] = {}
    code: dict[str, str] = {}
    settings: dict[str, Any] = {}
    config_hash: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
    order: dict[Phase, tuple[str, ...]] = {}
    seed: int | None = None
    created_utc: str | None = None
    confidence: Annotated[float, msgspec.Meta(gt=0, lt=1)]
    bootstrap_draws: Annotated[int, msgspec.Meta(ge=1)] | None = None

    @property
    def clock(self) -> VirtualGpu | None:
        """The virtual GPU's clock; None for other devices."""
        if self.engine_kind != "virtual_gpu":
            return None
        return msgspec.convert(self.virtual_gpu or {}, VirtualGpu)

    @property
    def measured_on(self) -> MeasuredOn:
        if self.versions.get("emulator") or self.engine_kind == "emulator":
            return MeasuredOn(kind="embedded_engine")
        if (clock := self.clock) is not None:
            return MeasuredOn(kind="virtual_gpu", device=clock.name)
        if self.gpu:
            return MeasuredOn(kind="gpu", device=kinds_of(self.gpu)[0])
        if self.versions or self.host:
            return MeasuredOn(kind="cpu", device=str(self.host.get("cpu") or ""))
        return MeasuredOn(kind="unknown")

    @property
    def engines_at_once(self) -> int:
        return self.side_by_side or 1

    @property
    def random_arrivals(self) -> bool:
        """With random arrivals two of the three criteria of saturation have another meaning."""
        return self.arrival in RANDOM


# --- Hypotheses

Probability = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Missing(msgspec.Struct, frozen=True):
    """The reason of a missing number: a code, and in ``subject`` whose number it is."""

    reason: str
    subject: str = ""


class VerdictNumbers(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The numbers behind a verdict, specific to each hypothesis; none if it is not testable.

    Attributes:
        tax_ttft_p90: H1.
        gap, range: H2.
        tax_noop, tax_connector, share: H3.
        tax_stack, sum_of_parts, excess_over_stack, parts, tolerance: H4.
        slope_per_doubling, by_length: H5 and H6.
        rates_per_s: length -> the rates of its cells.
        averaged_over: of the other length, tokens.
        left_out: other lengths that are in no mean -> the lengths without them -> why.
        queueing: lengths at which a side did not keep up, so that the growth may be queueing.
    """

    tax_ttft_p90: Quantity | None = None
    gap: Quantity | None = None
    range: tuple[float, float] | None = None
    tax_noop: Quantity | None = None
    tax_connector: Quantity | None = None
    share: Quantity | None = None
    threshold: float | None = None
    tax_stack: Quantity | None = None
    sum_of_parts: Quantity | None = None
    excess_over_stack: Quantity | None = None
    parts: dict[str, Quantity] | None = None
    tolerance: float | None = None
    slope_per_doubling: Quantity | None = None
    by_length: dict[Digits, Quantity] | None = None
    rates_per_s: dict[Digits, tuple[Rate, ...]] | None = None
    averaged_over: tuple[Count, ...] | None = None
    left_out: dict[Digits, dict[Digits, str]] | None = None
    queueing: tuple[Count, ...] | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a hypothesis.

    Attributes:
        conclusions: from its numbers, beside the outcome.
        p_value: the smallest p at which the interval of confidence 1 - p still decides so; null without a
            decision.
        p_holm: adjusted for all verdicts tested together.
    """

    outcome: Outcome
    conclusions: tuple[Conclusion, ...]
    numbers: VerdictNumbers
    p_value: Probability | None
    p_holm: Probability | None


class Hypothesis(Answer, frozen=True, kw_only=True):
    """One hypothesis about one subject.

    Attributes:
        n_blocks: the fewest blocks of the deciding taxes; null without a decision.
        missing: why it is not testable.
        at_equal_host_speed: the answer from taxes at equal speed of the host; null if not asked, or if the
            speed is unknown.
    """

    id: HypothesisId
    subject: str
    n_blocks: NBlocks | None = None
    missing: tuple[Missing, ...] = ()
    at_equal_host_speed: Answer | None = None


class ConfigState(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a configuration.

    Attributes:
        ttft_is_no_tax: why, if it fakes cache hits.
        copies_kv: the destination of its copies of prompts' KV, which nobody fetches.
    """

    label: str
    status: ConfigStatus
    reason: Problem | None
    install: str | None = None
    note: str = ""
    ttft_is_no_tax: str | None = None
    copies_kv: str | None = None


class FirstDifference(msgspec.Struct, frozen=True, kw_only=True):
    prompt: Count
    token: int | None


OutputsVerdict = Literal["reference", "same", "differs", "not repeatable", "failed"]
CriterionWord = Literal["reported", "met", "not met", "undetermined"]


class Outputs(msgspec.Struct, frozen=True, kw_only=True):
    """Answers of a configuration's launch compared with plain's."""

    config: str
    phase: Phase
    n_prompts: Count
    n_same: int
    n_failed: Count
    first_difference: FirstDifference | None
    verdict: OutputsVerdict


class CriterionOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """A success criterion of the published experiment; the first five have no evidence but the hypotheses."""

    number: Annotated[int, msgspec.Meta(ge=1)]
    outcome: CriterionWord
    evidence: tuple[Problem, ...] = ()


class Aggregate(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of ``aggregate.json``.

    Attributes:
        date: of the first start.
        step_timing_reason: why no cell has step records; null if one has.
        source: the source of its numbers.
        connectors: at ``ref_safe``, in the campaign's order.
        configs: by configuration id.
        cells: those that statistics use are ``MeasuredCell``.
        saturation: by configuration.
        reference_rates: null until Phase A of plain has a usable cell.
        main_taxes: the representative tax of each configuration, rate of Phase A and metric.
        engine_diff: configuration -> settings that its engine resolved otherwise than plain's; null if
            unknown.
        growth: Phase D, one entry per configuration; empty without it.
        put_in: on the embedded engine, its model's taxes; null elsewhere.
        burns: of test connectors on a virtual GPU, the effects of their burns; null elsewhere.
    """

    schema_version: Literal[1]
    campaign: Annotated[str, msgspec.Meta(min_length=1)]
    date: Annotated[str, msgspec.Meta(pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]
    provenance: Provenance
    source: MeasuredOn | None = None
    step_timing_available: bool = False
    step_timing_reason: Problem | None = None
    configs: dict[str, ConfigState]
    connectors: tuple[ConnectorRow, ...] = ()
    cells: tuple[Cell, ...]
    saturation: dict[str, SaturationOf] = {}
    reference_rates: ReferenceRatesFile | None = None
    taxes: tuple[TaxRow, ...]
    main_taxes: tuple[TaxRow, ...] = ()
    attribution: tuple[Attribution, ...] = ()
    engine_diff: dict[str, dict[str, Change] | None] = {}
    decomposition: tuple[Decomposition, ...] = ()
    two_parts: tuple[TwoParts, ...] = ()
    repeats: tuple[Repeats, ...] = ()
    failed_blocks: tuple[FailedBlock, ...] = ()
    host_drift: tuple[HostDrift, ...] = ()
    power: tuple[Power, ...] = ()
    observer_effect: tuple[ObserverEffect, ...] = ()
    growth: tuple[Growth, ...] = ()
    put_in: PutIn | None = None
    burns: Burns | None = None
    amplification: tuple[Amplification, ...] = ()
    hypotheses: tuple[Hypothesis, ...] = ()
    outputs: tuple[Outputs, ...] = ()
    criteria: tuple[CriterionOutcome, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def measured_on(self) -> MeasuredOn:
        return self.source or self.provenance.measured_on

    @property
    def config_ids(self) -> tuple[str, ...]:
        """Plain first, then in the campaign's order."""
        return tuple(sorted(self.configs, key=lambda i: i != PLAIN))

    def label_of(self, config: str) -> str:
        """Return its label, or its id if another configuration has the same label."""
        labels = {i: state.label for i, state in self.configs.items()}
        found = labels.get(config, config)
        return config if [*labels.values()].count(found) > 1 else found

    def measured(self, phase: str | None = None, config: str | None = None) -> Iterator[MeasuredCell]:
        """Yield cells that statistics use."""
        for cell in self.cells:
            if (
                isinstance(cell, MeasuredCell)
                and phase in (None, cell.phase)
                and config in (None, cell.config)
            ):
                yield cell

    def hypothesis(self, name: str, subject: str) -> Hypothesis | None:
        return next((h for h in self.hypotheses if (h.id, h.subject) == (name, subject)), None)


class _Raw(msgspec.Struct, frozen=True):
    cells: list[Any]


def aggregate_of(value: object) -> Aggregate:
    """Convert parsed JSON.

    Raises:
        msgspec.ValidationError: of another form; names the place.
    """
    head = msgspec.convert(value, Aggregate)
    _ = head.provenance.clock  # checked here, since it is converted only on demand
    cells = []
    for k, cell in enumerate(msgspec.convert(value, _Raw).cells):
        try:
            cells.append(cell_of(cell))
        except msgspec.ValidationError as error:
            raise msgspec.ValidationError(f"{error} (of `$.cells[{k}]`)") from error
    return msgspec.structs.replace(head, cells=tuple(cells))


def read_aggregate(path: Path) -> Aggregate:
    """Read ``aggregate.json``.

    Raises:
        ArtifactError: missing, not JSON, of another schema, or of another form; names file and place.
    """
    if not os.path.lexists(path) and (path.parent / "campaign.json").is_file():
        raise ArtifactError(
            f"{path}: no such file: this campaign has not been analysed. Analyse it first: connector-tax"
            f" report {quote(str(path.parent))}"
        )
    value = read_json(path)
    version = value.get("schema_version") if isinstance(value, dict) else None
    if version != SCHEMA_VERSION:
        raise ArtifactError(
            f"{path}: schema {version!r}, this version reads {SCHEMA_VERSION}. Make it again with"
            " connector-tax report."
        )
    try:
        return aggregate_of(value)
    except msgspec.ValidationError as error:
        raise ArtifactError(
            f"{path}: {printable(str(error), 300)}. Make it again with connector-tax report."
        ) from error


def written(aggregate: Aggregate) -> Any:
    """Return the form that ``to_json`` takes: dictionaries, lists and scalars."""
    return msgspec.to_builtins(aggregate)
