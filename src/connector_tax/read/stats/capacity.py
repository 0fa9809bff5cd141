"""Estimates how many requests of a shape an engine completes per second, from another shape and step costs.

A shape of Phase B is measured at a reference rate only if the engine holds it there. A request costs the
engine its prompt, once, and its share of as many steps as its answer has tokens; the share falls with the
number of sequences that decode together.

A step's time is modelled as linear in a cost per step, prompt token, decoding sequence and context token,
with non-negative coefficients and scatter proportional to the time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from connector_tax.base.capacity import Costs, Limits, busy_s
from connector_tax.base.documents.rates import KnownFrom
from connector_tax.base.records.cell import Shape
from connector_tax.base.statistics.cell import effective_throughput_per_s
from connector_tax.base.steptime.columns import read_step_columns
from connector_tax.base.units import token_count
from connector_tax.read.ingest import CampaignData, CellData

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StepCosts(Costs):
    """Fitted costs of a step.

    Attributes:
        scatter: standard deviation of the log step time around the fit.
    """

    scatter: float


def step_features(cell: CellData, max_num_batched_tokens: int) -> Floats:
    """Return the features of a cell's steps, shape (steps of the window with a token and a duration, 6).

    They are one, prompt tokens, decoding sequences, context tokens, prompts begun; and the duration in
    microseconds. Records lack context lengths and prompt starts, so averages stand in: a decoding sequence is
    halfway through its answer, a piece of a prompt halfway through the prompt, and each piece counts as its
    fraction of a prompt.
    """
    assert cell.steps is not None
    columns = read_step_columns(cell.steps.source).steps
    t_ns = columns.ints["t_ns"]
    prefill = columns.ints["prefill_tokens"].astype(np.float64)
    decode = columns.ints["decode_tokens"].astype(np.float64)
    duration = columns.floats["step_duration_us"]
    chosen_steps = (t_ns >= cell.window.window_start_ns) & (t_ns < cell.window.t_stop_ns)
    chosen_steps &= (prefill + decode > 0) & np.isfinite(duration)
    shape = cell.spec
    chunk_tokens = min(shape.input_tokens, max_num_batched_tokens)
    context_tokens = decode * (shape.input_tokens + shape.output_tokens / 2) + prefill / chunk_tokens * (
        (shape.input_tokens - chunk_tokens) / 2
    )
    return np.column_stack(
        [np.ones_like(prefill), prefill, decode, context_tokens, prefill / shape.input_tokens, duration]
    )[chosen_steps]


def fit_step_costs(features: Floats, duration_us: Floats) -> StepCosts:
    """Fit non-negative coefficients by least squares of the relative error.

    Args:
        features: shape (steps, 5), see ``step_features``.
        duration_us: shape (steps,).
    """
    # The import takes half a second, and most readers of step records fit nothing.
    from scipy import optimize

    weights = 1 / np.full(duration_us.size, np.median(duration_us))
    # With scatter proportional to the step, weights are one over the fitted time, which only a fit gives.
    for _ in range(4):
        coefficients = optimize.nnls(features * weights[:, None], duration_us * weights)[0]
        fitted = np.maximum(features @ coefficients, 1e-3)
        weights = 1 / fitted
    scatter = np.log(np.maximum(duration_us, 1e-3) / fitted)
    # Quartiles instead of the standard deviation: a pause of the host is not the engine's scatter.
    sigma = float(np.subtract(*np.quantile(scatter, [0.75, 0.25]))) / 1.349
    base, prefill, decode, context, prompt = map(float, coefficients)
    return StepCosts(base, prefill, decode, context, prompt, sigma)


# Too few steps for five coefficients.
FEWEST_STEPS = 200


def costs_of_cells(cells: Sequence[CellData], max_num_batched_tokens: int) -> StepCosts | None:
    """Fit one configuration's costs; None with fewer than ``FEWEST_STEPS`` step records.

    Args:
        cells: of one configuration; those without step records are left out.
    """
    parts = [step_features(c, max_num_batched_tokens) for c in cells if c.steps is not None]
    table = np.concatenate([np.empty((0, 6)), *parts])
    if len(table) < FEWEST_STEPS:
        return None
    if len({c.spec.input_tokens for c in cells}) == 1:
        # With one prompt length, costs per prompt and per token cannot be separated.
        table[:, 4] = 0.0
    return fit_step_costs(table[:, :5], table[:, 5])


@dataclass(frozen=True, slots=True)
class Capacity:
    """A configuration's capacity by shape.

    Attributes:
        by: its source: ``step records``, ``probe`` or ``nothing``.
        prompt_s: prompt length -> seconds for one prompt on the idle engine, from preflight.
        costs: of a step; None without step records.
        decode_s: engine seconds per output token at ``shape``, if only that is known.
    """

    by: KnownFrom
    limits: Limits
    shape: Shape
    prompt_s: Mapping[int, float]
    costs: StepCosts | None = None
    decode_s: float | None = None

    def request_s(self, shape: Shape) -> float | None:
        """Return engine seconds per request with as many in flight as possible; None if unknown."""
        measured_s = self.prompt_s.get(shape.input_tokens)
        if self.costs is not None:
            prompt_s, answer_s = busy_s(self.costs, self.limits, shape)
            # Attention over a long prompt grows faster than its length, which a single prompt length does not
            # show.
            return max(prompt_s, measured_s or 0.0) + answer_s
        if self.decode_s is None or measured_s is None:
            return None
        length_ratio = max(1.0, _tokens(shape) / _tokens(self.shape))
        return measured_s + shape.output_tokens * self.decode_s * length_ratio

    def per_s(self, shape: Shape) -> float | None:
        request_s = self.request_s(shape)
        return None if not request_s else 1 / request_s


def _tokens(shape: Shape) -> float:
    return shape.input_tokens + shape.output_tokens / 2


def capacity_of(cells: Sequence[CellData], data: CampaignData, shape: Shape) -> Capacity:
    """Return what is known of one configuration.

    Args:
        cells: its usable cells of Phase A, all of ``shape``.
    """
    settings = data.settings_of("plain")
    arguments = data.config.engine.args
    max_batched_tokens, max_sequences = (
        token_count(arguments.get(n)) for n in ("max_num_batched_tokens", "max_num_seqs")
    )
    if max_sequences:
        settings = {**settings, "scheduler_config.max_num_seqs": max_sequences}
    limits = Limits.of(settings, data.config.cell.inflight_cap)
    if max_batched_tokens:
        limits = replace(limits, batched_tokens=max_batched_tokens)
    # From preflight's measurement of plain.
    plain = data.decisions.get("plain")
    prompt_s = {int(length): s for length, s in ((plain and plain.prompt_s) or {}).items()}
    costs = costs_of_cells(cells, limits.batched_tokens)
    if costs is not None:
        return Capacity("step records", limits, shape, prompt_s, costs=costs)
    max_per_s = max((effective_throughput_per_s(c.requests, c.window) for c in cells), default=0.0)
    measured_prompt_s = prompt_s.get(shape.input_tokens)
    if max_per_s <= 0 or measured_prompt_s is None:
        return Capacity("nothing", limits, shape, prompt_s)
    # Time per request at the completed rate, minus its prompt. If the engine could complete more, this is too
    # much, and shapes are measured at lower rates than possible.
    decode_s = max(0.0, 1 / max_per_s - measured_prompt_s) / shape.output_tokens
    return Capacity("probe", limits, shape, prompt_s, decode_s=decode_s)
