"""The rates at which Phases B, B' and C and the blocks of repeats are measured; ``reference_rates.json`` holds them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.cell import Shape


@dataclass(frozen=True, slots=True)
class ReferenceRates:
    """Requests per second, the same for every configuration of a campaign.

    Attributes:
        ref_safe_per_s: where no configuration is saturated at Phase A's shape.
        ref_load_per_s: where plain is not.
        safe_by_shape: of shapes that are measured below ``ref_safe_per_s``, since the engine does not hold it with them.
        load_by_shape: the same of ``ref_load_per_s``.
    """

    ref_safe_per_s: float
    ref_load_per_s: float
    safe_by_shape: Mapping[Shape, float] = field(default_factory=dict)
    load_by_shape: Mapping[Shape, float] = field(default_factory=dict)

    def safe_per_s(self, shape: Shape) -> float:
        return self.safe_by_shape.get(shape, self.ref_safe_per_s)

    def load_per_s(self, shape: Shape) -> float:
        return self.load_by_shape.get(shape, self.ref_load_per_s)

    @classmethod
    def of_document(cls, document: Foreign) -> "ReferenceRates":
        """From ``reference_rates.json``; one without rates per shape measured every shape at the reference rates.

        Raises:
            KeyError: it lacks a reference rate.
            ValueError: a rate is not above zero, or a shape is not two lengths.
        """
        return cls(
            _rate(document["ref_safe_per_s"], "ref_safe_per_s"),
            _rate(document["ref_load_per_s"], "ref_load_per_s"),
            _by_shape(document.get("shapes", {})),
            _by_shape(document.get("load_shapes", {})),
        )


def _by_shape(entries: Mapping[str, Foreign]) -> dict[Shape, float]:
    return {
        _shape(name): _rate(entry["rate_per_s"], f"rate_per_s of {name}") for name, entry in entries.items()
    }


def _shape(name: str) -> Shape:
    try:
        return Shape.parse(name)
    except ValueError as error:
        raise ValueError(f"{name!r} is no shape such as 4096x256") from error


def _rate(value: float, name: str) -> float:
    if not value > 0:
        raise ValueError(f"{name} is {value}, which is no rate")
    return float(value)
