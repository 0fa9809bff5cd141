"""Taxes: a configuration's cost relative to plain at the same rate and shape.

Ratios of percentiles for latencies, differences in microseconds for steps. Both cells are resampled, requests
at the same arrivals, steps independently; plain's resamples are the same in every tax, which makes
differences of taxes correct.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import msgspec
import numpy as np

from connector_tax.base.documents.aggregate import (
    PLAIN,
    AnyLatencyMetric,
    AnyReference,
    Conclusion,
    Latency,
    LatencyMetric,
    Metric,
    Side,
    TaxPart,
    TaxRow,
    TaxVerdict,
    Unit,
    effect_of,
)
from connector_tax.base.records.cell import CellSpec, Phase
from connector_tax.base.records.connector import ConnectorSpec
from connector_tax.base.statistics.bootstrap import Estimate, combine, unavailable
from connector_tax.read.stats import phases
from connector_tax.read.stats.cells import CellEstimates
from connector_tax.read.stats.reference import queued

# Name -> (column, percentile). Medians are several times more precise than tails of as many requests.
LATENCIES: dict[AnyLatencyMetric, tuple[Latency, float]] = {
    "ttft_p50": ("ttft_ms", 50.0),
    "ttft_p90": ("ttft_ms", 90.0),
    "tpot_p50": ("tpot_ms", 50.0),
    "tpot_p90": ("tpot_ms", 90.0),
}
# The latencies in which a campaign's taxes are stated.
LATENCY_METRICS: dict[LatencyMetric, tuple[Latency, float]] = {
    "ttft_p90": LATENCIES["ttft_p90"],
    "tpot_p90": LATENCIES["tpot_p90"],
}
# Shown beside ``ttft_p90``; not a tax of its own.
AVERAGED = (phases.NAME, 90.0)
LaunchMetric = AnyLatencyMetric | Literal["ttft_p90_phase_averaged"]
# A connector's hooks, per step; plain has none.
HOOKS: Metric = "callback_p50_us"
STEP_METRICS: tuple[Metric, ...] = ("step_p50_us", HOOKS, "unexplained_us")
METRICS: tuple[Metric, ...] = (*LATENCY_METRICS, *STEP_METRICS)
NEITHER: AnyReference = "neither"


@dataclass(frozen=True, slots=True)
class MissingCell:
    """A planned cell of a started run, without a number in the statistics.

    Attributes:
        named: problems of reading report it already.
    """

    config: str
    phase: str
    spec: CellSpec
    reason: str
    named: bool


@dataclass(frozen=True, slots=True)
class Tax:
    """A tax of one configuration at one rate and shape.

    Attributes:
        reference: ``ref_safe``, ``ref_load``, or ``neither`` at another rate of Phase A.
        n, n_plain: requests or steps with the connector and without; the estimate's own ``n`` is the smaller
            one.
        overloaded: saturated sides (``own``, ``plain``); such a tax contains queueing, and its median step is
            of another mixture of steps.
        cell_missing: it has no number since its own or plain's cell is missing, damaged or invalid, or steps
            were not recorded, so another launch may have one. A cell with failed requests or overload is not
            missing.
        phase_averaged: the same with phases averaged out, over ``averaged_blocks``; None if not computed.
        n_blocks: number of blocks of launches; 1 for one launch. Over blocks the place is that of Phase A's
            cell, and ``n`` and ``n_plain`` are the requests of all blocks.
    """

    config: str
    reference: AnyReference
    phase: Phase
    spec: CellSpec
    metric: Metric
    estimate: Estimate
    n: int
    n_plain: int
    overloaded: tuple[Side, ...] = ()
    cell_missing: bool = False
    phase_averaged: Estimate | None = None
    averaged_blocks: int = 1
    n_blocks: int = 1

    @property
    def number(self) -> Estimate:
        """Return the estimate with the row's n, so that derived numbers count the same requests."""
        return self.estimate if self.estimate.point is None else replace(self.estimate, n=self.n)

    def is_unlike(self, other: "Tax") -> bool:
        """Return whether both have a number, one of one launch and the other over blocks."""
        known = self.estimate.point is not None and other.estimate.point is not None
        return known and (self.n_blocks == 1) != (other.n_blocks == 1)

    def like(self, other: "Tax") -> Estimate:
        """Return this number for combination with ``other``; unavailable if only one is over blocks."""
        return unavailable("unlike_launches", subject=self.config) if self.is_unlike(other) else self.number

    @property
    def rate_per_s(self) -> float:
        return self.spec.rate_per_s

    @property
    def input_tokens(self) -> int:
        return self.spec.input_tokens

    @property
    def output_tokens(self) -> int:
        return self.spec.output_tokens

    @property
    def unit(self) -> Unit:
        return "ratio" if self.metric in LATENCY_METRICS else "us"

    def row(self, confidence: float) -> TaxRow:
        """Return its row in ``taxes`` and ``main_taxes`` of ``aggregate.json``; no phase over blocks."""
        quantity = msgspec.structs.asdict(self.estimate.quantity(confidence))
        return TaxRow(
            **quantity | {"n": self.n},
            config=self.config,
            reference=self.reference,
            phase=self.phase if self.n_blocks == 1 else None,
            cell_id=self.spec.cell_id,
            rate_per_s=self.rate_per_s,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            metric=self.metric,
            unit=self.unit,
            n_blocks=self.n_blocks,
            n_plain=self.n_plain,
            overloaded=self.overloaded,
            verdict=verdict(self.estimate, confidence),
            phase_averaged=self._averaged(confidence),
        )

    def _averaged(self, confidence: float) -> TaxPart | msgspec.UnsetType:
        if self.phase_averaged is None:
            return msgspec.UNSET
        estimate = self.estimate if self.estimate.point is None else self.phase_averaged
        return estimate.tax_part(confidence, None if estimate.point is None else self.averaged_blocks)


