"""Fits a measured configuration's step records to an engine model that predicts other loads.

A step's time is linear in its prompt tokens, its decoding sequences and the tokens of their context, with
non-negative coefficients and a scatter proportional to the time. The model's prediction for each measured
cell is kept beside the measurement as a check.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from msgspec import field
from numpy.typing import NDArray

from connector_tax.base.documents.fleet import Check, Policy, Profile
from connector_tax.base.errors import AnalysisError, ArtifactError
from connector_tax.base.records.host import EngineCosts
from connector_tax.base.seeds import derive_seed
from connector_tax.base.statistics.cell import in_window, latencies_ms
from connector_tax.base.statistics.percentiles import percentile
from connector_tax.base.units import NS_PER_MS, NS_PER_S, s_to_ns, token_count
from connector_tax.base.vllm_model.costs import ConnectorCosts
from connector_tax.base.vllm_model.model import EngineModel
from connector_tax.base.vllm_model.shape import BYTES
from connector_tax.fleet.policies import Pattern
from connector_tax.fleet.simulation import KEPT_UP, Day, Due, EngineInstance, arrivals, figures_of, simulate
from connector_tax.read.ingest import CampaignData
from connector_tax.read.ingest.cells import CellData
from connector_tax.read.stats.capacity import fit_step_costs, step_features
from connector_tax.run.workload.arrivals import Schedule

# The settings that a campaign's engine resolved, as far as a model of it needs them.

_CARDS = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")


class Resolved(msgspec.Struct, frozen=True):
    """Resolved settings by vLLM's names; None if unknown.

    Attributes:
        num_gpu_blocks, block_size: of the KV cache.
        moe_config: file with the tile sizes of the MoE kernels, with its folder; ``default`` if vLLM has none
            for the card.
    """

    max_num_seqs: int | None = field(name="scheduler_config.max_num_seqs", default=None)
    max_num_batched_tokens: int | None = field(name="scheduler_config.max_num_batched_tokens", default=None)
    async_scheduling: bool | None = field(name="scheduler_config.async_scheduling", default=None)
    num_gpu_blocks: int | None = field(name="cache_config.num_gpu_blocks", default=None)
    block_size: int | None = field(name="cache_config.block_size", default=None)
    cache_dtype: str | None = field(name="cache_config.cache_dtype", default=None)
    attention_backend: str | None = field(name="log.attention_backend", default=None)
    model_runner: str | None = field(name="log.model_runner", default=None)
    moe_config: str | None = field(name="log.moe_config", default=None)
    tensor_parallel_size: int | None = field(name="parallel_config.tensor_parallel_size", default=None)
    pipeline_parallel_size: int | None = field(name="parallel_config.pipeline_parallel_size", default=None)
    data_parallel_size: int | None = field(name="parallel_config.data_parallel_size", default=None)

    @property
    def batched_tokens(self) -> int:
        """Most tokens in a step; vLLM's default if unknown."""
        return self.max_num_batched_tokens or 2048

    @property
    def kv_tokens(self) -> int | None:
        return self.num_gpu_blocks * self.block_size if self.num_gpu_blocks and self.block_size else None

    @property
    def kv_value_bytes(self) -> int | None:
        if self.cache_dtype is None:
            return None
        return 1 if self.cache_dtype.startswith("fp8") else BYTES

    @property
    def cards(self) -> dict[str, int]:
        """Number of GPUs by kind of parallelism."""
        return {name: getattr(self, name) or 1 for name in _CARDS}


def resolved_of(data: CampaignData, config: str) -> Resolved:
    """Return the settings that ``config`` was launched with, overridden by those that its engine reported.

    Raises:
        ArtifactError: a setting has another type than vLLM's.
    """
    args = data.config.engine.args
    launched = {
        f"scheduler_config.{name}": token_count(args.get(name))
        for name in ("max_num_seqs", "max_num_batched_tokens")
    } | {f"parallel_config.{name}": args.get(name) for name in _CARDS}
    reported = {name: value for name, value in data.settings_of(config).items() if value is not None}
    try:
        # Not strict: campaign.json may hold a number as text, as on a command line.
        return msgspec.convert({**launched, **reported}, Resolved, strict=False)
    except msgspec.ValidationError as error:
        raise ArtifactError(
            f"{data.root}: engine.settings in the cells of {config}, engine_diff.json or engine.args in"
            f" campaign.json: {error}. Remove what says so and start again to have it written."
        ) from error


