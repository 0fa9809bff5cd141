"""Computes taxes from blocks of repeated launches, whose intervals include the spread between launches; and
the smallest tax that they would detect.

Each block launches every configuration once and plain twice. A block's log ratio of percentiles, own against
the mean of its two plains, is one observation: a block's overall slowness cancels, and variation between and
within launches shows in the spread of the blocks. Intervals are Student's t over blocks: with five of them a
bootstrap of blocks would be a fifth too short (``tests/unit/stats/test_repeats.py`` counts the coverage of
both).

The spread between launches is estimated from few blocks, so the detectable tax has an interval, too.
"""

import math
from collections.abc import Collection, Sequence
from itertools import product

import numpy as np
from msgspec.structs import asdict
from scipy import special

from connector_tax.base.documents.aggregate import (
    Blocks,
    BlockTax,
    Bounds,
    Drift,
    EqualSpeed,
    HostDrift,
    NoiseFloor,
    Power,
    Repeats,
    closed,
)
from connector_tax.base.documents.rates import Reference, ReferenceRatesFile
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.base.statistics.bootstrap import Estimate
from connector_tax.base.statistics.distributions import (
    chi_square_quantile,
    log_mean,
    normal_quantile,
    student_quantile,
)
from connector_tax.base.statistics.drift import line_through_blocks
from connector_tax.base.statistics.resampling import Floats
from connector_tax.read.stats.cells import Estimates
from connector_tax.read.stats.host import (
    at_equal_speed,
    equal_speed,
    host_changes,
    mean_over_blocks,
    speed_slope,
    weighted_slope,
)
from connector_tax.read.stats.launches import (
    MIN_BLOCKS,
    Launch,
    Launches,
    complete_blocks,
    launches_at,
    launches_of,
    log_ratios,
    measured_blocks,
    own_blocks,
    plain_failed,
    plains,
)
from connector_tax.read.stats.taxes import LATENCY_METRICS, LaunchMetric, Tax

POWER = 0.8
BLOCKS = (3, 5, 10, 20)
# The largest useful change of a latency, on the log scale.
MOST_LOG = math.log(1e6)


def smallest_detectable(
    standard_error: float, *, freedom: int | None = None, confidence: float = 0.95, power: float = POWER
) -> float:
    """Return how far from zero the truth must lie for its two-sided interval to exclude zero with ``power``.

    Args:
        standard_error: of the estimate, on a scale on which it is nearly normal.
        freedom: degrees of freedom of Student's t; None for a normal estimate.
    """
    tail = (1 - confidence) / 2
    if freedom is None:
        return (normal_quantile(power) - normal_quantile(tail)) * standard_error
    critical = float(-student_quantile(tail, freedom))

    def power_at(distance: float) -> float:
        return 1 - float(special.nctdtr(freedom, distance, critical))

    low, high = 0.0, critical + 20.0
    # With two degrees of freedom and 99.99 % the critical value is 100, and power grows slowly.
    while power_at(high) < power:
        high *= 2
    # Bisection down to adjacent floats; importing scipy.optimize takes longer.
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if power_at(middle) >= power else (middle, high)
    return high * standard_error


def found_by_blocks(sd: float, known_from: int, blocks: int, confidence: float) -> Bounds | None:
    """Return the tax that ``blocks`` blocks detect with ``POWER``, as a ratio, with its interval.

    The interval is the chi-square interval of the deviation, which from five blocks may truly be 0.6 or 2.9
    times the estimate. ``point`` is median-unbiased, unlike the deviation itself.

    Args:
        sd: of one block's log ratio, as estimated.
        known_from: number of blocks of the estimate.
        blocks: of the campaign that is to detect it.

    Returns:
        None if the upper end is too large to be useful.
    """
    freedom, tail = known_from - 1, (1 - confidence) / 2
    detectable_sds = smallest_detectable(1 / math.sqrt(blocks), freedom=blocks - 1, confidence=confidence)
    low, point, high = (
        detectable_sds * sd * math.sqrt(freedom / float(chi_square_quantile(q, freedom)))
        for q in (1 - tail, 0.5, tail)
    )
    if high > MOST_LOG:
        return None
    return Bounds(point=math.expm1(point), low=math.expm1(low), high=math.expm1(high))


