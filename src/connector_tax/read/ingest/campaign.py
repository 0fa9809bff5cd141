"""Reads ``results/<campaign>/`` into frozen tables.

An untrustworthy cell (a torn line, a duplicate request, a wrong checksum, another campaign's file) is left
out and named in ``problems``; everything else is read.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace as replace_fields

from connector_tax.base.artifacts.layout import CampaignFolder, CellFolder, RunFolder
from connector_tax.base.artifacts.receipts import read_launches
from connector_tax.base.config import CampaignConfig
from connector_tax.base.documents.aggregate import Problem, ProblemCode
from connector_tax.base.documents.campaign import CampaignDocument
from connector_tax.base.documents.cell import Output, OutputsFile
from connector_tax.base.documents.identity import (
    Change,
    EngineDiff,
    Settings,
    differences,
    engine_diff_of,
    kinds_of,
    other_versions,
)
from connector_tax.base.documents.rates import PutInFile, ReferenceRatesFile
from connector_tax.base.documents.receipt import (
    Decision,
    Launch,
    PreflightStatus,
    Receipt,
    ReceiptCell,
    receipt_of,
)
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import printable, read_document, read_json
from connector_tax.base.parallel import Each
from connector_tax.base.plan import config_of, read_campaign_file
from connector_tax.base.records.cell import PHASES, is_repeat
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.read.ingest.cells import CellData, read_cell_data, unread
from connector_tax.read.ingest.connector_on import with_proofs

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunData:
    """A (configuration, phase): its receipt if ended, readable cells, and accuracy pass if it has one.

    Attributes:
        launches: duration of each, oldest first; empty if they were not timed.
    """

    folder: RunFolder
    receipt: Receipt | None
    cells: tuple[CellData, ...]
    outputs: list[Output] | None = None
    launches: tuple[Launch, ...] = ()

    @property
    def status(self) -> str:
        """Return how the run ended; empty if it has not."""
        return "" if self.receipt is None else self.receipt.status

    @property
    def reason(self) -> str:
        return "" if self.receipt is None else self.receipt.reason or ""


@dataclass(frozen=True, slots=True)
class CampaignData:
    """Everything the analysis reads.

    Attributes:
        runs: by phase and configuration, in the order of their folders.
    """

    root: Path
    document: CampaignDocument
    config: CampaignConfig
    preflight: PreflightStatus | None
    reference_rates: ReferenceRatesFile | None
    engine_diff: EngineDiff | None
    put_in: PutInFile | None
    runs: tuple[RunData, ...]
    problems: tuple[Problem, ...]

    @property
    def skipped(self) -> set[str]:
        """Return the configurations that preflight skipped."""
        return {config for config, decision in self.decisions.items() if decision.decision == "skip"}

    @property
    def decisions(self) -> dict[str, Decision]:
        """Return preflight's decisions by configuration; empty without a status."""
        return self.preflight.configs if self.preflight is not None else {}

    @property
    def measured_settings(self) -> dict[str, Settings]:
        """Return configuration -> settings resolved in measured launches; the latest phase wins."""
        settings_by_config: dict[str, Settings] = {}
        for cell in self.cells():
            # A launch for conversations alone has fewer settings: no request precedes them, so there is no
            # step record.
            if (settings := cell.document.engine.settings) and not cell.faults:
                settings_by_config[cell.config] = {**settings_by_config.get(cell.config, {}), **settings}
        return settings_by_config

    @property
    def changes(self) -> dict[str, dict[str, Change] | None]:
        """Return configuration -> engine settings that it changed; None if they were not seen.

        Preflight's settings are used if the configuration or plain has no measured launch with settings.
        """
        measured = self.measured_settings
        changed_settings = {**self.engine_diff.configs} if self.engine_diff is not None else {}
        if (plain := measured.get("plain")) is not None:
            changed_settings |= {
                c: differences(plain, settings) for c, settings in measured.items() if c != PLAIN_AGAIN
            }
        return changed_settings

    def settings_of(self, config: str) -> Settings:
        """Return the settings that an engine resolved: measured, else preflight's; empty if unknown."""
        preflight_diff = self.engine_diff
        if preflight_diff is None or config in self.measured_settings:
            return self.measured_settings.get(config, {})
        changed = preflight_diff.configs.get(config) or {}
        return {**(preflight_diff.plain or {}), **{name: change["own"] for name, change in changed.items()}}

    def cells(self) -> list[CellData]:
        return [cell for run in self.runs for cell in run.cells]


