"""Confidence intervals by resampling blocks, because requests of one cell queue behind each other.

Circular block bootstrap (Politis & Romano 1992). The block length comes from the data (Politis & White 2004,
corrected 2009, ``circular_block_length``), doubled: 200 queueing requests underestimate their dependence.
With few blocks the spread of resamples is too small, so it is widened by the ratio of Student's t to the
normal law; ``tails`` adds what a high percentile needs. ``tests/perf/coverage.py`` counts the coverage of the
intervals. One draw of resamples serves every latency and percentile of a cell, and keeps them joint.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict, Unpack

import msgspec
import numpy as np

from connector_tax.base.documents.aggregate import NBlocks, Quantity, TaxPart
from connector_tax.base.statistics.distributions import LogMean, normal_quantile, ranks_of, student_quantile
from connector_tax.base.statistics.percentiles import percentile
from connector_tax.base.statistics.resampling import Floats, Ints, SortedColumn, counts_of, draw_starts
from connector_tax.base.statistics.tails import Tail

# Least number of successive small autocorrelations.
FEWEST_SMALL = 5


def circular_block_length(series: Floats) -> float:
    """Return the block length by the rule of Politis and White (2004).

    It has the correction by Patton, Politis and White (2009), is not rounded, and at most 3 sqrt(n) or a
    third of the series.

    Args:
        series: shape (n,), not constant.
    """
    n = series.size
    in_a_row = max(FEWEST_SMALL, int(math.log10(n)))
    covariances, correlations = _autocovariances(series, math.ceil(math.sqrt(n)) + in_a_row + 1)
    bandwidth = min(2 * max(_last_dependent(correlations, n, in_a_row), 1), covariances.size - 1)
    lags = np.arange(1, bandwidth + 1)
    weighted = 2 * np.minimum(1.0, 2 * (1 - lags / bandwidth)) * covariances[1 : bandwidth + 1]
    slope, long_run = float(lags @ weighted), float(covariances[0] + weighted.sum())
    longest = math.ceil(min(3 * math.sqrt(n), n / 3))
    if long_run == 0:
        return float(longest)
    return float(min(math.cbrt(1.5 * (slope / long_run) ** 2 * n), longest))


def _autocovariances(series: Floats, lags: int) -> tuple[Floats, Floats]:
    """Return autocovariances at ``lags`` lags, and absolute autocorrelations of the lagged parts."""
    n = series.size
    deviations = series - series.mean()
    products = np.array([deviations[k:] @ deviations[: n - k] for k in range(lags)])
    squares = np.cumsum(deviations**2)
    # Both parts are one shorter than those in the product.
    shorter = np.arange(lags) + 1
    parts = (squares[-1] - squares[shorter - 1]) * squares[n - shorter - 1]
    # A constant part has no correlation, and an undefined one is not small.
    with np.errstate(divide="ignore", invalid="ignore"):
        return products / n, np.abs(products) / np.sqrt(parts)


def _last_dependent(correlations: Floats, n: int, in_a_row: int) -> int:
    """Return the lag from which ``in_a_row`` autocorrelations are small; the largest if there is none."""
    small = correlations < 2 * math.sqrt(math.log10(n) / n)
    runs = np.convolve(small, np.ones(in_a_row), "valid")[:-1] == in_a_row
    starts = np.flatnonzero(runs)
    return int(starts[0]) if starts.size else correlations.size


# Counts (observations x draws) held at once; 4 MB stay in the cache, which is four times faster.
COUNTS_AT_ONCE = 1_000_000
# Steps come by the ten thousand; the first of them show the range of their dependence.
ENOUGH_FOR_LENGTH = 5_000
# With fewer blocks resamples hardly differ from the sample.
FEWEST_BLOCKS = 3
# Politis and White's rule uses about ten lags.
FEWEST_FOR_LENGTH = 20
# The smallest p: below it, confidence is so near one that too few digits are left.
LEAST_P = 1e-9

# (observations, draws, generator, block length) -> starts of blocks, shape (blocks, draws).
Draw = Callable[[int, int, np.random.Generator, int], Ints]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its resamples.

    Attributes:
        point: None if unavailable; ``reason`` is then the code of why.
        subject: whose number is missing, if another's.
        replicates: shape (draws,). +infinity if a resample's percentile met an unfinished request; NaN if two
            such met, so that their ratio or difference is undefined.
        n: observations behind it.
        tail: for a high percentile itself, what its upper end needs besides the resamples.
        widened_by: factor of the resamples' spread over the estimate's own, for Student's t and a stopping
            rule.
        freedom: degrees of freedom of the Student's t to which resamples of few blocks were widened; infinite
            if they were not.
        confidence: at which their spread equals that law's.
        over_blocks: of a tax over blocks of launches, the source of its ends; its resamples are then only for
            numbers made of several taxes.
    """

    point: float | None
    replicates: Floats
    n: int
    reason: str | None = None
    tail: Tail | None = None
    widened_by: float = 1.0
    freedom: float = math.inf
    confidence: float = 0.95
    over_blocks: LogMean | None = None
    subject: str = ""

    @property
    def least_p(self) -> float:
        """Return the smallest p that its intervals can resolve, by the number of resamples or their law."""
        return 2 / (self.replicates.size + 1) if self.over_blocks is None else LEAST_P

    @property
    def met_failures(self) -> bool:
        """Return whether its percentile falls on failed requests: resampled, but without a value."""
        return self.point is None and self.replicates.size > 0

    def interval(self, confidence: float) -> tuple[float | None, float | None]:
        """Return the equal-tailed interval; a bound that is not finite is None.

        An undefined resample counts as lowest for the lower bound and as highest for the upper one, which
        makes the interval wider, never narrower.
        """
        if self.point is None:
            return None, None
        if self.over_blocks is not None:
            low, high = self.over_blocks.interval(confidence)
            return _finite(low), _finite(high)
        if self.replicates.size == 0:
            return None, None
        tail = (1 - confidence) / 2
        replicates = self._at(confidence, self.point)
        unknown = np.isnan(replicates)
        # Order statistics, not interpolation: half of infinity is not a bound.
        low = np.quantile(np.where(unknown, -np.inf, replicates), tail, method="nearest")
        high = np.quantile(np.where(unknown, np.inf, replicates), 1 - tail, method="nearest")
        if self.tail is not None:
            high = max(high, self.tail.upper(confidence))
        return _finite(low), _finite(high)

    def _at(self, confidence: float, point: float) -> Floats:
        """Rescale the resamples to Student's t at another confidence, since one factor fits only one."""
        if confidence == self.confidence or math.isinf(self.freedom):
            return self.replicates
        ratio = student_factor(self.freedom, confidence) / student_factor(self.freedom, self.confidence)
        spread: Floats = point + ratio * (self.replicates - point)
        return spread

    def quantity(self, confidence: float) -> Quantity:
        """Return it with its interval, and the reason if the number or an end is missing."""
        low, high = self.interval(confidence)
        reason = self.reason or ("reaches_failed" if None in (low, high) else None)
        return Quantity(point=self.point, low=low, high=high, n=self.n, reason=reason, subject=self.subject)

    def tax_part(self, confidence: float, n_blocks: NBlocks | None) -> TaxPart:
        """Return it as a part of a tax.

        Args:
            n_blocks: of its taxes; None if unavailable.
        """
        return TaxPart(**msgspec.structs.asdict(self.quantity(confidence)), n_blocks=n_blocks)


