"""Phase D on the page: what a connector's times grow by with cached blocks and with running requests."""

import math
from dataclasses import dataclass

from connector_tax.base.documents.aggregate import Aggregate, Growth, GrowthCell, Interval, Quantity, Slope
from connector_tax.read.figures.questions import in_order
from connector_tax.read.figures.words import MINUS, clean, with_interval

QUANTITIES = {
    "build_meta_us": "build_connector_meta",
    "get_finished_us": "get_finished",
    "start_load_kv_us": "start_load_kv",
    "connector_total_us": "all hooks together",
    "decode_step_us": "decoding step (control)",
    "decode_step_over_plain_us": "decoding step less plain's",
}
# Of a hook that takes the same in every step, what arithmetic leaves of its slope is nothing.
LEAST_US = 0.01


@dataclass(frozen=True, slots=True)
class SlopeRow:
    label: str
    quantity: str
    numbers: tuple[str, str]
    n: str


@dataclass(frozen=True, slots=True)
class CellRow:
    label: str
    blocks: str
    running: str
    hooks: str
    taxes: tuple[str, str]


@dataclass(frozen=True, slots=True)
class GrowthView:
    """A table of slopes, a table of cells and what they come to."""

    sentences: list[str]
    slopes: list[SlopeRow]
    cells: list[CellRow]


def growth_view(aggregate: Aggregate) -> GrowthView | None:
    """None where Phase D was not measured."""
    found = in_order(aggregate, aggregate.growth)
    if not found:
        return None
    return GrowthView(
        sentences=[_sentence(aggregate, entry) for entry in found if entry.config != "plain"],
        slopes=[_slope(aggregate.label_of(entry.config), s) for entry in found for s in entry.slopes],
        cells=[_cell(aggregate.label_of(entry.config), c) for entry in found for c in entry.cells],
    )


def _sentence(aggregate: Aggregate, entry: Growth) -> str:
    """What all hooks of one connector together come to."""
    label = clean(aggregate.label_of(entry.config), 60)
    total = next((s for s in entry.slopes if s.quantity == "connector_total_us"), None)
    slope = None if total is None else total.per_1000_cached_blocks.interval
    if total is None or slope is None or slope.low is None or slope.high is None:
        return f"{label}: whether its hooks grow with what is cached is not known."
    if not slope.excludes_zero:
        most = _at_least(max(abs(slope.low), abs(slope.high), LEAST_US))
        return f"{label}: no growth of its hooks with what is cached was found; more than {most:g} µs per 1,000 blocks is excluded."
    word = "take longer" if slope.point > 0 else "take less"
    ends = total.cached_blocks
    span = "" if ends is None else f", over {ends[0]:,.0f} to {ends[1]:,.0f} blocks"
    return f"{label}: its hooks {word} the more is cached, by {_us(slope)} per 1,000 blocks and step{span}."


def _at_least(value: float) -> float:
    """Two significant digits, and not below ``value``: what is said to be excluded has to be."""
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(round(value / step, 9)) * step


def _slope(label: str, slope: Slope) -> SlopeRow:
    numbers = _number(slope.per_1000_cached_blocks), _number(slope.per_running_request)
    return SlopeRow(label, QUANTITIES[slope.quantity], numbers, f"{slope.n_cells:,}")


def _cell(label: str, cell: GrowthCell) -> CellRow:
    hooks = cell.medians_us.get("connector_total_us")
    ttft, tpot = (cell.p50_taxes.get("ttft_p50"), cell.p50_taxes.get("tpot_p50"))
    return CellRow(
        label=label,
        blocks="unknown" if cell.cached_blocks is None else f"{cell.cached_blocks:,.0f}",
        running=f"{cell.running:g}",
        hooks="" if hooks is None else _median(hooks),
        taxes=(_ratio(ttft), _ratio(tpot)) if cell.p50_taxes else ("", ""),
    )


def _number(value: Quantity) -> str:
    return _why_none(value) if value.interval is None else _us(value.interval)


def _median(value: Quantity) -> str:
    """Of a cell, with the steps behind it."""
    return _why_none(value) if value.interval is None else f"{_us(value.interval)}, n {value.n:,}"


def _why_none(value: Quantity | None) -> str:
    return f"not available: {(value and value.reason) or 'not measured'}"


def _us(value: Interval) -> str:
    """Three digits: slopes are small."""
    ends = (
        "no interval"
        if value.low is None or value.high is None
        else f"{_digits(value.low)}, {_digits(value.high)}"
    )
    return f"{_digits(value.point)} µs [{ends}]"


def _digits(value: float) -> str:
    if abs(value) < LEAST_US / 2:
        return "0"
    text = f"{value:+,.0f}" if abs(value) >= 99.5 else f"{value:+.3g}"
    return text.replace("-", MINUS)


def _ratio(value: Quantity | None) -> str:
    """With the requests of the side that has fewer; of one launch, as the page says of all of them."""
    if value is None or value.interval is None:
        return _why_none(value)
    return f"{with_interval(value.interval)}, n {value.n:,}"
