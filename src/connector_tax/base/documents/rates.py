"""``reference_rates.json``, as far as measuring and reading ask for it."""

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from connector_tax.base.records.bounds import Foreign, Rate
from connector_tax.base.records.rates import ReferenceRates
from connector_tax.base.records.record import Record

ShapeName = Annotated[str, Meta(pattern="^[1-9][0-9]{0,9}x[1-9][0-9]{0,9}$")]


class ShapeRate(Record, frozen=True, kw_only=True):
    """The rate at which a shape is measured, and why.

    Attributes:
        plain_use, plain_use_at_reference: share of plain's capacity at that shape; None where it is not known.
        not_held_by: configurations that do not hold the shape at the reference rate.
    """

    rate_per_s: Rate
    plain_use: float | UnsetType | None = UNSET
    plain_use_at_reference: float | UnsetType | None = UNSET
    not_held_by: tuple[str, ...] | UnsetType = UNSET
    known_from: str | UnsetType = UNSET


class ReferenceRatesFile(Record, frozen=True, kw_only=True):
    """
    Attributes:
        shapes, load_shapes: of Phases B and B'. A file without them measured every shape at the reference rates.
        saturation: by configuration, as the analysis found it.
    """

    REMEDY: ClassVar[str] = "Remove it to have it made again."

    schema: Literal[1] = 1
    ref_safe_per_s: Rate
    ref_load_per_s: Rate
    b_prime_needed: bool
    shapes: dict[ShapeName, ShapeRate] | UnsetType = UNSET
    load_shapes: dict[ShapeName, ShapeRate] | UnsetType = UNSET
    flags: tuple[str, ...] | UnsetType = UNSET
    participating: tuple[str, ...] | UnsetType = UNSET
    saturation: dict[str, Foreign] | UnsetType = UNSET

    @property
    def rates(self) -> ReferenceRates:
        """What is planned with."""
        return ReferenceRates.of_document(msgspec.to_builtins(self))
