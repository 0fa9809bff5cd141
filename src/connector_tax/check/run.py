"""Launch after launch, by the pipeline's own preflight and measurement."""

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from connector_tax.base.artifacts.cells import read_cell
from connector_tax.base.artifacts.layout import RunFolder
from connector_tax.base.artifacts.receipts import read_receipt
from connector_tax.base.documents.cell import CellDocument
from connector_tax.base.files import read_json
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.check.campaigns import Campaigns, Launch, mode_words
from connector_tax.check.lateness import counts
from connector_tax.read.stats.launches import MIN_BLOCKS
from connector_tax.run.measure.deaths import Death
from connector_tax.run.measure.preflight import run_preflight
from connector_tax.run.measure.run import measure_run
from connector_tax.run.measure.turns import measure_in_turns
from connector_tax.run.measure.verdict import death_of

Say = Callable[[str], None]
# What a check of one block takes at most, as promised in docs/check.md; a launch is only made once more where that holds.
PROMISED_S = 300.0
# A launch by itself with some of the loads takes less than this share of a round.
ALONE = 0.5
# To read it all.
READING_S = 10.0


@dataclass(frozen=True, slots=True)
class Measured:
    """
    Attributes:
        failed: mode -> why the connector has no cells in it.
        deaths: of each launch whose engine died in a cell, also where a later launch measured that cell.
    """

    failed: dict[str, str]
    deaths: tuple[tuple[Launch, Death], ...]


def measure_check(campaigns: Campaigns, log: Path, say: Say) -> Measured:
    """Every launch of the check.

    A connector that does not start ends its mode: what plain does then is of no use. A configuration with cells that do not count is launched once
    more for these where the check then still ends in time: an engine has the prompts of a load in its cache.

    Args:
        log: what the pipeline says goes there.

    Raises:
        EngineError: plain vLLM cannot be measured.
    """
    failed: dict[str, str] = {}
    deaths: list[tuple[Launch, Death]] = []
    own = campaigns.request
    names = {"plain": "plain", own.connector_id: own.label, PLAIN_AGAIN: "plain again"}
    begun, stderr = time.monotonic(), sys.stderr

    def tell(mode: str, event: str) -> None:
        with redirect_stderr(stderr):
            say(f"{time.monotonic() - begun:4.0f} s  {mode_words(mode)} scheduling: {event}")

    with open(log, "a", encoding="utf-8", errors="backslashreplace") as out:
        with redirect_stdout(out), redirect_stderr(out):
            for folder in campaigns.folders.values():
                run_preflight(folder.campaign_file, launch="none")
        rounds = list(campaigns.rounds())
        for made, launches in enumerate(rounds, 1):
            mode = launches[0].mode
            if mode in failed:
                continue
            round_begun = time.monotonic()
            with redirect_stdout(out), redirect_stderr(out):
                found, reason = _measure_round(launches, names, partial(tell, mode))
                round_s = time.monotonic() - round_begun
                for launch in launches if reason is None else ():
                    elapsed_s = time.monotonic() - begun
                    if not once_more_fits(elapsed_s, round_s, len(rounds) - made, campaigns.request.blocks):
                        break
                    if lost := _forget_invalid(launch, campaigns.request.blocks >= MIN_BLOCKS):
                        tell(mode, f"{lost} cells of {names[launch.config]} do not count, once more")
                        found += _measure_alone(launch, [])
            deaths += found
            if reason is not None:
                failed[mode] = reason
    return Measured(failed, tuple(deaths))


def _measure_round(
    launches: Sequence[Launch], names: dict[str, str], say: Say
) -> tuple[list[tuple[Launch, Death]], str | None]:
    """All of it together; then each by itself, which launches for what is missing and else writes the receipt.

    Returns:
        Deaths, and why the connector has no cells; None where it has.
    """
    first = launches[0]
    turns = measure_in_turns(
        first.folder.campaign_file,
        names,
        first.phase,
        then={x.config: x.then for x in launches if x.then is not None},
        say=say,
    )
    deaths = [(x, death) for x in launches for death in turns.deaths.get(x.config, ())]
    # Whose engine did not get ready is asked first: of a connector that never does, plain's launches are of no use.
    for launch in sorted(launches, key=lambda x: x.config != turns.not_launched):
        if turns.not_launched is not None:
            say(f"{names[launch.config]} by itself")
        deaths += _measure_alone(launch, [death for of, death in deaths if of == launch])
        reason = _failure(launch)
        if reason is not None:
            return deaths, reason
    return deaths, None


def _measure_alone(launch: Launch, died: list[Death]) -> list[tuple[Launch, Death]]:
    """What is missing of one configuration, and its receipts."""
    file = launch.folder.campaign_file
    found = list(measure_run(file, launch.config, launch.phase, then=launch.then))
    if launch.then is not None:
        # Its receipt; and, where the engine died among its cells, a launch of its own for the rest.
        found += measure_run(file, launch.config, launch.then)
        found += _unrecorded_death(launch, (*died, *found))
    return [(launch, death) for death in found]


def _unrecorded_death(launch: Launch, died: tuple[Death, ...]) -> tuple[Death, ...]:
    """Of an engine that serves the loads and not even launches for the phase after them: no cell has its death, the receipt has."""
    assert launch.then is not None
    receipt = read_receipt(_run_folder(launch, launch.then))
    if receipt.status != "failed" or any(d.phase == launch.then for d in died):
        return ()
    return (Death(launch.then, "", receipt.reason or "unknown"),)


def once_more_fits(elapsed_s: float, round_s: float, rounds_left: int, blocks: int) -> bool:
    """Whether a launch by itself beside the ``rounds_left`` that are to come, each as long as the last one, ends in time."""
    return elapsed_s + (rounds_left + ALONE) * round_s + READING_S <= PROMISED_S * blocks


def _forget_invalid(launch: Launch, over_blocks: bool) -> int:
    """Remove what something else on the host spoilt, so that it is measured again; returns how many cells that were.

    Whether a cell counts says nothing of its latencies, so measuring it again favours nobody. A cell in which the engine died was tried
    twice already.
    """
    return sum(
        _forget_invalid_of(_run_folder(launch, phase), over_blocks)
        for phase in (launch.phase, launch.then)
        if phase
    )


def _forget_invalid_of(run: RunFolder, over_blocks: bool) -> int:
    if read_receipt(run).status != "measured":
        return 0
    lost = [cell for cell in run.finished_cells() if _spoilt(read_cell(cell), over_blocks)]
    for cell in lost:
        shutil.rmtree(cell.path)
    if lost:
        run.receipt.unlink()
    return len(lost)


def _spoilt(document: CellDocument, over_blocks: bool) -> bool:
    return not counts(document, over_blocks=over_blocks) and death_of(document) is None


def _failure(launch: Launch) -> str | None:
    receipt = read_receipt(_run_folder(launch, launch.phase))
    return receipt.reason if receipt.status != "measured" else None


def _run_folder(launch: Launch, phase: str) -> RunFolder:
    date = read_json(launch.folder.campaign_file)["date"]
    return launch.folder.run(date, launch.config, phase)


def say_on_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
