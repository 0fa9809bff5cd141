"""Where the level of a series changes, and by how much: E-divisive means with permutation tests, and a rule for its last points.

E-divisive splits a series where the energy distance of the two parts is largest, keeps the split if few shuffles of the same values
have as large a one, and goes on inside each part. It asks nothing of the noise but that it is the same at any time. It needs many
points behind a change: of n points there are n (n - 1) / 2 choices of two. So the last points are asked by themselves whether each of
them lies outside of what the points before predict; one that does is suspected, and two are a change.

A single bad value hides nothing: distances are cut at many times the spread, and levels and noise are made without values that lie far
outside of their part. The triangular kernel is positive definite, so distances that are cut still make an energy distance, and shuffles of
the same values still test it.

Source: Matteson & James 2014, JASA 109, 334-345. In use on performance series: Daly et al. 2020, ICPE, 67-75.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from connector_tax.base.statistics.laws import chi_square_quantile, f_quantile, student_quantile
from connector_tax.base.statistics.resampling import Floats

# Of a part: one value has no distance to others of its part.
LEAST_POINTS = 2
# Before the last points: a prediction from fewer is too wide to be of use.
LEAST_BEFORE = 4
# Of the last points; a change that is older has as many behind it as E-divisive needs.
MOST_LAST = 6
# A split is kept if at most so many of the shuffles are as good; a last point lies outside at the same level, two-sided.
LEVEL = 0.01
SHUFFLES = 999
# Distances are cut at so many standard deviations, by the median absolute deviation of a part.
MOST_APART = 5.0
# A value lies outside of its part at this level, two-sided, by Student's t of the median absolute deviation.
FAR = 1e-4
# That estimator has so much of the efficiency of the standard deviation, and 1 / 0.6745 of its size.
MAD_EFFICIENCY, MAD_TO_SD = 0.37, 1.4826
# Shuffles are drawn together, as far as memory goes; few, since most series are done with after some ten.
MOST_AT_ONCE = 37
NUMBERS_AT_ONCE = 2_000_000


@dataclass(frozen=True, slots=True)
class Shift:
    """A change of level.

    Attributes:
        at: index of the first value behind it.
        point, low, high: mean behind less mean before, each up to the next change; Student's t, of the spread inside all parts.
        before, after: those means.
        confirmed: two values or more lie behind it.
    """

    at: int
    point: float
    low: float
    high: float
    before: float
    after: float
    confirmed: bool


def search(values: Floats, draws: Callable[[], np.random.Generator]) -> list[int]:
    """Where the level may change; a last value that lies outside alone has no say in it.

    Args:
        draws: a generator, the same one each time.
    """
    cuts = change_points(values, draws())
    return change_points(values[:-1], draws()) if _last_points(values, cuts, 0.0) == 1 else cuts


def shifts(values: Floats, cuts: list[int], threshold: float, confidence: float) -> list[Shift]:
    """Every change that is larger than ``threshold`` and told from zero; the last one may be suspected only.

    A last value that lies outside alone has no say in those before it.

    Args:
        values: in order of time, finite; shape (n,).
        cuts: of them, as ``search`` gives them.
        threshold: what is no change, in the unit of the values.
        confidence: of the intervals.
    """
    cuts = list(cuts)
    body = values[:-1] if _last_points(values, cuts, 0.0) == 1 else values
    while cuts:
        found = [_shift(body, cuts, k, confidence) for k in range(len(cuts))]
        margin = [abs(s.point) - max(threshold, s.point - s.low) for s in found]
        weakest = int(np.argmin(margin))
        if margin[weakest] > 0:
            break
        del cuts[weakest]
    cuts = _with_last(values, cuts, threshold)
    return [_shift(values, cuts, k, confidence) for k in range(len(cuts))]


def noise(values: Floats, at: list[int]) -> tuple[float, int]:
    """Standard deviation inside the parts that begin at ``at``, and its degrees of freedom; without values far outside of their part."""
    keep = _inside(values, at)
    parts = [part[own] for part, own in zip(np.split(values, at), np.split(keep, at), strict=True)]
    freedom = int(keep.sum()) - len(parts)
    squares = sum(float(((part - part.mean()) ** 2).sum()) for part in parts)
    return (math.sqrt(squares / freedom) if freedom > 0 else math.nan), freedom


def level_of(values: Floats) -> float:
    """Mean of one part, without values far outside of it."""
    return float(values[_inside(values, [])].mean())


def noise_limit(pairs: Floats, confidence: float) -> tuple[float, int]:
    """Within this of zero lie so many of the differences that are none, going by some of them: Student's t of their root mean square.

    Args:
        pairs: differences of a thing from itself; shape (n,), n > 0. Those far outside of the others are left out.

    Returns:
        The limit, and how many differences it is of.
    """
    far = _far(float(np.median(np.abs(pairs))), pairs.size)
    kept = pairs[np.abs(pairs) <= far]
    return math.sqrt(float((kept**2).mean())) * _t(confidence, kept.size), kept.size


def spread_limit(values: Floats, cuts: list[int], confidence: float) -> tuple[float, int] | None:
    """The same of the values themselves, by their spread inside the parts; the last points are a part where they lie outside.

    Returns:
        None from too few values.
    """
    if values.size <= LEAST_BEFORE:
        return None
    spread, freedom = noise(values, _with_last(values, cuts, 0.0))
    return (spread * _t(confidence, freedom), freedom) if freedom > 0 else None


def pooled_limit(errors: Floats, freedoms: Floats, confidence: float) -> tuple[float, int]:
    """The same of means, going by the standard errors of some: Student's t of the pooled one.

    Args:
        errors: shape (n,), n > 0. Those far above the others are left out.
        freedoms: of each; shape (n,).
    """
    squares = errors**2
    middle = float(np.median(squares * freedoms / chi_square_quantile(0.5, freedoms)))
    kept = squares <= middle * f_quantile(1 - FAR, freedoms, max(1.0, MAD_EFFICIENCY * freedoms.sum()))
    freedom = float(freedoms[kept].sum())
    pooled = float((squares * freedoms)[kept].sum()) / freedom
    return math.sqrt(pooled) * _t(confidence, freedom), int(kept.sum())


def _t(confidence: float, freedom: float) -> float:
    return float(student_quantile((1 + confidence) / 2, freedom))


def _far(deviation: float, freedom: float) -> float:
    """How far from the middle no value of normal noise lies.

    Args:
        deviation: median absolute deviation.
    """
    return MAD_TO_SD * deviation * _t(1 - FAR, max(1.0, MAD_EFFICIENCY * freedom))


def _inside(values: Floats, at: list[int]) -> npt.NDArray[np.bool_]:
    """Which values do not lie far outside of their part; of two values none can."""
    parts = np.split(values, at)
    apart = [
        np.abs(part - np.median(part)) if part.size > LEAST_POINTS else np.zeros(part.size) for part in parts
    ]
    long = [own for own in apart if own.size > LEAST_POINTS]
    if not long:
        return np.ones(values.size, dtype=bool)
    pooled = np.concatenate(long)
    freedom = pooled.size - len(long)
    far = _far(float(np.median(pooled)) * math.sqrt(pooled.size / freedom), freedom)
    inside: npt.NDArray[np.bool_] = np.concatenate(apart) <= far
    return inside


def change_points(values: Floats, rng: np.random.Generator) -> list[int]:
    """Index of the first value of each part but the first, in order."""
    found: list[int] = []
    rest = [(0, values.size)]
    while rest:
        begin, end = rest.pop()
        cut = _significant_cut(values[begin:end], rng)
        if cut is not None:
            found.append(begin + cut)
            rest += [(begin + cut, end), (begin, begin + cut)]
    return sorted(found)


def _significant_cut(values: Floats, rng: np.random.Generator) -> int | None:
    n = values.size
    if n < 2 * LEAST_POINTS:
        return None
    distances = np.abs(values[:, None] - values[None, :])
    deviation = float(np.median(np.abs(values - np.median(values))))
    if deviation > 0:
        distances = np.minimum(distances, MOST_APART * MAD_TO_SD * deviation)
    divergence = _divergence(distances[None])[0]
    best = float(divergence.max())
    # So many may be as good; one more and the rest of them need not be drawn.
    most = math.floor(LEVEL * (SHUFFLES + 1) + 1e-9) - 1
    as_good = drawn = 0
    while drawn < SHUFFLES:
        count = min(max(1, NUMBERS_AT_ONCE // n**2), MOST_AT_ONCE, SHUFFLES - drawn)
        orders = rng.permuted(np.tile(np.arange(n), (count, 1)), axis=1)
        shuffled = distances[orders[:, :, None], orders[:, None, :]]
        # A sum in another order differs in its last digits.
        as_good += int((_divergence(shuffled).max(axis=(1, 2)) >= best * (1 - 1e-12)).sum())
        drawn += count
        if as_good > most:
            return None
    return LEAST_POINTS + int(divergence.max(axis=1).argmax())


def _divergence(distances: Floats) -> Floats:
    """Scaled energy distance of what lies before each place to cut and what lies behind it, up to each end.

    Ends before the last one find a level that rises and falls again: what comes after it is like what came before.

    Args:
        distances: shape (orders, n, n).

    Returns:
        shape (orders, cuts, ends); the first cut is at LEAST_POINTS, the first end at twice that. Minus infinity where less than LEAST_POINTS lie
        between the two.
    """
    n = distances.shape[1]
    cut = np.arange(LEAST_POINTS, n - LEAST_POINTS + 1)[:, None]
    end = np.arange(2 * LEAST_POINTS, n + 1)[None, :]
    sums = distances.cumsum(axis=1).cumsum(axis=2)
    inside = np.einsum("oii->oi", sums) / 2
    left = inside[:, cut - 1]
    across = sums[:, cut - 1, end - 1] - 2 * left
    right = inside[:, end - 1] - left - across
    m, k = cut, np.maximum(end - cut, LEAST_POINTS)
    energy = 2 * across / (m * k) - 2 * left / (m * (m - 1)) - 2 * right / (k * (k - 1))
    found: Floats = np.where(end - cut >= LEAST_POINTS, energy * m * k / (m + k), -np.inf)
    return found


def _with_last(values: Floats, cuts: list[int], threshold: float) -> list[int]:
    """``cuts``, and where the last points begin. Two or more that lay outside still do when one alone comes after them that does not."""
    last = _last_points(values, cuts, threshold)
    earlier = _last_points(values[:-1], cuts, threshold) if last < 2 else 0
    if earlier < 2:
        return [*cuts, values.size - last] if last else cuts
    begin, end = values.size - 1 - earlier, values.size - 1
    old, new = level_of(values[cuts[-1] if cuts else 0 : begin]), level_of(values[begin:end])
    back = abs(values[end] - old) < abs(values[end] - new)
    return [*cuts, begin, end] if back else [*cuts, begin]


def _last_points(values: Floats, cuts: list[int], threshold: float) -> int:
    """How many of the last values lie, each of them, to one side of what those before predict; 0 if the last one does not."""
    begin = cuts[-1] if cuts else 0
    for count in range(min(MOST_LAST, values.size - begin - LEAST_BEFORE), 0, -1):
        before, last = values[begin : values.size - count], values[values.size - count :]
        spread, freedom = noise(values[: values.size - count], cuts)
        reach = spread * math.sqrt(1 + 1 / before.size) * _t(1 - LEVEL, freedom)
        away = last - level_of(before)
        limit = max(reach, threshold)
        if (away > limit).all() or (away < -limit).all():
            return count
    return 0


def _shift(values: Floats, cuts: list[int], k: int, confidence: float) -> Shift:
    begin = cuts[k - 1] if k else 0
    end = cuts[k + 1] if k + 1 < len(cuts) else values.size
    before, after = values[begin : cuts[k]], values[cuts[k] : end]
    spread, freedom = noise(values, cuts)
    error = spread * math.sqrt(1 / before.size + 1 / after.size)
    reach = error * _t(confidence, freedom)
    first, second = level_of(before), level_of(after)
    point = second - first
    return Shift(cuts[k], point, point - reach, point + reach, first, second, after.size > 1)
