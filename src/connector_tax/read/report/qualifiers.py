"""What qualifies the numbers on the page: flags of cells, and whether the engine still computed the same."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from connector_tax.base.documents.aggregate import Aggregate, Cell, MeasuredCell, Outputs
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.read.figures.flags import flags_behind
from connector_tax.read.figures.questions import Tax, in_order
from connector_tax.read.figures.words import listing, rate

PHASE_NAMES = {"a": "A", "b": "B", "b_prime": "B'", "c": "C", "d": "D"}
FLAG_MEANINGS = {
    "cpu_stolen": "the hypervisor gave over 1 % of the host's CPU time to somebody else",
    "gpu_throttled": "power, heat or another limit held the GPU's clocks down in some sample",
    "cores_shared": "client and engine had too few cores to be pinned apart, and slow each other",
    "client_limited": "TTFT or E2E differs by over 1 % (p50) or 5 % (p99) between counting from the schedule, as here, "
    "and from the actual send",
    "host_busy": "something that is neither engine nor client took over 10 % of all cores' time",
    "client_stalled": "a load-generating process was away for over 10 ms at once",
    "min_completed_not_reached": "the cell ran out of time before its minimum of completed requests",
    "half_width_not_reached": "the stopping rule's last look, or the cell's time, came before its interval was tight enough",
    "step_records_incomplete": "the engine counted over 1 % more or fewer iterations than steps were recorded",
    "hook_times_unknown": "step timing recorded no hooks of the connector in the worker, or none anywhere: what they take is not known",
    "prefix_cache_never_hit": "conversations found nothing of what was said before in the prefix cache",
    "overloaded": "the engine did not keep up and its queue grew, so the cell ended when its time was over; its percentiles are not used",
    "overload_unjudged": "requests waited and fewer completed than were sent, but the window has under 6 samples of the queue, one a "
    "second: whether it grew is not known, and if it did, percentiles depend on how long the cell lasted",
    "prefix_cache_unchecked": "no counter of prefix-cache hits could be read",
    "external_cache_unchecked": "no counter of hits in the connector's cache could be read",
    "external_hits_faked": "the connector claims tokens from a cache that it does not have, so prefill is skipped and TTFT is no tax",
    "metrics_unreadable": "the engine lived and did not answer for its counters before or after the cell, though asked three times",
    "samples_missing": "the sampler of the engine's metrics and of the host was killed or could not write for most of the cell: what it "
    "would have seen, a growing queue and throttling among it, is not known",
    "connector_unproved": "a counter by which preflight knew the connector could not be read twice: nothing but the log says that it was on",
    "cache_below_level": "the prefix cache held less than the level asked for: it is smaller, or priming failed (cell.json, cache)",
}


@dataclass(frozen=True, slots=True)
class FlagRow:
    name: str
    count: str
    meaning: str


@dataclass(frozen=True, slots=True)
class OutputsRow:
    label: str
    phase: str
    same: str
    first: str
    verdict: str
    mood: str


def flags_view(aggregate: Aggregate) -> list[FlagRow]:
    """What qualifies cells, most frequent first, and how many of them."""
    return [
        FlagRow(flag, f"{n} of {len(aggregate.cells)}", FLAG_MEANINGS.get(flag, ""))
        for flag, n in _counts(aggregate).most_common()
    ]


def flagged(aggregate: Aggregate, tax: Tax) -> str:
    """``flagged client_limited (plain's)``; of flags that every cell carries the table of flags tells."""
    usual = {f for f, n in _counts(aggregate).items() if n == len(aggregate.cells)}
    whose = {"plain": " (plain's)", "own": " (its own)"}
    named = [
        flag + (whose[next(iter(sides))] if len(sides) == 1 else "")
        for flag, sides in flags_behind(aggregate, tax).items()
        if flag not in usual
    ]
    return f"flagged {listing(named, len(named))}" if named else ""


def _counts(aggregate: Aggregate) -> Counter[str]:
    return Counter(flag for cell in aggregate.cells for flag in cell.flags)


def last_look(cell: Cell) -> list[str]:
    """Where a stopping rule ended the cell, and what was known then; nothing without one."""
    stopping = cell.stopped if isinstance(cell, MeasuredCell) else None
    if stopping is None or not stopping.looks or "overloaded" in cell.flags:
        return []
    last = stopping.looks[-1]
    widths = [
        f"{name.replace('_', ' ')} {'unbounded' if width is None else f'±{100 * width:.1f} %'}"
        for name, width in last.half_widths.items()
    ]
    return [f"ended at the look of {last.n_planned}: {', '.join(widths)}"]


def knee_text(knee: float, above: Sequence[float], gaps: str = "") -> str:
    """Not monotonic: what fired at the lower rate may have been chance.

    Args:
        gaps: of ``as_far_as_measured``.
    """
    return rate(knee) + gaps + (f"; not at {listing([rate(r) for r in above], 9)}" if above else "")


def outputs_view(aggregate: Aggregate) -> list[OutputsRow]:
    """One row per launch that ran the accuracy pass."""
    return [_outputs(aggregate, row) for row in in_order(aggregate, aggregate.outputs)]


def repeatable(aggregate: Aggregate) -> str:
    """Whether the engine gives the same answers twice: what another launch of plain says of it."""
    n = sum(r.config in ("plain", PLAIN_AGAIN) and r.verdict != "reference" for r in aggregate.outputs)
    if not n:
        return "No other launch of plain answered them, so whether the engine repeats itself is not known."
    return f"{n} other launch{'es' if n > 1 else ''} of plain show{'' if n > 1 else 's'} how repeatable the engine itself is."


def _outputs(aggregate: Aggregate, row: Outputs) -> OutputsRow:
    moods = {"same": "good", "reference": "open", "not repeatable": "open"}
    first = row.first_difference
    where = "" if first is None else f"prompt {first.prompt}"
    return OutputsRow(
        label=aggregate.label_of(row.config),
        phase=PHASE_NAMES.get(row.phase, ""),
        same=f"{row.n_same} of {row.n_prompts}",
        first=where if first is None or first.token is None else f"{where}, token {first.token}",
        verdict=row.verdict,
        mood=moods.get(row.verdict, "bad"),
    )
