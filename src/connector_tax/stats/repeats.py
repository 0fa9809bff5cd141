"""Taxes from blocks of repeated launches, where what launches differ by is in the interval.

Each block launches every configuration once and plain twice. A block's log ratio of percentiles, own against the mean of its
two plains, is one observation: what is slow for a whole block cancels, and what differs between launches, and within them,
is in the spread of the blocks. Intervals are Student's t over blocks: with five of them a bootstrap of blocks would be a fifth
too short (``tests/unit/stats/test_repeats.py`` counts how often either holds the truth).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from connector_tax.ingest.host import HostState
from connector_tax.intervals.bootstrap import Estimate
from connector_tax.intervals.looks import look_factor
from connector_tax.intervals.resampling import Floats
from connector_tax.records.cell import Phase, Shape, is_repeat, phase_place
from connector_tax.records.connector import PLAIN_AGAIN
from connector_tax.stats.cells import CellEstimates
from connector_tax.stats.drift import straight_line
from connector_tax.stats.host import host_changes
from connector_tax.stats.taxes import LATENCY_METRICS
from connector_tax.units import NS_PER_S

# Below it a t-interval is wider than it is worth, and one bad block is a third of the evidence.
MIN_BLOCKS = 3
REFERENCES = ("ref_safe", "ref_load")


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of one configuration in one block.

    Attributes:
        start_h: hours since the first launch of all, by UTC.
        log_latency: of the percentile in milliseconds; NaN where it is unavailable.
        within_sd: of ``log_latency`` by resampling requests: what the launch cannot say more exactly.
        requests: behind it.
        host: what the host did meanwhile; None where nobody says.
    """

    block: str
    config: str
    start_h: float
    log_latency: float
    within_sd: float
    host: HostState | None = None
    requests: int = 0


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over blocks with its t-interval, as a ratio less one.

    Attributes:
        sd: of the blocks' log ratios.
    """

    point: float
    low: float
    high: float
    sd: float
    n: int


def repeats(
    estimates: dict[tuple[str, str, str], CellEstimates],
    rates: dict[str, Any] | None,
    confidence: float,
    no_ttft: frozenset[str] = frozenset(),
) -> list[dict[str, Any]]:
    """``repeats`` in ``aggregate.json``: one entry per reference rate and latency; none without enough blocks.

    Args:
        no_ttft: configurations whose TTFT is no tax.
    """
    found: list[dict[str, Any]] = []
    for reference, rate in _rates(rates):
        for metric in LATENCY_METRICS:
            launches = _launches(estimates, rate, metric)
            if metric == "ttft_p90":
                launches = {key: x for key, x in launches.items() if x.config not in no_ttft}
            entry = summarise(launches, confidence)
            if entry is not None:
                found.append({"reference": reference, "rate_per_s": rate, "metric": metric, **entry})
    return found


def host_drift(
    estimates: dict[tuple[str, str, str], CellEstimates], rates: dict[str, Any] | None, confidence: float
) -> list[dict[str, Any]]:
    """``host_drift`` in ``aggregate.json``: per reference rate, what changed of the host over plain's launches.

    They are the launches that the drift of TTFT is taken from.
    """
    found: list[dict[str, Any]] = []
    for reference, rate in _rates(rates):
        launches = _launches(estimates, rate, "ttft_p90")
        blocks = _complete_blocks(launches)
        if len(blocks) >= MIN_BLOCKS:
            plain = [(x.start_h, x.host) for x in _plains(launches, blocks)]
            sources = host_changes(plain, confidence)
            found.append(
                {"reference": reference, "rate_per_s": rate, "n_launches": len(plain), "sources": sources}
            )
    return found


def _rates(rates: dict[str, Any] | None) -> list[tuple[str, float]]:
    """(reference, its rate); one of them where both are the same."""
    by_rate: dict[float, str] = {}
    for reference in REFERENCES if rates is not None else ():
        by_rate.setdefault(float((rates or {})[f"{reference}_per_s"]), reference)
    return [(reference, rate) for rate, reference in by_rate.items()]


def headline_taxes(
    estimates: dict[tuple[str, str, str], CellEstimates],
    rates: dict[str, Any] | None,
    metric: str,
    draws: int,
    rng: np.random.Generator,
    reference: str = "ref_safe",
) -> dict[str, Estimate]:
    """Taxes at a reference rate with draws of their joint distribution (multivariate t), for what is asked of several at once."""
    if rates is None:
        return {}
    launches = _launches(estimates, float(rates[f"{reference}_per_s"]), metric)
    blocks = _complete_blocks(launches)
    together: dict[tuple[str, ...], list[str]] = {}
    for config, own in _own_blocks(launches, blocks).items():
        together.setdefault(tuple(own), []).append(config)
    found: dict[str, Estimate] = {}
    # Configurations that lost a block are drawn by themselves: what they share with the others through plain is then not
    # seen. A difference to one of those has a wider interval than it could have, a sum with one a narrower.
    for members, configs in together.items():
        table = np.column_stack([_log_ratios(launches, list(members), c) for c in configs])
        found |= _drawn_jointly(table, configs, draws, rng)
    return found


def _drawn_jointly(
    table: Floats, configs: list[str], draws: int, rng: np.random.Generator
) -> dict[str, Estimate]:
    """Mean log ratios, shape (blocks, configurations), with draws from their multivariate t."""
    n = table.shape[0]
    covariance = np.atleast_2d(np.cov(table, rowvar=False)) / n
    normal = rng.multivariate_normal(np.zeros(len(configs)), covariance, size=draws, method="svd")
    spread = normal * np.sqrt((n - 1) / rng.chisquare(n - 1, size=(draws, 1)))
    # Chance in a few thousand draws would give another interval than the t interval that is printed beside it. So the draws say
    # in which order configurations come out together, and each takes its own values from Student's t itself.
    error = table.std(axis=0, ddof=1) / math.sqrt(n)
    ends = np.clip(np.linspace(0.0, 1.0, draws), 0.25 / draws, 1 - 0.25 / draws)
    ranks = spread.argsort(axis=0).argsort(axis=0)
    drawn = table.mean(axis=0) + error * stats.t.ppf(ends, n - 1)[ranks]
    points = np.expm1(table.mean(axis=0))
    return {c: Estimate(float(points[k]), np.expm1(drawn[:, k]), n) for k, c in enumerate(configs)}


def headline_shape(estimates: dict[tuple[str, str, str], CellEstimates]) -> Shape | None:
    """Phase A's; None where nothing of it counts."""
    return next((own.cell.spec.shape for (_, phase, _), own in estimates.items() if phase == "a"), None)