def unavailable(reason: str, n: int = 0, subject: str = "") -> Estimate:
    return Estimate(None, np.empty(0), n, reason, subject=subject)


def block_length(columns: Iterable[Floats]) -> int:
    """Return the observations per block, for all columns together.

    It is twice the longest that Politis and White's rule chooses for any column, once for its ranks (which
    are all that a percentile depends on, and which unfinished requests have, too) and once for the side of
    the 90th percentile; at least n^(1/3), and at most a fifth of all.
    """
    max_length, n = 0.0, 0
    for column in columns:
        n = max(n, column.size)
        beginning = column[:ENOUGH_FOR_LENGTH]
        if beginning.size < FEWEST_FOR_LENGTH:
            continue
        scale = math.cbrt(column.size / beginning.size)
        ranks = ranks_of(beginning)
        above = (ranks > np.percentile(ranks, 90.0)).astype(np.float64)
        for series in (ranks, above):
            if np.ptp(series) > 0:
                max_length = max(max_length, circular_block_length(series) * scale)
    return min(max(_shortest(n), math.ceil(2 * max_length)), _longest(n))


def step_block_length(n: int) -> int:
    """Return the steps per block, of ``n`` in time order: five blocks, or cbrt(n) if those would be shorter.

    Steps depend on one another as long as the requests in flight last, which is longer than Politis and
    White's rule looks back. Longer blocks than needed only cost width (``tests/perf/small_subsets.py``).
    """
    return _longest(n)


def pooled_length(own_length: int, siblings: Sequence[int], n: int) -> int:
    """Return the cell's own length, or the median of all cells under the same load if that is longer.

    A cell without a long busy period looks as if its requests were independent; its siblings correct that.

    Args:
        siblings: lengths of all cells of one rate and shape, including this one's.
        n: observations of this cell.
    """
    return max(own_length, min(round(float(np.median(siblings))), _longest(n)))


def _shortest(n: int) -> int:
    return max(1, math.ceil(math.cbrt(n)))


