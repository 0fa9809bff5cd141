"""Where a campaign stands, from what lies on disk: for ``make status``, its page, and the top of a report."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from connector_tax.base.artifacts.layout import CampaignFolder, RunFolder
from connector_tax.base.artifacts.receipts import read_receipt
from connector_tax.base.artifacts.supervisor import recorded_supervisor
from connector_tax.base.config import CampaignConfig
from connector_tax.base.documents.preflight import PreflightStatus
from connector_tax.base.errors import ArtifactError
from connector_tax.base.opening import lines_of, printable, read_whole
from connector_tax.base.plan import cells_of, read_campaign_file, start
from connector_tax.base.plan.duration import expected_left_s
from connector_tax.base.plan.guess import expected_of, guessed_rates
from connector_tax.base.records.cell import Phase, is_repeat, phase_word
from connector_tax.base.records.rates import ReferenceRates
from connector_tax.base.units import duration_text


@dataclass(frozen=True, slots=True)
class State:
    """What one configuration has of a phase; ``mood`` is the page's class for it."""

    text: str
    mood: str = "none"


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a campaign that was started stands, from what lies on disk.

    Attributes:
        columns: heads of the table; a row has a state for each.
        rows: (configuration, its states).
        ended: runs that have a receipt of this plan, of ``runs``.
        left: the configurations of each phase that have no true one; phases that have ended are not in it.
        left_s: what measuring those takes, about.
        remarks: what is void, was skipped, or failed and how to try it again, and who is at work on which card; a paragraph each.
        worker: the process that works on it; None where nobody does.
        go_on: the command that goes on with it.
        has_report: whether one lies beside the results.
        last: of the progress log; empty where there is none.
    """

    campaign: str
    root: Path
    date: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[State, ...]], ...]
    ended: int
    runs: int
    left: dict[Phase, tuple[str, ...]]
    left_s: float
    remarks: tuple[tuple[str, ...], ...]
    worker: int | None
    go_on: str
    has_report: bool
    last: str

    @property
    def time_left(self) -> str:
        if not self.left:
            return "all measured"
        guess = (
            ", at reference rates that are guessed until all of phase A has ended" if "a" in self.left else ""
        )
        return f"about {duration_text(self.left_s)} left{guess}"

    @property
    def who(self) -> str:
        """Empty where nobody works on it and nothing is left."""
        if self.worker is not None:
            return f"process {self.worker} works on it"
        return f"nobody works on it; go on with: {self.go_on}" if self.left else ""

    @property
    def report(self) -> str:
        """Where the report beside the results is; empty where there is none."""
        older = ", made before the rest was measured" if self.left else ""
        return f"report: {CampaignFolder(self.root).report}{older}" if self.has_report else ""


def not_started(folder: CampaignFolder, config: CampaignConfig, config_file: Path) -> str:
    """What is said of a campaign without ``campaign.json``."""
    return f"{folder.root}: not started. Start it with: {_command(config, config_file)}"


def standing(folder: CampaignFolder, config: CampaignConfig, config_file: Path) -> Standing:
    """Of a campaign that was started.

    Raises:
        ArtifactError: ``campaign.json`` cannot be read.
    """
    date = read_campaign_file(folder.campaign_file).date
    phases = [p for p in config.phases if not is_repeat(p)]
    blocks = [p for p in config.phases if is_repeat(p)]
    found = start.standing(config, folder, date)
    left, rates = found.left, found.rates
    planned = rates or guessed_rates(config, expected_of(config))
    rows = []
    for connector_id in config.connector_ids:
        states = [
            _state(
                config,
                folder.run(date, connector_id, p),
                planned,
                connector_id in left.get(p, ()),
                known=rates is not None,
            )
            for p in phases
        ]
        if blocks:
            states.append(_repeats(left, connector_id, blocks))
        rows.append((connector_id, tuple(states)))
    last = lines_of(read_whole(folder.progress_log))[-1:] if folder.progress_log.exists() else []
    runs = sum(len(config.members(p)) for p in config.phases)
    remarks = (
        list(found.void.values()),
        _skips(found.preflight),
        _failures(folder),
        _engines(folder, config),
    )
    return Standing(
        campaign=config.campaign,
        root=folder.root,
        date=date,
        columns=tuple([f"phase {phase_word(p)}" for p in phases] + ["repeats"] * bool(blocks)),
        rows=tuple(rows),
        ended=runs - sum(map(len, left.values())),
        runs=runs,
        left=left,
        left_s=_left_s(folder, config, date, found),
        remarks=tuple(tuple(lines) for lines in remarks if lines),
        worker=worker_of(folder),
        go_on=_command(config, config_file),
        has_report=folder.report.exists(),
        last=last[0] if last else "",
    )


def status_text(config: CampaignConfig, results: Path, config_file: Path) -> str:
    """A table of configurations and phases, the time left, and the last line of progress."""
    folder = CampaignFolder(results / config.campaign)
    folder.links()
    if not folder.campaign_file.exists():
        return not_started(folder, config, config_file)
    found = standing(folder, config, config_file)
    width = max(len(c) for c in config.connector_ids)
    lines = [f"campaign {found.campaign}, started {found.date}", ""]
    lines.append(" " * width + "  " + "".join(f"{head:<24}" for head in found.columns))
    for connector_id, states in found.rows:
        row = f"{connector_id:<{width}}  " + "".join(f"{s.text:<24}" for s in states)
        lines.append(row.rstrip())
    lines.append("")
    for remarks in found.remarks:
        lines += [*remarks, ""]
    lines.append(found.time_left)
    lines += [line for line in (found.who, found.report) if line]
    if found.last:
        lines.append(f"last: {found.last}")
    return "\n".join(map(printable, lines))


def seconds_left(
    config: CampaignConfig, folder: CampaignFolder, date: str | None, gpus: int | None = None
) -> float:
    """What is left of a campaign, by its reference rates or a guess.

    Args:
        date: of its first start; None where it was not started.
        gpus: engines side by side at most; None: as many as there are cards.
    """
    if date is None:
        return expected_left_s(config, {p: config.members(p) for p in config.phases}, None, None, gpus)
    return _left_s(folder, config, date, start.standing(config, folder, date), gpus)


def _left_s(
    folder: CampaignFolder, config: CampaignConfig, date: str, found: start.Standing, gpus: int | None = None
) -> float:
    def finished(phase: Phase, connector_id: str) -> Collection[str]:
        return start.cells_there(config, folder.run(date, connector_id, phase), found.rates)

    # Before preflight nothing is known to be skipped, and preflight is left.
    skips = None if found.preflight is None else found.ends_at_once
    return expected_left_s(config, found.left, found.rates, skips, gpus, finished)


def _repeats(left: Mapping[Phase, Sequence[str]], connector_id: str, blocks: Sequence[Phase]) -> State:
    ended = sum(connector_id not in left.get(p, ()) for p in blocks)
    mood = "good" if ended == len(blocks) else "open" if ended else "none"
    return State(f"{ended} of {len(blocks)} blocks", mood)


def _command(config: CampaignConfig, config_file: Path) -> str:
    return f".venv/bin/snakemake --cores {len(config.engine.slots)} --configfile {config_file}"


def _state(
    config: CampaignConfig, run: RunFolder, rates: ReferenceRates, left: bool, *, known: bool
) -> State:
    """
    Args:
        known: whether ``rates`` are those of the campaign, and not a guess.
    """
    if not left:
        receipt = read_receipt(run)
        if receipt.status != "measured":
            return State(receipt.status.replace("_", " "), "bad" if receipt.status == "failed" else "none")
        invalid = sum(c.verdict != "valid" for c in receipt.cells)
        text = f"{len(receipt.cells)} cells" + (f", {invalid} invalid" if invalid else "")
        return State(text, "open" if invalid else "good")
    if run.is_link:
        return State("a link", "bad")
    plan = cells_of(config, run.connector_id, run.phase, rates)
    own = len(start.cells_there(config, run, rates))
    supervisor = recorded_supervisor(run.path)
    if supervisor is not None and supervisor.lives:
        return State(f"running, {own} of {len(plan)}", "running")
    if run.receipt.exists():
        return State("void", "bad")
    if run.phase != "a" and not known:
        return State("-")
    return State(f"{own} of {len(plan)}", "open") if own else State("-")


def _engines(folder: CampaignFolder, config: CampaignConfig) -> list[str]:
    """Of a campaign of several cards: who is at work on which; a launch that died with its job is nobody."""
    if len(config.engine.slots) == 1:
        return []
    found = []
    for run in folder.runs():
        supervisor = recorded_supervisor(run.path)
        if supervisor is not None and supervisor.lives:
            where = " and ".join(supervisor.cards) or "a card that is not recorded"
            found.append(f"on {where}: {run.connector_id} in phase {phase_word(run.phase)}")
    return sorted(found)


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


def _skips(preflight: PreflightStatus | None) -> list[str]:
    decisions = {} if preflight is None else preflight.configs
    return [f"skipped {i}: {d.reason}" for i, d in decisions.items() if d.decision == "skip"]


def _failures(folder: CampaignFolder) -> list[str]:
    """Of each run that failed, why, and how it is tried again."""
    found = []
    for run in folder.runs():
        try:
            receipt = read_receipt(run) if run.receipt.exists() else None
        except ArtifactError:
            continue  # it is void
        if receipt is not None and receipt.status == "failed":
            found.append(f"failed {run.connector_id} in phase {phase_word(run.phase)}: {receipt.reason}")
            found.append(f"  to have it tried again, remove {run.receipt} and start again")
    return found
