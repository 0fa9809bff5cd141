"""Computes taxes over one length, each averaged over the same set of the other, to not mix shapes."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from connector_tax.base.documents.aggregate import PLAIN, Conclusion
from connector_tax.base.statistics.bootstrap import Estimate, combine, unavailable
from connector_tax.read.stats.taxes import Tax

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
