"""``results/<campaign>/`` to frozen tables.

A cell that cannot be trusted (a torn line, a request twice, a checksum that differs, another
campaign's file) is kept out and named in ``problems``; everything else is read.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connector_tax.artifacts.cells import read_cell
from connector_tax.artifacts.layout import CampaignFolder, CellFolder, RunFolder
from connector_tax.artifacts.receipts import Receipt, read_receipt
from connector_tax.errors import ArtifactError
from connector_tax.files import read_json, sha256_of
from connector_tax.ingest.requests import read_requests
from connector_tax.ingest.samples import Samples, read_samples
from connector_tax.ingest.steps import StepTable, read_steps
from connector_tax.records.cell import PHASES, CellSpec, CellWindow
from connector_tax.records.request import RequestRecord


@dataclass(frozen=True, slots=True)
class Problem:
    """Something a reader of the report must know."""

    where: str
    what: str


@dataclass(frozen=True, slots=True)
class CellData:
    """One finished cell.

    Attributes:
        usable: whether it may enter the statistics; if not, ``document["reasons"]`` or ``problems``
            say why.
        steps: None where there are no step records.
    """

    config: str
    phase: str
    cell_id: str
    spec: CellSpec
    window: CellWindow
    document: dict[str, Any]
    requests: list[RequestRecord]
    samples: Samples
    steps: StepTable | None
    usable: bool


@dataclass(frozen=True, slots=True)
class RunData:
    """One (configuration, phase): its receipt if it has ended, and its readable cells."""

    folder: RunFolder
    receipt: Receipt | None
    cells: tuple[CellData, ...]


@dataclass(frozen=True, slots=True)
class CampaignData:
    """Everything the analysis reads."""

    root: Path
    document: dict[str, Any]
    preflight: dict[str, Any] | None
    reference_rates: dict[str, Any] | None
    runs: tuple[RunData, ...]
    problems: tuple[Problem, ...]

    def cells(self) -> list[CellData]:
        return [cell for run in self.runs for cell in run.cells]


def read_campaign(root: Path, *, phases: tuple[str, ...] = PHASES, steps: bool = True) -> CampaignData:
    """Read what is there; a campaign may be partial.

    Args:
        steps: whether to read step records, by far the largest part.

    Raises:
        ArtifactError: there is no campaign at ``root``.
    """
    folder = CampaignFolder(root)
    document = read_json(folder.campaign_file)
    problems: list[Problem] = []
    runs = []
    for run_folder in folder.runs():
        if run_folder.phase in phases and run_folder.path.parent.name.startswith(document["date"]):
            runs.append(_run(run_folder, document["campaign"], steps, problems))
        elif run_folder.phase in phases:
            problems.append(
                Problem(
                    str(run_folder.path), f"of another date than this campaign ({document['date']}); left out"
                )
            )
    problems += _mixed(runs)
    return CampaignData(
        root=root,
        document=document,
        preflight=_optional(folder.preflight_status),
        reference_rates=_optional(folder.reference_rates),
        runs=tuple(runs),
        problems=tuple(problems),
    )


def _run(folder: RunFolder, campaign: str, steps: bool, problems: list[Problem]) -> RunData:
    receipt: Receipt | None = None
    if folder.receipt.exists():
        try:
            receipt = read_receipt(folder)
        except ArtifactError as error:
            problems.append(Problem(str(folder.receipt), str(error)))
    wanted = {c["cell_id"] for c in receipt.cells} if receipt is not None else None
    cells = []
    for cell_folder in folder.finished_cells():
        if wanted is not None and cell_folder.cell_id not in wanted:
            problems.append(Problem(str(cell_folder.path), "not part of the plan any more; left out"))
            continue
        try:
            cells.append(_cell(folder, cell_folder, campaign, receipt, steps, problems))
        except (ArtifactError, KeyError, TypeError, ValueError) as error:
            problems.append(Problem(str(cell_folder.path), f"cannot be read, left out: {error}"))
    for cell_id in sorted((wanted or set()) - {c.cell_id for c in folder.finished_cells()}):
        problems.append(Problem(str(folder.path), f"cell {cell_id} is in the receipt and not on disk"))
    return RunData(folder, receipt, tuple(cells))


def _cell(
    run: RunFolder,
    folder: CellFolder,
    campaign: str,
    receipt: Receipt | None,
    steps: bool,
    problems: list[Problem],
) -> CellData:
    document = read_cell(folder)
    found = len(problems)
    if document["campaign"] != campaign:
        problems.append(Problem(str(folder.path), f"belongs to campaign {document['campaign']!r}; left out"))
    entry = next((c for c in receipt.cells if c["cell_id"] == folder.cell_id), None) if receipt else None
    for name, expected in (entry["files"] if entry else document["files"]).items():
        path = folder.path / name
        if not path.exists():
            problems.append(Problem(str(path), "missing; cell left out"))
        elif sha256_of(path) != expected["sha256"]:
            problems.append(
                Problem(str(path), "differs from its checksum (edited or damaged); cell left out")
            )
    requests, faults = read_requests(folder.requests)
    problems += [Problem(f"{folder.requests}", f"{fault}; cell left out") for fault in faults]
    window = CellWindow.from_json(document["window"])
    # Not a fault of the file: a cell in which nothing completed is a result, and said as one.
    damaged = len(problems) > found
    if not any(r.status == "ok" for r in requests):
        problems.append(Problem(str(folder.path), "no request completed"))
    return CellData(
        config=run.connector_id,
        phase=run.phase,
        cell_id=folder.cell_id,
        spec=CellSpec.from_json(document["spec"]),
        window=window,
        document=document,
        requests=requests,
        samples=read_samples(folder.metrics, window),
        steps=read_steps(folder.engine_step)
        if steps and folder.engine_step.exists() and not damaged
        else None,
        usable=not damaged and document["verdict"] == "valid",
    )


def _mixed(runs: list[RunData]) -> list[Problem]:
    """Cells that were measured by different engines, hosts or load generators."""
    problems = []
    cells = [cell for run in runs for cell in run.cells]
    for what, key in (
        ("engine versions", lambda d: d["engine"]["versions"]),
        ("hosts", lambda d: (d["engine"]["host"], d["engine"]["gpu"])),
        ("versions of the load generator", lambda d: d["code"]["loadgen_sha256"]),
    ):
        kinds: dict[str, list[str]] = {}
        for cell in cells:
            kinds.setdefault(str(key(cell.document)), []).append(f"{cell.config}/{cell.phase}/{cell.cell_id}")
        if len(kinds) > 1:
            groups = "; ".join(f"{len(v)} cells from {v[0]} on: {k}" for k, v in kinds.items())
            problems.append(Problem("campaign", f"measured with {len(kinds)} {what}: {groups}"))
    return problems


def _optional(path: Path) -> dict[str, Any] | None:
    return read_json(path) if path.exists() else None
