"""Saturation and reference rates of ``aggregate.json``."""

from typing import Literal

import msgspec

from connector_tax.base.documents.aggregate.words import Criterion, Rate, Reference


class CriteriaNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """What the three criteria go by at one rate; null where it is not known or not asked."""

    throughput_ratio: float
    waiting_p50: float | None
    ttft_growth: float | None


class SaturationOf(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration over Phase A's rates.

    Attributes:
        saturation_rate_per_s: the lowest rate at which a criterion fired; null if none did.
        fired, criteria: by rate.
        non_monotonic: rates above that one at which none fired.
    """

    saturation_rate_per_s: float | None
    fired: dict[str, tuple[Criterion, ...]]
    criteria: dict[str, CriteriaNumbers]
    non_monotonic: tuple[float, ...]


class ShapeRate(msgspec.Struct, frozen=True, kw_only=True):
    """At which rate a shape is measured, and why.

    Attributes:
        plain_use, plain_use_at_reference: share of plain's capacity at that shape.
    """

    rate_per_s: Rate
    plain_use: float | None
    plain_use_at_reference: float | None
    not_held_by: tuple[str, ...]
    known_from: Literal["step records", "probe", "nothing"]


class Rates(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``reference_rates.json``, as the analysis took it or worked it out.

    Attributes:
        shapes, load_shapes: such as ``32768x256`` -> its rate; absent where the campaign's document names no shapes.
    """

    schema: Literal[1]
    ref_safe_per_s: Rate
    ref_load_per_s: Rate
    b_prime_needed: bool
    shapes: dict[str, ShapeRate] | None = None
    load_shapes: dict[str, ShapeRate] | None = None
    flags: tuple[str, ...]
    participating: tuple[str, ...]
    saturation: dict[str, SaturationOf]

    def per_s(self, reference: Reference) -> float:
        return self.ref_safe_per_s if reference == "ref_safe" else self.ref_load_per_s
