"""What each connector hook takes per step, and how that grows with what the step had to do; from the step records of cells.

One plane per hook over the steps of all cells, by least squares, with a level for each launch:

    us of a step = level of its launch + sum of slope * load

The loads are counted from the scheduler's own rows, with no sampling: requests of one cell have one shape, so what has been computed and how
many have finished say how many tokens the running ones hold. Intervals are percentiles of resamples of blocks of consecutive
steps, drawn within each cell.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from connector_tax.base.documents.cell import Cache
from connector_tax.base.seeds import stream
from connector_tax.base.statistics.bootstrap import (
    FEWEST_BLOCKS,
    Estimate,
    block_length,
    small_sample_factor,
    unavailable,
)
from connector_tax.base.statistics.resampling import Floats
from connector_tax.read.ingest import CellData
from connector_tax.read.ingest.steps import StepLoads, StepTable, read_loads
from connector_tax.read.stats.attribution import mean_cpu_us

DRAWS = 1000
# Of the check, which is asked for no other.
CONFIDENCE = 0.95
# Columns of ``CellSteps.at``, and what one unit of each is.
LOADS = (
    "per_running_request",
    "per_cached_block",
    "per_1000_prefix_blocks",
    "per_new_block",
    "per_new_request",
)
# Called once per attention layer where they are called at all.
LAYER_HOOKS = ("wait_for_layer_load", "save_kv_layer")
PER_LAYER = "per_layer"
# As in attribution: the slowest steps of a thousand are the host's.
TRIM = 0.001
USUAL_BLOCK = 16
FEWEST_STEPS = 100


@dataclass(frozen=True, slots=True)
class CellSteps:
    """Steps of one cell's window with a token and a worker's row, without the very slowest.

    Attributes:
        launch: cells of one launch share a level.
        us, calls, cpu_us: by hook, each of shape (n,); CPU time is NaN but in the few steps that measured it.
        at: loads of each step in the order of ``LOADS``, shape (n, 5).
    """

    launch: str
    us: dict[str, Floats]
    calls: dict[str, Floats]
    cpu_us: dict[str, Floats]
    at: Floats

    @property
    def n(self) -> int:
        return int(self.at.shape[0])


@dataclass(frozen=True, slots=True)
class HookCost:
    """One hook in one cell.

    Attributes:
        us_per_call, cpu_us_per_step: None where it was never called, or where no step measured CPU time.
    """

    hook: str
    us_per_step: Estimate
    p99_us: float
    calls_per_step: float
    us_per_call: float | None
    cpu_us_per_step: float | None


@dataclass(frozen=True, slots=True)
class HookSlopes:
    """How one hook grows.

    Attributes:
        n: steps.
        range: from the least to the most of each load over the steps.
        slopes: for each of ``LOADS`` and ``PER_LAYER``, microseconds for one more.
    """

    hook: str
    n: int
    range: dict[str, float]
    slopes: dict[str, Estimate]


def cell_steps(cell: CellData, computed_tokens: float, room_blocks: float = np.inf) -> CellSteps | None:
    """
    Args:
        computed_tokens: by the launch before this cell; see ``launch_steps``.
        room_blocks: of its cache.
    """
    if cell.steps is None or cell.steps.n == 0:
        return None
    table, loads = cell.steps.load(), read_loads(cell.steps.source, cell.window)
    block = (cell.document.cache or Cache()).block_size or USUAL_BLOCK
    at = _loads(cell, loads, block, computed_tokens, room_blocks)[loads.counted]
    keep = ~np.isnan(table.connector_total_us)
    if keep.any():
        keep &= table.step_duration_us <= np.quantile(table.step_duration_us[keep], 1 - TRIM)
    hooks = _with_sums(table)
    return CellSteps(
        f"{cell.config} {cell.phase} {cell.document.attempt or ''}",
        {name: us[keep] for name, (us, _, _) in hooks.items()},
        {name: calls[keep] for name, (_, calls, _) in hooks.items()},
        {name: cpu[keep] for name, (_, _, cpu) in hooks.items()},
        at[keep],
    )


def launch_steps(cells: Sequence[CellData]) -> list[CellSteps]:
    """Cells of one launch in the order in which they were measured; what each computes lies in the cache of the next.

    Where two phases share a launch, each has a level of its own: of cells that were measured again elsewhere nobody knows what lay in
    the cache before them, and a level takes that in.
    """
    found, computed, room = [], 0.0, np.inf
    for cell in sorted(cells, key=lambda c: c.window.t0_ns):
        cache = cell.document.cache or Cache()
        known, room = cache.computed_tokens, cache.kv_blocks or room
        computed = float(known) if isinstance(known, int | float) else computed
        steps = cell_steps(cell, computed, room)
        if steps is not None and steps.n:
            found.append(steps)
        if cell.steps is not None:
            loads = read_loads(cell.steps.source, cell.window)
            computed += float(loads.prefill_tokens.sum() + loads.decode_tokens.sum())
    return found


def _with_sums(table: StepTable) -> dict[str, tuple[Floats, Floats, Floats]]:
    """Hook -> (microseconds, calls, microseconds of CPU time); each side's sum first."""
    names, us, calls, cpu = table.hooks.names, table.hooks.us, table.hooks.calls, table.hooks.cpu_us
    found = {}
    for side in ("scheduler", "worker"):
        own = [n.startswith(f"{side}/") for n in names]
        if any(own):
            found[f"{side} side"] = us[:, own].sum(axis=1), calls[:, own].sum(axis=1), cpu[:, own].sum(axis=1)
    return found | {n: (us[:, k], calls[:, k], cpu[:, k]) for k, n in enumerate(names) if calls[:, k].any()}


