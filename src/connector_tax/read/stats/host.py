"""The host beside the cells: flags for a cell, changes over a campaign's launches, taxes at equal speed.

A virtual core takes 1.0 to 1.6 times as long for the same work, for seconds to minutes, whatever runs on it.
A launch in a slow period has longer latencies in any configuration. The duration of a fixed piece of work
beside each cell (``cpu_work_us_mean``) shows how slow the host was:

    log latency = block + configuration + slope * log work

is fitted by least squares over all launches of the blocks, both plains as one configuration. A configuration
with over four times the median residual variance has proportionally less weight: a copying connector's waits
vary more than the host does. The slope removes the difference in work from each block's log ratio. The
interval is Student's t over blocks, including the slope's error. The result is shown beside the tax and never
replaces it: a connector that slows the cores itself, by a spinning thread, also lengthens the piece of work.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import asdict

from connector_tax.base.documents.aggregate import (
    Bounds,
    EqualSpeed,
    Host,
    HostSource,
    HostUnit,
    Source,
    closed,
)
from connector_tax.base.statistics.distributions import log_mean, student_quantile
from connector_tax.base.statistics.drift import line_through_blocks
from connector_tax.base.statistics.resampling import Floats
from connector_tax.read.stats.launches import Launch, Launches, launches_of, levels_of, log_ratios

# Steal delays whatever ran: 1 % of the host's time can be 1 % of a latency, which is also the client's limit
# for its share of a median. Sixty seconds on two cores are 12,000 ticks, so 1 % is well above rounding.
CPU_STOLEN_SHARE = 0.01
# The GPU was idle, or somebody chose this clock.
HARMLESS_REASONS = frozenset({"gpu_idle", "applications_clocks_setting"})

# Plausible microseconds of the fixed piece of work, 0.2 ms of Python on a current host. Values outside are
# damaged records.
PLAUSIBLE_WORK_US = (1.0, 1e5)

# Source -> its unit.
SOURCES: dict[Source, HostUnit] = {
    "steal_share": "ratio",
    "cpu_mhz_p50": "MHz",
    "cpu_work_us_mean": "us",
    "gpu_sm_mhz_p50": "MHz",
    "gpu_temperature_c_max": "C",
    "gpu_power_w_mean": "W",
}


def _number(host: Host | None, source: Source) -> float | None:
    """Return a value of the host's state; None if missing, or implausible for the piece of work."""
    part = host.gpu if host is not None and source.startswith("gpu_") else host
    value: float | None = getattr(part, source.removeprefix("gpu_"), None)
    low, high = PLAUSIBLE_WORK_US
    plausible = source != "cpu_work_us_mean" or (value is not None and low <= value <= high)
    return value if plausible else None


def host_flags(host: Host | None) -> list[str]:
    """Return a cell's host flags; they do not exclude it."""
    if host is None:
        return []
    flags = []
    if host.steal_share is not None and host.steal_share > CPU_STOLEN_SHARE:
        flags.append("cpu_stolen")
    if host.gpu is not None and set(host.gpu.clock_reasons or ()) - HARMLESS_REASONS:
        flags.append("gpu_throttled")
    return flags


def host_changes(
    launches: Sequence[tuple[str, float, Host | None]], confidence: float
) -> tuple[HostSource, ...]:
    """Return an entry per source with values from launches of enough blocks; ``n`` counts blocks.

    Args:
        launches: (block, hours since the first launch, state in its cell).
    """
    sources = []
    for source, unit in SOURCES.items():
        known = [
            (block, hours, value)
            for block, hours, host in launches
            if (value := _number(host, source)) is not None
        ]
        line = line_through_blocks(known, confidence)
        if line is not None:
            sources.append(
                HostSource(
                    source=source,
                    unit=unit,
                    n=line.n,
                    mean=float(np.mean([v for _, _, v in known])),
                    change=Bounds(point=line.change, low=line.low, high=line.high),
                    p_value=line.p_value,
                )
            )
    return tuple(sources)


# With fewer launches than parameters plus this, the slope's error is unknown.
MIN_FREEDOM = 3
# The least variance of log work between launches that allows a slope.
LEAST_VARIANCE = 1e-12
# The largest plausible log ratio; see ``AtEqualSpeed.damaged``.
MOST_LOG = math.log(100)
# A configuration above this multiple of the median variance loses weight; four launches differ less by
# chance.
FAR = 4.0
# Largest usable error of the slope: above it the correction adds noise. A host of nearly constant speed has
# no such slope.
MOST_ERROR = 0.5
# Weights from residuals hardly change after the second round.
ROUNDS = 4


@dataclass(frozen=True, slots=True)
class SpeedSlope:
    """A latency's dependence on a launch's property: the host's time for a fixed piece of work, or the start.

    Attributes:
        slope: of the log latency, for instance over the log work. At 0.3, work that takes 10 % longer goes
            with a latency that is 3 % longer.
        error: its standard error.
        freedom: launches minus parameters.
    """

    slope: float
    error: float
    freedom: int

    def bounds(self, confidence: float) -> Bounds:
        half_width = float(student_quantile(0.5 + confidence / 2, self.freedom)) * self.error
        return Bounds(point=self.slope, low=self.slope - half_width, high=self.slope + half_width)


