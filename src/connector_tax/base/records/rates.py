"""The rates at which Phases B, B' and C and the blocks of repeats are measured; ``reference_rates.json``
holds them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from connector_tax.base.records.cell import Shape

# What is told of an engine's settings and is none: it follows from the others and from the memory that is
# left.

# A connector that holds GPU memory leaves fewer KV blocks, and no flag of vLLM's was switched by that.
CONSEQUENCES = frozenset({"cache_config.num_gpu_blocks", "log.kv_cache_tokens"})


# The base of everything that is written down: frozen, its fields named in the JSON as here.


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a document. A field whose value is ``UNSET`` is not in the file; one that is None is null
    there."""


@dataclass(frozen=True, slots=True)
class ReferenceRates:
    """Requests per second, the same for every configuration of a campaign.

    Attributes:
        ref_safe_per_s: where no configuration is saturated at Phase A's shape.
        ref_load_per_s: where plain is not.
        safe_by_shape: of shapes that are measured below ``ref_safe_per_s``, since the engine does not hold it
            with them.
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
