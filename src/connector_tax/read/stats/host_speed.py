"""Taxes over blocks at equal speed of the host: what differs between launches because the cores did, taken out.

A virtual core does the same work in 1.0 to 1.6 times the time, for seconds to minutes, whatever runs on it. A launch that meets
it slow has longer latencies in any configuration. What a fixed piece of work took beside each cell (``cpu_work_us_mean``) says how slow it was:

    log latency = block + configuration + slope * log work

by least squares over all launches of the blocks, both plains as one configuration. One whose variance is over four times the median configuration's counts for
as much less: waits of a connector that copies differ by more than the host does. The slope takes the difference in work out of each
block's log ratio. The interval is Student's t over blocks, with the slope's own error in it. This stands beside the tax and never
in its place: a connector that itself slows the cores, by a thread that spins, also lengthens the piece of work.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from connector_tax.base.documents.aggregate import Bounds, EqualSpeed, closed
from connector_tax.base.statistics.laws import student_quantile
from connector_tax.base.statistics.resampling import Floats
from connector_tax.base.statistics.student import log_mean
from connector_tax.read.stats.host import work_us
from connector_tax.read.stats.launches import Launch, Launches, launches_of, levels_of, log_ratios

# Fewer launches than parameters and this many say nothing of how far off the slope is.
MIN_FREEDOM = 3
# Of the log work between launches, below which there is nothing to take a slope from.
LEAST_VARIANCE = 1e-12
# Of a log ratio; see ``AtEqualSpeed.damaged``.
MOST_LOG = math.log(100)
# Times the median configuration's variance, beyond which one weighs less: four launches differ by less than that by chance.
FAR = 4.0
# Of the slope: one that is known no better takes out noise. A host whose speed hardly changes has no such slope.
MOST_ERROR = 0.5
# Of weights from residuals; they hardly change after the second.
ROUNDS = 4


@dataclass(frozen=True, slots=True)
class SpeedSlope:
    """How a latency goes with something that launches differ by: the time that the host takes for a fixed piece of work, or when they began.

    Attributes:
        slope: of the log latency over it, for instance over the log work. At 0.3, work that takes 10 % longer goes with a latency that is 3 % longer.
        error: its standard error.
        freedom: launches less parameters.
    """

    slope: float
    error: float
    freedom: int

    def bounds(self, confidence: float) -> Bounds:
        half = float(student_quantile(0.5 + confidence / 2, self.freedom)) * self.error
        return Bounds(point=self.slope, low=self.slope - half, high=self.slope + half)


@dataclass(frozen=True, slots=True)
class AtEqualSpeed:
    """Log ratios of one configuration at equal speed.

    Attributes:
        log_ratios: of each block, shape (blocks,).
        shared_error: what the slope's error makes of their mean, with its sign: in all configurations it is the same slope.
        log_work: by how much longer its launches' work took than plain's, shape (blocks,).
    """

    log_ratios: Floats
    shared_error: float
    log_work: Floats

    @property
    def damaged(self) -> bool:
        """A latency or a piece of work that took a hundred times as long as plain's is a damaged record, and no float of JSON follows from it."""
        return bool(max(np.abs(self.log_ratios).max(), np.abs(self.log_work).max()) > MOST_LOG)


def log_work(launch: Launch) -> float:
    """NaN where the launch does not say."""
    work = work_us(launch.host)
    return math.nan if work is None else math.log(work)


def speed_slope(launches: Launches, blocks: list[str], configs: list[str]) -> SpeedSlope | None:
    """None where a launch does not say how fast its host was, where launches are too few, or where their speeds differ too little."""
    found = weighted_slope(launches, blocks, configs, log_work)
    return found if found is not None and found.error <= MOST_ERROR else None


def weighted_slope(
    launches: Launches, blocks: list[str], configs: list[str], of: Callable[[Launch], float]
) -> SpeedSlope | None:
    """Of the log latency over what ``of`` says of a launch, with a level for each block and each configuration.

    A configuration whose residuals have over ``FAR`` times the variance of the median one's counts for as much less. None where ``of`` is not known
    of a launch, where launches are too few, or where they hardly differ in it.
    """
    if not blocks or not configs:
        return None
    chosen = launches_of(launches, blocks, configs)
    work = np.array([of(x) for x in chosen])
    levels = levels_of(chosen, blocks, configs)
    freedom = len(chosen) - levels.shape[1] - 1
    if freedom < MIN_FREEDOM or np.isnan(work).any():
        return None
    values = np.array([x.log_latency for x in chosen])
    groups = [np.array([(x.config == c) for x in chosen]) for c in configs]
    groups.append(~np.any(groups, axis=0))
    weights = np.ones(len(chosen))
    for _ in range(ROUNDS):
        found = _fit(levels, work, values, weights)
        if found is None:
            return None
        slope, error, residual = found
        spread = [float((residual[own] ** 2).mean()) for own in groups]
        floor = float(np.median(spread))
        for own, own_spread in zip(groups, spread, strict=True):
            weights[own] = floor / own_spread if own_spread > FAR * floor > 0 else 1.0
    return SpeedSlope(slope, error, freedom)


def _fit(levels: Floats, work: Floats, values: Floats, weights: Floats) -> tuple[float, float, Floats] | None:
    """Slope, its standard error and residuals by weighted least squares; None where all launches of a level are at one speed."""
    root = np.sqrt(weights)
    basis = np.linalg.qr(levels * root[:, None])[0]
    x, y = work * root, values * root
    own = x - basis @ (basis.T @ x)
    size = float(own @ own)
    if size < LEAST_VARIANCE * len(work):
        return None
    rest = y - basis @ (basis.T @ y)
    slope = float(own @ rest) / size
    residual = rest - slope * own
    # Not a sandwich: where one launch alone met a slow host, its residual is zero, and it says nothing of the error.
    variance = float(residual @ residual) / (len(work) - levels.shape[1] - 1)
    return slope, math.sqrt(variance / size), residual / root


def at_equal_speed(launches: Launches, blocks: list[str], config: str, slope: SpeedSlope) -> AtEqualSpeed:
    """
    Args:
        blocks: those in which the configuration has a number.
    """
    work = log_ratios(launches, blocks, config, log_work)
    ratios: Floats = log_ratios(launches, blocks, config) - slope.slope * work
    return AtEqualSpeed(ratios, slope.error * float(work.mean()), work)


def equal_speed(found: AtEqualSpeed, confidence: float) -> EqualSpeed | None:
    """``at_equal_host_speed`` in ``aggregate.json``; ``work`` is the ratio of the work's time to plain's, less one.

    None where it is damaged.
    """
    if found.damaged:
        return None
    tax, work = log_mean(found.log_ratios, found.shared_error), log_mean(found.log_work)
    low, high = tax.interval(confidence)
    shorter, longer = work.interval(confidence)
    return EqualSpeed(
        point=tax.point,
        low=low,
        high=high,
        verdict=closed(low, high),
        work=Bounds(point=work.point, low=shorter, high=longer),
    )
