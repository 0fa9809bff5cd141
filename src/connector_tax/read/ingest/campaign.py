"""``results/<campaign>/`` to frozen tables.

A cell that cannot be trusted (a torn line, a request twice, a checksum that differs, another
campaign's file) is kept out and named in ``problems``; everything else is read.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace as replace_fields

from connector_tax.base.artifacts.launches import read_launches
from connector_tax.base.artifacts.layout import CampaignFolder, CellFolder, RunFolder
from connector_tax.base.artifacts.receipts import read_receipt
from connector_tax.base.documents.aggregate import Problem, ProblemCode
from connector_tax.base.documents.campaign import CampaignDocument, asked_of
from connector_tax.base.documents.identity import kinds_of, other_versions
from connector_tax.base.documents.outputs import Output, OutputsFile
from connector_tax.base.documents.preflight import Decision, PreflightStatus
from connector_tax.base.documents.put_in import PutInFile
from connector_tax.base.documents.rates import ReferenceRatesFile
from connector_tax.base.documents.reading import document_of, read_document
from connector_tax.base.documents.receipt import Launch, Receipt
from connector_tax.base.documents.settings import Change, EngineDiff, Settings, differences, engine_diff_of
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import read_json
from connector_tax.base.opening import printable
from connector_tax.base.parallel import Each
from connector_tax.base.plan import read_campaign_file
from connector_tax.base.records.cell import PHASES, is_repeat
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.read.ingest.belonging import Belonging
from connector_tax.read.ingest.cells import CellData, OpenedCell, open_cell, read_cell_data
from connector_tax.read.ingest.checks import Checked, check_files
from connector_tax.read.ingest.connector_on import with_proofs

T = TypeVar("T")
# What a file of another form than expected makes its readers raise.
UNREADABLE = (ArtifactError, LookupError, AttributeError, TypeError, ValueError, OverflowError)


@dataclass(frozen=True, slots=True)
class RunData:
    """One (configuration, phase): its receipt if it has ended, its readable cells, its accuracy pass if it has one.

    Attributes:
        launches: how long each took, oldest first; none where they were not timed.
    """

    folder: RunFolder
    receipt: Receipt | None
    cells: tuple[CellData, ...]
    outputs: list[Output] | None = None
    launches: tuple[Launch, ...] = ()


@dataclass(frozen=True, slots=True)
class CampaignData:
    """Everything the analysis reads."""

    root: Path
    document: CampaignDocument
    preflight: PreflightStatus | None
    reference_rates: ReferenceRatesFile | None
    engine_diff: EngineDiff | None
    put_in: PutInFile | None
    runs: tuple[RunData, ...]
    problems: tuple[Problem, ...]

    @property
    def decisions(self) -> dict[str, Decision]:
        """Of preflight, by configuration; none where it left no status."""
        return self.preflight.configs if self.preflight is not None else {}

    @property
    def measured_settings(self) -> dict[str, Settings]:
        """What each configuration's engine resolved in launches that were measured, a later phase's word before an earlier's."""
        found: dict[str, Settings] = {}
        for cell in self.cells():
            # A launch for conversations alone tells less: no request comes before them, and so no step record.
            if (own := cell.document.engine.settings) and not cell.left_out:
                found[cell.config] = {**found.get(cell.config, {}), **own}
        return found

    @property
    def changes(self) -> dict[str, dict[str, Change] | None]:
        """Engine settings that each configuration changed; None where they were not seen.

        Preflight's word stands where no launch of the configuration, or none of plain, was measured and told its own.
        """
        measured = self.measured_settings
        found = {**self.engine_diff.configs} if self.engine_diff is not None else {}
        if (plain := measured.get("plain")) is not None:
            found |= {c: differences(plain, own) for c, own in measured.items() if c != PLAIN_AGAIN}
        return found

    def settings_of(self, config: str) -> Settings:
        """Return what a configuration's engine resolved: measured, else as preflight saw it; empty where neither is known."""
        seen = self.engine_diff
        if seen is None or config in self.measured_settings:
            return self.measured_settings.get(config, {})
        changed = seen.configs.get(config) or {}
        return {**(seen.plain or {}), **{name: both["own"] for name, both in changed.items()}}

    def cells(self) -> list[CellData]:
        return [cell for run in self.runs for cell in run.cells]

    def tables_not_kept(self) -> list[str]:
        """Why step tables could not be written, one reason per cell without."""
        return [
            c.steps.not_kept for c in self.cells() if c.steps is not None and c.steps.not_kept is not None
        ]


