"""Writes ``MANIFEST.tsv`` of a campaign and its table in ``results/MANIFEST.md``, from receipts.

The top-level ``MANIFEST.md`` is under version control: it gets the tables of those campaigns that it has a
place for, which are the published ones, so that nobody's own campaign changes a checked-out file.

Everything is read from what the runs left on disk; a run without a receipt is listed as unfinished.
Paths inside commands are shortened: the project's folder to nothing, the home folder to ``~``.
"""

import html
import os
import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from connector_tax.base.artifacts.layout import CampaignFolder, RunFolder
from connector_tax.base.artifacts.receipts import read_receipt
from connector_tax.base.documents.campaign import CampaignDocument
from connector_tax.base.documents.cell import CellDocument, RunConfig
from connector_tax.base.documents.identity import EngineIdentity, Versions
from connector_tax.base.documents.receipt import Receipt
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import D, lines_of, printable, read_document, read_whole, sha256_of, write_text
from connector_tax.base.plan import read_campaign_file
from connector_tax.base.records.bounds import Fact
from connector_tax.base.records.cell import phase_label, phase_place
from connector_tax.base.units import MOST_NS
from connector_tax.read.figures.words import virtual_name

NOT_KNOWN = "-"
# Limit for one cell of a table; launch commands have some 2,000 characters.
MOST_CHARACTERS = 10_000
# The line of launch.sh, which run/engine/launch.py writes.
AS_IT_RAN = "# As it ran: "
TITLE = (
    "# Runs\n\nOne table per campaign, written by `scripts/build_manifest.py`. The same rows for programs:"
    " `results/<campaign>/MANIFEST.tsv`.\n"
)


COLUMNS = (
    "date",
    "phase",
    "config",
    "status",
    "reason",
    "order",
    "started_utc",
    "vllm_version",
    "vllm_git_sha",
    "mooncake_version",
    "nixl_version",
    "lmcache_version",
    "gpu",
    "step_timing_available",
    "result_directory",
    "receipt_sha256",
    "launch_command",
)
# A row of one (configuration, phase), by column.
ManifestRow = dict[str, str]


def build_manifest(root: Path, manifest: Path | None = None) -> list[Path]:
    """Write ``MANIFEST.tsv`` of the campaign at ``root`` and replace its table in the manifest pages.

    Args:
        manifest: the only page to write; default ``MANIFEST.md`` in ``results/``, and the top-level one if
            that has a place for this campaign.

    Returns:
        The written files, ``MANIFEST.tsv`` first.

    Raises:
        ArtifactError: ``campaign.json`` cannot be read.
    """
    # Not resolved: if results/ or a campaign in it is a link, the page is beside the given name.
    folder = CampaignFolder(_absolute(root))
    project = folder.root.parent.parent if manifest is None else _absolute(manifest).parent
    document = read_campaign_file(folder.campaign_file)
    campaign = document.campaign
    rows = manifest_rows(folder, document, project)
    write_text(folder.manifest, tsv(rows))
    pages = [manifest] if manifest is not None else _pages(folder.root.parent, project, campaign)
    for page in pages:
        old_text = page.read_text(encoding="utf-8") if page.is_file() else TITLE
        write_text(page, with_section(old_text, campaign, rows))
    return [folder.manifest, *pages]


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links


def _pages(results: Path, project: Path, campaign: str) -> list[Path]:
    published = project / "MANIFEST.md"
    is_listed = published.is_file() and _begin(campaign) in published.read_text(encoding="utf-8")
    return [results / "MANIFEST.md", *[published] * is_listed]


def manifest_rows(folder: CampaignFolder, document: CampaignDocument, project: Path) -> list[ManifestRow]:
    """Return a row per run folder, by phase, and within a phase in the order of measurement.

    A session begins with plain, whatever the drawn order. Runs without a cell come last, as drawn.
    """
    started = {run: _started(run) for run in folder.runs()}

    def sort_key(run: RunFolder) -> tuple[Any, ...]:
        drawn_order = document.order.get(run.phase, ())
        position = (*drawn_order, run.connector_id).index(run.connector_id)
        return (
            phase_place(run.phase),
            position == len(drawn_order),
            started[run] or "~",
            position,
            run.connector_id,
        )

    rows: list[ManifestRow] = []
    n_ran: Counter[str] = Counter()
    for run in sorted(started, key=sort_key):
        planned = run.connector_id in document.order.get(run.phase, ())
        n_ran[run.phase] += planned
        rows.append(_row(run, str(n_ran[run.phase]) if planned else "", started[run] or "", project))
    return rows


def _row(run: RunFolder, order: str, started_utc: str, project: Path) -> ManifestRow:
    receipt, fault = _receipt(run)
    engine = _engine(run, receipt)
    versions: Versions = {} if engine is None else engine.known_versions
    emulated = bool(versions.get("emulator")) or (engine is not None and engine.kind == "emulator")
    step_timing = receipt.step_timing_available if receipt and receipt.status == "measured" else None
    status, reason = "unfinished", "no receipt yet; start the campaign again to finish it"
    if receipt is not None:
        status, reason = receipt.status, receipt.reason or ""
    elif fault:
        status, reason = "unreadable", fault
    facts: dict[str, Fact] = {
        "date": run.path.parent.name[:10],
        "phase": phase_label(run.phase),
        "config": run.connector_id,
        "status": status,
        "order": order,
        "started_utc": started_utc,
        "vllm_version": "embedded engine" if emulated else versions.get("vllm"),
        "vllm_git_sha": versions.get("vllm_git_sha") or (engine.vllm_wheel if engine else None),
        **{f"{name}_version": versions.get(name) for name in ("mooncake", "nixl", "lmcache")},
        "gpu": _gpu(engine),
        "step_timing_available": None if step_timing is None else str(step_timing).lower(),
        "result_directory": (
            str(run.path.relative_to(project)) if run.path.is_relative_to(project) else run.path.name
        ),
        "receipt_sha256": _checksum(run.receipt) if receipt or fault else None,
        "launch_command": _launch_command(run, project),
    }
    return {c: reason if c == "reason" else str(facts[c] or NOT_KNOWN) for c in COLUMNS}