def read_campaign(
    root: Path,
    *,
    phases: tuple[str, ...] = PHASES,
    steps: bool = True,
    each: Each = map,
) -> CampaignData:
    """Read what is there; a campaign may be partial.

    Args:
        steps: read step records, by far the largest part.
        each: maps over cells; a pool's reads several at once.

    Raises:
        ArtifactError: there is no campaign at ``root``.
    """
    folder = CampaignFolder(root)
    document = read_campaign_file(folder.campaign_file)
    config = config_of(document)
    problems: list[Problem] = []
    runs_and_cells = []
    for run_folder in folder.runs():
        is_wanted = run_folder.phase in phases or (phases == PHASES and is_repeat(run_folder.phase))
        if is_wanted and run_folder.path.parent.name.startswith(document.date + "_"):
            run_identity = (document.campaign, run_folder.connector_id, run_folder.phase)
            receipt = _optional(run_folder.receipt, receipt_of, problems, run_identity)
            runs_and_cells.append((run_folder, receipt, _cells_of(run_folder, receipt, problems)))
        elif is_wanted:
            problems.append(Problem("other_date", str(run_folder.path), (document.date,)))
    cell_places = [(run_folder, *place) for run_folder, _, run_cells in runs_and_cells for place in run_cells]
    cells = iter(each(partial(read_cell_data, config=config, steps=steps), cell_places))
    runs = [
        _run(run_folder, receipt, list(islice(cells, len(run_cells))), document.campaign, problems)
        for run_folder, receipt, run_cells in runs_and_cells
    ]
    preflight = _optional(folder.preflight_status, PreflightStatus, problems)
    caches = {c["id"] for c in document.config["connectors"] if c.get("verify") == "long_prompt"}
    proved_cells = with_proofs([(run.folder, run.cells) for run in runs], preflight, folder, caches)
    runs = [replace(run, cells=cells) for run, cells in zip(runs, proved_cells, strict=True)]
    several = len(config.engine.slots) > 1
    problems += _mixed(runs, several=several)
    runs = _only_comparable(
        runs, problems, may_mix=config.engine.mixes_cards and (several or bool(config.engine.mix_cards))
    )
    return CampaignData(
        root=root,
        document=document,
        config=config,
        preflight=preflight,
        reference_rates=_optional(folder.reference_rates, ReferenceRatesFile, problems),
        engine_diff=_optional(folder.engine_diff, engine_diff_of, problems),
        put_in=_optional(folder.put_in, PutInFile, problems),
        runs=tuple(runs),
        problems=tuple(replace_fields(p, subject=printable(_relative(p.subject, root))) for p in problems),
    )


def _cells_of(
    folder: RunFolder, receipt: Receipt | None, problems: list[Problem]
) -> list[tuple[CellFolder, ReceiptCell | None]]:
    """Return a run's finished cells with receipt entries; the entry is None if the run has not ended."""
    finished = {cell.cell_id: cell for cell in folder.finished_cells()}
    if receipt is None:
        return [(cell, None) for cell in finished.values()]
    listed_cells = {entry.cell_id: entry for entry in receipt.cells}
    unplanned = Problem("not_planned")
    problems += [
        Problem("cell_left_out", str(c.path), because=unplanned)
        for cell_id, c in finished.items()
        if cell_id not in listed_cells
    ]
    problems += [
        Problem("cell_gone", str(folder.cells / cell_id))
        for cell_id in sorted(listed_cells.keys() - finished.keys())
    ]
    return [(cell, listed_cells[cell_id]) for cell_id, cell in finished.items() if cell_id in listed_cells]


def _run(
    folder: RunFolder,
    receipt: Receipt | None,
    results: Sequence[CellData | Problem],
    campaign: str,
    problems: list[Problem],
) -> RunData:
    for result in results:
        problems += (
            [result] if isinstance(result, Problem) else _problems_of(result, folder.cell(result.cell_id))
        )
    cells = tuple(result for result in results if isinstance(result, CellData))
    outputs = _optional(folder.outputs, OutputsFile, problems, (campaign, folder.connector_id))
    answers = None if outputs is None else outputs.outputs
    return RunData(folder, receipt, cells, answers, _launches(folder, receipt, problems))


def _launches(folder: RunFolder, receipt: Receipt | None, problems: list[Problem]) -> tuple[Launch, ...]:
    """Return the receipt's launches, or those of the launch file of an unfinished run."""
    try:
        return read_launches(folder.launches) if receipt is None else receipt.launches or ()
    except ArtifactError as error:
        problems.append(unread(folder.launches, error, "launches_untimed"))
        return ()


def _problems_of(cell: CellData, folder: CellFolder) -> list[Problem]:
    problems = [Problem("cell_left_out", str(folder.path), because=fault) for fault in cell.faults]
    # A cell in which nothing completed is a result, not a faulty file. With faulty files this is unknown.
    if not cell.faults and not any(r.status == "ok" for r in cell.requests):
        problems.append(Problem("no_request_completed", str(folder.path)))
    if cell.steps is not None and cell.steps.torn:
        problems.append(Problem("line_torn", str(folder.engine_step)))
    return problems


