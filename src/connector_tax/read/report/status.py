"""Formats the status of a campaign from its files."""

from collections.abc import Collection
from pathlib import Path

import psutil

from connector_tax.base.artifacts.layout import CampaignFolder, RunFolder
from connector_tax.base.artifacts.receipts import read_receipt
from connector_tax.base.artifacts.supervisor import recorded_supervisor
from connector_tax.base.config import CampaignConfig
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import lines_of, printable, read_whole
from connector_tax.base.plan import cells_of, read_campaign_file, start
from connector_tax.base.plan.duration import expected_left_s
from connector_tax.base.plan.estimate import estimated_rates, expected_of
from connector_tax.base.records.cell import Phase, is_repeat, phase_word
from connector_tax.base.records.rates import ReferenceRates
from connector_tax.base.templates import columns
from connector_tax.base.units import duration_text


def status_text(config: CampaignConfig, root: Path, command: str) -> str:
    """Return a table of configurations and phases, remarks, time left, process and last progress.

    Args:
        command: starts or continues the campaign.

    Raises:
        ArtifactError: ``campaign.json`` cannot be read.
    """
    folder = CampaignFolder(root)
    if len(config.engine.slots) > 1:
        command += f" --cores {len(config.engine.slots)}"
    if not folder.campaign_file.exists():
        return f"{folder.root}: not started. Start it with: {command}"
    date = read_campaign_file(folder.campaign_file).date
    snapshot = start.state_of(config, folder, date)
    lines = [f"campaign {config.campaign}, started {date}", "", *_table(config, folder, date, snapshot), ""]
    decisions = {} if snapshot.preflight is None else snapshot.preflight.configs
    skips = [f"skipped {i}: {d.reason}" for i, d in decisions.items() if d.decision == "skip"]
    remarks = ([*snapshot.void.values()], skips, _failures(folder), _engines(folder, config))
    for paragraph in filter(None, remarks):
        lines += [*paragraph, ""]
    if not snapshot.left:
        lines.append("all measured")
    else:
        guess = ", at reference rates that are guessed until all of phase A has ended" * (
            "a" in snapshot.left
        )
        lines.append(f"about {duration_text(_left_s(folder, config, date, snapshot))} left{guess}")
    if (worker := worker_of(folder)) is not None:
        lines.append(f"process {worker} works on it")
    elif snapshot.left:
        lines.append(f"nobody works on it; go on with: {command}")
    if folder.report.exists():
        lines.append(f"report: {folder.report}" + ", made before the rest was measured" * bool(snapshot.left))
    last = lines_of(read_whole(folder.progress_log))[-1:] if folder.progress_log.exists() else []
    lines += [f"last: {line}" for line in last if line]
    return "\n".join(map(printable, lines))


def _table(
    config: CampaignConfig, folder: CampaignFolder, date: str, snapshot: start.CampaignState
) -> list[str]:
    phases = [p for p in config.phases if not is_repeat(p)]
    blocks = [p for p in config.phases if is_repeat(p)]
    planned, rates_known = (
        snapshot.rates or estimated_rates(config, expected_of(config)),
        snapshot.rates is not None,
    )
    rows = [["", *(f"phase {phase_word(p)}" for p in phases), *["repeats"] * bool(blocks)]]
    for connector_id in config.connector_ids:
        remaining = [p for p in config.phases if connector_id in snapshot.left.get(p, ())]
        states = [
            _state(config, folder.run(date, connector_id, p), planned, p in remaining, known=rates_known)
            for p in phases
        ]
        ended = len(blocks) - sum(p in remaining for p in blocks)
        rows.append([connector_id, *states, *[f"{ended} of {len(blocks)}"] * bool(blocks)])
    return columns(rows)


def seconds_left(config: CampaignConfig, folder: CampaignFolder) -> float:
    """Return the seconds left of a campaign, by its reference rates or an estimate of them."""
    earlier = read_campaign_file(folder.campaign_file) if folder.campaign_file.exists() else None
    date = start.date_of(folder, earlier)
    return _left_s(folder, config, date, start.state_of(config, folder, date))


def _left_s(
    folder: CampaignFolder, config: CampaignConfig, date: str, snapshot: start.CampaignState
) -> float:
    def finished(phase: Phase, connector_id: str) -> Collection[str]:
        return start.cells_there(config, folder.run(date, connector_id, phase), snapshot.rates)

    # Before preflight no skips are known, and preflight itself is left.
    skips = None if snapshot.preflight is None else snapshot.ends_at_once
    return expected_left_s(config, snapshot.left, snapshot.rates, skips, finished)


def _state(
    config: CampaignConfig, run: RunFolder, rates: ReferenceRates, is_left: bool, *, known: bool
) -> str:
    """Return a run's state as text.

    Args:
        known: ``rates`` are the campaign's, not a guess.
    """
    if not is_left:
        receipt = read_receipt(run)
        if receipt.status != "measured":
            return receipt.status.replace("_", " ")
        invalid = sum(c.verdict != "valid" for c in receipt.cells)
        return f"{len(receipt.cells)} cells" + (f", {invalid} invalid" if invalid else "")
    plan = cells_of(config, run.connector_id, run.phase, rates)
    n_finished = len(start.cells_there(config, run, rates))
    supervisor = recorded_supervisor(run.path)
    if supervisor is not None and supervisor.lives:
        return f"running, {n_finished} of {len(plan)}"
    if run.receipt.exists():
        return "void"
    if run.phase != "a" and not known:
        return "-"
    return f"{n_finished} of {len(plan)}" if n_finished else "-"


def _engines(folder: CampaignFolder, config: CampaignConfig) -> list[str]:
    """Return the process at work on each of several cards, except launches that died with their job."""
    if len(config.engine.slots) == 1:
        return []
    lines = []
    for run in folder.runs():
        supervisor = recorded_supervisor(run.path)
        if supervisor is not None and supervisor.lives:
            cards_text = " and ".join(supervisor.cards) or "a card that is not recorded"
            lines.append(f"on {cards_text}: {run.connector_id} in phase {phase_word(run.phase)}")
    return sorted(lines)


def worker_of(folder: CampaignFolder) -> int | None:
    """Return the Snakemake process that works on the campaign, or None.

    Its lock is not tried: holding it for an instant could refuse a start.
    """
    try:
        pid = int(read_whole(folder.start_lock))
        at_work = any("snakemake" in word for word in psutil.Process(pid).cmdline())
    except (OSError, ValueError, ArtifactError, psutil.Error):
        return None
    return pid if at_work else None


def _failures(folder: CampaignFolder) -> list[str]:
    """Return why each run failed, and how to retry it."""
    lines = []
    for run in folder.runs():
        try:
            receipt = read_receipt(run) if run.receipt.exists() else None
        except ArtifactError:
            continue  # an unreadable receipt is void
        if receipt is not None and receipt.status == "failed":
            lines.append(f"failed {run.connector_id} in phase {phase_word(run.phase)}: {receipt.reason}")
            lines.append(f"  to have it tried again, remove {run.receipt} and start again")
    return lines
