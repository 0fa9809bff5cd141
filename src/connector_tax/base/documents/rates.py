"""``reference_rates.json``: the rates of Phase B and of taxes, and the saturation behind them."""

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from connector_tax.base.records.bounds import Rate
from connector_tax.base.records.cell import Shape
from connector_tax.base.records.rates import Record, ReferenceRates

# put_in.json: the taxes of the embedded engine's own model, from many launches in virtual time.

PutInMetric = Literal["ttft_p90", "tpot_p90"]


class PutInTax(Record, frozen=True, kw_only=True):
    """One tax of the model.

    Attributes:
        tax: percentile with the connector over plain's, less one; None if it falls on unfinished requests.
    """

    config: str
    metric: PutInMetric
    rate_per_s: Rate
    input_tokens: Annotated[int, Meta(ge=1)]
    output_tokens: Annotated[int, Meta(ge=1)]
    tax: float | None


class PutInFile(Record, frozen=True, kw_only=True):
    """The contents of ``put_in.json``.

    Attributes:
        launches: of each configuration; their requests are pooled.
        model_file, model_sha256: the cost model's name in the campaign, and the hash of its bytes.
    """

    REMEDY: ClassVar[str] = "Remove it and make it again with scripts/put_in.py."

    schema: Literal[1] = 1
    campaign: str
    launches: Annotated[int, Meta(ge=1)]
    model_file: str
    model_sha256: str
    taxes: tuple[PutInTax, ...]


ShapeName = Annotated[str, Meta(pattern="^[1-9][0-9]{0,9}x[1-9][0-9]{0,9}$")]
Reference = Literal["ref_safe", "ref_load"]
REFERENCES: tuple[Reference, ...] = ("ref_safe", "ref_load")
KnownFrom = Literal["step records", "probe", "nothing"]
Criterion = Literal["throughput", "waiting", "ttft_growth"]


class CriteriaNumbers(Record, frozen=True, kw_only=True):
    """The inputs of the three criteria at one rate; None if unknown or not used."""

    throughput_ratio: float | None
    waiting_p50: float | None
    ttft_growth: float | None


class SaturationOf(Record, frozen=True, kw_only=True):
    """One configuration over Phase A's rates.

    Attributes:
        saturation_rate_per_s: the lowest rate at which a criterion fired; None if none did.
        fired, criteria: by rate.
        non_monotonic: higher rates at which none fired.
    """

    saturation_rate_per_s: float | None
    fired: dict[str, tuple[Criterion, ...]]
    criteria: dict[str, CriteriaNumbers]
    non_monotonic: tuple[float, ...]


class ShapeRate(Record, frozen=True, kw_only=True):
    """The rate at which a shape is measured, and why.

    Attributes:
        rate_per_s: None for a shape that Phase B' leaves out, since plain holds neither ref_load nor twice
            Phase B's rate with it.
        plain_use, plain_use_at_reference: share of plain's capacity at that shape; None if unknown.
        not_held_by: configurations that do not hold the reference rate with this shape.
    """

    rate_per_s: Rate | None
    plain_use: float | UnsetType | None = UNSET
    plain_use_at_reference: float | UnsetType | None = UNSET
    not_held_by: tuple[str, ...] | UnsetType = UNSET
    known_from: KnownFrom | UnsetType = UNSET


class ReferenceRatesFile(Record, frozen=True, kw_only=True):
    """The contents of ``reference_rates.json``.

    Attributes:
        shapes, load_shapes: of Phases B and B'. A file without them measured every shape at the reference
            rates.
        participating: configurations that determined the rates.
        saturation: by configuration, from the analysis.
    """

    REMEDY: ClassVar[str] = "Remove it to have it made again."

    schema: Literal[1] = 1
    ref_safe_per_s: Rate
    ref_load_per_s: Rate
    b_prime_needed: bool
    shapes: dict[ShapeName, ShapeRate] | UnsetType = UNSET
    load_shapes: dict[ShapeName, ShapeRate] | UnsetType = UNSET
    flags: tuple[str, ...] = ()
    participating: tuple[str, ...] = ()
    saturation: dict[str, SaturationOf] = msgspec.field(default_factory=dict)

    @property
    def rates(self) -> ReferenceRates:
        """The rates for the plan."""
        safe = {shape: rate for shape, rate in _by_shape(self.shapes).items() if rate is not None}
        return ReferenceRates(self.ref_safe_per_s, self.ref_load_per_s, safe, _by_shape(self.load_shapes))

    @property
    def left_out(self) -> list[Shape]:
        """Shapes that Phase B' does not measure."""
        return [shape for shape, rate in _by_shape(self.load_shapes).items() if rate is None]

    def per_s(self, reference: Reference) -> float:
        return self.ref_safe_per_s if reference == "ref_safe" else self.ref_load_per_s

    def references_at(self, rate_per_s: float) -> list[Reference]:
        """Return the references with this rate; both if they are equal."""
        return [r for r in REFERENCES if self.per_s(r) == rate_per_s]

    def apart(self) -> list[tuple[Reference, float]]:
        """Return (reference, its rate) for each distinct rate."""
        both = [(r, self.per_s(r)) for r in REFERENCES]
        return both[:1] if both[0][1] == both[1][1] else both


def _by_shape(entries: dict[str, ShapeRate] | UnsetType) -> dict[Shape, float | None]:
    return {Shape.parse(name): entry.rate_per_s for name, entry in (entries or {}).items()}
