"""Attributes a connector's microseconds: per hook, process, step and token, and the unexplained rest.

Only decode-only steps count, since a mean over a mixture moves with the mixture. Means are used since they
add up and medians do not: the difference of mean steps is the sum of the parts below. Each part is of one
launch and states its number of steps: CPU time is measured in some steps only.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import numpy as np
from msgspec.structs import asdict
from numpy.typing import NDArray

from connector_tax.base.documents.aggregate import (
    Attribution,
    AttributionPart,
    Hook,
    Quantity,
)
from connector_tax.base.documents.aggregate import Part as AttributedPart
from connector_tax.base.seeds import stream
from connector_tax.base.statistics.bootstrap import (
    FEWEST_BLOCKS,
    Estimate,
    freedom_of,
    small_sample_factor,
    step_block_length,
)
from connector_tax.base.statistics.decisions import GAIN, TAX, effect_of
from connector_tax.base.statistics.distributions import student_quantile
from connector_tax.base.statistics.resampling import Floats
from connector_tax.read.ingest.steps import DECODE_ONLY, StepTable
from connector_tax.read.stats.taxes import difference, verdict

DRAWS = 2000
# The slowest of a thousand steps are the host's (a page fault, another process), and would dominate a mean.
TRIM = 0.001
# Search range for the ends of a share, and its precision.
DOUBLINGS, HALVINGS = 40, 50


PARTS: tuple[AttributedPart, ...] = get_args(AttributedPart)


def attribute(
    table: StepTable,
    plain_table: StepTable,
    *,
    seed: int,
    name: str,
    cell_id: str,
    confidence: float,
    factor: float = 1.0,
) -> Attribution | None:
    """Return an entry of ``attribution`` in ``aggregate.json``; None with too few decode-only steps.

    Args:
        name, cell_id: of the configuration and of its cell.
        factor: widens intervals for a stopping rule.
    """
    own_rows, plain_rows = _decoding(table), _decoding(plain_table)
    own_means = _means(_columns(table, own_rows), stream(seed, "attribution", name), factor, confidence)
    plain_means = _means(
        _columns(plain_table, plain_rows), stream(seed, "attribution", name, "plain"), factor, confidence
    )
    if own_means is None or plain_means is None:
        return None
    whole, *part_estimates = map(difference, own_means, plain_means)
    tokens = float(table.tokens[own_rows].mean())
    in_hooks = sum(part.point for part in part_estimates[:2] if part.point is not None)
    hooks_replicates = part_estimates[0].replicates + part_estimates[1].replicates
    return Attribution(
        config=name,
        cell_id=cell_id,
        n_steps=own_means[0].n,
        n_plain_steps=plain_means[0].n,
        tokens_per_step=tokens,
        step_us=own_means[0].point or 0.0,
        plain_step_us=plain_means[0].point or 0.0,
        difference_us=whole.quantity(confidence),
        parts=tuple(
            AttributionPart(part=part, **asdict(estimate.quantity(confidence)))
            for part, estimate in zip(PARTS, part_estimates, strict=True)
        ),
        hooks=_hooks(table, own_rows, tokens),
        in_hooks_share=_share(whole, in_hooks, hooks_replicates, confidence),
        hooks_us=_all_hooks(table, own_rows, seed, name, factor, confidence),
        hooks_cpu_us=_cpu_of_hooks(table, own_rows, factor, confidence),
    )


def _share(whole: Estimate, part: float, replicates: Floats, confidence: float) -> Quantity | None:
    """Return a part's share of a longer step.

    None if the step is not significantly longer than plain's: a share of possibly nothing is no number.
    """
    if whole.point is None or verdict(whole, confidence) != TAX:
        return None
    point = part / whole.point

    def rest(share: float) -> tuple[float | None, float | None]:
        """Return the interval of the part minus such a share of the difference."""
        remainder = replace(
            whole, point=part - share * (whole.point or 0.0), replicates=replicates - share * whole.replicates
        )
        return remainder.interval(confidence)

    # Fieller: the interval holds every share whose remainder is not significant. Quantiles of ratios disagree
    # with those of the difference.
    low = _last(point, -1, lambda share: effect_of(*rest(share)) != TAX)
    high = _last(point, 1, lambda share: effect_of(*rest(share)) != GAIN)
    return Quantity(
        point=point, low=low, high=high, n=whole.n, reason="open_share" if None in (low, high) else None
    )


def _last(start: float, direction: int, holds: Callable[[float], bool]) -> float | None:
    """Return the last number from ``start`` on for which ``holds``; None if there is no limit."""
    inside, step = start, max(abs(start), 1e-6)
    for _ in range(DOUBLINGS):
        if not holds(start + direction * step):
            break
        inside, step = start + direction * step, 2 * step
    else:
        return None
    outside = start + direction * step
    for _ in range(HALVINGS):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if holds(middle) else (inside, middle)
    return inside


def _decoding(table: StepTable) -> NDArray[np.bool_]:
    """Select decode-only steps with a worker's row, without the slowest."""
    chosen: NDArray[np.bool_] = (table.kind == DECODE_ONLY) & ~np.isnan(table.connector_total_us)
    if chosen.any():
        chosen &= table.step_duration_us <= np.quantile(table.step_duration_us[chosen], 1 - TRIM)
    return chosen