def _mixed(runs: list[RunData], *, several: bool) -> list[Problem]:
    """Report engines, hosts and load generators that differ within a campaign.

    Args:
        several: the campaign uses several cards of one kind.
    """
    problems = []
    cells = [cell for run in runs for cell in run.cells]
    engines = [_engine(c, several) for c in cells]
    several_of: dict[ProblemCode, list[Any]] = {
        "mixed_versions": [engine["versions"] for engine in engines],
        "mixed_hosts": [{k: v for k, v in engine.items() if k != "versions"} for engine in engines],
        "mixed_load_generators": [c.document.code.loadgen_sha256 for c in cells],
    }
    for code, values in several_of.items():
        cells_by_value: dict[str, list[str]] = {}
        for cell, value in zip(cells, values, strict=True):
            cells_by_value.setdefault(str(value), []).append(f"{cell.config}/{cell.phase}/{cell.cell_id}")
        if len(cells_by_value) > 1:
            problems += [
                Problem(code, v[0], numbers={"cells": len(v)}, detail=k) for k, v in cells_by_value.items()
            ]
    return problems


def _only_comparable(runs: list[RunData], problems: list[Problem], *, may_mix: bool) -> list[RunData]:
    """Leave out cells that ran on another engine, host or GPU than plain's cell for comparison.

    Args:
        may_mix: another GPU of the same kind is allowed, as the campaign planned.
    """
    baseline = {
        (c.phase, c.cell_id): c for run in runs for c in run.cells if c.config == "plain" and c.usable
    }

    def judged(run: RunData, cell: CellData) -> CellData:
        plain = baseline.get((cell.phase, cell.cell_id))
        if plain is None or not (differing := _differing(cell, plain, may_mix)):
            return cell
        fault = Problem("not_comparable", names=tuple(differing))
        problems.append(Problem("cell_left_out", str(run.folder.cells / cell.cell_id), because=fault))
        return replace(cell, faults=(*cell.faults, fault))

    return [replace(run, cells=tuple(judged(run, cell) for cell in run.cells)) for run in runs]


def _differing(cell: CellData, plain: CellData, may_mix: bool) -> list[str]:
    engine, plain_engine = _engine(cell, may_mix), _engine(plain, may_mix)
    return other_versions(cell.document.engine, plain.document.engine) + [
        f"{name} {engine[part].get(name)} / {plain_engine[part].get(name)}"
        for part in ("host", "gpu")
        for name in sorted({*engine[part], *plain_engine[part]})
        if engine[part].get(name) != plain_engine[part].get(name)
    ]


def _engine(cell: CellData, any_of_kind: bool) -> dict[str, dict[str, object]]:
    """Return what two comparable cells share, and all versions (for these see ``other_versions``).

    Memory size is left out: the same host reports a few MiB more or less after a reboot.

    Args:
        any_of_kind: cards of the same name are equal.
    """
    engine = cell.document.engine
    host: dict[str, object] = {k: v for k, v in engine.host.items() if k != "memory_mib"}
    clock = engine.virtual_gpu.sha256 if engine.virtual_gpu else None
    cards = kinds_of(engine.gpu) if any_of_kind else list(engine.gpu)
    gpu: dict[str, object] = {"GPU": cards, "virtual GPU": clock}
    if engine.has_slot and not engine.gpu and not any_of_kind:
        gpu["engine.gpu"] = engine.slot
    return {"versions": {**engine.versions}, "host": host, "gpu": gpu}


def _optional(
    path: Path,
    kind: type[T] | Callable[[Any, str], T],
    problems: list[Problem],
    identity: tuple[str, ...] = (),
) -> T | None:
    """Read a document; None if it is missing, unreadable or of another run.

    Args:
        kind: its type, or a function of the parsed JSON and the file's name.
        identity: campaign, configuration and phase that the document has to name, as far as it names them.
    """
    if not os.path.lexists(path):
        return None
    try:
        document = read_document(path, kind) if isinstance(kind, type) else kind(read_json(path), str(path))
    except ArtifactError as error:
        problems.append(unread(path, error))
        return None
    document_identity = tuple(
        getattr(document, name) for name in ("campaign", "connector", "phase")[: len(identity)]
    )
    if document_identity == identity:
        return document
    problems.append(Problem("of_other_run", str(path), document_identity))
    return None


def _relative(subject: str, root: Path) -> str:
    """Return a path relative to the campaign, so that the analysis is the same on every machine."""
    path = Path(subject)
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
