"""``growth`` of ``aggregate.json``: how times grow with what the prefix cache holds and with the running requests."""

from typing import Literal

import msgspec

from connector_tax.base.documents.aggregate.intervals import Quantity
from connector_tax.base.documents.aggregate.words import Count

# Microseconds of a step, medians of cells; the step itself of plain, its difference from plain's of the others.
GrowthQuantity = Literal[
    "build_meta_us",
    "get_finished_us",
    "start_load_kv_us",
    "connector_total_us",
    "decode_step_us",
    "decode_step_over_plain_us",
]


class GrowthCell(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        running: median of the samples.
        cached_blocks: in the middle of the window; null where the engine did not tell its block size.
        p50_taxes: ratios less one, of medians; none of plain.
    """

    cell_id: str
    concurrency: Count
    running: float
    cached_tokens_wanted: Count
    cached_blocks: float | None
    medians_us: dict[GrowthQuantity, Quantity]
    p50_taxes: dict[Literal["ttft_p50", "tpot_p50"], Quantity]


class Slope(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        cached_blocks, running: least and most of the cells.
    """

    quantity: GrowthQuantity
    n_cells: Count
    cached_blocks: tuple[float, float] | None
    running: tuple[float, float] | None
    per_1000_cached_blocks: Quantity
    per_running_request: Quantity


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration of Phase D."""

    config: str
    cells: tuple[GrowthCell, ...]
    slopes: tuple[Slope, ...]