def _columns(table: StepTable, rows: NDArray[np.bool_]) -> Floats:
    """Return the step, then the parts of ``PARTS``; shape (n, 6), microseconds."""
    worker, schedule, update = (np.zeros(int(rows.sum())) for _ in range(3))
    for name, us in zip(table.hooks.names, table.hooks.us[rows].T, strict=True):
        if name.startswith("worker/"):
            worker += us
        elif _in_a_step(name):
            target = update if name.rsplit("/", 1)[-1] in UPDATE_HOOKS else schedule
            target += us
    return np.column_stack(
        [
            table.step_duration_us[rows],
            schedule + update,
            worker,
            table.schedule_us[rows] - schedule,
            table.update_us[rows] - update,
            table.round_trip_us[rows] - worker,
        ]
    )


# Called from update_from_output(); the scheduler's other hooks run inside schedule().
UPDATE_HOOKS = {
    *("update_connector_output", "request_finished", "request_finished_all_groups", "take_events"),
    *("get_kv_connector_stats", "register_finished_partial_tail"),
}
# Called between two steps, by add_request() and has_requests(), so they are part of no step's duration.
BETWEEN_HOOKS = {"on_new_request", "has_pending_push_work", "reset_cache"}


def _means(
    columns: Floats, rng: np.random.Generator, factor: float, confidence: float
) -> list[Estimate] | None:
    """Resample means by the circular block bootstrap; None with too few blocks.

    Sums of blocks are differences of one running sum.
    """
    n = columns.shape[0]
    length = step_block_length(n)
    if n < FEWEST_BLOCKS * length:
        return None
    blocks = math.ceil(n / length)
    wrapped = np.vstack(
        [np.zeros((1, columns.shape[1])), np.cumsum(np.vstack([columns, columns[:length]]), axis=0)]
    )
    sums = wrapped[length : length + n] - wrapped[:n]
    starts = rng.integers(0, n, size=(DRAWS, blocks))
    replicates = np.stack([sums[row].sum(axis=0) for row in starts]) / (blocks * length)
    point = columns.mean(axis=0)
    widening = factor * small_sample_factor(n, length, confidence)
    spread = point + widening * (replicates - point)
    freedom = freedom_of(n, length)
    return [
        Estimate(float(p), spread[:, k], n, freedom=freedom, confidence=confidence)
        for k, p in enumerate(point)
    ]


def mean_cpu_us(cpu_us: Floats, calls: Floats) -> float | None:
    """Return the mean over steps that measured it; None if none of them called the hook."""
    known = ~np.isnan(cpu_us)
    return float(cpu_us[known].mean()) if calls[known].any() else None


def _hooks(table: StepTable, rows: NDArray[np.bool_], tokens: float) -> tuple[Hook, ...]:
    """Return the hooks that were called, longest first; ``n_cpu_steps`` counts steps with CPU time."""
    hooks = table.hooks
    means = (hooks.us[rows].mean(axis=0).tolist(), hooks.calls[rows].mean(axis=0).tolist())
    found = []
    for k, (name, us, calls) in enumerate(zip(hooks.names, *means, strict=True)):
        if calls > 0:
            cpu_us = hooks.cpu_us[rows][:, k]
            cpu = mean_cpu_us(cpu_us, hooks.calls[rows][:, k])
            hook = Hook(
                hook=name,
                calls_per_step=calls,
                us_per_step=us,
                us_per_call=us / calls,
                us_per_token=us / tokens,
                cpu_us_per_step=cpu,
                n_cpu_steps=0 if cpu is None else int((~np.isnan(cpu_us)).sum()),
            )
            found.append(hook)
    return tuple(sorted(found, key=lambda h: -h.us_per_step))


def _all_hooks(
    table: StepTable, rows: NDArray[np.bool_], seed: int, name: str, factor: float, confidence: float
) -> Quantity | None:
    """Sum the wall times of the hooks inside a step; None if none was called."""
    inside = [k for k, name in enumerate(table.hooks.names) if _in_a_step(name)]
    us = table.hooks.us[rows][:, inside]
    if not us.any():
        return None
    means = _means(us.sum(axis=1)[:, None], stream(seed, "attribution", name, "hooks"), factor, confidence)
    return means[0].quantity(confidence) if means else None


def _in_a_step(name: str) -> bool:
    return name.rsplit("/", 1)[-1] not in BETWEEN_HOOKS


def _cpu_of_hooks(
    table: StepTable, rows: NDArray[np.bool_], factor: float, confidence: float
) -> Quantity | None:
    """Sum the CPU times of hooks inside a step, each capped at its wall time; None if not measured.

    Scheduler and worker sample different steps, 16 apart, so the interval is Student's t with both variances
    added.
    """
    cpu, wall, calls = (column[rows] for column in (table.hooks.cpu_us, table.hooks.us, table.hooks.calls))
    point, variance, sizes = 0.0, 0.0, []
    for worker in (False, True):
        measured_hooks = [
            k
            for k, name in enumerate(table.hooks.names)
            if _in_a_step(name) and name.startswith("worker/") == worker
            if mean_cpu_us(cpu[:, k], calls[:, k]) is not None
        ]
        if not measured_hooks:
            continue
        sampled = np.minimum(cpu[:, measured_hooks], wall[:, measured_hooks])
        sums = sampled[~np.isnan(sampled).any(axis=1)].sum(axis=1)
        point += sum(min(float(np.nanmean(cpu[:, k])), float(wall[:, k].mean())) for k in measured_hooks)
        variance += float(sums.var(ddof=1)) / sums.size if sums.size > 1 else math.inf
        sizes.append(int(sums.size))
    if not sizes:
        return None
    n = min(sizes)
    if not math.isfinite(variance):
        return Quantity(point=point, low=None, high=None, n=n, reason="few_cpu_steps")
    half_width = factor * float(student_quantile((1 + confidence) / 2, n - 1)) * math.sqrt(variance)
    return Quantity(point=point, low=max(0.0, point - half_width), high=point + half_width, n=n)
