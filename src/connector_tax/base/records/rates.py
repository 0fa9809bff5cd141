"""The rates of Phases B, B' and C and of the blocks of repeats, from ``reference_rates.json``."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from connector_tax.base.records.cell import Shape

# Reported among an engine's settings, but derived from the others and from free memory.

# A connector that holds GPU memory leaves fewer KV blocks, without a change of any vLLM flag.
CONSEQUENCES = frozenset({"cache_config.num_gpu_blocks", "log.kv_cache_tokens"})


# Base of all documents: frozen, with the field names of the JSON.


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a document. A field that is ``UNSET`` is absent from the file; None is null."""


@dataclass(frozen=True, slots=True)
class ReferenceRates:
    """Requests per second, the same for every configuration of a campaign.

    Attributes:
        ref_safe_per_s: no configuration is saturated here at Phase A's shape.
        ref_load_per_s: plain is not saturated here.
        safe_by_shape: lower rates of shapes with which the engine does not keep up at ``ref_safe_per_s``.
        load_by_shape: the same for ``ref_load_per_s``; None for a shape that Phase B' leaves out.
    """

    ref_safe_per_s: float
    ref_load_per_s: float
    safe_by_shape: Mapping[Shape, float] = field(default_factory=dict)
    load_by_shape: Mapping[Shape, float | None] = field(default_factory=dict)

    def safe_per_s(self, shape: Shape) -> float:
        return self.safe_by_shape.get(shape, self.ref_safe_per_s)

    def load_per_s(self, shape: Shape) -> float | None:
        return self.load_by_shape.get(shape, self.ref_load_per_s)