def outlook(taxes: Sequence[Tax], repeats: Sequence[Repeats], confidence: float) -> list[Power]:
    """Return ``power`` of ``aggregate.json``: the smallest detectable tax of each measurement at ref_safe.

    ``one_launch`` ignores the spread between launches; ``by_blocks`` includes it, and exists only with
    blocks.

    Args:
        taxes: the chosen ones of one launch each.
    """
    spread = {
        (tax.config, entry.metric): (tax.sd, tax.n)
        for entry in repeats
        if entry.reference == "ref_safe"
        for tax in entry.taxes
    }
    rows = []
    for tax in taxes:
        metric = next((m for m in LATENCY_METRICS if m == tax.metric), None)
        if tax.reference == "ref_safe" and metric is not None:
            known_spread = spread.get((tax.config, metric))
            by_blocks = (
                {str(n): found_by_blocks(*known_spread, n, confidence) for n in BLOCKS}
                if known_spread
                else None
            )
            by_one_launch = _found_by_one_launch(tax.estimate, confidence)
            rows.append(
                Power(
                    config=tax.config,
                    metric=metric,
                    power=POWER,
                    one_launch=by_one_launch,
                    by_blocks=by_blocks,
                )
            )
    return rows


def _found_by_one_launch(tax: Estimate, confidence: float) -> float | None:
    """Return the tax that one launch detects with ``POWER``; None if some resamples are not finite."""
    ratios = 1 + tax.replicates
    if tax.point is None or ratios.size < 2 or not (np.isfinite(ratios) & (ratios > 0)).all():
        return None
    return math.expm1(smallest_detectable(float(np.log(ratios).std(ddof=1)), confidence=confidence))


def _between_launches(differences: Floats, within: float | None, confidence: float) -> Bounds | None:
    """Return the standard deviation between launches of a log percentile, beyond that within launches.

    It has the chi-square interval of the variance; None if ``within`` is unknown.

    Args:
        differences: of plain's two launches in each block, shape (blocks,).
        within: the deviation due to requests.
    """
    if within is None:
        return None
    freedom = differences.size - 1
    variance = float(differences.var(ddof=1))
    tail = (1 - confidence) / 2
    low, high = (variance * freedom / float(chi_square_quantile(q, freedom)) for q in (1 - tail, tail))
    # The difference of two launches has twice the variance of one.
    point, low, high = (math.sqrt(max(0.0, v / 2 - within**2)) for v in (variance, low, high))
    return Bounds(point=point, low=low, high=high)


def _within_launches(launches: Launches, blocks: list[str]) -> float | None:
    """Return the root mean square over plain's launches; None if one is unknown."""
    within = math.sqrt(float(np.mean(np.square([x.within_sd for x in plains(launches, blocks)]))))
    return None if math.isnan(within) else within


def drift(launches: Launches, blocks: list[str], confidence: float) -> Drift | None:
    """Return plain's linear change from first to last launch; None without a line, or one of useless size."""
    points = [(x.block, x.start_h, x.log_latency) for x in plains(launches, blocks)]
    line = line_through_blocks(points, confidence)
    if line is None or max(abs(line.low), abs(line.high)) > MOST_LOG:
        return None
    return Drift(
        change=Bounds(point=math.expm1(line.change), low=math.expm1(line.low), high=math.expm1(line.high)),
        p_value=line.p_value,
        hours=line.span_h,
    )


def repeats(
    estimates: Estimates,
    rates: ReferenceRatesFile | None,
    confidence: float,
    no_ttft: Collection[str],
    no_tax: Collection[str],
) -> list[Repeats]:
    """Return ``repeats`` of ``aggregate.json``: one entry per reference rate and latency.

    There is none without enough blocks, or if plain's requests failed in one.

    Args:
        no_ttft: configurations whose TTFT is no tax.
        no_tax: configurations of which no latency is one.
    """
    found = []
    for (reference, rate), metric in product(rates_of_blocks(rates), LATENCY_METRICS):
        without = {*no_tax, *(no_ttft if metric == "ttft_p90" else ())}
        blocks = summarise(launches_at(estimates, rate, metric, without), confidence)
        if blocks is not None:
            found.append(Repeats(reference=reference, rate_per_s=rate, metric=metric, **asdict(blocks)))
    return found


def host_drift(estimates: Estimates, rates: ReferenceRatesFile | None, confidence: float) -> list[HostDrift]:
    """Return ``host_drift`` of ``aggregate.json``: the host's changes over plain's launches, per rate.

    The launches are both launches of each block in which both have a usable cell, with or without the
    percentiles.
    """
    found = []
    for reference, rate in rates_of_blocks(rates):
        launches = launches_at(estimates, rate, "ttft_p90")
        blocks = measured_blocks(launches)
        if len(blocks) >= MIN_BLOCKS:
            plain = [(x.block, x.start_h, x.host) for x in plains(launches, blocks)]
            sources = host_changes(plain, confidence)
            found.append(
                HostDrift(reference=reference, rate_per_s=rate, n_launches=len(plain), sources=sources)
            )
    return found


