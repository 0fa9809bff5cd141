"""One cell's raw files to its drill-down, drawn as finely and as coarsely as a page may want it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from markupsafe import Markup

from connector_tax.base.errors import ArtifactError
from connector_tax.base.opening import printable
from connector_tax.base.parallel import Each
from connector_tax.base.records.cell import CellWindow
from connector_tax.base.statistics.cell import in_window
from connector_tax.base.units import NS_PER_S
from connector_tax.read.ingest import CellData
from connector_tax.read.ingest.steps import StepTable
from connector_tax.read.ingest.timeline import Moment, read_timeline
from connector_tax.read.report.drill.facts import (
    MOST_ERROR_CHARS,
    FailureRow,
    HookRow,
    failures_of,
    hooks_of,
    launch_of,
    not_recorded,
    throttled_in,
    unchanged,
)
from connector_tax.read.report.drill.panels import PARTS, Panel, Raw, Times, panels
from connector_tax.read.report.drill.svg import drawn

# Of all cells of a page together. More do not fit, whatever they hold.
MOST_PARTS = 60_000


@dataclass(frozen=True, slots=True)
class Drawing:
    """All panels of a cell; ``note`` says of how many values how many are drawn."""

    svg: Markup
    note: str


@dataclass(frozen=True, slots=True)
class Drilled:
    """What a drill-down shows of the raw files of one cell.

    Attributes:
        drawings: by into how many parts the time is divided.
        steady: series that keep one value, which is told and not drawn.
        lost: files of which nothing can be shown, and why.
        counts: requests of the window, and those of them that are ok.
    """

    drawings: dict[int, Drawing]
    hooks: tuple[HookRow, ...]
    hooks_note: str
    failures: tuple[FailureRow, ...]
    launch: str
    throttled: str
    not_recorded: str
    steady: str
    lost: tuple[str, ...]
    counts: tuple[int, int]


@dataclass(frozen=True, slots=True)
class RawCell:
    """A cell as it was read, and where its samples lie."""

    cell: CellData
    metrics: Path


def drill(cells: Sequence[RawCell], each: Each) -> list[Drilled]:
    """In the order of ``cells``."""
    return list(each(partial(drilled, finenesses=finenesses(len(cells))), cells))


def finenesses(cells: int) -> tuple[int, ...]:
    """Those that may fit on a page of so many cells: the finer ones need not be drawn."""
    return tuple(parts for parts in PARTS if parts * cells <= MOST_PARTS) or PARTS[-1:]


def drilled(raw: RawCell, finenesses: Sequence[int] = PARTS) -> Drilled:
    """A file that cannot be read costs what would be made of it, and is named."""
    cell = raw.cell
    lost: list[str] = []
    steps, moments = _steps(cell, lost), _moments(raw.metrics, lost)
    times = times_of(cell.window)
    source = Raw(times, cell.requests, steps, moments)
    found = {parts: panels(source, parts) for parts in finenesses}
    # What never changes needs no plot.
    steady = [words for p in found[finenesses[-1]] if (words := unchanged(p))]
    shown = {parts: [p for p in of if not unchanged(p)] for parts, of in found.items()}
    inside = in_window(cell.requests, cell.window)
    hooks, note = hooks_of(steps, left_out=cell.document.steps_left_out)
    return Drilled(
        drawings={
            parts: Drawing(Markup("").join(drawn(p, times) for p in of), _note(of))
            for parts, of in shown.items()
        },
        hooks=hooks,
        hooks_note=note,
        failures=failures_of(cell.requests),
        launch=launch_of(cell),
        throttled=throttled_in(moments),
        not_recorded=not_recorded(found[finenesses[-1]]),
        steady="; ".join(steady),
        lost=tuple(lost),
        counts=(len(inside), sum(r.status == "ok" for r in inside)),
    )


def times_of(window: CellWindow) -> Times:
    # Never empty: what lies outside of it is not drawn.
    ends = (window.window_start_ns, window.t_stop_ns, max(window.drained_ns, window.t0_ns + 1))
    start, stop, end = ((t - window.t0_ns) / NS_PER_S for t in ends)
    return Times(window.t0_ns, start, stop, end)


def _steps(cell: CellData, lost: list[str]) -> StepTable | None:
    try:
        return None if cell.steps is None else cell.steps.load()
    except ArtifactError as error:
        lost.append(printable(str(error), MOST_ERROR_CHARS))
        return None


def _moments(metrics: Path, lost: list[str]) -> list[Moment]:
    try:
        return read_timeline(metrics)
    except ArtifactError as error:
        lost.append(printable(str(error), MOST_ERROR_CHARS))
        return []


def _note(found: Sequence[Panel]) -> str:
    """``30 of 1,286 (TTFT of each request)``; of whatever was thinned, of samples once."""
    thinned = [(p, t) for p in found for t in p.traces if t.of > t.at.size]
    said = [f"{t.at.size:,} of {t.of:,} ({p.title})" for p, t in thinned if t.look == "dots"]
    said += [f"{t.at.size:,} of {t.of:,} ({t.name})" for _, t in thinned if t.look == "marks"]
    if of_samples := [t for _, t in thinned if t.look == "line"]:
        most, n = max(t.at.size for t in of_samples), max(t.of for t in of_samples)
        said.append(f"at most {most:,} of {n:,} samples of a series")
    return ", ".join(said)