@dataclass(frozen=True, slots=True)
class _OpenedRun:
    """A run of which receipt and ``cell.json`` alone were read; a cell that cannot be read is a problem."""

    folder: RunFolder
    receipt: Receipt | None
    cells: tuple[OpenedCell | Problem, ...]
    problems: tuple[Problem, ...]


def read_campaign(
    root: Path,
    *,
    phases: tuple[str, ...] = PHASES,
    steps: bool = True,
    each: Each = map,
) -> CampaignData:
    """Read what is there; a campaign may be partial.

    Args:
        steps: whether to read step records, by far the largest part.
        each: over cells; the large files of several are looked at at once where it is a pool's.

    Raises:
        ArtifactError: there is no campaign at ``root``.
    """
    folder = CampaignFolder(root)
    document = read_campaign_file(folder.campaign_file)
    engine = asked_of(document, str(folder.campaign_file)).engine
    problems: list[Problem] = []
    campaign, unknown = Belonging.to(document)
    if unknown is not None:
        problems.append(Problem("plan_unknown", str(folder.campaign_file), detail=unknown))
    opened = []
    for run_folder in folder.runs():
        wanted = run_folder.phase in phases or (phases == PHASES and is_repeat(run_folder.phase))
        if wanted and run_folder.path.parent.name.startswith(document.date + "_"):
            opened.append(_open_run(folder, run_folder, document.campaign, steps))
        elif wanted:
            problems.append(Problem("other_date", str(run_folder.path), (document.date,)))
    files = [cell.files for run in opened for cell in run.cells if isinstance(cell, OpenedCell)]
    checked = iter(each(check_files, files))
    runs = [_read_run(run, checked, campaign, problems) for run in opened]
    preflight = _optional(folder.preflight_status, _preflight, problems)
    caches = {c["id"] for c in document.config["connectors"] if c.get("verify") == "long_prompt"}
    proved = with_proofs([(run.folder, run.cells) for run in runs], preflight, folder, caches)
    runs = [replace(run, cells=cells) for run, cells in zip(runs, proved, strict=True)]
    problems += _mixed(runs, several=engine.several)
    runs = _only_comparable(runs, problems, may_mix=engine.mixes_cards)
    return CampaignData(
        root=root,
        document=document,
        preflight=preflight,
        reference_rates=_optional(folder.reference_rates, _rates, problems),
        engine_diff=_optional(folder.engine_diff, engine_diff_of, problems),
        put_in=_optional(folder.put_in, _put_in, problems),
        runs=tuple(runs),
        problems=tuple(replace_fields(p, subject=printable(_where(Path(p.subject), root))) for p in problems),
    )


def _open_run(campaign: CampaignFolder, folder: RunFolder, name: str, steps: bool) -> _OpenedRun:
    problems: list[Problem] = []
    receipt = _receipt(folder, name, problems)
    wanted = {c.cell_id: c for c in receipt.cells} if receipt is not None else None
    cells: list[OpenedCell | Problem] = []
    for cell in folder.finished_cells():
        if wanted is not None and cell.cell_id not in wanted:
            cells.append(Problem("cell_left_out", str(cell.path), because=Problem("not_planned")))
            continue
        entry = wanted[cell.cell_id] if wanted is not None else None
        try:
            cells.append(open_cell(campaign, folder, cell, entry, steps))
        except UNREADABLE as error:
            cells.append(_unread(cell.path, error))
    return _OpenedRun(folder, receipt, tuple(cells), tuple(problems))