def rates_of_blocks(rates: ReferenceRatesFile | None) -> list[tuple[Reference, float]]:
    """Return (reference, its rate); only one if both rates are the same."""
    return [] if rates is None else rates.apart()


def headline_taxes(
    estimates: Estimates,
    rates: ReferenceRatesFile | None,
    metric: LaunchMetric,
    draws: int,
    rng: np.random.Generator,
    reference: Reference = "ref_safe",
    *,
    equal_speed: bool = False,
    without: Collection[str] = (),
) -> dict[str, Estimate]:
    """Return taxes at a reference rate with draws from their joint distribution (multivariate t).

    The draws serve numbers made of several taxes.

    Args:
        equal_speed: those at equal host speed; empty if it is unknown.
        without: configurations whose latency is no tax.
    """
    if rates is None:
        return {}
    launches = launches_at(estimates, rates.per_s(reference), metric, without)
    blocks = complete_blocks(launches)
    members_of = own_blocks(launches, blocks)
    # Log ratios of each block, and the error of their mean that all configurations share.
    ratios_and_error = {c: (log_ratios(launches, own, c), 0.0) for c, own in members_of.items()}
    if equal_speed:
        if (slope := speed_slope(launches, blocks, list(members_of))) is None:
            return {}
        adjusted = {c: at_equal_speed(launches, own, c, slope) for c, own in members_of.items()}
        ratios_and_error = {
            c: (own.log_ratios, own.shared_error) for c, own in adjusted.items() if not own.damaged
        }
    if not ratios_and_error:
        return {}
    table = np.full((len(blocks), len(ratios_and_error)), math.nan)
    for k, (config, (ratios, _)) in enumerate(ratios_and_error.items()):
        table[[blocks.index(b) for b in members_of[config]], k] = ratios
    return _drawn_jointly(
        table, list(ratios_and_error), draws, rng, np.array([error for _, error in ratios_and_error.values()])
    )


def _drawn_jointly(
    table: Floats, configs: list[str], draws: int, rng: np.random.Generator, shared: Floats | None = None
) -> dict[str, Estimate]:
    """Return the means of log ratios, shape (blocks, configurations), with draws from their multivariate t.

    Args:
        table: NaN if a configuration has no number in a block; its other blocks count.
        shared: an additional error of each mean, perfectly correlated between configurations, shape
            (configurations,).
    """
    n = (~np.isnan(table)).sum(axis=0)
    shared_errors = np.zeros(len(configs)) if shared is None else shared
    covariance = _covariance_of_means(table) + np.outer(shared_errors, shared_errors)
    normal = rng.multivariate_normal(np.zeros(len(configs)), covariance, size=draws, method="svd")
    fewest_blocks = int(n.min())
    spread = normal * np.sqrt((fewest_blocks - 1) / rng.chisquare(fewest_blocks - 1, size=(draws, 1)))
    # The draws define the joint order of configurations, and each takes its values from its own Student's t:
    # a number made mostly of one tax then has nearly that tax's ends.
    means = [
        log_mean(ratios[~np.isnan(ratios)], float(error))
        for ratios, error in zip(table.T, shared_errors, strict=True)
    ]
    centre, error = (np.array([getattr(m, name) for m in means]) for name in ("log_ratio", "error"))
    ends = np.clip(np.linspace(0.0, 1.0, draws), 0.25 / draws, 1 - 0.25 / draws)
    ranks = spread.argsort(axis=0).argsort(axis=0)
    drawn = np.expm1(centre + error * student_quantile(ends[:, None], n - 1)[ranks, np.arange(len(configs))])
    return {
        config: Estimate(mean.point, drawn[:, k], int(n[k]), over_blocks=mean)
        for k, (config, mean) in enumerate(zip(configs, means, strict=True))
    }


