"""``make status``: where a campaign stands, from what lies on disk."""

from pathlib import Path

import psutil

from connector_tax.base.artifacts.layout import CampaignFolder, RunFolder
from connector_tax.base.artifacts.receipts import read_receipt
from connector_tax.base.artifacts.supervisor import recorded_supervisor
from connector_tax.base.config import CampaignConfig
from connector_tax.base.documents.preflight import PreflightStatus
from connector_tax.base.documents.rates import ReferenceRatesFile
from connector_tax.base.documents.reading import read_document
from connector_tax.base.errors import ArtifactError
from connector_tax.base.opening import lines_of, printable, read_whole
from connector_tax.base.plan import cells_of, read_campaign_file, side_by_side_s
from connector_tax.base.plan.duration import expected_run_s, guessed_rates
from connector_tax.base.records.cell import is_repeat, phase_label
from connector_tax.base.records.rates import ReferenceRates
from connector_tax.base.units import duration_text


def status_text(config: CampaignConfig, results: Path, config_file: Path) -> str:
    """A table of configurations and phases, the time left, and the last line of progress."""
    folder = CampaignFolder(results / config.campaign)
    folder.links()
    if not folder.campaign_file.exists():
        return f"{folder.root}: not started. Start it with: {_command(config, config_file)}"
    date = read_campaign_file(folder.campaign_file).date
    width = max(len(c) for c in config.connector_ids)
    lines = [f"campaign {config.campaign}, started {date}", ""]
    phases = [p for p in config.phases if not is_repeat(p)]
    blocks = [p for p in config.phases if is_repeat(p)]
    heads = [f"phase {phase_label(p)}" for p in phases] + ["repeats"] * bool(blocks)
    lines.append(" " * width + "  " + "".join(f"{h:<24}" for h in heads))
    rates, unreadable = _rates(folder, config, date)
    for connector_id in config.connector_ids:
        row = f"{connector_id:<{width}}  "
        row += "".join(f"{_state(config, folder.run(date, connector_id, p), rates):<24}" for p in phases)
        ended = sum(folder.run(date, connector_id, p).receipt.exists() for p in blocks)
        row += f"{ended} of {len(blocks)} blocks" if blocks else ""
        lines.append(row.rstrip())
    left_s = _left_s(config, folder, date, rates)
    lines += ["", *unreadable, *_skips(folder), *_failures(folder), *_engines(folder, config)]
    lines.append(f"about {duration_text(left_s)} left" if left_s else "all measured")
    worker = worker_of(folder)
    if worker is not None:
        lines.append(f"process {worker} works on it")
    elif left_s:
        lines.append(f"nobody works on it; go on with: {_command(config, config_file)}")
    if folder.report.exists():
        older = ", made before the rest was measured" if left_s else ""
        lines.append(f"report: {folder.report}{older}")
    if folder.progress_log.exists():
        lines.append("last: " + "".join(lines_of(read_whole(folder.progress_log))[-1:]))
    return "\n".join(map(printable, lines))


def seconds_left(config: CampaignConfig, folder: CampaignFolder, date: str | None) -> float:
    """What is left of a campaign, by its reference rates or a guess.

    Args:
        date: of its first start; None where it was not started.
    """
    return _left_s(config, folder, date, None if date is None else _rates(folder, config, date)[0])


def _left_s(
    config: CampaignConfig, folder: CampaignFolder, date: str | None, rates: ReferenceRates | None
) -> float:
    left = dict.fromkeys(config.phases, 0.0)
    for phase in config.phases:
        for connector_id in config.members(phase):
            if date is None or not folder.run(date, connector_id, phase).receipt.exists():
                left[phase] += expected_run_s(config, connector_id, phase, rates or guessed_rates(config))
    return side_by_side_s(config, left)


def _command(config: CampaignConfig, config_file: Path) -> str:
    return f".venv/bin/snakemake --cores {len(config.engine.slots)} --configfile {config_file}"


def _state(config: CampaignConfig, run: RunFolder, rates: ReferenceRates | None) -> str:
    if run.receipt.exists():
        try:
            receipt = read_receipt(run)
        except ArtifactError:
            return "cannot be read"  # _failures says why
        if receipt.status != "measured":
            return receipt.status.replace("_", " ")
        invalid = sum(c.verdict != "valid" for c in receipt.cells)
        return f"{len(receipt.cells)} cells" + (f", {invalid} invalid" if invalid else "")
    plan = cells_of(config, run.connector_id, run.phase, rates or guessed_rates(config))
    # What lies there of an earlier plan, at other rates or shapes, is not part of this one.
    own = {c.cell_id for c in run.finished_cells()} & {c.cell_id for c in plan}
    if run.phase != "a" and rates is None:
        return "-"
    supervisor = recorded_supervisor(run.path)
    if supervisor is not None and supervisor.lives:
        return f"running, {len(own)} of {len(plan)}"
    return f"{len(own)} of {len(plan)}" if own else "-"


def _engines(folder: CampaignFolder, config: CampaignConfig) -> list[str]:
    """Of a campaign of several cards: who is at work on which; a launch that died with its job is nobody."""
    if len(config.engine.slots) == 1:
        return []
    found = []
    for run in folder.runs():
        supervisor = recorded_supervisor(run.path)
        if supervisor is not None and supervisor.lives:
            where = " and ".join(supervisor.cards) or "a card that is not recorded"
            found.append(f"on {where}: {run.connector_id} in phase {phase_label(run.phase)}")
    return [*sorted(found), ""] if found else []


def worker_of(folder: CampaignFolder) -> int | None:
    """The Snakemake process that works on the campaign; None where nobody does.

    Its lock is not tried: holding it for an instant could refuse a start.
    """
    try:
        pid = int(read_whole(folder.start_lock))
        at_work = any("snakemake" in word for word in psutil.Process(pid).cmdline())
    except (OSError, ValueError, ArtifactError, psutil.Error):
        return None
    return pid if at_work else None


def _rates(
    folder: CampaignFolder, config: CampaignConfig, date: str
) -> tuple[ReferenceRates | None, list[str]]:
    """None before all of Phase A has ended, when what lies there is of an earlier plan; and why they cannot be read."""
    ended = all(folder.run(date, c, "a").receipt.exists() for c in config.members("a"))
    if not ended or not folder.reference_rates.exists():
        return None, []
    try:
        return read_document(folder.reference_rates, ReferenceRatesFile).rates, []
    except ArtifactError as error:
        return None, [f"cannot be read: {error}", ""]


def _skips(folder: CampaignFolder) -> list[str]:
    if not folder.preflight_status.exists():
        return []
    try:
        decisions = read_document(folder.preflight_status, PreflightStatus).configs
    except ArtifactError as error:
        return [f"cannot be read: {error}", ""]
    found = [f"skipped {i}: {d.reason}" for i, d in decisions.items() if d.decision == "skip"]
    return [*found, ""] if found else []


def _failures(folder: CampaignFolder) -> list[str]:
    """Of each run that failed, why, and how it is tried again; and of each whose receipt cannot be read."""
    found = []
    for run in folder.runs():
        try:
            receipt = read_receipt(run) if run.receipt.exists() else None
        except ArtifactError as error:
            found.append(f"cannot be read: {error}")
            continue
        if receipt is not None and receipt.status == "failed":
            found.append(f"failed {run.connector_id} in phase {phase_label(run.phase)}: {receipt.reason}")
            found.append(f"  try it again with --forcerun {run.receipt}")
    return [*found, ""] if found else []