def is_headline_cell(own: CellEstimates, phase: Phase, shape: Shape | None, rate_per_s: float) -> bool:
    """Whether it is a cell of a block: Phases A and B are some where plain was launched twice in them."""
    spec = own.cell.spec
    return (
        (is_repeat(phase) or phase in ("a", "b"))
        and spec.rate_per_s == rate_per_s
        and (spec.shape == shape or (shape is None and is_repeat(phase)))
        and spec.recorded is not False
    )


def _launches(
    estimates: dict[tuple[str, str, str], CellEstimates], rate: float, metric: str
) -> dict[tuple[str, str], Launch]:
    """(block, configuration) -> its launch."""
    name, q = LATENCY_METRICS[metric]
    shape = headline_shape(estimates)
    cells = {
        (phase, config): own
        for (config, phase, _), own in estimates.items()
        if is_headline_cell(own, phase, shape, rate)
    }
    starts = {k: _utc_ns(own) for k, own in cells.items()}
    first = min(starts.values(), default=0)
    return {
        (block, config): _launch(
            block, config, (starts[block, config] - first) / NS_PER_S / 3600, own, name, q
        )
        for (block, config), own in cells.items()
    }


def _launch(block: str, config: str, start_h: float, own: CellEstimates, name: str, q: float) -> Launch:
    estimate = own.latency(name, q)
    host = own.cell.samples.host
    if estimate.point is None or estimate.point <= 0:
        return Launch(block, config, start_h, math.nan, math.nan, host)
    finite = estimate.replicates[np.isfinite(estimate.replicates) & (estimate.replicates > 0)]
    # What looking made wider is not what requests differ by.
    within = float(np.log(finite).std(ddof=1)) / look_factor(own.cell.spec) if finite.size > 1 else math.nan
    return Launch(block, config, start_h, math.log(estimate.point), within, host, estimate.n)


