"""Taxes of ``aggregate.json``, and what they are made of."""

from typing import Annotated, Literal

import msgspec

from connector_tax.base.documents.aggregate.intervals import (
    OF_ONE_LAUNCH,
    Ends,
    Kind,
    Quantity,
    QuantityOfKind,
)
from connector_tax.base.documents.aggregate.words import (
    AnyLatencyMetric,
    AnyReference,
    CellRate,
    Count,
    LatencyMetric,
    MainPhase,
    Metric,
    Rate,
    TaxPhase,
    TaxVerdict,
    Unit,
)

Part = Literal["scheduler_hooks", "worker_hooks", "schedule", "update", "round_trip"]
Side = Literal["own", "plain"]
# Of a tax: configuration, metric, rate, prompt and output length. Two cells of one place are of two phases.
Place = tuple[str, Metric, float, int, int]


class TaxBase(Ends, frozen=True, kw_only=True):
    """What every tax has.

    Attributes:
        reference: ``neither`` at another rate of Phase A.
        reason: why there is no number, or no end of its interval; null where all are there.
        overloaded: which sides did not keep up.
        holds: work of this connector's own that a reader must know of; null where there is none.
        kind: what its interval holds; aggregates of earlier versions do not say it, and have taxes of one launch.
    """

    config: str
    reference: AnyReference
    cell_id: str
    rate_per_s: CellRate
    input_tokens: Count
    output_tokens: Count
    metric: Metric
    unit: Unit
    kind: Kind = OF_ONE_LAUNCH
    n: Count
    n_plain: Count
    available: bool = True
    reason: str | None = None
    overloaded: tuple[Side, ...] = ()
    holds: str | None = None
    verdict: TaxVerdict

    @property
    def place(self) -> Place:
        return self.config, self.metric, self.rate_per_s, self.input_tokens, self.output_tokens

    @property
    def shape(self) -> tuple[int, int]:
        """Tokens of the prompt, tokens of the output."""
        return self.input_tokens, self.output_tokens

    @property
    def of_one_launch(self) -> bool:
        return True


class TaxRow(TaxBase, frozen=True, kw_only=True):
    """One tax of one cell.

    Attributes:
        headline: whether the cell is Phase A's.
    """

    phase: TaxPhase
    headline: bool


class MainTaxRow(TaxBase, frozen=True, kw_only=True):
    """The one tax that stands for a configuration at a rate of Phase A; hypotheses, figures and headline read it.

    Attributes:
        phase: whose cell it is; null over blocks of launches, where ``n`` counts the requests of all of them.
        blocks: how many; null for one launch.
    """

    phase: MainPhase | None
    blocks: Annotated[int, msgspec.Meta(ge=3)] | None = None

    @property
    def of_one_launch(self) -> bool:
        return self.blocks is None


class AttributionPart(QuantityOfKind, frozen=True, kw_only=True):
    """``n``: steps of the side that has fewer."""

    part: Part
    label: str


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        n_cpu_steps: steps that measured its CPU time; 0 where that is null.
    """

    hook: str
    calls_per_step: float
    us_per_step: float
    us_per_call: float
    us_per_token: float
    cpu_us_per_step: float | None
    n_cpu_steps: Count


class Attribution(msgspec.Struct, frozen=True, kw_only=True):
    """Where the microseconds of a configuration's steps go, decode-only steps of its Phase A cell at ref_safe.

    Attributes:
        in_hooks_share: null where the difference is not told apart from zero, and above it.
        hooks_us, hooks_cpu_us: all hooks of a step, by the clock and on the CPU, which is cut at the former; null where no hook was
            recorded, or no step measured CPU time, and in an aggregate of an earlier version.
    """

    config: str
    cell_id: str
    n_steps: Count
    n_plain_steps: Count
    tokens_per_step: float
    step_us: float
    plain_step_us: float
    difference_us: QuantityOfKind
    parts: tuple[AttributionPart, ...]
    hooks: tuple[Hook, ...]
    in_hooks_share: QuantityOfKind | None
    hooks_us: Quantity | None = None
    hooks_cpu_us: Quantity | None = None


class Decomposition(msgspec.Struct, frozen=True, kw_only=True):
    """A tax in parts.

    Attributes:
        kind: of the tax; each part has its own.
        parts: 3; 2 without flags, which then lie in either; 0 where the tax cannot be split.
    """

    config: str
    metric: LatencyMetric
    kind: Kind
    settings: tuple[str, ...]
    parts: Literal[0, 2, 3]
    total: QuantityOfKind
    flags: QuantityOfKind
    framework: QuantityOfKind
    implementation: QuantityOfKind


class TwoParts(msgspec.Struct, frozen=True, kw_only=True):
    """The published experiment's parts, at ref_safe: the no-op connector's tax, and what a connector adds to it."""

    config: str
    metric: Literal["ttft_p90", "step_p50_us"]
    unit: Unit
    total: QuantityOfKind
    framework: QuantityOfKind
    rest: QuantityOfKind


class Amplification(Ends, frozen=True, kw_only=True, omit_defaults=True):
    """Tax at ref_load minus tax at ref_safe, at Phase A's shape; at another, tax in Phase B' minus tax in Phase B.

    Attributes:
        input_tokens, output_tokens: the shape; null in an aggregate of an earlier version, which has Phase A's only.
        rate_per_s, safe_rate_per_s: at which it was measured; null where that was not.
        kind: absent where the two taxes are of unlike kinds, which are not combined.
    """

    config: str
    metric: Metric
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    rate_per_s: Rate | None = None
    safe_rate_per_s: Rate | None = None
    available: bool
    kind: Kind | None = None
    n: Count
    reason: str | None = None

    @property
    def shape(self) -> tuple[int | None, int | None]:
        """Tokens of the prompt, tokens of the output."""
        return self.input_tokens, self.output_tokens


class ObserverEffect(msgspec.Struct, frozen=True, kw_only=True):
    """What recording steps did to a latency of one configuration, and its tax with and without it."""

    config: str
    metric: AnyLatencyMetric
    rate_per_s: float
    effect: Quantity
    tax: Quantity | None
    tax_unrecorded: Quantity | None
