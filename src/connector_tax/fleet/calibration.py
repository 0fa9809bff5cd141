"""Fits a measured configuration's step records to an engine model that predicts other loads.

A step's time is linear in its prompt tokens, its decoding sequences and the tokens of their context, with
non-negative coefficients and a scatter proportional to the time. The model's prediction for each measured
cell is kept beside the measurement as a check.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from connector_tax.base.documents.fleet import Check
from connector_tax.base.errors import AnalysisError
from connector_tax.base.records.host import EngineCosts
from connector_tax.base.statistics.cell import in_window, latencies_ms
from connector_tax.base.statistics.percentiles import percentile
from connector_tax.base.units import NS_PER_MS, NS_PER_S
from connector_tax.base.vllm_model.costs import ConnectorCosts
from connector_tax.fleet.engines import FittedEngine
from connector_tax.fleet.patterns import Pattern
from connector_tax.fleet.resolved import Resolved
from connector_tax.fleet.simulation import Day
from connector_tax.read.ingest.cells import CellData
from connector_tax.read.stats.capacity import fit_step_costs, step_features
from connector_tax.run.workload.arrivals import Schedule

Floats = NDArray[np.float64]
# Used if the engine did not report its settings: vLLM's defaults, and memory that never runs out.
MAX_NUM_SEQS, KV_BLOCKS, BLOCK_SIZE = 256, 1 << 40, 16
# Fewer steps do not determine five coefficients.
FEWEST_STEPS = 50
# With fewer steps of two or more decoding sequences, the cost per sequence is a guess: from 22 and 42 such
# steps of 17,000, vLLM on a CPU had 130 and 820 us for the same cost.
FEWEST_TOGETHER = 200
# Phase C's prompts are partly in the prefix cache and do not show the cost of uncached prompts. Phase D's
# arrive when an earlier one ends, and their steps grow with the cached tokens.
WITHOUT = ("c", "d")


@dataclass(frozen=True, slots=True)
class Calibration:
    """The fitted engine of one configuration, and how well it reproduces the measurements.

    Attributes:
        steps: number of fitted step records.
        input_lengths: prompt lengths of the fitted cells, ascending.
        most_together: most sequences that decoded in one step.
        checks: TTFT p90 and TPOT p90 of each cell that has both.
    """

    engine: FittedEngine
    steps: int
    input_lengths: tuple[int, ...]
    most_together: int
    checks: tuple[Check, ...]

    @property
    def typical_error(self) -> float:
        """Median of |modelled / measured - 1| over ``checks``."""
        return float(np.median([abs(c.error) for c in self.checks]))


def steps_of(cells: Sequence[CellData], resolved: Resolved) -> tuple[list[CellData], list[Floats]]:
    """Return the cells whose steps can be fitted, and the step features of each.

    Raises:
        AnalysisError: too few steps, or too few with sequences that decode together.
    """
    usable = [c for c in cells if c.usable and c.phase not in WITHOUT and c.steps is not None]
    tables = [step_features(c, resolved.batched_tokens) for c in usable]
    steps, together = sum(map(len, tables)), sum(int((table[:, 2] >= 2).sum()) for table in tables)
    if steps < FEWEST_STEPS or together < FEWEST_TOGETHER:
        raise AnalysisError(
            f"it has {steps} step records in valid cells, {together} of them of two sequences or more;"
            f" {FEWEST_STEPS} and {FEWEST_TOGETHER} are needed to fit a step. Measure with"
            " engine.step_timing: true, at higher rates or with longer answers."
        )
    return usable, tables


def calibrate(cells: Sequence[CellData], resolved: Resolved, seed: int) -> Calibration:
    """Fit one configuration.

    Args:
        cells: its cells; invalid ones and those without step records are skipped.

    Raises:
        AnalysisError: too few step records, or nothing to check the model against.
    """
    usable, tables = steps_of(cells, resolved)
    table = np.concatenate(tables)
    lengths = sorted({c.spec.input_tokens for c in usable})
    if len(lengths) == 1:
        # With one prompt length, the cost per prompt and the cost of its tokens cannot be separated.
        table[:, 4] = 0.0
    costs, per_prompt = fit_costs(table[:, :5], table[:, 5])
    costs = msgspec.structs.replace(
        costs,
        max_num_seqs=resolved.max_num_seqs or MAX_NUM_SEQS,
        kv_blocks=resolved.num_gpu_blocks or KV_BLOCKS,
        block_size=resolved.block_size or BLOCK_SIZE,
    )
    inside = FittedEngine(costs, per_prompt, 0.0, resolved.batched_tokens)
    lacking_ms = [missing_ms for c in usable if (missing_ms := _missing_ttft_ms(inside, c, seed)) is not None]
    if not lacking_ms:
        raise AnalysisError("in every valid cell half of the requests did not finish.")
    engine = replace(inside, outside_s=max(0.0, float(np.median(lacking_ms))) / 1e3)
    checks = tuple(c for cell in usable for c in _checks(engine, cell, seed))
    if not checks:
        raise AnalysisError("no valid cell has a TTFT p90 or a TPOT p90 to hold its model against.")
    return Calibration(engine, len(table), tuple(lengths), int(table[:, 2].max()), checks)


def fit_costs(features: Floats, duration_us: Floats) -> tuple[EngineCosts, ConnectorCosts]:
    """Fit non-negative coefficients by least squares of the relative error.

    Args:
        features: shape (steps, 5): one, prompt tokens, decoding sequences, context tokens, prompts begun.
        duration_us: shape (steps,).

    Returns:
        The engine's costs, which include the connector's; only the cost per prompt is in the second value.
    """
    step_costs = fit_step_costs(features, duration_us)
    costs = EngineCosts(
        base_us=step_costs.base_us,
        per_prefill_token_us=step_costs.per_prefill_token_us,
        per_decode_seq_us=step_costs.per_decode_seq_us,
        per_context_token_us=step_costs.per_context_token_us,
        schedule_us=0.0,
        update_us=0.0,
        jitter_cv=float(np.sqrt(np.expm1(step_costs.scatter**2))),
        launch_cv=0.0,
        max_num_seqs=MAX_NUM_SEQS,
        kv_blocks=KV_BLOCKS,
        block_size=BLOCK_SIZE,
    )
    return costs, ConnectorCosts(per_request_us=step_costs.per_prompt_us)


def _modelled(engine: FittedEngine, cell: CellData, seed: int) -> Day:
    """Simulate the cell's own schedule on the model."""
    spec = cell.spec
    pattern = Pattern(cell.cell_id, spec.input_tokens, spec.output_tokens, spec.rate_per_s, float("inf"))
    schedule = Schedule(spec.arrival, spec.rate_per_s, spec.seed, shape=spec.gamma_shape)
    begin_ns, end_ns = (t - cell.window.t0_ns for t in (cell.window.window_start_ns, cell.window.t_stop_ns))
    arrivals, index = [], 0
    while (at_ns := schedule[index]) < end_ns:
        arrivals.append((at_ns, pattern))
        index += 1
    return engine.alone(arrivals, begin_s=begin_ns / NS_PER_S, end_s=end_ns / NS_PER_S, seed=seed)