def _covariance_of_means(table: Floats) -> Floats:
    """Return the covariance of the columns' means; two columns covary in their common blocks.

    With missing blocks the result may not be a covariance matrix; then the nearest one is returned.
    """
    known = ~np.isnan(table)
    n = known.sum(axis=0)
    n_configs = table.shape[1]
    covariances = np.zeros((n_configs, n_configs))
    for j in range(n_configs):
        for k in range(j, n_configs):
            in_both = known[:, j] & known[:, k]
            if in_both.sum() > 1:
                covariance = np.cov(table[in_both, j], table[in_both, k])[0, 1]
                covariances[j, k] = covariances[k, j] = covariance * in_both.sum() / (n[j] * n[k])
    values, vectors = np.linalg.eigh(covariances)
    rounding = 1e-12 * abs(values).max()
    nearest: Floats = covariances if values.min() >= -rounding else (vectors * values.clip(0)) @ vectors.T
    return nearest


def summarise(launches: Launches, confidence: float) -> Blocks | None:
    """Return taxes, noise floor, launch-to-launch spread and drift of (block, configuration) -> launch.

    None with too few blocks, or if plain's requests failed in a block: plain's other launches would flatter
    it.
    """
    blocks = complete_blocks(launches)
    if len(blocks) < MIN_BLOCKS or plain_failed(launches):
        return None
    blocks_of = own_blocks(launches, blocks)
    adjusted = _drift_adjusted(launches, blocks_of, blocks, confidence)
    slope = speed_slope(launches, blocks, list(blocks_of))
    differences = log_ratios(launches, blocks, PLAIN_AGAIN)
    plain_again = mean_over_blocks(differences, confidence)
    within = _within_launches(launches, blocks)
    between = _between_launches(differences, within, confidence)
    # A tax is relative to the mean of two launches of plain, so its variance is three quarters of plain's
    # against plain, if launches of connectors and plain vary alike.
    sd = math.sqrt(0.75) * float(differences.std(ddof=1))

    def equal_speed_tax(config: str, known: list[str]) -> EqualSpeed | None:
        """Return its tax at equal host speed; None if unknown."""
        if slope is None:
            return None
        return equal_speed(at_equal_speed(launches, known, config, slope), confidence)

    def tax(config: str, known: list[str]) -> BlockTax:
        """Return its tax over the blocks in which it has a number."""
        ratios = log_ratios(launches, known, config)
        mean = mean_over_blocks(ratios, confidence)
        return BlockTax(
            **asdict(mean),
            config=config,
            n=ratios.size,
            sd=float(ratios.std(ddof=1)),
            verdict=closed(mean.low, mean.high),
            adjusted=adjusted.get(config),
            at_equal_host_speed=equal_speed_tax(config, known),
            by_block={b: math.expm1(r) for b, r in zip(known, ratios, strict=True)},
        )

    return Blocks(
        blocks=len(blocks),
        noise_floor=NoiseFloor(
            **asdict(plain_again),
            half_width=(plain_again.high - plain_again.low) / 2,
            found_4_of_5=found_by_blocks(sd, len(blocks), len(blocks), confidence),
            at_equal_host_speed=equal_speed_tax(PLAIN_AGAIN, blocks),
        ),
        host_speed_slope=None if slope is None else slope.bounds(confidence),
        between_launch_sd=None if between is None else between.point,
        between_launches=between,
        within_launch_sd=within,
        requests=float(np.median([x.requests for x in plains(launches, blocks)])),
        drift=drift(launches, blocks, confidence),
        taxes=tuple(tax(config, known) for config, known in blocks_of.items()),
    )


def _drift_adjusted(
    launches: Launches, blocks_of: dict[str, list[str]], blocks: list[str], confidence: float
) -> dict[str, Bounds]:
    """Return taxes without a linear drift inside blocks; Student's t over blocks, with the drift's own error.

    ``log latency = block + configuration + slope * (hours since the block's middle)``, both plains as one
    configuration. Each configuration's interval is from its own blocks: waits of a copying one vary a hundred
    times as much as another's.
    """
    chosen = launches_of(launches, blocks, list(blocks_of))
    middle_h = {b: float(np.mean([x.start_h for x in chosen if x.block == b])) for b in blocks}

    def hours(launch: Launch) -> float:
        return launch.start_h - middle_h[launch.block]

    slope = weighted_slope(launches, blocks, list(blocks_of), hours)
    if slope is None:
        return {}
    taxes = {}
    for config, members in blocks_of.items():
        hours_apart = log_ratios(launches, members, config, hours)
        ratios = log_ratios(launches, members, config) - slope.slope * hours_apart
        taxes[config] = mean_over_blocks(ratios, confidence, slope.error * float(hours_apart.mean()))
    return taxes
