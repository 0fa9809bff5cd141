"""Why a connector's steps take longer, in sentences: its hooks on and off the CPU, its threads, and what only this host shows."""

from collections.abc import Iterator

from connector_tax.base.documents.aggregate import Aggregate, Attribution
from connector_tax.read.report.hooks import ALL_OF_IT, cpu_us, is_all
from connector_tax.read.report.questions import loaded_cells
from connector_tax.read.stats.attribution import BETWEEN_HOOKS

PLAIN = "plain"
# A difference of lateness below it is the host's mood.
LATE_POINTS = 0.005


def mechanism(aggregate: Aggregate, entry: Attribution) -> list[str]:
    """Of one entry of ``attribution``; empty where nothing can be said."""
    return [*_hooks(entry), *_threads(aggregate, entry.config), *_clock(aggregate, entry.config)]


def _hooks(entry: Attribution) -> Iterator[str]:
    # What vLLM calls between two steps is in no step.
    within = [h for h in entry.hooks if h.hook.rsplit("/", 1)[-1] not in BETWEEN_HOOKS]
    hooks = [(h.hook, h.us_per_step, cpu_us(h)) for h in within]
    known_us = [cpu for _, _, cpu in hooks if cpu is not None]
    if not known_us:
        return
    # A rare hook may miss every step that measures CPU time.
    least = "" if len(known_us) == len(hooks) else "at least "
    name, dearest_us, dearest_cpu_us = max(hooks, key=lambda hook: hook[1])
    whole_us = sum(wall for _, wall, _ in hooks)
    own = "" if dearest_cpu_us is None else f", {_on_cpu(dearest_us, dearest_cpu_us)}on the CPU"
    yield (
        f"Its hooks take {whole_us:,.0f} µs of a step, {_on_cpu(whole_us, sum(known_us), least, ' of that')}on the CPU; the "
        f"dearest of these is {name} with {dearest_us:,.0f} µs{own}.{_between(entry)}"
    )


def _between(entry: Attribution) -> str:
    """What hooks that are called between two steps take beside, so that the table of hooks adds up."""
    between_us = sum(h.us_per_step for h in entry.hooks if h.hook.rsplit("/", 1)[-1] in BETWEEN_HOOKS)
    return (
        f" Hooks called between steps take {between_us:,.0f} µs more per step, which the column of hooks in the table at ref_safe counts in."
        if round(between_us)
        else ""
    )


def _on_cpu(wall: float, cpu: float, least: str = "", of_that: str = "") -> str:
    return f"{ALL_OF_IT} " if is_all(wall, cpu) else f"{least}{cpu:,.0f} µs{of_that} "


def _threads(aggregate: Aggregate, config: str) -> Iterator[str]:
    """Threads that plain does not have, since vLLM has some of its own."""
    plain = _spinning(aggregate, PLAIN)
    for (process, thread), share in _spinning(aggregate, config).items():
        if (process, thread) not in plain:
            yield (
                f"While nobody asks, its thread {thread} of the process {process} takes {100 * share:.0f} % of a core: on a host with few cores "
                f"the engine and the client have that much less."
            )


def _spinning(aggregate: Aggregate, config: str) -> dict[tuple[str, str], float]:
    return {
        (s.process, s.thread): s.share
        for cell in loaded_cells(aggregate, config)
        for s in cell.cpu_use.spinning
    }


def _clock(aggregate: Aggregate, config: str) -> Iterator[str]:
    """Waiting for a step ended late by a share of the device's time that differs from plain's: no GPU would show that."""
    own, plain = (_late(aggregate, c) for c in (config, PLAIN))
    if own is not None and plain is not None and own - plain > LATE_POINTS:
        yield (
            f"The clock ran late by {100 * own:.1f} % of the device's time with it and {100 * plain:.1f} % with plain, because the waiting thread "
            f"found no free core, which is this host's, or waited for Python's interpreter lock, which a GPU's host would do as well: "
            f"a tax of that size may be either."
        )


def _late(aggregate: Aggregate, config: str) -> float | None:
    """Of the cell whose steps these are: Phase A's at ref_safe."""
    clocks = (cell.device_clock for cell in loaded_cells(aggregate, config))
    return next((clock.late_share for clock in clocks if clock is not None), None)