def _loads(
    cell: CellData, loads: StepLoads, block: int, computed_tokens: float, room_blocks: float
) -> Floats:
    """In the order of ``LOADS``, of every step of the cell; shape (m, 5).

    A request that has ended held its prompt and all of its answer but the last token, whose KV nobody computes. Of the blocks of a running
    one the last is half full on average.
    """
    shape = cell.spec.shape
    tokens = np.cumsum(loads.prefill_tokens + loads.decode_tokens).astype(np.float64)
    prefilled = np.cumsum(loads.prefill_tokens)
    begun = np.ceil(prefilled / shape.input_tokens)
    ended = np.maximum(begun - loads.running, 0.0)
    held = np.maximum(tokens - ended * (shape.input_tokens + shape.output_tokens - 1), 0.0)
    return np.column_stack(
        [
            loads.running.astype(np.float64),
            held / block + loads.running * (block - 1) / (2 * block),
            np.minimum((computed_tokens + tokens) / block, room_blocks) / 1000,
            (loads.prefill_tokens + loads.decode_tokens) / block,
            np.diff(begun, prepend=0.0),
        ]
    )


def hook_costs(steps: CellSteps, seed: int) -> list[HookCost]:
    """Mean per step and per call of each hook in one cell, dearest first."""
    names = list(steps.us)
    if not names or steps.n < 2 * FEWEST_BLOCKS:
        return []
    resampled = _resampled_sums(
        [steps], names, stream(seed, "hook_costs", steps.launch), design=_level([steps])
    )
    found = []
    for k, name in enumerate(names):
        mean, calls = float(steps.us[name].mean()), float(steps.calls[name].mean())
        replicates = resampled.moments[:, 0, k] / resampled.gram[:, 0, 0]
        found.append(
            HookCost(
                hook=name,
                us_per_step=Estimate(mean, mean + resampled.wider * (replicates - mean), steps.n),
                p99_us=float(np.percentile(steps.us[name], 99)),
                calls_per_step=calls,
                us_per_call=mean / calls if calls else None,
                cpu_us_per_step=mean_cpu_us(steps.cpu_us[name], steps.calls[name]),
            )
        )
    return sorted(found, key=lambda h: -(h.us_per_step.point or 0.0))