def verdict(estimate: Estimate, confidence: float) -> TaxVerdict:
    """Return how the interval lies relative to zero, or ``unavailable``."""
    return "unavailable" if estimate.point is None else effect_of(*estimate.interval(confidence))


def no_ttft_tax(connectors: Iterable[ConnectorSpec]) -> dict[str, str]:
    """Return configuration -> why its TTFT is no tax, for those that fake cache hits."""
    return {c.id: "ttft_excluded" for c in connectors if c.ttft_is_no_tax}


def taxes_of(
    own: CellEstimates,
    plain: CellEstimates | None,
    reference: AnyReference,
    no_ttft: str | None = None,
    no_tax: str | None = None,
) -> list[Tax]:
    """Return every tax of one cell, with a reason if it is unavailable.

    Args:
        no_ttft: why its TTFT is no tax; see ``no_ttft_tax``.
        no_tax: why its latencies are no taxes; see ``outputs.other_computations``.
    """
    sides: dict[Side, CellEstimates] = {"own": own, **({"plain": plain} if plain is not None else {})}
    overloaded = [name for name, side in sides.items() if queued(side.cell)]
    found = []
    for metric in METRICS:
        estimate = _tax(metric, own, plain)
        if (why := no_tax or (no_ttft if metric == "ttft_p90" else None)) is not None:
            estimate = unavailable(why, estimate.n)
        tax = Tax(
            config=own.cell.config,
            reference=reference,
            phase=own.cell.phase,
            spec=own.cell.spec,
            metric=metric,
            estimate=estimate,
            n=_n(metric, own),
            n_plain=_n(metric, None if metric == HOOKS else plain),
            # Plain has no hooks, so a connector's hooks depend on its own cell only.
            overloaded=tuple(side for side in overloaded if side == "own" or metric != HOOKS),
            cell_missing=estimate.point is None
            and no_tax is None
            and (plain is None or metric in STEP_METRICS),
            phase_averaged=_averaged(own, plain) if metric == "ttft_p90" else None,
        )
        found.append(tax)
    return found


def taxes_of_missing(cell: MissingCell, plain: CellEstimates | None, reference: AnyReference) -> list[Tax]:
    """Return the taxes of a planned cell that does not count, each with the reason."""
    return [
        Tax(
            config=cell.config,
            reference=reference,
            phase=cell.phase,
            spec=cell.spec,
            metric=metric,
            estimate=unavailable(cell.reason),
            n=0,
            n_plain=_n(metric, None if metric == HOOKS else plain),
            cell_missing=True,
        )
        for metric in METRICS
    ]