# The fitted engine of one configuration in a fleet, and the search for its profile.

# With one instance the router has no choice, and the engine keeps its own queue.
ALONE = Policy("least_load_push", "fifo")
# Requests per day behind a profile; its interval is over days.
REQUESTS = 300
# Relative width at which the search for the highest rate stops.
WITHIN = 0.01
IDLE_REQUESTS = 20
SLOS_OF_A_WINDOW = 5.0
MOST_PER_S = 1e5
APART_S = 1e4


@dataclass(frozen=True, slots=True)
class FittedEngine:
    """A configuration's engine model.

    Attributes:
        costs: include the connector's cost.
        per_prompt: only the cost of a prompt in the step that begins it.
        outside_s: from arrival to first token outside of steps: server, tokenizer, network.
    """

    costs: EngineCosts
    per_prompt: ConnectorCosts
    outside_s: float
    max_num_batched_tokens: int

    def instance(self, profiles: Mapping[str, Profile], seed: int) -> EngineInstance:
        return EngineInstance(profiles, self._model(seed), s_to_ns(self.outside_s))

    def fits(self, input_tokens: int, output_tokens: int) -> bool:
        """Return whether one such request fits into the KV memory; one that does not would wait forever."""
        return self._model(0).fits(input_tokens, output_tokens)

    def _model(self, seed: int) -> EngineModel:
        return EngineModel(
            self.costs, self.per_prompt, max_num_batched_tokens=self.max_num_batched_tokens, seed=seed
        )

    def alone(self, due: Due, *, begin_s: float, end_s: float, seed: int) -> Day:
        profiles = {pattern.name: Profile(1.0, 1.0) for _, pattern in due}
        instance = self.instance(profiles, derive_seed(seed, "alone"))
        return simulate(due, [instance], ALONE, begin_s=begin_s, end_s=end_s, seed=seed)

    def idle(self, pattern: Pattern, seed: int) -> dict[str, float]:
        """Return the figures of requests that never overlap."""
        due = [(s_to_ns(k * APART_S), pattern) for k in range(IDLE_REQUESTS)]
        span_s = IDLE_REQUESTS * APART_S
        return figures_of(self.alone(due, begin_s=0.0, end_s=span_s, seed=seed), span_s)


def find_profile(engine: FittedEngine, pattern: Pattern, allowed: float, seed: int) -> Profile | None:
    """Find the highest rate that one instance sustains with at most ``allowed`` of requests missing the SLO.

    Arrivals are Poisson; the rate is found to 1 %. In a short window a backlog can end before the SLO is
    missed, so the instance must also keep up, and windows span several SLOs. The pattern must fit.

    Returns:
        None if more than ``allowed`` miss the SLO even without overlap, or at the lowest rate tried.

    Raises:
        AnalysisError: no rate is too high.
    """

    def figures_at(rate_per_s: float) -> dict[str, float] | None:
        span_s = max(REQUESTS / rate_per_s, SLOS_OF_A_WINDOW * pattern.slo_s)
        begin_s = 0.2 * span_s
        due = arrivals([replace(pattern, rate_per_s=rate_per_s)], begin_s + span_s, seed)
        day = engine.alone(due, begin_s=begin_s, end_s=begin_s + span_s, seed=seed)
        figures = figures_of(day, span_s)
        return figures if figures["kept_up"] >= KEPT_UP and figures["violations"] <= allowed else None

    idle = engine.idle(pattern, seed)
    if idle["violations"] > allowed:
        return None
    # At the lowest of these rates one request in 20,000 overlaps another.
    starts = (0.05 / idle["e2e_mean_s"] / 4**exponent for exponent in range(6))
    low, figures = next(
        ((rate, start_figures) for rate in starts if (start_figures := figures_at(rate)) is not None),
        (0.0, None),
    )
    if figures is None:
        return None
    high = 2 * low
    while (next_figures := figures_at(high)) is not None:
        low, high, figures = high, 2 * high, next_figures
        if high > MOST_PER_S:
            raise AnalysisError(
                f"{pattern.name}: no rate up to {MOST_PER_S:g} per second is too much for this engine."
            )
    while high / low > 1 + WITHIN:
        middle = math.sqrt(low * high)
        if (next_figures := figures_at(middle)) is not None:
            low, figures = middle, next_figures
        else:
            high = middle
    return Profile(low, figures["e2e_mean_s"])


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
