"""The drill-downs of a page: which cells have one, how finely they are drawn, and what is said where there is none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from markupsafe import Markup

from connector_tax.base.documents.aggregate import Cell, MeasuredCell
from connector_tax.base.errors import ArtifactError
from connector_tax.base.opening import printable
from connector_tax.base.parallel import each_in
from connector_tax.base.statistics.overload import MAX_WAITING, MIN_THROUGHPUT_RATIO
from connector_tax.read.analysis import processes_for
from connector_tax.read.figures.labels import labels
from connector_tax.read.ingest import read_campaign
from connector_tax.read.report.drill.cells import Drilled, RawCell, drill
from connector_tax.read.report.drill.facts import FailureRow, HookRow
from connector_tax.read.report.drill.panels import PARTS
from connector_tax.read.stats.saturation import MAX_TTFT_GROWTH

Key = tuple[str, str, str]
HERE = Path(__file__).parent
STYLE, SCRIPT, TEMPLATE = HERE / "drill.css", HERE / "drill.js", HERE / "drill.html.j2"
# By which shares of the cells a page is tried that has no room for all.
STEPS = 20
CRITERIA = {
    "throughput": f"fewer completed than {100 * MIN_THROUGHPUT_RATIO:g} % of what was asked for",
    "waiting": f"the median of waiting requests was above {MAX_WAITING:g}",
    "ttft_growth": f"TTFT p90 was over {MAX_TTFT_GROWTH:g} times that at half the rate",
}


class Row(Protocol):
    """As much of a row of the page's table of cells."""

    @property
    def key(self) -> Key: ...

    @property
    def label(self) -> str: ...


R = TypeVar("R", bound=Row)


@dataclass(frozen=True, slots=True)
class DrillDown:
    """One cell's.

    Attributes:
        why: what keeps the cell out of the statistics, or qualifies it: name and meaning.
    """

    key: Key
    anchor: str
    why: tuple[tuple[str, str], ...]
    svg: Markup
    note: str
    hooks: tuple[HookRow, ...]
    hooks_note: str
    failures: tuple[FailureRow, ...]
    throttled: str
    not_recorded: str
    steady: str
    lost: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DrillDowns:
    """
    Attributes:
        of: by cell.
        launches: of each configuration with what its connector was launched; several only where that changed.
        parts: into how many the time of each is divided.
        missing: why there are none of some; empty, too, where nothing is there to make any of.
        kept: of a published campaign, by which rule it was thinned; empty of one that is whole.
    """

    of: Mapping[Key, DrillDown]
    launches: Mapping[str, tuple[str, ...]]
    parts: int
    missing: str
    kept: str = ""


NONE = DrillDowns({}, {}, PARTS[0], "")


@dataclass(frozen=True, slots=True)
class Group(Generic[R]):
    """The rows of one configuration that can be opened, in the page's order."""

    label: str
    launches: tuple[str, ...]
    cells: tuple[tuple[R, DrillDown], ...]


def grouped(rows: Sequence[R], drills: DrillDowns) -> list[Group[R]]:
    """The page's rows that can be opened, by configuration."""
    opened = [(row, drills.of[row.key]) for row in rows if row.key in drills.of]
    return [
        Group(printable(found[0][0].label), drills.launches.get(config, ()), tuple(found))
        for config, pairs in groupby(opened, key=lambda pair: pair[0].key[0])
        if (found := list(pairs))
    ]