def _tax(metric: Metric, own: CellEstimates, plain: CellEstimates | None) -> Estimate:
    callback = own.step("connector_total_us", 50.0)
    if metric == HOOKS:  # plain has none, so nothing is subtracted
        return callback
    if plain is None:
        return unavailable("no_cell", subject="plain")
    if metric in LATENCY_METRICS:
        name, q = LATENCY_METRICS[metric]
        return relative(own.latency(name, q), plain.latency(name, q))
    step = difference(own.step("step_duration_us", 50.0), plain.step("step_duration_us", 50.0))
    return step if metric == "step_p50_us" else difference(step, callback, of_second="hooks")


def _averaged(own: CellEstimates, plain: CellEstimates | None) -> Estimate | None:
    if AVERAGED not in own.latencies:
        return None
    base = None if plain is None else plain.latencies.get(AVERAGED)
    return relative(own.latency(*AVERAGED), base or unavailable("no_cell"))


def _n(metric: Metric, side: CellEstimates | None) -> int:
    if side is None:
        return 0
    if metric in LATENCY_METRICS:
        return side.latency(*LATENCY_METRICS[metric]).n
    return side.step("connector_total_us" if metric == HOOKS else "step_duration_us", 50.0).n


def relative(own: Estimate, plain: Estimate) -> Estimate:
    """Return ``own / plain - 1``."""
    if own.point is None or plain.point is None:
        return _missing(own, plain, "plain")
    if plain.point == 0:
        return unavailable("zero", own.n, "plain")
    combined = combine(own, plain)
    own_replicates, plain_replicates = combined.replicates
    with np.errstate(invalid="ignore", divide="ignore"):
        # If plain's percentile met a failed request, its value is unknown, so the ratio has no lower end.
        replicates = np.where(
            np.isinf(plain_replicates) & np.isfinite(own_replicates),
            -np.inf,
            own_replicates / plain_replicates - 1,
        )
    return combined.estimate(own.point / plain.point - 1, replicates)


def difference(first: Estimate, second: Estimate, *, of_second: str = "plain") -> Estimate:
    """Return ``first - second``; ``of_second`` is the subject if the second one is missing."""
    if first.point is None or second.point is None:
        return _missing(first, second, of_second)
    combined = combine(first, second)
    first_replicates, second_replicates = combined.replicates
    with np.errstate(invalid="ignore"):
        replicates = first_replicates - second_replicates
    return combined.estimate(first.point - second.point, replicates)


def _missing(own: Estimate, other: Estimate, of_other: str) -> Estimate:
    if own.point is None:
        return unavailable(own.reason or "unavailable", own.n, own.subject)
    return unavailable(other.reason or "unavailable", own.n, other.subject or of_other)


# Computes taxes over one length, each averaged over the same set of the other, to not mix shapes.

RISING: Conclusion = "monotonic"


# (the trend's length, the other length), tokens -> the tax there.
Grid = Mapping[tuple[int, int], Tax]


@dataclass(frozen=True, slots=True)
class Trend:
    """A tax by length.

    Attributes:
        by_length: every planned length, in order; a missing one is unavailable, with the reason.
        averaged_over: the other lengths behind each of them.
        left_out: other lengths that are in no mean -> lengths without them -> why.
        rates_per_s: length -> the rates of its cells, in order.
        queueing: lengths with a saturated cell.
    """

    by_length: Mapping[int, Estimate]
    averaged_over: tuple[int, ...]
    left_out: Mapping[int, Mapping[int, str]]
    rates_per_s: Mapping[int, tuple[float, ...]]
    queueing: tuple[int, ...] = ()

    @property
    def known(self) -> dict[int, Estimate]:
        return {k: e for k, e in self.by_length.items() if e.point is not None}

    @property
    def missing(self) -> dict[int, str]:
        return {k: e.reason or "unavailable" for k, e in self.by_length.items() if e.point is None}

    def direction(self) -> Conclusion:
        """Return the direction of the points; two lengths are always monotonic."""
        steps = np.diff(np.array([e.point for e in self.known.values()], dtype=float))
        if (steps > 0).all():
            return RISING
        if (steps < 0).all():
            return "falling"
        return "does_not_rise" if (steps <= 0).all() else "not_monotonic"

    def slope_per_doubling(self) -> Estimate:
        """Fit a line over log2 of the length in every resample; requires two known lengths."""
        x = np.log2(np.array(list(self.known), dtype=float))
        weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
        together = combine(*self.known.values())
        points = np.array([e.point for e in self.known.values()], dtype=float)
        with np.errstate(invalid="ignore"):
            return together.estimate(float(weights @ points), weights @ np.vstack(together.replicates))


