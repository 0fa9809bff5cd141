"""Where the level of a series changes, and by how much: E-divisive means with permutation tests, and a rule for its last points.

E-divisive splits a series where the energy distance of the two parts is largest, keeps the split if few shuffles of the same values
have as large a one, and goes on inside each part. It asks nothing of the noise but that it is the same at any time. It needs many
points behind a change: of n points there are n (n - 1) / 2 choices of two. So the last points are asked by themselves whether each of
them lies outside of what the points before predict; one that does is suspected, and two are a change.

Source: Matteson & James 2014, JASA 109, 334-345. In use on performance series: Daly et al. 2020, ICPE, 67-75.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

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


def shifts(values: Floats, threshold: float, confidence: float, rng: np.random.Generator) -> list[Shift]:
    """Every change that is larger than ``threshold`` and told from zero; the last one may be suspected only.

    Args:
        values: in order of time, finite; shape (n,).
        threshold: what is no change, in the unit of the values.
        confidence: of the intervals.
    """
    cuts = change_points(values, rng)
    while cuts:
        found = [_shift(values, cuts, k, confidence) for k in range(len(cuts))]
        margin = [abs(s.point) - max(threshold, s.point - s.low) for s in found]
        weakest = int(np.argmin(margin))
        if margin[weakest] > 0:
            break
        del cuts[weakest]
    last = _last_points(values, cuts, threshold)
    cuts += [values.size - last] if last else []
    return [_shift(values, cuts, k, confidence) for k in range(len(cuts))]


def noise(values: Floats, at: list[int]) -> tuple[float, int]:
    """Standard deviation inside the parts that begin at ``at``, and its degrees of freedom."""
    parts = np.split(values, at)
    freedom = values.size - len(parts)
    squares = sum(float(((part - part.mean()) ** 2).sum()) for part in parts)
    return (math.sqrt(squares / freedom) if freedom > 0 else math.nan), freedom


def noise_limit(pairs: Floats, confidence: float) -> float:
    """Within this of zero lie so many of the differences that are none, going by some of them: Student's t of their root mean square.

    Args:
        pairs: differences of a thing from itself; shape (n,), n > 0.
    """
    spread = math.sqrt(float((pairs**2).mean()))
    return spread * float(stats.t.ppf((1 + confidence) / 2, pairs.size))


def change_points(
    values: Floats, rng: np.random.Generator, *, level: float = LEVEL, shuffles: int = SHUFFLES
) -> list[int]:
    """Index of the first value of each part but the first, in order."""
    found: list[int] = []
    rest = [(0, values.size)]
    while rest:
        begin, end = rest.pop()
        cut = _significant_cut(values[begin:end], rng, level, shuffles)
        if cut is not None:
            found.append(begin + cut)
            rest += [(begin + cut, end), (begin, begin + cut)]
    return sorted(found)


def _significant_cut(values: Floats, rng: np.random.Generator, level: float, shuffles: int) -> int | None:
    n = values.size
    if n < 2 * LEAST_POINTS:
        return None
    distances = np.abs(values[:, None] - values[None, :])
    divergence = _divergence(distances[None])[0]
    best = float(divergence.max())
    # So many may be as good; one more and the rest of them need not be drawn.
    most = math.floor(level * (shuffles + 1) + 1e-9) - 1
    as_good = drawn = 0
    while drawn < shuffles:
        count = min(max(1, NUMBERS_AT_ONCE // n**2), MOST_AT_ONCE, shuffles - drawn)
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


def _last_points(values: Floats, cuts: list[int], threshold: float) -> int:
    """How many of the last values lie, each of them, to one side of what those before predict; 0 if the last one does not."""
    begin = cuts[-1] if cuts else 0
    for count in range(min(MOST_LAST, values.size - begin - LEAST_BEFORE), 0, -1):
        before, last = values[begin : values.size - count], values[values.size - count :]
        spread, freedom = noise(values[: values.size - count], cuts)
        reach = spread * math.sqrt(1 + 1 / before.size) * float(stats.t.ppf(1 - LEVEL / 2, freedom))
        away = last - before.mean()
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
    reach = error * float(stats.t.ppf((1 + confidence) / 2, freedom))
    first, second = float(before.mean()), float(after.mean())
    point = second - first
    return Shift(cuts[k], point, point - reach, point + reach, first, second, after.size > 1)
