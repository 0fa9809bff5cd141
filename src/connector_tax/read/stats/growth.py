"""Estimates how a connector's times grow with the prefix cache's content and with running requests, from
Phase D's cells.

One plane is fitted per configuration and quantity, over the medians of its cells:

    median of a cell = level + slope_1 * cached blocks + slope_2 * running requests

Cells of one configuration share a launch, whose level does not affect the slopes. Intervals are Student's t
over cells. The medians' distance from the plane counts as error, so a disturbed cell or a nonlinear time
widens them; resamples of single cells show neither. The error is at least that of the resamples, which keeps
a few cells that happen to fit the plane from claiming too much.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from msgspec import UnsetType

from connector_tax.base.documents.aggregate import (
    Growth,
    GrowthCell,
    GrowthQuantity,
    MedianMetric,
    Quantity,
    Slope,
)
from connector_tax.base.documents.cell import Cache
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.statistics.bootstrap import Estimate, unavailable
from connector_tax.base.statistics.distributions import student_quantile
from connector_tax.base.statistics.resampling import Floats
from connector_tax.read.ingest import CellData
from connector_tax.read.stats.cells import CellEstimates, Estimates
from connector_tax.read.stats.taxes import difference, relative

HOOKS: tuple[GrowthQuantity, ...] = (
    "build_meta_us",
    "get_finished_us",
    "start_load_kv_us",
    "connector_total_us",
)
# Decode-only steps: the median of a mixture moves with the mixture, and that with running requests.
STEP: GrowthQuantity = "decode_step_us"
STEP_TAX: GrowthQuantity = "decode_step_over_plain_us"
LATENCIES: dict[MedianMetric, str] = {"ttft_p50": "ttft_ms", "tpot_p50": "tpot_ms"}


@dataclass(frozen=True, slots=True)
class Point:
    """A cell as in ``aggregate.json``, and its medians, quantity -> estimate."""

    cell: GrowthCell
    us: dict[GrowthQuantity, Estimate]


def growth(
    estimates: Estimates, measured: Iterable[CellData], confidence: float, no_tax: Mapping[str, str]
) -> list[Growth]:
    """Return ``growth`` of ``aggregate.json``: one entry per configuration with cells in Phase D.

    Plain's own steps are the control: the cache only fills during a launch, so it cannot be separated from
    time.

    Args:
        measured: all cells, since requests of unusable ones stayed in the cache, too.
        no_tax: configuration -> why its latencies are no tax.
    """
    phase_d_cells = [c for c in measured if c.phase == "d"]
    by_config: dict[str, list[CellEstimates]] = {}
    for (config, phase, _), cell_estimates in estimates.items():
        if phase == "d":
            by_config.setdefault(config, []).append(cell_estimates)
    plain = {cell_estimates.cell.cell_id: cell_estimates for cell_estimates in by_config.get("plain", [])}
    entries = []
    for config, cells in by_config.items():
        points = [
            _point(
                cell_estimates,
                plain.get(cell_estimates.cell.cell_id),
                phase_d_cells,
                no_tax.get(config),
                confidence,
            )
            for cell_estimates in cells
        ]
        slopes = tuple(_slope(points, name, confidence) for name in points[0].us)
        entries.append(Growth(config=config, cells=tuple(p.cell for p in points), slopes=slopes))
    return entries


def _point(
    cell_estimates: CellEstimates,
    plain: CellEstimates | None,
    phase_d_cells: list[CellData],
    no_tax: str | None,
    confidence: float,
) -> Point:
    """Return one cell; plain's has no taxes."""
    cell, step = cell_estimates.cell, cell_estimates.steps.decode
    us: dict[GrowthQuantity, Estimate] = {STEP: step}
    taxes: dict[MedianMetric, Estimate] = {}
    if cell.config != "plain":
        missing = unavailable("no_cell", subject="plain")
        us = {name: cell_estimates.step(name, 50.0) for name in HOOKS}
        us[STEP_TAX] = step
        if no_tax is None:
            us[STEP_TAX] = difference(step, missing if plain is None else plain.steps.decode)
        for metric, name in LATENCIES.items():
            taxes[metric] = (
                missing
                if plain is None
                else relative(cell_estimates.latency(name, 50.0), plain.latency(name, 50.0))
            )
        if no_tax is not None:
            us = {name: unavailable(no_tax, estimate.n) for name, estimate in us.items()}
            taxes = {metric: unavailable(no_tax, estimate.n) for metric, estimate in taxes.items()}
    # Without samples, the cell's requests in flight.
    running = cell.samples.running_p50
    document = GrowthCell(
        cell_id=cell.cell_id,
        concurrency=cell.spec.concurrency,
        running=float(cell.spec.concurrency or 0) if running is None else running,
        cached_tokens_wanted=cell.spec.cached_tokens,
        cached_blocks=cached_blocks(cell, before_in_launch(cell, phase_d_cells)),
        medians_us={name: e.quantity(confidence) for name, e in us.items()},
        p50_taxes={metric: e.quantity(confidence) for metric, e in taxes.items()},
    )
    return Point(document, us)


def before_in_launch(cell: CellData, others: Iterable[CellData]) -> list[CellData]:
    """Return the cells of the same launch that began earlier."""
    launch = (cell.config, cell.document.attempt)
    return [
        c for c in others if (c.config, c.document.attempt) == launch and c.window.t0_ns < cell.window.t0_ns
    ]


