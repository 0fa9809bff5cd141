"""The host beside the cells: flags for a cell, changes over a campaign's launches, taxes at equal speed.

A virtual core does the same work in 1.0 to 1.6 times the time, for seconds to minutes, whatever runs on it. A
launch that meets it slow has longer latencies in any configuration. What a fixed piece of work took beside
each cell (``cpu_work_us_mean``) says how slow it was:

    log latency = block + configuration + slope * log work

by least squares over all launches of the blocks, both plains as one configuration. One whose variance is over
four times the median configuration's counts for as much less: waits of a connector that copies differ by more
than the host does. The slope takes the difference in work out of each block's log ratio. The interval is
Student's t over blocks, with the slope's own error in it. This is shown beside the tax and never replaces it:
a connector that itself slows the cores, by a thread that spins, also lengthens the piece of work.
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
from connector_tax.base.statistics.drift import line_through_blocks
from connector_tax.base.statistics.laws import student_quantile
from connector_tax.base.statistics.resampling import Floats
from connector_tax.base.statistics.student import log_mean
from connector_tax.read.stats.launches import Launch, Launches, launches_of, levels_of, log_ratios

# Stolen time is missing in whatever ran: 1 % of the host's time can be 1 % of a latency, which is what
# the client may add to a median before its cell is flagged, too. Sixty seconds on two cores are 12,000 ticks,
# so 1 % is no rounding.
CPU_STOLEN_SHARE = 0.01
# Nothing was asked of the GPU, or somebody chose this clock.
HARMLESS_REASONS = frozenset({"gpu_idle", "applications_clocks_setting"})

# Microseconds that a fixed piece of work, 0.2 ms of Python on a host of today, can have taken. Anything else
# is a damaged record.
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
    """Return what a host's state says; None where it does not, and of work where it cannot have been that."""
    part = host.gpu if host is not None and source.startswith("gpu_") else host
    value: float | None = getattr(part, source.removeprefix("gpu_"), None)
    low, high = PLAUSIBLE_WORK_US
    plausible = source != "cpu_work_us_mean" or (value is not None and low <= value <= high)
    return value if plausible else None


def host_flags(host: Host | None) -> list[str]:
    """Return what qualifies a cell; neither flag keeps it out."""
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
    """Return an entry per source that launches of enough blocks know; ``n`` counts blocks.

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


# Fewer launches than parameters and this many say nothing of how far off the slope is.
MIN_FREEDOM = 3
# The least variance of the log work between launches from which a slope can be taken.
LEAST_VARIANCE = 1e-12
# The largest log ratio that is no damaged record; see ``AtEqualSpeed.damaged``.
MOST_LOG = math.log(100)
# Times the median configuration's variance, beyond which one weighs less: four launches differ by less than
# that by chance.
FAR = 4.0
# Of the slope: one that is known no better takes out noise. A host whose speed hardly changes has no such
# slope.
MOST_ERROR = 0.5
# Weights from residuals hardly change after the second round.
ROUNDS = 4


@dataclass(frozen=True, slots=True)
class SpeedSlope:
    """How a latency depends on something that launches differ by: the time that the host takes for a fixed
    piece of work, or when they began.

    Attributes:
        slope: of the log latency over it, for instance over the log work. At 0.3, work that takes 10 % longer
            goes with a latency that is 3 % longer.
        error: its standard error.
        freedom: launches less parameters.
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
        shared_error: what the slope's error makes of their mean, with its sign: in all configurations it is
            the same slope.
        log_work: by how much longer its launches' work took than plain's, shape (blocks,).
    """

    log_ratios: Floats
    shared_error: float
    log_work: Floats

    @property
    def damaged(self) -> bool:
        """A latency or a piece of work that took a hundred times as long as plain's is a damaged record, and
        no float of JSON follows from it."""
        return bool(max(np.abs(self.log_ratios).max(), np.abs(self.log_work).max()) > MOST_LOG)


def log_work(launch: Launch) -> float:
    """Return the log time of the fixed piece of work; NaN where the launch does not say."""
    work = _number(launch.host, "cpu_work_us_mean")
    return math.nan if work is None else math.log(work)


def speed_slope(launches: Launches, blocks: list[str], configs: list[str]) -> SpeedSlope | None:
    """Return how latency depends on the host's speed; None where a launch does not say how fast its host was,
    where launches are too few, or where their speeds differ too little."""
    found = weighted_slope(launches, blocks, configs, log_work)
    return found if found is not None and found.error <= MOST_ERROR else None


def weighted_slope(
    launches: Launches, blocks: list[str], configs: list[str], covariate: Callable[[Launch], float]
) -> SpeedSlope | None:
    """Fit the log latency over what ``covariate`` says of a launch, with a level for each block and each
    configuration.

    A configuration whose residuals have over ``FAR`` times the variance of the median one's counts for as
    much less. None where ``covariate`` is not known of a launch, where launches are too few, or where they
    hardly differ in it.
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
    """Return slope, its standard error and residuals by weighted least squares; None where all launches of a
    level are at one speed."""
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
    # Not a sandwich: where one launch alone met a slow host, its residual is zero, and it says nothing of the
    # error.
    variance = float(residual @ residual) / (len(work) - levels.shape[1] - 1)
    return slope, math.sqrt(variance / x_sum_of_squares), residual / root_weights


def at_equal_speed(launches: Launches, blocks: list[str], config: str, slope: SpeedSlope) -> AtEqualSpeed:
    """Take the difference in work out of the log ratios.

    Args:
        blocks: those in which the configuration has a number.
    """
    work = log_ratios(launches, blocks, config, log_work)
    ratios: Floats = log_ratios(launches, blocks, config) - slope.slope * work
    return AtEqualSpeed(ratios, slope.error * float(work.mean()), work)


def equal_speed(adjusted: AtEqualSpeed, confidence: float) -> EqualSpeed | None:
    """Return ``at_equal_host_speed`` of ``aggregate.json``; ``work`` is the ratio of the work's time to
    plain's, less one.

    None where it is damaged.
    """
    if adjusted.damaged:
        return None
    tax = mean_over_blocks(adjusted.log_ratios, confidence, adjusted.shared_error)
    work = mean_over_blocks(adjusted.log_work, confidence)
    return EqualSpeed(**asdict(tax), verdict=closed(tax.low, tax.high), work=work)


def mean_over_blocks(log_ratios: Floats, confidence: float, shared_error: float = 0.0) -> Bounds:
    """Return the mean with Student's t on the log scale, as a ratio less one; shape (blocks,).

    Args:
        shared_error: a standard error of the mean that blocks do not show.
    """
    mean = log_mean(log_ratios, shared_error)
    low, high = mean.interval(confidence)
    return Bounds(point=mean.point, low=low, high=high)