def _gpu(engine: EngineIdentity | None) -> str:
    """Name the cards, or the profile of a virtual GPU's clock."""
    if engine is None:
        return NOT_KNOWN
    virtual = engine.virtual_gpu
    return f"virtual {virtual_name(virtual)}" if virtual else "; ".join(engine.gpu) or "none"


def _receipt(run: RunFolder) -> tuple[Receipt | None, str]:
    """Read a receipt; for an unreadable file return the reason instead."""
    if not os.path.lexists(run.receipt):
        return None, ""
    try:
        return read_receipt(run), ""
    except ArtifactError as error:
        return None, "its receipt cannot be read: " + str(error).replace(f"{run.path}/", "")


def _checksum(path: Path) -> str:
    try:
        return sha256_of(path)
    except ArtifactError:  # the row's reason names the defect
        return NOT_KNOWN


def _readable(path: Path, kind: type[D]) -> D | None:
    """Read a document; None if missing or damaged, since the report names damaged files."""
    try:
        return read_document(path, kind)
    except ArtifactError:
        return None


def _engine(run: RunFolder, receipt: Receipt | None) -> EngineIdentity | None:
    """Return the engine from the receipt, or without a receipt from config.json."""
    if receipt is not None and receipt.engine is not None:
        return receipt.engine
    config = _readable(run.config, RunConfig)
    return None if config is None else config.engine


def _started(run: RunFolder) -> str | None:
    """Return the UTC time of the first scheduled request in the run's finished cells."""
    cells = [_readable(cell.cell_json, CellDocument) for cell in run.finished_cells()]
    starts = [c.clock.utc_ns + c.window.t0_ns - c.clock.monotonic_ns for c in cells if c is not None]
    starts = [t_ns for t_ns in starts if 0 <= t_ns < MOST_NS]
    return f"{datetime.fromtimestamp(min(starts) // 10**9, UTC):%Y-%m-%dT%H:%M:%SZ}" if starts else None


def _launch_command(run: RunFolder, project: Path) -> str | None:
    if not run.launch_sh.is_file():
        return None
    try:
        lines = lines_of(read_whole(run.launch_sh))
    except ArtifactError as error:
        return f"not known: {str(error).replace(f'{run.path}/', '')}"
    command = next((x.removeprefix(AS_IT_RAN) for x in lines if x.startswith(AS_IT_RAN)), None)
    if command is None:
        return None
    home = os.path.expanduser("~")  # noqa: PTH111 - raises nothing for a user without one
    replacements = {
        '"$CONNECTOR_TAX_PROJECT"': "",
        '"$HOME"': "~/",
        project: "",
        project.resolve(): "",
        home: "~/",
    }
    for path, replacement in replacements.items():
        command = command.replace(f"{path}/", replacement) if str(path) != "/" else command
    return command


def tsv(entries: Sequence[ManifestRow]) -> str:
    """Format rows tab-separated with a header; tabs and line breaks inside values become blanks."""
    rows = [COLUMNS, *([_one_line(row[c]) for c in COLUMNS] for row in entries)]
    return "".join("\t".join(row) + "\n" for row in rows)


def with_section(text: str, campaign: str, found: Sequence[ManifestRow]) -> str:
    """Return ``text`` with this campaign's table replaced or appended; all other text is kept."""
    begin, end = _begin(campaign), f"<!-- end campaign {campaign} -->"
    section = f"{begin}\n{_table(campaign, found)}\n{end}"
    # Matches whole lines only, since a table cell may contain the same text.
    pattern = re.compile(f"^{re.escape(begin)}\n.*?^{re.escape(end)}$", re.DOTALL | re.MULTILINE)
    if pattern.search(text):
        return pattern.sub(lambda _: section, text, count=1)
    return f"{text.rstrip()}\n\n{section}\n"


def _begin(campaign: str) -> str:
    return f"<!-- begin campaign {campaign} -->"


def _table(campaign: str, found: Sequence[ManifestRow]) -> str:
    rows = [[c.replace("_", " ") for c in COLUMNS], *([_cell(c, row[c]) for c in COLUMNS] for row in found)]
    head, *lines = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([f"## {campaign}", "", head, "|" + "---|" * len(COLUMNS), *lines])


def _cell(column: str, value: str) -> str:
    """Escape a cell's text: bars would end the cell, and tags, images and links would be rendered."""
    text = _one_line(value)
    if column in ("launch_command", "receipt_sha256", "result_directory") and text != NOT_KNOWN:
        code = text.replace("`", "'").replace("|", "\\|")
        # With two backslashes before a bar the first escapes the second, and the bar ends the cell.
        return "`" + code.replace("\\\\|", "\\ \\|") + "`"
    return re.sub(r"[\\`*\[\]!|]", r"\\\g<0>", html.escape(text, quote=False))


def _one_line(value: str) -> str:
    """Return printable text of at most ``MOST_CHARACTERS``."""
    return " ".join(printable(value, MOST_CHARACTERS).split())