def slopes(cells: Sequence[CellSteps], seed: int) -> list[HookSlopes]:
    """One entry per hook that every cell has."""
    names = [n for n in dict.fromkeys(n for c in cells for n in c.us) if all(n in c.us for c in cells)]
    n = sum(c.n for c in cells)
    if not names or n < FEWEST_STEPS:
        return []
    spread = np.ptp(np.concatenate([c.at for c in cells]), axis=0)
    moving = [k for k in range(len(LOADS)) if spread[k] > 0]
    level = _level(cells)
    design = [
        np.column_stack([first, c.at[:, moving] / spread[moving]])
        for first, c in zip(level, cells, strict=True)
    ]
    whole = np.concatenate(design)
    together = np.linalg.matrix_rank(whole) < whole.shape[1]
    resampled = _resampled_sums(cells, names, stream(seed, "step_slopes"), design)
    # A resample may lack what moved a load; it then says nothing of that one.
    inverse = np.linalg.pinv(resampled.gram, hermitian=True)
    found = []
    for k, name in enumerate(names):
        ranges = {load: float(spread[column]) for column, load in enumerate(LOADS)}
        own: dict[str, Estimate] = {}
        for column, load in enumerate(LOADS):
            if column not in moving or together:
                words = "these loads moved together" if column in moving else "every step had the same"
                own[load] = unavailable(words, n)
        if not together:
            values = np.concatenate([c.us[name] for c in cells])
            point = np.linalg.lstsq(whole, values, rcond=None)[0][-len(moving) :]
            drawn = (inverse @ resampled.moments[:, :, k : k + 1])[:, -len(moving) :, 0]
            for place, column in enumerate(moving):
                unit = float(spread[column])
                centre = float(point[place])
                replicates = centre + resampled.wider * (drawn[:, place] - centre)
                own[LOADS[column]] = Estimate(centre / unit, replicates / unit, n)
        own[PER_LAYER] = _per_layer(name, cells, seed)
        found.append(HookSlopes(name, n, ranges, own))
    return found


def _per_layer(name: str, cells: Sequence[CellSteps], seed: int) -> Estimate:
    """Microseconds of one call, where a hook is called once a layer; others have no layers to grow with that one model could show."""
    if name.rsplit("/", 1)[-1] not in LAYER_HOOKS:
        return unavailable("it is not called by layer, and one model has one number of layers")
    calls = np.concatenate([c.calls[name] for c in cells])
    us = np.concatenate([c.us[name] for c in cells])
    chosen = calls > 0
    if chosen.sum() < FEWEST_STEPS:
        return unavailable("it was called in too few steps", int(chosen.sum()))
    per_call = us[chosen] / calls[chosen]
    length = block_length([per_call])
    blocks = np.array([b.mean() for b in np.array_split(per_call, max(1, per_call.size // length))])
    drawn = stream(seed, "per_layer", name).integers(0, blocks.size, (DRAWS, blocks.size))
    mean = float(per_call.mean())
    wider = small_sample_factor(per_call.size, length, CONFIDENCE)
    return Estimate(mean, mean + wider * (blocks[drawn].mean(axis=1) - mean), int(per_call.size))


@dataclass(frozen=True, slots=True)
class _Sums:
    """Normal equations of each resample: X'X of shape (draws, p, p), X'Y of shape (draws, p, hooks).

    Attributes:
        wider: by how much resamples of so few blocks spread too little.
    """

    gram: Floats
    moments: Floats
    wider: float


def _level(cells: Sequence[CellSteps]) -> list[Floats]:
    """A column of ones for each launch, of each cell's steps; shape (n, launches)."""
    launches = list(dict.fromkeys(c.launch for c in cells))
    return [np.repeat([[float(name == c.launch) for name in launches]], c.n, axis=0) for c in cells]


def _resampled_sums(
    cells: Sequence[CellSteps], names: list[str], rng: np.random.Generator, design: list[Floats]
) -> _Sums:
    width = design[0].shape[1]
    gram, moments = np.zeros((DRAWS, width, width)), np.zeros((DRAWS, width, len(names)))
    total, longest = 0, 1
    for cell, x in zip(cells, design, strict=True):
        y = np.column_stack([cell.us[name] for name in names])
        length = block_length([y[:, k] for k in range(min(2, y.shape[1]))])
        pieces = max(1, cell.n // length)
        parts = np.array_split(np.arange(cell.n), pieces)
        grams = np.stack([x[p].T @ x[p] for p in parts])
        products = np.stack([x[p].T @ y[p] for p in parts])
        times = rng.multinomial(pieces, np.full(pieces, 1 / pieces), size=DRAWS).astype(np.float64)
        gram += np.tensordot(times, grams, axes=1)
        moments += np.tensordot(times, products, axes=1)
        total, longest = total + cell.n, max(longest, length)
    return _Sums(gram, moments, small_sample_factor(total, longest, CONFIDENCE))
