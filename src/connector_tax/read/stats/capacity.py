"""How many requests of a shape an engine can complete per second, from what was measured at another shape;
and what a step costs.

A shape of Phase B is measured at a reference rate only if the engine holds it there. What a request takes of
the engine is its prompt, once, and its share of as many steps as its answer has tokens; the share is smaller
the more sequences decode together.

A step's time is taken as linear in a cost per step, per prompt token, per decoding sequence and per token
looked back on, with coefficients that cannot be negative and a scatter in proportion to it.
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
    """
    Attributes:
        scatter: standard deviation of the logarithm of a step's time about the fit.
    """

    scatter: float


def step_features(cell: CellData, max_num_batched_tokens: int) -> Floats:
    """Return the features of a cell's steps, shape (steps of the window with a token and a duration, 6).

    They are one, prompt tokens, decoding sequences, tokens looked back on, prompts begun; and the duration in
    microseconds. Records do not say how far back a step looks, nor how many prompts it begins: a decoding
    sequence of this shape is on average half through its answer, a piece of a prompt half through the prompt,
    and every piece counts as its part.
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
    """Fit coefficients that are not negative, by least squares of the relative error.

    Args:
        features: shape (steps, 5), see ``step_features``.
        duration_us: shape (steps,).
    """
    # Half a second to import, and most readers of step records fit nothing.
    from scipy import optimize

    weights = 1 / np.full(duration_us.size, np.median(duration_us))
    # A scatter in proportion to the step wants weights of one over what is fitted, which is known only after
    # a fit.
    for _ in range(4):
        coefficients = optimize.nnls(features * weights[:, None], duration_us * weights)[0]
        fitted = np.maximum(features @ coefficients, 1e-3)
        weights = 1 / fitted
    scatter = np.log(np.maximum(duration_us, 1e-3) / fitted)
    # Quartiles, not the deviation: a pause of the host is not the engine's scatter.
    sigma = float(np.subtract(*np.quantile(scatter, [0.75, 0.25]))) / 1.349
    base, prefill, decode, context, prompt = map(float, coefficients)
    return StepCosts(base, prefill, decode, context, prompt, sigma)


# With fewer steps five coefficients say little.
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
        # The cost of a prompt and that of its tokens cannot be separated then.
        table[:, 4] = 0.0
    return fit_step_costs(table[:, :5], table[:, 5])


@dataclass(frozen=True, slots=True)
class Capacity:
    """One configuration's capacity by shape.

    Attributes:
        by: ``step records``, ``probe`` or ``nothing``: what it is known from.
        prompt_s: prompt length -> seconds that one prompt takes on the idle engine, as preflight saw it.
        costs: of a step; None without step records.
        decode_s: seconds of the engine per output token at ``shape``, where only that is known.
    """

    by: KnownFrom
    limits: Limits
    shape: Shape
    prompt_s: Mapping[int, float]
    costs: StepCosts | None = None
    decode_s: float | None = None

    def request_s(self, shape: Shape) -> float | None:
        """Return the seconds of the engine that one request takes where as many as can are in flight; None
        where nothing is known."""
        measured_s = self.prompt_s.get(shape.input_tokens)
        if self.costs is not None:
            prompt_s, answer_s = busy_s(self.costs, self.limits, shape)
            # Attention over a long prompt grows faster than its length, which prompts of one length do not
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
    # As preflight measured plain.
    plain = data.decisions.get("plain")
    prompt_s = {int(length): s for length, s in ((plain and plain.prompt_s) or {}).items()}
    costs = costs_of_cells(cells, limits.batched_tokens)
    if costs is not None:
        return Capacity("step records", limits, shape, prompt_s, costs=costs)
    max_per_s = max((effective_throughput_per_s(c.requests, c.window) for c in cells), default=0.0)
    measured_prompt_s = prompt_s.get(shape.input_tokens)
    if max_per_s <= 0 or measured_prompt_s is None:
        return Capacity("nothing", limits, shape, prompt_s)
    # A request's time on an engine that completes that many, less its prompt. If it could complete more,
    # this is too much, and shapes are measured at lower rates than they could be.
    decode_s = max(0.0, 1 / max_per_s - measured_prompt_s) / shape.output_tokens
    return Capacity("probe", limits, shape, prompt_s, decode_s=decode_s)