@dataclass(frozen=True, slots=True)
class AtEqualSpeed:
    """Log ratios of one configuration at equal speed.

    Attributes:
        log_ratios: of each block, shape (blocks,).
        shared_error: signed contribution of the slope's error to their mean; all configurations share the
            slope.
        log_work: log ratio of its launches' work time to plain's, shape (blocks,).
    """

    log_ratios: Floats
    shared_error: float
    log_work: Floats

    @property
    def damaged(self) -> bool:
        """Return whether a latency or work time is over a hundred times plain's, or under a hundredth.

        Such a record is damaged, and its ratio may exceed JSON's floats.
        """
        return bool(max(np.abs(self.log_ratios).max(), np.abs(self.log_work).max()) > MOST_LOG)


def log_work(launch: Launch) -> float:
    """Return the log time of the fixed piece of work; NaN if the launch has none."""
    work = _number(launch.host, "cpu_work_us_mean")
    return math.nan if work is None else math.log(work)


def speed_slope(launches: Launches, blocks: list[str], configs: list[str]) -> SpeedSlope | None:
    """Return the latency's dependence on the host's speed.

    None if a launch lacks its host's speed, launches are too few, or speeds differ too little.
    """
    found = weighted_slope(launches, blocks, configs, log_work)
    return found if found is not None and found.error <= MOST_ERROR else None


def weighted_slope(
    launches: Launches, blocks: list[str], configs: list[str], covariate: Callable[[Launch], float]
) -> SpeedSlope | None:
    """Fit the log latency over the ``covariate`` of launches, with a level per block and configuration.

    A configuration whose residual variance exceeds ``FAR`` times the median one's has proportionally less
    weight. None if ``covariate`` is unknown for a launch, launches are too few, or hardly differ in it.
    """
    if not blocks or not configs:
        return None
    chosen = launches_of(launches, blocks, configs)
    covariates = np.array([covariate(x) for x in chosen])
    levels = levels_of(chosen, blocks, configs)
    freedom = len(chosen) - levels.shape[1] - 1
    if freedom < MIN_FREEDOM or np.isnan(covariates).any():
        return None
    values = np.array([x.log_latency for x in chosen])
    groups = [np.array([(x.config == c) for x in chosen]) for c in configs]
    groups.append(~np.any(groups, axis=0))
    weights = np.ones(len(chosen))
    for _ in range(ROUNDS):
        fit = _fit(levels, covariates, values, weights)
        if fit is None:
            return None
        slope, error, residual = fit
        group_spreads = [float((residual[group_rows] ** 2).mean()) for group_rows in groups]
        floor = float(np.median(group_spreads))
        for group_rows, group_spread in zip(groups, group_spreads, strict=True):
            weights[group_rows] = floor / group_spread if group_spread > FAR * floor > 0 else 1.0
    return SpeedSlope(slope, error, freedom)


def _fit(levels: Floats, work: Floats, values: Floats, weights: Floats) -> tuple[float, float, Floats] | None:
    """Return slope, its standard error and residuals; None if every level has a single speed."""
    root_weights = np.sqrt(weights)
    basis = np.linalg.qr(levels * root_weights[:, None])[0]
    x, y = work * root_weights, values * root_weights
    x_residual = x - basis @ (basis.T @ x)
    x_sum_of_squares = float(x_residual @ x_residual)
    if x_sum_of_squares < LEAST_VARIANCE * len(work):
        return None
    y_residual = y - basis @ (basis.T @ y)
    slope = float(x_residual @ y_residual) / x_sum_of_squares
    residual = y_residual - slope * x_residual
    # No sandwich estimator: if only one launch met a slow host, its residual is zero and shows no error.
    variance = float(residual @ residual) / (len(work) - levels.shape[1] - 1)
    return slope, math.sqrt(variance / x_sum_of_squares), residual / root_weights


def at_equal_speed(launches: Launches, blocks: list[str], config: str, slope: SpeedSlope) -> AtEqualSpeed:
    """Remove the difference in work from the log ratios.

    Args:
        blocks: those in which the configuration has a number.
    """
    work = log_ratios(launches, blocks, config, log_work)
    ratios: Floats = log_ratios(launches, blocks, config) - slope.slope * work
    return AtEqualSpeed(ratios, slope.error * float(work.mean()), work)


def equal_speed(adjusted: AtEqualSpeed, confidence: float) -> EqualSpeed | None:
    """Return ``at_equal_host_speed`` of ``aggregate.json``, or None if it is damaged.

    ``work`` is the ratio of the work's time to plain's, minus one.
    """
    if adjusted.damaged:
        return None
    tax = mean_over_blocks(adjusted.log_ratios, confidence, adjusted.shared_error)
    work = mean_over_blocks(adjusted.log_work, confidence)
    return EqualSpeed(**asdict(tax), verdict=closed(tax.low, tax.high), work=work)


def mean_over_blocks(log_ratios: Floats, confidence: float, shared_error: float = 0.0) -> Bounds:
    """Return the mean with Student's t on the log scale, as a ratio minus one; shape (blocks,).

    Args:
        shared_error: a standard error of the mean that the blocks do not show.
    """
    mean = log_mean(log_ratios, shared_error)
    low, high = mean.interval(confidence)
    return Bounds(point=mean.point, low=low, high=high)
