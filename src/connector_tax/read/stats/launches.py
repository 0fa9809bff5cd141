"""Launches in blocks: each configuration's cell, its log ratio to the block's plains, and failed requests.

A block has two launches of plain, as Phases A and B of a campaign with repeats. A launch outside of blocks
enters no tax over blocks, but its failed requests count.
"""

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import product

import numpy as np

from connector_tax.base.documents.aggregate import PLAIN, FailedBlock, Host
from connector_tax.base.documents.rates import Reference
from connector_tax.base.records.cell import Phase, Shape, is_repeat, phase_place
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.base.statistics.bootstrap import Estimate
from connector_tax.base.statistics.resampling import Floats
from connector_tax.base.units import NS_PER_S
from connector_tax.read.stats.cells import CellEstimates, Estimates
from connector_tax.read.stats.taxes import AVERAGED, LATENCIES, LATENCY_METRICS, LaunchMetric

# With fewer, a t-interval is too wide to be useful, and one bad block is a third of the evidence.
MIN_BLOCKS = 3
PLAINS = (PLAIN, PLAIN_AGAIN)
FAILED, OVERLOADED = "requests_failed", "overloaded"


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch of one configuration in one block.

    Attributes:
        start_h: hours since the first launch of all, by UTC.
        log_latency: of the percentile in milliseconds; NaN if unavailable.
        within_sd: of ``log_latency`` by resampling requests, the uncertainty within the launch.
        requests: behind it.
        host: its state meanwhile; None if unknown.
        why_none: code of why failed requests leave no percentile; empty if it has one or too few requests.
    """

    block: str
    config: str
    start_h: float
    log_latency: float
    within_sd: float
    host: Host | None = None
    requests: int = 0
    why_none: str = ""


# (block, configuration) -> its launch.
Launches = dict[tuple[str, str], Launch]


def headline_shape(estimates: Estimates) -> Shape | None:
    """Return Phase A's shape; None if no cell of it counts."""
    return next(
        (
            cell_estimates.cell.spec.shape
            for (_, phase, _), cell_estimates in estimates.items()
            if phase == "a"
        ),
        None,
    )


def is_headline_cell(
    cell_estimates: CellEstimates, phase: Phase, shape: Shape | None, rate_per_s: float
) -> bool:
    """Return whether a cell has Phase A's load at that rate.

    These are the cells of blocks, of Phases A and B, and of B' if it measures that shape.
    """
    spec = cell_estimates.cell.spec
    return (
        (is_repeat(phase) or phase in ("a", "b", "b_prime"))
        and spec.rate_per_s == rate_per_s
        and (spec.shape == shape or (shape is None and is_repeat(phase)))
        and spec.recorded is not False
    )


def launches_at(
    estimates: Estimates, rate: float, metric: LaunchMetric, without: Collection[str] = ()
) -> Launches:
    """Return (block, configuration) -> its launch.

    Args:
        without: configurations to leave out, whose metric is no tax.
    """
    latency_key = AVERAGED if metric == "ttft_p90_phase_averaged" else LATENCIES[metric]
    shape = headline_shape(estimates)
    cells = {
        (phase, config): cell_estimates
        for (config, phase, _), cell_estimates in estimates.items()
        if is_headline_cell(cell_estimates, phase, shape, rate)
    }
    first_ns = min((cell_estimates.cell.began_utc_ns for cell_estimates in cells.values()), default=0)
    return {
        key: _launch(*key, cell_estimates, cell_estimates.latency(*latency_key), first_ns)
        for key, cell_estimates in cells.items()
        if key[1] not in without
    }


def _launch(
    block: str, config: str, cell_estimates: CellEstimates, estimate: Estimate, first_ns: int
) -> Launch:
    start_h = (cell_estimates.cell.began_utc_ns - first_ns) / NS_PER_S / 3600
    host = cell_estimates.cell.samples.host
    if estimate.point is None or estimate.point <= 0:
        why = OVERLOADED if cell_estimates.cell.window.overloaded else FAILED if estimate.met_failures else ""
        return Launch(block, config, start_h, math.nan, math.nan, host, why_none=why)
    finite = estimate.replicates[np.isfinite(estimate.replicates) & (estimate.replicates > 0)]
    # Stopping rules and Student's t widened it, which is not the spread of requests.
    within_sd = float(np.log(finite).std(ddof=1)) / estimate.widened_by if finite.size > 1 else math.nan
    return Launch(block, config, start_h, math.log(estimate.point), within_sd, host, estimate.n)


def complete_blocks(launches: Launches) -> list[str]:
    """Return the blocks in which both plains have a number, in order; Phases A and B may be among them."""
    return [b for b in measured_blocks(launches) if all(is_known(launches, b, c) for c in PLAINS)]