def cached_blocks(cell: CellData, before: Iterable[CellData] = ()) -> float | None:
    """Return the blocks in the prefix cache in the middle of the cell's window; None if unknown.

    They are the tokens computed before the cell plus those of its own requests so far, up to the engine's
    blocks. Only whole blocks are cached, without a request's last token. The incomplete blocks of priming
    prompts are known exactly; nearly everything else comes from requests of this shape, so its number of
    requests and incomplete blocks follow from the shape.

    Args:
        before: earlier cells of its launch.
    """
    cache = cell.document.cache or Cache()
    block_size, kv_blocks, computed_tokens = cache.block_size, cache.kv_blocks, cache.computed_tokens
    if not block_size or computed_tokens is None or isinstance(computed_tokens, UnsetType):
        return None
    shape = cell.spec.shape
    request_tokens = shape.input_tokens + shape.output_tokens
    primed = [_primed(c.document.cache or Cache(), block_size) for c in (*before, cell)]
    generated = (cache.counters or {}).get("generation_tokens", 0.0) - sum(n for n, _ in primed)
    requests = max(0.0, generated) / shape.output_tokens
    blocks = computed_tokens / block_size - requests * (
        request_tokens / block_size - (request_tokens - 1) // block_size
    )
    blocks -= sum(left_out for _, left_out in primed)
    middle_ns = (cell.window.window_start_ns + cell.window.t_stop_ns) / 2
    blocks += sum(_computed_by(r, middle_ns) // block_size for r in cell.requests)
    return float(min(blocks, kv_blocks) if kv_blocks else blocks)


def _primed(cache: Cache, block_size: int) -> tuple[int, float]:
    """Return the number of a cell's priming prompts, and their incomplete blocks, output token included.

    All but the last prompt are as long as the longest. They are never enumerated, since a document may claim
    any number.
    """
    n, longest_tokens = cache.prompts or 0, cache.longest_prompt or 0
    last_tokens = (cache.primed_tokens or 0) - (n - 1) * longest_tokens
    parts = ((n - 1, longest_tokens), (1, last_tokens)) if n else ()
    return n, sum(
        n_prompts * ((tokens + 1) / block_size - tokens // block_size) for n_prompts, tokens in parts
    )


def _computed_by(request: RequestRecord, at_ns: float) -> float:
    """Return a request's tokens computed by ``at_ns``: prompt at the first token, others evenly after."""
    first, last = request.t_first_token_ns, request.t_last_token_ns
    if request.status != "ok" or first is None or last is None or at_ns < first:
        return 0.0
    share = 1.0 if at_ns >= last else (at_ns - first) / (last - first)
    return (request.prompt_tokens or 0) + share * ((request.completion_tokens or 1) - 1)


def _slope(points: list[Point], name: GrowthQuantity, confidence: float) -> Slope:
    """Return both slopes of one quantity, and the number of cells."""
    known = [p for p in points if p.us[name].point is not None]
    located = [p for p in known if p.cell.cached_blocks is not None]
    ends: list[tuple[float, float]] | list[None] = [None, None]
    if located:
        positions = np.array([[(p.cell.cached_blocks or 0.0) / 1000, p.cell.running] for p in located])
        values = np.array([p.us[name].point for p in located], dtype=np.float64)
        fitted = fit_plane(positions, values, float(np.mean([_variance(p.us[name]) for p in located])))
        by_blocks, by_running = (_interval(fitted, k, confidence, len(located)) for k in range(2))
        ends = [
            (float(scale * column.min()), float(scale * column.max()))
            for column, scale in zip(positions.T, (1000, 1), strict=True)
        ]
    else:
        reason = next((p.us[name].reason for p in points if p.us[name].reason), None) or "unavailable"
        by_blocks = by_running = unavailable("cache_unknown" if known else reason).quantity(confidence)
    return Slope(
        quantity=name,
        n_cells=len(located),
        cached_blocks=ends[0],
        running=ends[1],
        per_1000_cached_blocks=by_blocks,
        per_running_request=by_running,
    )


def _variance(estimate: Estimate) -> float:
    finite = estimate.replicates[np.isfinite(estimate.replicates)]
    return float(np.var(finite)) if finite.size > 1 else 0.0


@dataclass(frozen=True, slots=True)
class Plane:
    """A fitted plane.

    Attributes:
        slopes, errors: per column, with standard errors; NaN for a constant column.
        freedom: cells minus coefficients.
    """

    slopes: Floats
    errors: Floats
    freedom: int


def fit_plane(positions: Floats, values: Floats, least_variance: float) -> Plane:
    """Fit ``values`` by least squares on a level and the columns of ``positions`` that change.

    Args:
        at: shape (cells, columns).
        values: shape (cells,).
        least_variance: lower bound of a value's variance, if that of the residuals is smaller.
    """
    changing = np.flatnonzero(np.ptp(positions, axis=0) > 0)
    slopes, errors = np.full(positions.shape[1], np.nan), np.full(positions.shape[1], np.nan)
    design = np.column_stack([np.ones(len(values)), positions[:, changing]])
    freedom = len(values) - design.shape[1]
    if freedom > 0 and np.linalg.matrix_rank(design) == design.shape[1]:
        solution = np.linalg.lstsq(design, values, rcond=None)[0]
        residual = float(np.sum((values - design @ solution) ** 2)) / freedom
        spread = np.linalg.inv(design.T @ design).diagonal()[1:]
        slopes[changing] = solution[1:]
        errors[changing] = np.sqrt(max(residual, least_variance) * spread)
    return Plane(slopes, errors, freedom)


def _interval(plane: Plane, column: int, confidence: float, n: int) -> Quantity:
    slope, error = plane.slopes[column], plane.errors[column]
    if np.isnan(slope):
        return unavailable("few_cells" if plane.freedom <= 0 else "one_value", n).quantity(confidence)
    half_width = float(student_quantile((1 + confidence) / 2, plane.freedom)) * error
    return Quantity(point=float(slope), low=float(slope - half_width), high=float(slope + half_width), n=n)
