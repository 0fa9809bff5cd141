"""Taxes over one length, each averaged over the same set of the other: a trend must not mix shapes."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from connector_tax.base.documents.aggregate import PLAIN, Conclusion, Side
from connector_tax.base.statistics.bootstrap import Estimate, combine, unavailable
from connector_tax.read.stats.taxes import Tax

RISING: Conclusion = "monotonic"


@dataclass(frozen=True, slots=True)
class ShapeTax:
    """One tax of one configuration at one shape.

    Attributes:
        length: of the prompt or the output, whichever the trend is over; tokens.
        other: the other of the two.
        overloaded: which of plain and the configuration did not keep up; the tax then holds queueing.
    """

    length: int
    other: int
    rate_per_s: float
    estimate: Estimate
    overloaded: tuple[Side, ...] = ()

    @property
    def why_not(self) -> str:
        """Why it is in no mean; empty where only queueing would keep it out."""
        return "" if self.estimate.point is not None else self.estimate.reason or "unavailable"


@dataclass(frozen=True, slots=True)
class Trend:
    """A tax by length.

    Attributes:
        by_length: every length that was planned, in order; a lost one is unavailable, with the reason.
        averaged_over: the other lengths behind each of them.
        left_out: other lengths that are in no mean -> lengths without them -> why.
        rates_per_s: length -> the rates that its cells were measured at, in order.
        queueing: lengths of which some cell did not keep up.
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
    def lost(self) -> dict[int, str]:
        return {k: e.reason or "unavailable" for k, e in self.by_length.items() if e.point is None}

    def direction(self) -> Conclusion:
        """Of the points alone; of two lengths each sequence is monotonic."""
        steps = np.diff(np.array([e.point for e in self.known.values()], dtype=float))
        if bool(np.all(steps > 0)):
            return RISING
        if bool(np.all(steps < 0)):
            return "falling"
        return "does_not_rise" if bool(np.all(steps <= 0)) else "not_monotonic"

    def slope_per_doubling(self) -> Estimate:
        """Least squares over log2 of the length, in every resample; wants two lengths that are known."""
        x = np.log2(np.array(list(self.known), dtype=float))
        weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
        together = combine(*self.known.values())
        points = np.array([e.point for e in self.known.values()], dtype=float)
        with np.errstate(invalid="ignore"):
            return together.estimate(float(weights @ points), weights @ np.vstack(together.replicates))


def trends_of(taxes: Iterable[Tax], over: str, *, queueing_allowed: bool) -> dict[str, Trend]:
    """configuration -> its trend.

    Args:
        taxes: of one metric at one reference, of Phase B.
        over: ``input_tokens`` or ``output_tokens``.
        queueing_allowed: whether a shape at which a side did not keep up may count where a length would else be lost.
    """
    other = {"input_tokens": "output_tokens", "output_tokens": "input_tokens"}[over]
    found: dict[str, list[ShapeTax]] = {}
    for tax in taxes:
        shape = ShapeTax(
            getattr(tax, over), getattr(tax, other), tax.rate_per_s, tax.estimate, tax.overloaded
        )
        found.setdefault(tax.config, []).append(shape)
    return {c: trend_of(own, queueing_allowed=queueing_allowed) for c, own in found.items()}


def trend_of(shapes: list[ShapeTax], *, queueing_allowed: bool) -> Trend:
    """Means over the other lengths that are there at every length; as many lengths as possible are kept, then others."""
    calm = _trend(shapes, lambda s: not s.why_not and not s.overloaded)
    if not queueing_allowed or not calm.lost:
        return calm
    queued = _trend(shapes, lambda s: not s.why_not)
    return queued if len(queued.lost) < len(calm.lost) else calm


def _trend(shapes: list[ShapeTax], counts: Callable[[ShapeTax], bool]) -> Trend:
    grid = {(s.length, s.other): s for s in shapes}
    lengths, others = (sorted({key[k] for key in grid}) for k in (0, 1))
    there = {k: {o for o in others if (k, o) in grid and counts(grid[k, o])} for k in lengths}
    kept, common = _common(there)
    means = {
        k: _mean([grid[k, o].estimate for o in common])
        if k in kept
        else unavailable("no_common_length")
        if there[k]
        else _lost(grid.get((k, others[0])))
        for k in lengths
    }
    return Trend(
        means,
        tuple(common),
        {
            o: {k: _reason(grid.get((k, o))) for k in kept or there if o not in there[k]}
            for o in others
            if o not in common
        },
        {
            k: tuple(sorted({s.rate_per_s for s in shapes if s.length == k and (s.other in common or k not in kept)}))
            for k in lengths
        },
        tuple(k for k in kept if any(grid[k, o].overloaded for o in common)),
    )  # fmt: skip


def _common(there: Mapping[int, set[int]]) -> tuple[list[int], list[int]]:
    """Lengths that are kept, and the other lengths that all of those have."""
    best: tuple[list[int], list[int]] = ([], [])
    for other in sorted(set().union(*there.values())):
        kept = [k for k, others in there.items() if other in others]
        common = sorted(set.intersection(*(there[k] for k in kept)))
        if (len(kept), len(common)) > (len(best[0]), len(best[1])):
            best = (kept, common)
    return best


def _mean(estimates: list[Estimate]) -> Estimate:
    together = combine(*estimates)
    points = [e.point for e in estimates if e.point is not None]
    # Infinite on both sides is any number; ``Estimate.interval`` takes it so.
    with np.errstate(invalid="ignore"):
        return together.estimate(sum(points) / len(points), np.mean(together.replicates, axis=0))


def _reason(shape: ShapeTax | None) -> str:
    if shape is None:
        return "no_cell"
    return shape.why_not or "overloaded"


def _lost(shape: ShapeTax | None) -> Estimate:
    """With whose number is missing, where it is plain's."""
    if shape is None:
        return unavailable("no_cell")
    queued = PLAIN if shape.overloaded == ("plain",) else ""
    return unavailable(_reason(shape), subject=shape.estimate.subject if shape.why_not else queued)
