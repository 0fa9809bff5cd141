"""The rates at which Phases B, B' and C and the blocks of repeats are measured; ``reference_rates.json`` holds them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from connector_tax.base.records.cell import Shape


@dataclass(frozen=True, slots=True)
class ReferenceRates:
    """Requests per second, the same for every configuration of a campaign.

    Attributes:
        ref_safe_per_s: where no configuration is saturated at Phase A's shape.
        ref_load_per_s: where plain is not.
        safe_by_shape: of shapes that are measured below ``ref_safe_per_s``, since the engine does not hold it with them.
        load_by_shape: the same of ``ref_load_per_s``; None of a shape that Phase B' leaves out.
    """

    ref_safe_per_s: float
    ref_load_per_s: float
    safe_by_shape: Mapping[Shape, float] = field(default_factory=dict)
    load_by_shape: Mapping[Shape, float | None] = field(default_factory=dict)

    def safe_per_s(self, shape: Shape) -> float:
        return self.safe_by_shape.get(shape, self.ref_safe_per_s)

    def load_per_s(self, shape: Shape) -> float | None:
        return self.load_by_shape.get(shape, self.ref_load_per_s)
