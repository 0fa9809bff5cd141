"""Whether a configuration keeps up at a rate, and which reference rates follow from it."""

from dataclasses import dataclass

from connector_tax.base.capacity import RANDOM_ARRIVALS
from connector_tax.base.documents.rates import CriteriaNumbers, Criterion, SaturationOf
from connector_tax.base.statistics.cell import effective_throughput_per_s, in_window, latencies_ms
from connector_tax.base.statistics.overload import MAX_WAITING, MIN_THROUGHPUT_RATIO
from connector_tax.base.statistics.percentiles import percentile
from connector_tax.read.ingest import CellData

MAX_TTFT_GROWTH = 1.5
# Cells with long answers and an idle queue had 0.85 and more of their rate in the window.
PILING_UP = 0.8


@dataclass(frozen=True, slots=True)
class RatePoint:
    """What Phase A says about one configuration at one rate.

    Attributes:
        throughput_ratio: completions over what was asked for: the cell's rate, or with random arrivals what was sent, the
            arrivals that were scheduled in its window.
        waiting_p50: None without samples.
        ttft_p90_ms: None where p90 falls on unfinished requests.
        random_arrivals: growth of TTFT is not judged then.
    """

    rate_per_s: float
    throughput_ratio: float
    waiting_p50: float | None
    ttft_p90_ms: float | None
    random_arrivals: bool = False


@dataclass(frozen=True, slots=True)
class Saturation:
    """One configuration over its rates.

    Attributes:
        criteria: per rate, each criterion's outcome; None where it could not be judged.
        saturation_rate_per_s: the lowest rate at which one fired; None if none did.
        non_monotonic: rates above that one at which none fired.
    """

    criteria: dict[float, dict[Criterion, bool | None]]
    numbers: dict[float, CriteriaNumbers]
    saturation_rate_per_s: float | None
    non_monotonic: tuple[float, ...]

    def saturated(self, rate_per_s: float) -> bool:
        return any(self.criteria[rate_per_s].values())

    def fired(self, rate_per_s: float) -> tuple[Criterion, ...]:
        return tuple(name for name, outcome in self.criteria[rate_per_s].items() if outcome)

    @property
    def document(self) -> SaturationOf:
        return SaturationOf(
            saturation_rate_per_s=self.saturation_rate_per_s,
            fired={f"{r:g}": self.fired(r) for r in self.criteria},
            criteria={f"{r:g}": self.numbers[r] for r in self.criteria},
            non_monotonic=self.non_monotonic,
        )


def rate_point(cell: CellData) -> RatePoint:
    scheduled = in_window(cell.requests, cell.window)
    random_arrivals = cell.spec.arrival in RANDOM_ARRIVALS
    asked_per_s = cell.spec.rate_per_s
    if random_arrivals and scheduled:
        asked_per_s = len(scheduled) / cell.window.window_s
    return RatePoint(
        rate_per_s=cell.spec.rate_per_s,
        throughput_ratio=effective_throughput_per_s(cell.requests, cell.window) / asked_per_s,
        waiting_p50=cell.samples.waiting_p50,
        ttft_p90_ms=None if cell.window.overloaded else percentile(latencies_ms(scheduled)["ttft_ms"], 90),
        random_arrivals=random_arrivals,
    )


def queued(cell: CellData) -> bool:
    """Whether a tax of this cell holds queueing: requests waited, or the cell ended behind a growing queue.

    Throughput a little below the rate does not say so: answers that take as long as a third of the window are still piling up
    when it begins, and their completions are missing at its start. It counts where the engine's queue is not known, and where
    more is missing than that explains.
    """
    criteria = overload_criteria(cell)
    waited = criteria["waiting"]
    if cell.window.overloaded or waited or criteria["throughput"] is None:
        return cell.window.overloaded or bool(waited)
    return criteria["throughput"] and (waited is None or rate_point(cell).throughput_ratio < PILING_UP)


def overload_criteria(cell: CellData) -> dict[Criterion, bool | None]:
    """The criteria that a cell can be judged by on its own, without one at half its rate."""
    waiting = cell.samples.waiting_p50
    # Requests of conversations and of closed loops have no rate of their own to fall behind.
    behind = (
        None
        if cell.spec.sessions or not cell.spec.rate_per_s
        else rate_point(cell).throughput_ratio < MIN_THROUGHPUT_RATIO
    )
    return {"throughput": behind, "waiting": None if waiting is None else waiting > MAX_WAITING}


def judge_saturation(points: list[RatePoint]) -> Saturation:
    """Apply the three criteria to the rates of one configuration.

    Throughput below 95 % of the rate; a median of more than one request waiting; TTFT p90 more than
    1.5 times that at half the rate. A p90 that is unavailable while that at half the rate is known
    has grown without bound. The three are meant for fixed arrivals: with random ones throughput is held
    against what was sent, and growth is not judged.
    """
    by_rate = {p.rate_per_s: p for p in sorted(points, key=lambda p: p.rate_per_s)}
    criteria: dict[float, dict[Criterion, bool | None]] = {}
    numbers: dict[float, CriteriaNumbers] = {}
    for rate, point in by_rate.items():
        half = by_rate.get(rate / 2)
        growth, grew = _growth(point, half)
        criteria[rate] = {
            "throughput": point.throughput_ratio < MIN_THROUGHPUT_RATIO,
            "waiting": None if point.waiting_p50 is None else point.waiting_p50 > MAX_WAITING,
            "ttft_growth": grew,
        }
        numbers[rate] = CriteriaNumbers(
            throughput_ratio=point.throughput_ratio, waiting_p50=point.waiting_p50, ttft_growth=growth
        )
    saturated = [r for r in criteria if any(criteria[r].values())]
    first = min(saturated, default=None)
    later = () if first is None else tuple(r for r in criteria if r > first and r not in saturated)
    return Saturation(criteria, numbers, first, later)


def _growth(point: RatePoint, half: RatePoint | None) -> tuple[float | None, bool | None]:
    if point.random_arrivals or half is None or half.ttft_p90_ms is None or half.ttft_p90_ms <= 0:
        return None, None
    if point.ttft_p90_ms is None:
        return None, True
    growth = point.ttft_p90_ms / half.ttft_p90_ms
    return growth, growth > MAX_TTFT_GROWTH