def measured_blocks(launches: Launches) -> list[str]:
    """Return the blocks in which both plains have a usable cell, in order, with or without the percentile."""
    blocks = sorted({b for b, _ in launches}, key=phase_place)
    return [b for b in blocks if all((b, c) in launches for c in PLAINS)]


def is_known(launches: Launches, block: str, config: str) -> bool:
    launch = launches.get((block, config))
    return launch is not None and not math.isnan(launch.log_latency)


def own_blocks(launches: Launches, blocks: list[str]) -> dict[str, list[str]]:
    """Return configuration -> the blocks in which it has a number.

    Excluded are configurations with too few blocks or failed requests in one; empty if plain's requests
    failed.
    """
    if plain_failed(launches):
        return {}
    failed = blocks_that_failed(launches)
    known = {
        c: [b for b in blocks if is_known(launches, b, c)]
        for c in others_than_plain(launches)
        if c not in failed
    }
    return {c: known_blocks for c, known_blocks in known.items() if len(known_blocks) >= MIN_BLOCKS}


def blocks_that_failed(launches: Launches) -> dict[str, list[Launch]]:
    """Return connector -> its launches with a usable cell but no percentile, because requests failed.

    Connectors with a single launch are left out. A launch with an unusable cell shows nothing, but one of
    these is worse than any number: the other launches would flatter the connector. Plain's number in the
    block does not matter.
    """
    return {c: failed for c in others_than_plain(launches) if (failed := _failed(launches, (c,)))}


def plain_failed(launches: Launches) -> list[Launch]:
    """Return such launches of plain, first and second of each block, which are one configuration."""
    return _failed(launches, PLAINS)


def others_than_plain(launches: Launches) -> list[str]:
    return sorted({c for _, c in launches} - set(PLAINS))


def _failed(launches: Launches, configs: tuple[str, ...]) -> list[Launch]:
    chosen = [x for x in launches.values() if x.config in configs]
    if len({x.block for x in chosen}) < 2:  # its own reason suffices
        return []
    return sorted((x for x in chosen if x.why_none), key=lambda x: (phase_place(x.block), x.config))


def log_latency(launch: Launch) -> float:
    return launch.log_latency


def log_ratios(
    launches: Launches, blocks: list[str], config: str, value_of: Callable[[Launch], float] = log_latency
) -> Floats:
    """Return each block's log ratio to the mean of its two plains; for ``plain_again`` to the other plain."""
    values, plain, plain_again = (
        np.array([value_of(launches[b, c]) for b in blocks]) for c in (config, PLAIN, PLAIN_AGAIN)
    )
    ratios: Floats = values - (plain if config == PLAIN_AGAIN else (plain + plain_again) / 2)
    return ratios


def launches_of(launches: Launches, blocks: list[str], configs: list[str]) -> list[Launch]:
    """Return the launches of ``configs`` and of both plains that have a number."""
    return [
        x
        for (b, c), x in launches.items()
        if b in blocks and c in (*configs, *PLAINS) and not math.isnan(x.log_latency)
    ]


def levels_of(chosen: list[Launch], blocks: list[str], configs: list[str]) -> Floats:
    """Return a 0/1 column per block, then per configuration; both plains are the reference level."""
    columns = [[x.block == b for x in chosen] for b in blocks]
    columns += [[x.config == c for x in chosen] for c in configs]
    return np.array(columns, dtype=np.float64).T.copy()


def plains(launches: Launches, blocks: list[str]) -> list[Launch]:
    return [launches[b, c] for b in blocks for c in PLAINS]


def failed_blocks(
    estimates: Estimates,
    rates: Iterable[tuple[Reference, float]],
    no_ttft: Collection[str],
    no_tax: Collection[str],
) -> list[FailedBlock]:
    """Return configurations without a tax because requests failed in a launch, plain first; blocks in order.

    Args:
        rates: (reference, its rate), each rate once.
        no_ttft: configurations whose TTFT is no tax.
        no_tax: configurations of which no latency is one.
    """
    entries = []
    for (reference, rate), metric in product(rates, LATENCY_METRICS):
        launches = launches_at(estimates, rate, metric)
        excluded = {*no_tax, *(no_ttft if metric == "ttft_p90" else ())}
        for config, failed in {PLAIN: plain_failed(launches), **blocks_that_failed(launches)}.items():
            if failed and config not in excluded:
                entries.append(
                    FailedBlock(
                        reference=reference,
                        rate_per_s=rate,
                        metric=metric,
                        config=config,
                        blocks=tuple(dict.fromkeys(x.block for x in failed)),
                        reason=FAILED if any(x.why_none == FAILED for x in failed) else OVERLOADED,
                    )
                )
    return entries
