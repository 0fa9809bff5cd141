"""Chooses from Phase A the rates at which taxes are taken: each configuration's saturation, two reference
rates, and one rate for each shape that does not hold them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import msgspec

from connector_tax.base.capacity import (
    HOLDS_BELOW,
    RANDOM_ARRIVALS,
    held_fraction,
    held_up_to,
    rate_under_load,
)
from connector_tax.base.documents.aggregate import SaturationCriteria
from connector_tax.base.documents.rates import (
    CriteriaNumbers,
    ReferenceRatesFile,
    SaturationOf,
    ShapeRate,
)
from connector_tax.base.errors import AnalysisError
from connector_tax.base.records.cell import Shape
from connector_tax.base.statistics.cell import effective_throughput_per_s, in_window, latencies_ms
from connector_tax.base.statistics.overload import MAX_WAITING, MIN_THROUGHPUT_RATIO
from connector_tax.base.statistics.percentiles import percentile
from connector_tax.read.ingest import CampaignData, CellData
from connector_tax.read.stats.capacity import Capacity, capacity_of

MAX_TTFT_GROWTH = 1.5
# Cells with long answers and an idle queue completed 0.85 and more of their rate in the window.
PILING_UP = 0.8


@dataclass(frozen=True, slots=True)
class RatePoint:
    """Phase A's result for one configuration at one rate.

    Attributes:
        throughput_ratio: completions over demand, which is the cell's rate, or with random arrivals the
            arrivals scheduled in its window.
        waiting_p50: None without samples.
        ttft_p90_ms: None if p90 falls on unfinished requests.
        random_arrivals: growth of TTFT is not judged then.
    """

    rate_per_s: float
    throughput_ratio: float
    waiting_p50: float | None
    ttft_p90_ms: float | None
    random_arrivals: bool = False


@dataclass(frozen=True, slots=True)
class Saturation:
    """A configuration over its rates.

    Attributes:
        criteria: per rate.
        saturation_rate_per_s: the lowest rate at which one fired; None if none did.
        non_monotonic: rates above that one at which none fired.
    """

    criteria: dict[float, SaturationCriteria]
    numbers: dict[float, CriteriaNumbers]
    saturation_rate_per_s: float | None
    non_monotonic: tuple[float, ...]

    @property
    def document(self) -> SaturationOf:
        return SaturationOf(
            saturation_rate_per_s=self.saturation_rate_per_s,
            fired={f"{r:g}": entry.fired for r, entry in self.criteria.items()},
            criteria={f"{r:g}": entry for r, entry in self.numbers.items()},
            non_monotonic=self.non_monotonic,
        )


def rate_point(cell: CellData) -> RatePoint:
    scheduled = in_window(cell.requests, cell.window)
    random_arrivals = cell.spec.arrival in RANDOM_ARRIVALS
    requested_per_s = cell.spec.rate_per_s
    if random_arrivals and scheduled:
        requested_per_s = len(scheduled) / cell.window.window_s
    return RatePoint(
        rate_per_s=cell.spec.rate_per_s,
        throughput_ratio=effective_throughput_per_s(cell.requests, cell.window) / requested_per_s,
        waiting_p50=cell.samples.waiting_p50,
        ttft_p90_ms=None if cell.window.overloaded else percentile(latencies_ms(scheduled)["ttft_ms"], 90),
        random_arrivals=random_arrivals,
    )


def queued(cell: CellData) -> bool:
    """Return whether a tax of this cell contains queueing: requests waited, or a growing queue ended it.

    Throughput slightly below the rate is no proof: answers that take up to a third of the window are still
    piling up when it begins, so completions are missing at its start. It counts if the engine's queue is
    unknown, or if more is missing than that explains.
    """
    criteria = overload_criteria(cell)
    if cell.window.overloaded or criteria.waiting:
        return True
    piling_up = MIN_THROUGHPUT_RATIO if criteria.waiting is None else PILING_UP
    return criteria.throughput is not None and rate_point(cell).throughput_ratio < piling_up


def overload_criteria(cell: CellData) -> SaturationCriteria:
    """Judge a cell by the criteria that need no cell at half its rate."""
    waiting = cell.samples.waiting_p50
    # Requests of conversations and closed loops have no rate of their own to fall behind.
    has_rate = cell.spec.rate_per_s and not cell.spec.sessions
    behind = rate_point(cell).throughput_ratio < MIN_THROUGHPUT_RATIO if has_rate else None
    return SaturationCriteria(throughput=behind, waiting=None if waiting is None else waiting > MAX_WAITING)


def judge_saturation(points: list[RatePoint]) -> Saturation:
    """Apply the three criteria to the rates of one configuration.

    Throughput below 95 % of the rate; a median of more than one request waiting; TTFT p90 more than 1.5 times
    that at half the rate. A p90 that is unavailable while that at half the rate is known has grown without
    bound. The criteria are meant for fixed arrivals: with random ones throughput is compared with the
    arrivals, and growth is not judged.
    """
    by_rate = {p.rate_per_s: p for p in sorted(points, key=lambda p: p.rate_per_s)}
    criteria: dict[float, SaturationCriteria] = {}
    numbers: dict[float, CriteriaNumbers] = {}
    for rate, point in by_rate.items():
        half = by_rate.get(rate / 2)
        growth, grew = _growth(point, half)
        criteria[rate] = SaturationCriteria(
            throughput=point.throughput_ratio < MIN_THROUGHPUT_RATIO,
            waiting=None if point.waiting_p50 is None else point.waiting_p50 > MAX_WAITING,
            ttft_growth=grew,
        )
        numbers[rate] = CriteriaNumbers(
            throughput_ratio=point.throughput_ratio, waiting_p50=point.waiting_p50, ttft_growth=growth
        )
    saturated = [r for r in criteria if criteria[r].fired]
    first = min(saturated, default=None)
    later = tuple(r for r in criteria if first is not None and r > first and r not in saturated)
    return Saturation(criteria, numbers, first, later)


def _growth(point: RatePoint, half: RatePoint | None) -> tuple[float | None, bool | None]:
    if point.random_arrivals or half is None or half.ttft_p90_ms is None or half.ttft_p90_ms <= 0:
        return None, None
    if point.ttft_p90_ms is None:
        return None, True
    growth = point.ttft_p90_ms / half.ttft_p90_ms
    return growth, growth > MAX_TTFT_GROWTH


# A configuration that completes a smaller share of the lowest rate does not serve, and does not affect the
# rates.
LOWEST_SERVED = 0.5


def saturation_by_config(data: CampaignData) -> dict[str, Saturation]:
    """Judge every configuration with usable Phase A cells.

    Those of the campaign's list come first, then plain's second launches and configurations once listed,
    which do not affect the reference rates.
    """
    return {
        config: judge_saturation([rate_point(cell) for cell in cells])
        for config, cells in _phase_a(data).items()
    }


def _phase_a(data: CampaignData) -> dict[str, list[CellData]]:
    cells_by_config: dict[str, list[CellData]] = {config: [] for config in data.config.connector_ids}
    for cell in data.cells():
        if cell.phase == "a" and cell.usable:
            cells_by_config.setdefault(cell.config, []).append(cell)
    return {config: cells for config, cells in cells_by_config.items() if cells}


def select_reference_rates(data: CampaignData, *, shapes: bool = True) -> ReferenceRatesFile:
    """Choose ``reference_rates.json``; it has no time stamp, so the same input gives the same bytes.

    A configuration that failed in Phase A does not affect the others' rates. ``ref_safe`` is the highest rate
    below every configuration's saturation rate, ``ref_load`` the highest at which plain is not saturated,
    whatever fired below it; ``non_monotonic_load`` reports if something did. If there is none, plain's lowest
    measured rate takes its place and ``fallback_lowest_rate`` says so. ``shapes`` and ``load_shapes`` hold
    the rate of each shape of Phases B and B'.

    Args:
        shapes: compute those; they use Phase A's step records if there are any.

    Raises:
        AnalysisError: plain has no usable Phase A cell.
    """
    failed = {r.folder.connector_id for r in data.runs if r.folder.phase == "a" and r.status == "failed"}
    lowest_per_s, saturation = min(data.config.phase_a_rates_per_s), saturation_by_config(data)
    by_config = {
        c: saturation[c]
        for c in data.config.connector_ids
        if c in saturation and c not in failed and (c == "plain" or _serves(saturation[c], lowest_per_s))
    }
    if "plain" not in by_config:
        raise AnalysisError(
            f"{data.root}: plain has no usable cell of phase A, so there is no baseline and no reference"
            f" rate. Remove bad cells below {data.document.date}_plain/phase_a, if there are any, and start"
            " the campaign again to have them measured."
        )
    plain = by_config["plain"]
    rates = sorted(plain.criteria)
    flags: list[str] = []
    limit = min(s.saturation_rate_per_s or float("inf") for s in by_config.values())
    # A sweep that ended at an overloaded rate rules out the rates above it; the limit excludes them.
    common = [r for r in rates if all(r in s.criteria for s in by_config.values())]
    safe = [r for r in common if r < limit]
    load = [r for r in rates if not plain.criteria[r].fired]
    if not safe:
        flags.append("fallback_lowest_rate")
    if not load:
        flags.append("fallback_lowest_rate_load")
    elif max(load) in plain.non_monotonic:
        flags.append("non_monotonic_load")
    ref_safe = max(safe, default=min(rates))
    ref_load = max(load, default=min(rates))
    document = ReferenceRatesFile(
        ref_safe_per_s=ref_safe,
        ref_load_per_s=ref_load,
        b_prime_needed=ref_load != ref_safe,
        flags=tuple(flags),
        participating=tuple(by_config),
        saturation={config: s.document for config, s in by_config.items()},
    )
    return _with_shapes(document, data) if shapes else document


def _serves(saturation: Saturation, lowest_rate_per_s: float) -> bool:
    """Return whether a configuration serves half of Phase A's lowest rate at its own lowest usable rate.

    One that hangs would set everybody's rates; one that lost its lower cells is not known to hang.
    """
    rate = min(saturation.numbers)
    ratio = saturation.numbers[rate].throughput_ratio
    return ratio is not None and ratio * rate >= LOWEST_SERVED * lowest_rate_per_s


def _with_shapes(rates_file: ReferenceRatesFile, data: CampaignData) -> ReferenceRatesFile:
    """Return ``rates_file`` with ``shapes`` and ``load_shapes``."""
    config, phase_a_shape = data.config, data.config.phase_a_shape
    capacities = {
        c: capacity_of(cells, data, phase_a_shape)
        for c, cells in _phase_a(data).items()
        if c in rates_file.participating
    }
    phase_b_shapes = [Shape(i, o) for i in config.phase_b_input_tokens for o in config.phase_b_output_tokens]
    b_prime_shapes = config.phase_b_prime.shapes
    max_use = held_up_to(config.cell.arrival)
    safe = shape_rates(
        [*phase_b_shapes, *b_prime_shapes], phase_a_shape, rates_file.ref_safe_per_s, capacities, max_use
    )
    load = load_rates(
        b_prime_shapes, phase_a_shape, rates_file.ref_load_per_s, safe, capacities["plain"], max_use
    )
    return msgspec.structs.replace(
        rates_file,
        shapes={str(s): safe[str(s)] for s in phase_b_shapes},
        load_shapes=load,
        b_prime_needed=rates_file.b_prime_needed and any(e.rate_per_s is not None for e in load.values()),
    )


def shape_rates(
    shapes: Iterable[Shape],
    phase_a_shape: Shape,
    reference_per_s: float,
    capacities: Mapping[str, Capacity],
    max_use: float = HOLDS_BELOW,
) -> dict[str, ShapeRate]:
    """Return shape -> its rate and why.

    It is the reference rate if every configuration holds the shape there, else the highest power-of-two
    fraction of it that uses no more of plain's capacity at that shape than the reference rate uses at Phase
    A's, and that every configuration holds.

    Args:
        max_use: largest share of its capacity at which a configuration holds a shape.
        phase_a_shape: Phase A's shape, which is measured at the reference rate by definition.
        capacities: of every configuration that has to hold it, including plain's.
    """
    plain = capacities["plain"]
    use_at_reference = _use(reference_per_s, plain, phase_a_shape)
    rates = {}
    for shape in shapes:
        uses = {c: _use(reference_per_s, capacity, shape) for c, capacity in capacities.items()}
        not_held_by = tuple(
            c for c, use in uses.items() if shape != phase_a_shape and use is not None and use > max_use
        )
        fraction = (
            held_fraction(uses, min(max_use, use_at_reference or max_use), max_use) if not_held_by else 1.0
        )
        rate = reference_per_s * fraction
        rates[str(shape)] = ShapeRate(
            rate_per_s=rate,
            plain_use=_use(rate, plain, shape),
            plain_use_at_reference=uses["plain"],
            not_held_by=not_held_by,
            known_from=plain.by,
        )
    return rates


def load_rates(
    shapes: Iterable[Shape],
    phase_a_shape: Shape,
    reference_per_s: float,
    safe: Mapping[str, ShapeRate],
    plain: Capacity,
    max_use: float = HOLDS_BELOW,
) -> dict[str, ShapeRate]:
    """Return shape -> its rate in Phase B', which only plain has to hold; connectors may be saturated."""
    rates = {}
    for shape in shapes:
        safe_per_s = safe[str(shape)].rate_per_s or reference_per_s
        rate: float | None = reference_per_s
        if shape != phase_a_shape:
            rate = rate_under_load(
                reference_per_s, safe_per_s, partial(_use, capacity=plain, shape=shape), max_use
            )
        rates[str(shape)] = ShapeRate(
            rate_per_s=rate,
            plain_use=_use(rate or 2 * safe_per_s, plain, shape),
            plain_use_at_reference=_use(reference_per_s, plain, shape),
            not_held_by=() if rate == reference_per_s else ("plain",),
            known_from=plain.by,
        )
    return rates


def _use(rate_per_s: float, capacity: Capacity, shape: Shape) -> float | None:
    """Return the used share of the capacity; None if unknown."""
    most_per_s = capacity.per_s(shape)
    return None if most_per_s is None else rate_per_s / most_per_s
