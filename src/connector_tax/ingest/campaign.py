"""``results/<campaign>/`` to frozen tables.

A cell that cannot be trusted (a torn line, a request twice, a checksum that differs, another
campaign's file) is kept out and named in ``problems``; everything else is read.
"""

from dataclasses import dataclass, replace
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
from connector_tax.records.cell import PHASES, CellSpec, CellWindow, is_repeat
from connector_tax.records.request import RequestRecord

# Keys of cell.json without which a cell says nothing.
NEEDED = (
    *("campaign", "connector", "phase", "cell_id", "spec", "window", "clock", "files"),
    *("engine", "code", "verdict", "reasons", "flags", "health", "cpu"),
)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something a reader of the report must know."""

    where: str
    what: str


@dataclass(frozen=True, slots=True)
class CellData:
    """One finished cell.

    Attributes:
        left_out: why the files keep it out of the statistics; each also stands in ``problems``. Reasons
            found while measuring stand in ``document["reasons"]``.
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
    left_out: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether it may enter the statistics."""
        return not self.left_out and self.document["verdict"] == "valid"


@dataclass(frozen=True, slots=True)
class RunData:
    """One (configuration, phase): its receipt if it has ended, its readable cells, its accuracy pass if it has one."""

    folder: RunFolder
    receipt: Receipt | None
    cells: tuple[CellData, ...]
    outputs: list[dict[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class CampaignData:
    """Everything the analysis reads."""

    root: Path
    document: dict[str, Any]
    preflight: dict[str, Any] | None
    reference_rates: dict[str, Any] | None
    engine_diff: dict[str, Any] | None
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
        wanted = run_folder.phase in phases or (phases == PHASES and is_repeat(run_folder.phase))
        if wanted and run_folder.path.parent.name.startswith(document["date"]):
            runs.append(_run(run_folder, document["campaign"], steps, problems))
        elif wanted:
            problems.append(
                Problem(
                    _where(run_folder.path, root),
                    f"of another date than this campaign ({document['date']}); left out",
                )
            )
    problems += _mixed(runs)
    runs = _only_comparable(runs, problems)
    return CampaignData(
        root=root,
        document=document,
        preflight=_optional(folder.preflight_status, problems),
        reference_rates=_optional(folder.reference_rates, problems),
        engine_diff=_optional(folder.engine_diff, problems),
        runs=tuple(runs),
        problems=tuple(Problem(_where(Path(p.where), root), p.what) for p in problems),
    )


def _run(folder: RunFolder, campaign: str, steps: bool, problems: list[Problem]) -> RunData:
    receipt = _receipt(folder, campaign, problems)
    wanted = {c["cell_id"]: c for c in receipt.cells} if receipt is not None else None
    cells = []
    for cell_folder in folder.finished_cells():
        if wanted is not None and cell_folder.cell_id not in wanted:
            problems.append(Problem(str(cell_folder.path), "not part of the plan any more; left out"))
            continue
        entry = wanted[cell_folder.cell_id] if wanted is not None else None
        try:
            cell = _cell(folder, cell_folder, campaign, entry, steps)
        except (ArtifactError, LookupError, AttributeError, TypeError, ValueError) as error:
            problems.append(Problem(str(cell_folder.path), f"cannot be read, left out: {_said(error)}"))
            continue
        problems += [Problem(str(cell_folder.path), f"{fault}; cell left out") for fault in cell.left_out]
        # Not a fault of the files: a cell in which nothing completed is a result, and said as one.
        if not any(r.status == "ok" for r in cell.requests):
            problems.append(Problem(str(cell_folder.path), "no request completed"))
        if cell.steps is not None and cell.steps.torn:
            problems.append(Problem(str(cell_folder.engine_step), "its last line is torn and not used"))
        cells.append(cell)
    for cell_id in sorted(set(wanted or ()) - {c.cell_id for c in folder.finished_cells()}):
        problems.append(Problem(str(folder.path), f"cell {cell_id} is in the receipt and not on disk"))
    return RunData(folder, receipt, tuple(cells), _outputs(folder, campaign, problems))


def _outputs(folder: RunFolder, campaign: str, problems: list[Problem]) -> list[dict[str, Any]] | None:
    """None where this run had no accuracy pass, or what lies there is not one of this run."""
    if not folder.outputs.exists():
        return None
    try:
        document = read_json(folder.outputs)
        named = (document["campaign"], document["connector"])
        outputs = document["outputs"]
        if named == (campaign, folder.connector_id) and all(isinstance(o, dict) for o in outputs):
            return list(outputs)
        fault = f"is of {' '.join(map(str, named))}; not used"
    except (ArtifactError, LookupError, TypeError) as error:
        fault = f"cannot be read: {_said(error)}"
    problems.append(Problem(str(folder.outputs), fault))
    return None


def _receipt(folder: RunFolder, campaign: str, problems: list[Problem]) -> Receipt | None:
    """None where the run has not ended, or its receipt is not one of this run."""
    if not folder.receipt.exists():
        return None
    try:
        receipt = read_receipt(folder)
        named = (receipt.campaign, receipt.connector, receipt.phase)
        if named == (campaign, folder.connector_id, folder.phase):
            return receipt
        fault = f"is of {' '.join(map(str, named))}; it and its cells' checksums are not used"
    except (ArtifactError, LookupError, TypeError) as error:
        fault = f"cannot be read: {_said(error)}"
    problems.append(Problem(str(folder.receipt), fault))
    return None


def _cell(
    run: RunFolder, folder: CellFolder, campaign: str, entry: dict[str, Any] | None, steps: bool
) -> CellData:
    document = read_cell(folder)
    lacking = [k for k in NEEDED if k not in document]
    if lacking:
        raise ArtifactError(f"cell.json lacks {', '.join(lacking)}")
    faults: list[str] = []
    named = (document["campaign"], document["connector"], document["phase"], document["cell_id"])
    if named != (campaign, run.connector_id, run.phase, folder.cell_id):
        faults.append(f"belongs to {' '.join(map(str, named))}, not here")
    for name, expected in (entry or document)["files"].items():
        path = folder.path / name
        if not path.exists():
            faults.append(f"{name} is missing")
        elif sha256_of(path) != expected["sha256"]:
            faults.append(f"{name} differs from its checksum (edited or damaged)")
    if folder.requests.name not in document["files"]:
        faults.append(f"{folder.requests.name} is missing")
    requests, wrong = read_requests(folder.requests)
    faults += [f"{folder.requests.name}: {fault}" for fault in wrong]
    window = CellWindow.from_json(document["window"])
    return CellData(
        config=run.connector_id,
        phase=run.phase,
        cell_id=folder.cell_id,
        spec=CellSpec.from_json(document["spec"]),
        window=window,
        document=document,
        requests=requests,
        samples=read_samples(folder.metrics, window),
        steps=read_steps(folder.engine_step, window)
        if steps and folder.engine_step.exists() and not faults
        else None,
        left_out=tuple(faults),
    )


def _mixed(runs: list[RunData]) -> list[Problem]:
    """What a campaign should have one of and has several: engine, host, load generator."""
    problems = []
    cells = [cell for run in runs for cell in run.cells]
    for what, values in (
        ("engine versions", [_engine(c)["versions"] for c in cells]),
        ("hosts or GPUs", [{k: v for k, v in _engine(c).items() if k != "versions"} for c in cells]),
        ("versions of the load generator", [c.document["code"]["loadgen_sha256"] for c in cells]),
    ):
        kinds: dict[str, list[str]] = {}
        for cell, value in zip(cells, values, strict=True):
            kinds.setdefault(str(value), []).append(f"{cell.config}/{cell.phase}/{cell.cell_id}")
        if len(kinds) > 1:
            groups = "; ".join(f"{len(v)} cells from {v[0]} on: {k}" for k, v in kinds.items())
            problems.append(Problem("campaign", f"measured with {len(kinds)} {what}: {groups}"))
    return problems


def _only_comparable(runs: list[RunData], problems: list[Problem]) -> list[RunData]:
    """Keep out what ran on another engine, host or GPU than the cell of plain it is compared with."""
    baseline = {
        (c.phase, c.cell_id): c for run in runs for c in run.cells if c.config == "plain" and c.usable
    }
    found = []
    for run in runs:
        cells = []
        for cell in run.cells:
            plain = baseline.get((cell.phase, cell.cell_id))
            differing = _differing(cell, plain) if plain is not None else []
            if differing:
                fault = f"not comparable: {', '.join(differing)} not as in plain's cell"
                problems.append(
                    Problem(str(run.folder.path / "cells" / cell.cell_id), f"{fault}; cell left out")
                )
                cell = replace(cell, left_out=(*cell.left_out, fault))
            cells.append(cell)
        found.append(replace(run, cells=tuple(cells)))
    return found


def _differing(cell: CellData, plain: CellData) -> list[str]:
    own, other = _engine(cell), _engine(plain)
    return [
        f"{name} {own[part].get(name)} / {other[part].get(name)}"
        for part in ("versions", "host", "gpu")
        for name in sorted({*own[part], *other[part]})
        if own[part].get(name) != other[part].get(name)
    ]


def _engine(cell: CellData) -> dict[str, dict[str, Any]]:
    """What must be equal for two cells to be compared.

    Memory size is left out: the same host reports a few MiB more or less after a reboot.
    """
    engine = cell.document["engine"]
    host = {k: v for k, v in engine["host"].items() if k != "memory_mib"}
    return {"versions": engine["versions"], "host": host, "gpu": {"GPU": engine["gpu"]}}


def _optional(path: Path, problems: list[Problem]) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        value: dict[str, Any] = read_json(path)
        return value
    except ArtifactError as error:
        problems.append(Problem(str(path), _said(error)))
        return None


def _said(error: Exception) -> str:
    """A missing key says only its name."""
    return f"no {error}" if isinstance(error, KeyError) else str(error)


def _where(path: Path, root: Path) -> str:
    """Relative to the campaign, so that the analysis says the same on every machine."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
