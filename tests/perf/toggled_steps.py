"""Where the time of a step goes that a switch adds: step records of one launch in which something was switched on and off."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from slices import Paired, Slices, paired_values

from connector_tax.base.steptime.columns import read_step_columns
from connector_tax.base.steptime.share import cut

# Fewer steps of one kind in a slice have no median worth its name.
MIN_STEPS = 5
PARTS = ("schedule_us", "round_trip_us", "update_us")


def paired_steps(step_log: Path, slices: Slices, merged: Path) -> Iterator[Paired | str]:
    """Of decode-only steps and of steps with prompt tokens: the step, its parts, and from one step's beginning to the next one's.

    A step is compared with steps of as many decode and prompt tokens, since a switch that makes answers slower also makes more of them run at
    once. What differs between strata is weighted by how many steps they have.

    Yields:
        Also, as a sentence, why one of them is not known.

    Args:
        step_log: AGENTIC_STEP_LOG_PATH of the launch.
        merged: where to put what its processes wrote, in one file.
    """
    raw = sorted(step_log.parent.glob(f"{step_log.stem}.*.jsonl"))
    cut(raw, slices.seen[0][0], slices.seen[-1][1], merged)
    steps = read_step_columns(merged).steps
    t_ns, of_prompts = steps.ints["t_ns"], steps.ints["prefill_tokens"]
    values = {name: steps.floats[name] for name in ("step_duration_us", *PARTS)}
    values["step to step"] = np.append(np.diff(t_ns) / 1e3, np.nan)
    kinds = np.stack([of_prompts, steps.ints["decode_tokens"]], axis=1)
    for words, wanted in (("decode-only", of_prompts == 0), ("with a prompt", of_prompts > 0)):
        for name, column in values.items():
            try:
                yield paired_values(f"{words}, {name}", list(_by_slice(column, t_ns, kinds, wanted, slices)))
            except ValueError as reason:
                yield str(reason)


def _by_slice(
    column: NDArray[np.float64],
    t_ns: NDArray[np.int64],
    kinds: NDArray[np.int64],
    wanted: NDArray[np.bool_],
    slices: Slices,
) -> Iterator[tuple[bool, float | None]]:
    """One number a slice: the weighted mean over strata of their medians, over the strata that every slice has enough of."""
    inside = [wanted & np.isfinite(column) & (t_ns >= a) & (t_ns < b) for a, b, _ in slices.seen]
    strata = [
        of
        for of in np.unique(kinds[wanted], axis=0)
        if all((here & (kinds == of).all(axis=1)).sum() >= MIN_STEPS for here in inside)
    ]
    masks = [(kinds == of).all(axis=1) for of in strata]
    weights = [int((wanted & mask).sum()) for mask in masks]
    for here, (_, _, on) in zip(inside, slices.seen, strict=True):
        medians = [float(np.median(column[here & mask])) for mask in masks]
        yield on, float(np.average(medians, weights=weights)) if masks else None
