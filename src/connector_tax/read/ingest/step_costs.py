"""Step records to what a step is made of: a cost per step, per prompt token, per decoding sequence, per token looked back on.

A step's time is taken as linear in these, with coefficients that cannot be negative and a scatter in proportion to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from connector_tax.base.capacity import Costs
from connector_tax.base.steptime.columns import read_step_columns
from connector_tax.read.ingest.cells import CellData

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StepCosts(Costs):
    """
    Attributes:
        scatter: standard deviation of the logarithm of a step's time about the fit.
    """

    scatter: float


def step_features(cell: CellData, max_num_batched_tokens: int) -> Floats:
    """Of a cell with step records, shape (steps of the window with a token and a duration, 6).

    One, prompt tokens, decoding sequences, tokens looked back on, prompts begun; and the duration in microseconds. Records do
    not say how far back a step looks, nor how many prompts it begins: a decoding sequence of this shape is on average half
    through its answer, a piece of a prompt half through the prompt, and every piece counts as its part.
    """
    assert cell.steps is not None
    columns = read_step_columns(cell.steps.source).steps
    t_ns = columns.ints["t_ns"]
    prefill = columns.ints["prefill_tokens"].astype(np.float64)
    decode = columns.ints["decode_tokens"].astype(np.float64)
    duration = columns.floats["step_duration_us"]
    wanted = (t_ns >= cell.window.window_start_ns) & (t_ns < cell.window.t_stop_ns)
    wanted &= (prefill + decode > 0) & np.isfinite(duration)
    shape = cell.spec
    piece = min(shape.input_tokens, max_num_batched_tokens)
    context = decode * (shape.input_tokens + shape.output_tokens / 2) + prefill / piece * (
        (shape.input_tokens - piece) / 2
    )
    return np.column_stack(
        [np.ones_like(prefill), prefill, decode, context, prefill / shape.input_tokens, duration]
    )[wanted]


def fit_step_costs(features: Floats, duration_us: Floats) -> StepCosts:
    """Coefficients that are not negative, by least squares of the relative error.

    Args:
        features: shape (steps, 5), see ``step_features``.
        duration_us: shape (steps,).
    """
    # Half a second to import, and most readers of step records fit nothing.
    from scipy import optimize

    weights = 1 / np.full(duration_us.size, np.median(duration_us))
    # A scatter in proportion to the step wants weights of one over what is fitted, which is known only after a fit.
    for _ in range(4):
        coefficients = optimize.nnls(features * weights[:, None], duration_us * weights)[0]
        fitted = np.maximum(features @ coefficients, 1e-3)
        weights = 1 / fitted
    scatter = np.log(np.maximum(duration_us, 1e-3) / fitted)
    # Quartiles, not the deviation: a pause of the host is not the engine's scatter.
    sigma = float(np.subtract(*np.quantile(scatter, [0.75, 0.25]))) / 1.349
    base, prefill, decode, context, prompt = map(float, coefficients)
    return StepCosts(base, prefill, decode, context, prompt, sigma)


def costs_of_cells(
    cells: Sequence[CellData], max_num_batched_tokens: int, fewest_steps: int
) -> StepCosts | None:
    """One configuration's costs; None with fewer than ``fewest_steps`` step records.

    Args:
        cells: of one configuration; those without step records are left out.
    """
    parts = [step_features(c, max_num_batched_tokens) for c in cells if c.steps is not None]
    table = np.concatenate([np.empty((0, 6)), *parts])
    if len(table) < fewest_steps:
        return None
    if len({c.spec.input_tokens for c in cells}) == 1:
        # What a prompt costs and what its tokens cost are then one and the same.
        table[:, 4] = 0.0
    return fit_step_costs(table[:, :5], table[:, 5])
