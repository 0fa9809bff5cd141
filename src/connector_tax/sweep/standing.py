"""Where a campaign of a sweep stands, from what lies on disk; and a line of it for ``plan`` and ``status``."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.artifacts.receipts import read_receipt
from connector_tax.base.config import CampaignConfig
from connector_tax.base.documents.aggregate import read_aggregate
from connector_tax.base.documents.sweep import End
from connector_tax.base.errors import ArtifactError
from connector_tax.base.opening import printable
from connector_tax.base.plan import read_campaign_file, start
from connector_tax.base.units import duration_text
from connector_tax.read.report.status import seconds_left, worker_of
from connector_tax.sweep.own import edited, fault_of
from connector_tax.sweep.running import code_text

State = Literal["not started", "at work", "stopped", "measured", "finished", "edited", "unreadable"]


@dataclass(frozen=True, slots=True)
class Standing:
    """
    Attributes:
        ended, runs: launches of configurations that have a true receipt, and all.
        skipped, failed: that have such a receipt.
        left_s: expected, by rates that are guessed as long as Phase A is not measured.
        worker: the process that works on it.
        why: of a state that wants a reason.
    """

    state: State
    ended: int
    runs: int
    skipped: int
    failed: int
    left_s: float
    worker: int | None = None
    why: str = ""


def standing_of(config: CampaignConfig, results: Path, gpus: int | None = None) -> Standing:
    """Reads files only.

    Args:
        gpus: engines side by side at most, where a campaign has more cards.
    """
    folder = CampaignFolder(results / config.campaign)
    runs = sum(len(config.members(phase)) for phase in config.phases)
    try:
        folder.links()
        if not folder.campaign_file.exists():
            return Standing("not started", 0, runs, 0, 0, seconds_left(config, folder, None, gpus))
        document = read_campaign_file(folder.campaign_file)
        receipts = [
            read_receipt(run)
            for phase in config.phases
            for connector in config.members(phase)
            if (run := folder.run(document.date, connector, phase)).receipt.exists() and not run.is_link
        ]
        left_s = seconds_left(config, folder, document.date, gpus)
        ended = runs - sum(map(len, start.standing(config, folder, document.date).left.values()))
        changed = edited(config, document)
        lacks = _lacks(config, folder)
    # Also where a folder may not be entered, or a run that begins anew removes its own.
    except (ArtifactError, OSError) as error:
        return Standing("unreadable", 0, runs, 0, 0, 0.0, why=str(error))
    worker = worker_of(folder)
    state: State = "measured" if lacks else "finished"
    if worker is not None:
        state = "at work"
    elif changed:
        state = "edited"
    elif ended < runs:
        state = "stopped"
    return Standing(
        state,
        ended,
        runs,
        sum(r.status == "skipped" for r in receipts),
        sum(r.status == "failed" for r in receipts),
        left_s,
        worker,
        {"edited": ", ".join(changed), "measured": lacks}.get(state, ""),
    )


def _lacks(config: CampaignConfig, folder: CampaignFolder) -> str:
    """What a campaign that is measured is not yet; empty where Snakemake finds nothing to do, as far as its aggregate tells."""
    if not folder.aggregate.exists():
        return "not analysed"
    if fault := fault_of(config, folder.root, read_aggregate(folder.aggregate)):
        return f"not analysed since: {fault.why}"
    made = (
        folder.reference_rates,
        folder.aggregate_csv,
        folder.figures / "index.json",
        folder.report,
        folder.manifest,
    )
    missing = [str(path.relative_to(folder.root)) for path in made if not path.exists()]
    return f"without {', '.join(missing)}" if missing else ""


def words(standing: Standing, end: End | None) -> str:
    """``stopped, 3 of 8 runs, about 40 min left; the last start ended with exit code 1``."""
    parts = [standing.state + (f" (process {standing.worker})" if standing.worker is not None else "")]
    if standing.state == "unreadable":
        return printable(f"{standing.state}: {standing.why}")
    if standing.state == "edited":
        parts[0] += (
            f" since it was measured ({standing.why}), which a run refuses: undo it, or rename the entry"
        )
    if standing.state == "measured":
        parts[0] += f", and {standing.why}"
    if standing.state not in ("not started", "finished"):
        parts.append(f"{standing.ended} of {standing.runs} runs")
    for count, what in ((standing.skipped, "skipped"), (standing.failed, "failed")):
        parts += [f"{count} of {standing.runs} runs {what}"] if count else []
    if standing.left_s:
        parts.append(f"about {duration_text(standing.left_s)} left")
    said = ", ".join(parts)
    if end is not None and end.code and standing.state not in ("finished", "at work"):
        said += f"; its last start failed ({code_text(end.code)}, {end.utc})"
    return printable(said)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as they have to be; the last one is ragged."""
    every = [head, *rows]
    widths = [max(len(row[k]) for row in every) for k in range(len(head))]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in every
    ]