def _longest(n: int) -> int:
    return max(_shortest(n), n // 5)


def freedom_of(n: int, length: int) -> float:
    """Return the degrees of freedom of ``n`` observations in blocks of ``length``.

    The blocks count as independent observations.
    """
    return max(2.0, n / length - 1)


def small_sample_factor(n: int, length: int, confidence: float) -> float:
    """Return the factor by which resamples spread too little for an interval of ``confidence``.

    It combines Student's t over the normal law, and the variance that resampled blocks lose because their
    mean is the sample's own.
    """
    return student_factor(freedom_of(n, length), confidence) * math.sqrt(n / max(1, n - length))


def student_factor(freedom: float, confidence: float) -> float:
    """Return the ratio of Student's t to the normal law at the end of an interval of ``confidence``."""
    end = (1 + confidence) / 2
    return float(student_quantile(end, freedom) / normal_quantile(end))


def widened(point: float | None, replicates: Floats, factor: float) -> Floats:
    """Move resamples away from the point by ``factor``, on the log scale if all are positive."""
    if point is None:
        return replicates
    with np.errstate(invalid="ignore"):
        if point > 0 and np.nanmin(replicates, initial=np.inf) > 0:
            scaled: Floats = point * (replicates / point) ** factor
            return scaled
        return point + factor * (replicates - point)


class Options(TypedDict, total=False):
    """Options of resampling percentiles.

    Attributes:
        length: of a block, if known; else from the columns.
        factor: widens intervals; see ``looks``.
        draw: chooses the starts of blocks; see ``pairing``.
        confidence: of the intended intervals; others are less exact.
    """

    length: int | None
    factor: float
    draw: Draw
    confidence: float


def estimate_jointly(
    columns: Mapping[str, Floats],
    qs: tuple[float, ...],
    draws: int,
    rng: np.random.Generator,
    *,
    length: int | None = None,
    factor: float = 1.0,
    draw: Draw = draw_starts,
    confidence: float = 0.95,
) -> dict[tuple[str, float], Estimate]:
    """Return point and resamples of each percentile of each column; replicate i of all is the same resample.

    Args:
        columns: each of shape (n,), row i of all from the same request or step, in time order.
        length, factor, draw, confidence: see ``Options``.
    """
    n = next(iter(columns.values())).size if columns else 0
    if n == 0:
        return {(name, q): unavailable("no_observations") for name in columns for q in qs}
    # A length from more rows than these would make every resample the whole sample, and the interval a point.
    length = min(length or block_length(columns.values()), _longest(n))
    if n < FEWEST_BLOCKS * length:
        too_few = unavailable("few_observations", n)
        return {(name, q): too_few for name in columns for q in qs}
    freedom = freedom_of(n, length)
    widening = factor * small_sample_factor(n, length, confidence)
    widened_by = factor * student_factor(freedom, confidence)
    at_once = max(1, min(draws, COUNTS_AT_ONCE // n))
    parts: dict[tuple[str, float], list[Floats]] = {(name, q): [] for name in columns for q in qs}
    sorted_columns = {name: SortedColumn.of(values, qs, length) for name, values in columns.items()}
    all_starts = draw(n, draws, rng, length)
    for first in range(0, draws, at_once):
        starts = all_starts[:, first : first + at_once]
        counts = counts_of(starts, n, length)
        for name, column in sorted_columns.items():
            for q in qs:
                parts[name, q].append(column.percentiles(q, counts, starts))
    return {
        (name, q): Estimate(
            point := percentile(columns[name], q),
            widened(point, np.concatenate(replicates), widening),
            n,
            None if point is not None else "requests_failed",
            Tail.of(sorted_columns[name].ordered, q, length, factor),
            widened_by,
            freedom,
            confidence,
        )
        for (name, q), replicates in parts.items()
    }


def estimate_percentiles(
    values: Floats, qs: tuple[float, ...], draws: int, rng: np.random.Generator, **options: Unpack[Options]
) -> dict[float, Estimate]:
    """Return the same for one column."""
    estimates = estimate_jointly({"": values}, qs, draws, rng, **options)
    return {q: estimate for (_, q), estimate in estimates.items()}


@dataclass(frozen=True, slots=True)
class Together:
    """Several estimates that are combined to one number.

    Attributes:
        replicates: of each, cut to the same number of draws.
        n: the fewest observations behind one of them.
        least: the one with the fewest degrees of freedom; the number has no more.
    """

    replicates: list[Floats]
    n: int
    least: Estimate

    def estimate(self, point: float | None, replicates: Floats) -> Estimate:
        """Return the number, from what was made of the points and of the resamples."""
        least = self.least
        return Estimate(point, replicates, self.n, freedom=least.freedom, confidence=least.confidence)


def combine(*parts: Estimate) -> Together:
    draws = min(p.replicates.size for p in parts)
    least = min(parts, key=lambda p: p.freedom)
    return Together([p.replicates[:draws] for p in parts], min(p.n for p in parts), least)


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