def _utc_ns(own: CellEstimates) -> int:
    clock = own.cell.document["clock"]
    return int(clock["utc_ns"]) - int(clock["monotonic_ns"]) + own.cell.window.t0_ns


def _complete_blocks(launches: dict[tuple[str, str], Launch]) -> list[str]:
    """Blocks with both plains, in order; Phases A and B are some where plain was launched twice in them."""
    blocks = sorted({b for b, _ in launches}, key=phase_place)
    return [b for b in blocks if all(_known(launches, b, c) for c in ("plain", PLAIN_AGAIN))]


def _known(launches: dict[tuple[str, str], Launch], block: str, config: str) -> bool:
    launch = launches.get((block, config))
    return launch is not None and not math.isnan(launch.log_latency)


def _own_blocks(launches: dict[tuple[str, str], Launch], blocks: list[str]) -> dict[str, list[str]]:
    """Configuration -> the blocks in which it has a number; those with enough of them."""
    ids = sorted({c for _, c in launches} - {"plain", PLAIN_AGAIN})
    known = {c: [b for b in blocks if _known(launches, b, c)] for c in ids}
    return {c: own for c, own in known.items() if len(own) >= MIN_BLOCKS}


def _log_ratios(launches: dict[tuple[str, str], Launch], blocks: list[str], config: str) -> Floats:
    """Of each block, against the mean of its two plains; of ``plain_again`` against the other plain."""
    own = np.array([launches[b, config].log_latency for b in blocks])
    plain = np.array([launches[b, "plain"].log_latency for b in blocks])
    if config != PLAIN_AGAIN:
        again = np.array([launches[b, PLAIN_AGAIN].log_latency for b in blocks])
        plain = (plain + again) / 2
    ratios: Floats = own - plain
    return ratios


def mean_over_blocks(log_ratios: Floats, confidence: float) -> Mean:
    """Student's t on the log scale; shape (blocks,)."""
    n = log_ratios.size
    centre, sd = float(log_ratios.mean()), float(log_ratios.std(ddof=1))
    half = float(stats.t.ppf(0.5 + confidence / 2, n - 1)) * sd / math.sqrt(n)
    return Mean(math.expm1(centre), math.expm1(centre - half), math.expm1(centre + half), sd, n)


def summarise(launches: dict[tuple[str, str], Launch], confidence: float) -> dict[str, Any] | None:
    """Taxes, noise floor, launch-to-launch spread and drift of (block, configuration) -> launch; None with too few blocks."""
    blocks = _complete_blocks(launches)
    if len(blocks) < MIN_BLOCKS:
        return None
    own = _own_blocks(launches, blocks)
    again = mean_over_blocks(_log_ratios(launches, blocks, PLAIN_AGAIN), confidence)
    adjusted = _drift_adjusted(launches, blocks, list(own), confidence)
    return {
        "blocks": len(blocks),
        # What "tax" plain has against itself; a tax inside it is none that this design could find.
        "noise_floor": {
            "point": again.point,
            "low": again.low,
            "high": again.high,
            "half_width": (again.high - again.low) / 2,
        },
        "between_launch_sd": _between_launch_sd(launches, blocks, again.sd),
        "within_launch_sd": _within_launch_sd(launches, blocks),
        "requests": float(np.median([x.requests for x in _plains(launches, blocks)])),
        "drift": _drift(launches, blocks, confidence),
        "taxes": [
            {
                "config": c,
                **_json(mean_over_blocks(_log_ratios(launches, known, c), confidence)),
                "adjusted": adjusted.get(c),
                "by_block": {
                    b: math.expm1(r) for b, r in zip(known, _log_ratios(launches, known, c), strict=True)
                },
            }
            for c, known in own.items()
        ],
    }