def _read_run(
    opened: _OpenedRun, checked: Iterator[Checked], campaign: Belonging, problems: list[Problem]
) -> RunData:
    folder, receipt = opened.folder, opened.receipt
    problems += opened.problems
    cells = []
    for opened_cell in opened.cells:
        if isinstance(opened_cell, Problem):
            problems.append(opened_cell)
            continue
        try:
            cell = read_cell_data(opened_cell, next(checked), campaign)
        except UNREADABLE as error:
            problems.append(_unread(opened_cell.folder.path, error))
            continue
        problems += _problems_of(cell, opened_cell.folder)
        cells.append(cell)
    on_disk = {c.cell_id for c in folder.finished_cells()}
    for cell_id in sorted({c.cell_id for c in receipt.cells} - on_disk if receipt is not None else ()):
        problems.append(Problem("cell_gone", str(folder.cells / cell_id)))
    outputs = _outputs(folder, campaign.campaign, problems)
    return RunData(folder, receipt, tuple(cells), outputs, _launches(folder, receipt, problems))


def _launches(folder: RunFolder, receipt: Receipt | None, problems: list[Problem]) -> tuple[Launch, ...]:
    """As the receipt has them, or of a run that has not ended its own file."""
    try:
        return read_launches(folder.launches) if receipt is None else receipt.launches or ()
    except ArtifactError as error:
        problems.append(_unread(folder.launches, error, "launches_untimed"))
        return ()


def _problems_of(cell: CellData, folder: CellFolder) -> list[Problem]:
    problems = [Problem("cell_left_out", str(folder.path), because=fault) for fault in cell.left_out]
    # Not a fault of the files: a cell in which nothing completed is a result, and said as one. Of files with faults it is not known.
    if not cell.left_out and not any(r.status == "ok" for r in cell.requests):
        problems.append(Problem("no_request_completed", str(folder.path)))
    if cell.steps is not None and cell.steps.torn:
        problems.append(Problem("line_torn", str(folder.engine_step)))
    return problems


def _outputs(folder: RunFolder, campaign: str, problems: list[Problem]) -> list[Output] | None:
    """None where this run had no accuracy pass, or what lies there is not one of this run."""
    if not os.path.lexists(folder.outputs):
        return None
    try:
        document = read_document(folder.outputs, OutputsFile)
        named = (document.campaign, document.connector)
        if named == (campaign, folder.connector_id):
            return document.outputs
        problems.append(Problem("of_other_run", str(folder.outputs), named))
    except ArtifactError as error:
        problems.append(_unread(folder.outputs, error))
    return None


def _receipt(folder: RunFolder, campaign: str, problems: list[Problem]) -> Receipt | None:
    """None where the run has not ended, or its receipt is not one of this run."""
    if not os.path.lexists(folder.receipt):
        return None
    try:
        receipt = read_receipt(folder)
        named = (receipt.campaign, receipt.connector, receipt.phase)
        if named == (campaign, folder.connector_id, folder.phase):
            return receipt
        problems.append(Problem("of_other_run", str(folder.receipt), named))
    except ArtifactError as error:
        problems.append(_unread(folder.receipt, error))
    return None


def _mixed(runs: list[RunData], *, several: bool) -> list[Problem]:
    """What a campaign should have one of and has several: engine, host, load generator.

    Args:
        several: it was to have several cards, of one kind.
    """
    problems = []
    cells = [cell for run in runs for cell in run.cells]
    engines = [_engine(c, several) for c in cells]
    several_of: dict[ProblemCode, list[Any]] = {
        "mixed_versions": [own["versions"] for own in engines],
        "mixed_hosts": [{k: v for k, v in own.items() if k != "versions"} for own in engines],
        "mixed_load_generators": [c.document.code.loadgen_sha256 for c in cells],
    }
    for code, values in several_of.items():
        kinds: dict[str, list[str]] = {}
        for cell, value in zip(cells, values, strict=True):
            kinds.setdefault(str(value), []).append(f"{cell.config}/{cell.phase}/{cell.cell_id}")
        if len(kinds) > 1:
            problems += [Problem(code, v[0], numbers={"cells": len(v)}, detail=k) for k, v in kinds.items()]
    return problems