@dataclass(frozen=True, slots=True)
class Drilling:
    """The cells of a page whose raw results lie there, drawn in several ways.

    Attributes:
        cells: how many the page has.
        failed: why nothing could be read; empty where it could.
        kept: as ``DrillDowns`` has it.
    """

    drilled: tuple[tuple[Cell, Drilled], ...]
    cells: int
    failed: str = ""
    kept: str = ""

    @property
    def choices(self) -> list[tuple[int, int]]:
        """Parts of the time and number of cells: the finest of all first, then fewer and fewer of the coarsest."""
        n = len(self.drilled)
        parts = tuple(self.drilled[0][1].drawings) if n else PARTS[:1]
        return [*((p, n) for p in parts), *((parts[-1], n * k // STEPS) for k in range(STEPS - 1, -1, -1))]

    def drawn_bytes(self, parts: int, fitting: int) -> int:
        return sum(len(d.drawings[parts].svg.encode()) for _, d in self.drilled[:fitting])

    def at(self, parts: int, fitting: int) -> DrillDowns:
        """So many cells, from the top of the page's table."""
        shown = self.drilled[:fitting]
        return DrillDowns(
            of={key_of(c): _drill_down(c, d, parts, f"cell-{n}") for n, (c, d) in enumerate(shown, 1)},
            launches=_launches(shown),
            parts=parts,
            missing=self.failed or _missing(self.cells, len(self.drilled), fitting),
            kept=self.kept,
        )


def read_drilling(root: Path, order: Sequence[Cell]) -> Drilling:
    """Of the raw results at ``root``; a campaign that cannot be read is said, and no reason to have no page.

    Args:
        order: the page's cells, in its order.
    """
    try:
        with each_in(processes_for(root)) as each:
            data = read_campaign(root, each=each)
            raw = {
                (cell.config, cell.phase, cell.cell_id): RawCell(cell, run.folder.cell(cell.cell_id).metrics)
                for run in data.runs
                for cell in run.cells
            }
            wanted = [cell for cell in order if key_of(cell) in raw]
            found = drill([raw[key_of(cell)] for cell in wanted], each)
    except ArtifactError as error:
        said = printable(str(error).replace(f"{root}/", ""))
        return Drilling((), len(order), f"The raw results cannot be read, so no cell can be opened: {said}")
    thinned = data.document.thinned
    return Drilling(
        tuple(zip(wanted, found, strict=True)), len(order), kept=printable(thinned.rule) if thinned else ""
    )


def key_of(cell: Cell) -> Key:
    return cell.config, cell.phase, cell.cell_id


def _launches(drilled: Sequence[tuple[Cell, Drilled]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for cell, one in drilled:
        if one.launch:
            found.setdefault(cell.config, {})[one.launch] = None
    return {config: tuple(launches) for config, launches in found.items()}


def _missing(cells: int, raw: int, fitting: int) -> str:
    found = []
    if 0 < raw < cells:
        found.append(
            f"The raw results of {cells - raw} of {cells} cells are not here, so these cannot be opened."
        )
    if fitting < raw:
        found.append(f"The page has no room for the drill-downs of the last {raw - fitting} cells.")
    return " ".join(found)


def _drill_down(cell: Cell, drilled: Drilled, parts: int, anchor: str) -> DrillDown:
    drawing = drilled.drawings[parts]
    return DrillDown(
        key=key_of(cell),
        anchor=anchor,
        why=tuple(
            (printable(name), printable(meaning))
            for told in (_reasons(cell), _of_other_files(cell, drilled), _criteria(cell), _flags(cell))
            for name, meaning in told
        ),
        svg=drawing.svg,
        note=drawing.note,
        hooks=drilled.hooks,
        hooks_note=drilled.hooks_note,
        failures=drilled.failures,
        throttled=drilled.throttled,
        not_recorded=drilled.not_recorded,
        steady=drilled.steady,
        lost=drilled.lost,
    )


def _reasons(cell: Cell) -> list[tuple[str, str]]:
    """Why statistics leave it out."""
    return [("left out", reason) for reason in cell.reasons]


def _criteria(cell: Cell) -> list[tuple[str, str]]:
    if not isinstance(cell, MeasuredCell):
        return []
    return [
        (f"saturated: {name.replace('_', ' ')}", CRITERIA[name]) for name in cell.saturation_criteria.fired
    ]


def _flags(cell: Cell) -> list[tuple[str, str]]:
    return [(flag, labels()["flag"].get(flag, "")) for flag in cell.flags]


def _of_other_files(cell: Cell, drilled: Drilled) -> list[tuple[str, str]]:
    """A reader must not take what is drawn for what was analysed where the files have changed since."""
    if not isinstance(cell, MeasuredCell) or (cell.n_window, cell.n_ok) == drilled.counts:
        return []
    n, ok = drilled.counts
    return [
        (
            "other files",
            f"{ok:,} of {n:,} requests of the window are ok in the raw results, {cell.n_ok:,} of {cell.n_window:,} in "
            "aggregate.json: it was not made of these. Analyse again.",
        )
    ]