def trends_of(taxes: Iterable[Tax], over: str, *, queueing_allowed: bool) -> dict[str, Trend]:
    """Return configuration -> its trend.

    Args:
        taxes: of one metric at one reference, of Phase B.
        over: ``input_tokens`` or ``output_tokens``.
        queueing_allowed: shapes with a saturated side may count if a length had no number otherwise.
    """
    grids: dict[str, dict[tuple[int, int], Tax]] = {}
    for tax in taxes:
        key = tax.input_tokens, tax.output_tokens
        grids.setdefault(tax.config, {})[key if over == "input_tokens" else key[::-1]] = tax
    return {c: trend_of(grid, queueing_allowed=queueing_allowed) for c, grid in grids.items()}


def trend_of(grid: Grid, *, queueing_allowed: bool) -> Trend:
    """Average over the other lengths common to all; keep as many lengths as possible, then others."""
    calm = _trend(grid, lambda tax: not _why_not(tax) and not tax.overloaded)
    if not queueing_allowed or not calm.missing:
        return calm
    queued = _trend(grid, lambda tax: not _why_not(tax))
    return queued if len(queued.missing) < len(calm.missing) else calm


def _why_not(tax: Tax) -> str:
    """Return why a tax enters no mean; empty if only queueing would exclude it."""
    return "" if tax.estimate.point is not None else tax.estimate.reason or "unavailable"


def _trend(grid: Grid, counts: Callable[[Tax], bool]) -> Trend:
    lengths, others = (sorted({key[k] for key in grid}) for k in (0, 1))
    known_others = {k: {o for o in others if (k, o) in grid and counts(grid[k, o])} for k in lengths}
    kept_lengths, common = _common(known_others)
    means: dict[int, Estimate] = {}
    rates: dict[int, tuple[float, ...]] = {}
    for k in lengths:
        others_used = [o for o in others if (k, o) in grid and (o in common or k not in kept_lengths)]
        rates[k] = tuple(sorted({grid[k, o].rate_per_s for o in others_used}))
        if k in kept_lengths:
            means[k] = _mean([grid[k, o].estimate for o in common])
        else:
            means[k] = (
                unavailable("no_common_length")
                if known_others[k]
                else _without_number(grid.get((k, others[0])))
            )
    left_out = {
        o: {k: _reason(grid.get((k, o))) for k in kept_lengths or known_others if o not in known_others[k]}
        for o in others
        if o not in common
    }
    queueing = tuple(k for k in kept_lengths if any(grid[k, o].overloaded for o in common))
    return Trend(means, tuple(common), left_out, rates, queueing)


def _common(known_others: Mapping[int, set[int]]) -> tuple[list[int], list[int]]:
    """Return the lengths to keep, and the other lengths that all of them have."""
    best: tuple[list[int], list[int]] = ([], [])
    for other in sorted(set().union(*known_others.values())):
        kept_lengths = [k for k, others in known_others.items() if other in others]
        common = sorted(set.intersection(*(known_others[k] for k in kept_lengths)))
        if (len(kept_lengths), len(common)) > (len(best[0]), len(best[1])):
            best = (kept_lengths, common)
    return best


def _mean(estimates: list[Estimate]) -> Estimate:
    together = combine(*estimates)
    points = [e.point for e in estimates if e.point is not None]
    # Infinity on both sides means any number, and ``Estimate.interval`` treats it so.
    with np.errstate(invalid="ignore"):
        return together.estimate(sum(points) / len(points), np.mean(together.replicates, axis=0))


def _reason(tax: Tax | None) -> str:
    return "no_cell" if tax is None else _why_not(tax) or "overloaded"


def _without_number(tax: Tax | None) -> Estimate:
    """Return why a length has no number, with plain as the subject if it is plain's."""
    if tax is None:
        return unavailable("no_cell")
    queued = PLAIN if tax.overloaded == ("plain",) else ""
    return unavailable(_reason(tax), subject=tax.estimate.subject if _why_not(tax) else queued)