def _json(mean: Mean) -> dict[str, Any]:
    verdict = "tax" if mean.low > 0 else "gain" if mean.high < 0 else "no_tax_found"
    return {
        "kind": f"over {mean.n} blocks",
        "point": mean.point,
        "low": mean.low,
        "high": mean.high,
        "n": mean.n,
        "sd": mean.sd,
        "verdict": verdict,
    }


def _between_launch_sd(
    launches: dict[tuple[str, str], Launch], blocks: list[str], sd_again: float
) -> float | None:
    """Of one launch's log percentile, beyond what its own requests leave open; from plain against plain."""
    within = _within_launch_sd(launches, blocks)
    # The difference of two launches holds twice the variance of one.
    return None if within is None else math.sqrt(max(0.0, sd_again**2 / 2 - within**2))


def _within_launch_sd(launches: dict[tuple[str, str], Launch], blocks: list[str]) -> float | None:
    """Root mean square over plain's launches; None where one is not known."""
    within = [x.within_sd for x in _plains(launches, blocks)]
    if any(math.isnan(w) for w in within):
        return None
    return math.sqrt(float(np.mean(np.square(within))))


def _drift(
    launches: dict[tuple[str, str], Launch], blocks: list[str], confidence: float
) -> dict[str, Any] | None:
    """How much plain's percentile changed from its first launch to its last, on a straight line; None if they began at once."""
    plain = _plains(launches, blocks)
    line = straight_line([x.start_h for x in plain], [x.log_latency for x in plain], confidence)
    if line is None:
        return None
    return {
        "change": {
            "point": math.expm1(line.change),
            "low": math.expm1(line.low),
            "high": math.expm1(line.high),
        },
        "p_value": line.p_value,
        "hours": line.span_h,
    }


def _plains(launches: dict[tuple[str, str], Launch], blocks: list[str]) -> list[Launch]:
    return [launches[b, c] for b in blocks for c in ("plain", PLAIN_AGAIN)]


def _drift_adjusted(
    launches: dict[tuple[str, str], Launch], blocks: list[str], configs: list[str], confidence: float
) -> dict[str, dict[str, float]]:
    """Taxes by least squares with a level for each block and a straight drift inside blocks.

    ``log latency = block + configuration + slope * (hours since the block's middle)``; both plains are one configuration.
    """
    chosen = [
        x
        for (b, c), x in launches.items()
        if b in blocks and c in (*configs, "plain", PLAIN_AGAIN) and not math.isnan(x.log_latency)
    ]
    middle = {b: float(np.mean([x.start_h for x in chosen if x.block == b])) for b in blocks}
    columns: list[NDArray[np.float64]] = [
        np.array([x.block == b for x in chosen], dtype=np.float64) for b in blocks
    ]
    columns += [np.array([x.config == c for x in chosen], dtype=np.float64) for c in configs]
    columns.append(np.array([x.start_h - middle[x.block] for x in chosen]))
    design, values = np.column_stack(columns), np.array([x.log_latency for x in chosen])
    freedom = len(chosen) - design.shape[1]
    if freedom < 1 or np.linalg.matrix_rank(design) < design.shape[1]:
        return {}
    inverse = np.linalg.inv(design.T @ design)
    found = inverse @ design.T @ values
    variance = float(((values - design @ found) ** 2).sum()) / freedom
    t = float(stats.t.ppf(0.5 + confidence / 2, freedom))
    out = {}
    for k, config in enumerate(configs, start=len(blocks)):
        half = t * math.sqrt(variance * inverse[k, k])
        out[config] = {
            "point": math.expm1(found[k]),
            "low": math.expm1(found[k] - half),
            "high": math.expm1(found[k] + half),
        }
    return out