def _ttft_ms(day: Day) -> list[float]:
    return [((r.t_start_ns or 0) - r.t_sched_ns) / NS_PER_MS for r in day.requests]


def _missing_ttft_ms(engine: FittedEngine, cell: CellData, seed: int) -> float | None:
    """Return the median TTFT less the modelled one; None if half of the requests did not finish."""
    measured_ms = percentile(latencies_ms(in_window(cell.requests, cell.window))["ttft_ms"], 50)
    modelled_ms = percentile(_ttft_ms(_modelled(engine, cell, seed)), 50)
    return None if measured_ms is None or modelled_ms is None else measured_ms - modelled_ms


def _checks(engine: FittedEngine, cell: CellData, seed: int) -> list[Check]:
    day = _modelled(engine, cell, seed)
    modelled = {
        "ttft_p90": _ttft_ms(day),
        "tpot_p90": [
            ((r.t_end_ns or 0) - (r.t_start_ns or 0)) / NS_PER_MS / (cell.spec.output_tokens - 1)
            for r in day.requests
        ],
    }
    measured = latencies_ms(in_window(cell.requests, cell.window))
    checks = []
    for metric, name in (("ttft_p90", "ttft_ms"), ("tpot_p90", "tpot_ms")):
        measured_p90, modelled_p90 = percentile(measured[name], 90), percentile(modelled[metric], 90)
        if measured_p90 and modelled_p90:
            checks.append(Check(cell.phase, cell.cell_id, metric, measured_p90, modelled_p90))
    return checks