def _only_comparable(runs: list[RunData], problems: list[Problem], *, may_mix: bool) -> list[RunData]:
    """Keep out what ran on another engine, host or GPU than the cell of plain it is compared with.

    Args:
        may_mix: another GPU of the same kind is none: the campaign was to mix them.
    """
    baseline = {
        (c.phase, c.cell_id): c for run in runs for c in run.cells if c.config == "plain" and c.usable
    }
    found = []
    for run in runs:
        cells = []
        for cell in run.cells:
            plain = baseline.get((cell.phase, cell.cell_id))
            differing = _differing(cell, plain, may_mix) if plain is not None else []
            if differing:
                fault = Problem("not_comparable", names=tuple(differing))
                where = str(run.folder.cells / cell.cell_id)
                problems.append(Problem("cell_left_out", where, because=fault))
                cell = replace(cell, left_out=(*cell.left_out, fault))
            cells.append(cell)
        found.append(replace(run, cells=tuple(cells)))
    return found


def _differing(cell: CellData, plain: CellData, may_mix: bool) -> list[str]:
    own, other = _engine(cell, may_mix), _engine(plain, may_mix)
    return other_versions(cell.document.engine, plain.document.engine) + [
        f"{name} {own[part].get(name)} / {other[part].get(name)}"
        for part in ("host", "gpu")
        for name in sorted({*own[part], *other[part]})
        if own[part].get(name) != other[part].get(name)
    ]


def _engine(cell: CellData, any_of_kind: bool) -> dict[str, dict[str, object]]:
    """What must be equal for two cells to be compared, with all versions; of these see ``other_versions``.

    Memory size is left out: the same host reports a few MiB more or less after a reboot.

    Args:
        any_of_kind: one card is as good as another of the same name.
    """
    engine = cell.document.engine
    host: dict[str, object] = {k: v for k, v in engine.host.items() if k != "memory_mib"}
    clock = engine.virtual_gpu.sha256 if engine.virtual_gpu else None
    cards = kinds_of(engine.gpu) if any_of_kind else list(engine.gpu)
    gpu: dict[str, object] = {"GPU": cards, "virtual GPU": clock}
    if engine.has_slot and not engine.gpu and not any_of_kind:
        gpu["engine.gpu"] = engine.slot
    return {"versions": {**engine.versions}, "host": host, "gpu": gpu}


def _optional(path: Path, of: Callable[[Any, str], T], problems: list[Problem]) -> T | None:
    if not os.path.lexists(path):
        return None
    try:
        return of(read_json(path), str(path))
    except ArtifactError as error:
        problems.append(_unread(path, error))
        return None


def _unread(path: Path, error: Exception, code: ProblemCode = "unreadable") -> Problem:
    """The error without the path that is the subject; a missing key says only its name."""
    said = f"no {error}" if isinstance(error, KeyError) else str(error)
    return Problem(code, str(path), detail=said.removeprefix(f"{path}: ").replace(f"{path}/", ""))


def _preflight(value: Any, where: str) -> PreflightStatus:
    return document_of(value, PreflightStatus, where)


def _rates(value: Any, where: str) -> ReferenceRatesFile:
    return document_of(value, ReferenceRatesFile, where)


def _put_in(value: Any, where: str) -> PutInFile:
    return document_of(value, PutInFile, where)


def _where(path: Path, root: Path) -> str:
    """Relative to the campaign, so that the analysis says the same on every machine."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
