"""Launch after launch, by the pipeline's own preflight and measurement."""

import shutil
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connector_tax.artifacts.cells import read_cell
from connector_tax.artifacts.layout import RunFolder
from connector_tax.artifacts.receipts import read_receipt
from connector_tax.check.campaigns import Campaigns, Launch, mode_words
from connector_tax.files import read_json
from connector_tax.measure.deaths import Death
from connector_tax.measure.preflight import run_preflight
from connector_tax.measure.run import measure_run
from connector_tax.measure.verdict import death_of
from connector_tax.records.connector import PLAIN_AGAIN

Say = Callable[[str], None]
# What a check of one block takes at most, as promised in docs/check.md; a launch is only made once more where that holds.
PROMISED_S = 300.0


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

    A connector that does not start ends its mode: what plain does a second time is of no use then. A launch with cells that do not
    count is made once more for these.

    Args:
        log: what the pipeline says goes there.

    Raises:
        EngineError: plain vLLM cannot be measured.
    """
    failed: dict[str, str] = {}
    deaths: list[tuple[Launch, Death]] = []

    def measure(launch: Launch) -> None:
        with redirect_stdout(out), redirect_stderr(out):
            file = launch.folder.campaign_file
            died = measure_run(file, launch.config, launch.phase, then=launch.then)
            if launch.then is not None:
                # Its receipt; and, where the engine died among its cells, a launch of its own for the rest.
                died += measure_run(file, launch.config, launch.then)
                died += _unrecorded_death(launch, died)
        deaths.extend((launch, death) for death in died)

    begun = time.monotonic()
    with open(log, "a", encoding="utf-8", errors="backslashreplace") as out:
        for folder in campaigns.folders.values():
            with redirect_stdout(out), redirect_stderr(out):
                run_preflight(folder.campaign_file, launches=False)
        launches = list(campaigns.launches())
        made = 0
        for left, launch in zip(range(len(launches), 0, -1), launches, strict=True):
            if launch.mode in failed:
                continue
            say(f"{time.monotonic() - begun:4.0f} s  {_words(campaigns, launch)}")
            measure(launch)
            made += 1
            again = once_more_fits(time.monotonic() - begun, made, left - 1, campaigns.request.blocks)
            lost = _forget_invalid(launch) if again else 0
            if lost:
                made += 1
                say(
                    f"{time.monotonic() - begun:4.0f} s  {lost} of its cells do not count, once more: {_words(campaigns, launch)}"
                )
                measure(launch)
            reason = _failure(launch)
            if reason is not None:
                failed[launch.mode] = reason
    return Measured(failed, tuple(deaths))


def _unrecorded_death(launch: Launch, died: tuple[Death, ...]) -> tuple[Death, ...]:
    """Of an engine that serves the loads and not even launches for the phase after them: no cell has its death, the receipt has."""
    assert launch.then is not None
    receipt = read_receipt(_run_folder(launch, launch.then))
    if receipt.status != "failed" or any(d.phase == launch.then for d in died):
        return ()
    return (Death(launch.then, "", receipt.reason or "unknown"),)


def once_more_fits(elapsed_s: float, made: int, left: int, blocks: int) -> bool:
    """Whether one more launch than the ``left`` that are to come ends in time, each as long as the ``made`` ones were on average."""
    return elapsed_s + (left + 1) * elapsed_s / made <= PROMISED_S * blocks


def _words(campaigns: Campaigns, launch: Launch) -> str:
    own = campaigns.request.label
    name = {"plain": "plain", PLAIN_AGAIN: "plain again"}.get(launch.config, own)
    what = "three loads" if launch.then is None else "three loads, how hooks grow"
    return f"{name}, {mode_words(launch.mode)} scheduling: {what}"


def _forget_invalid(launch: Launch) -> int:
    """Remove what something else on the host spoilt, so that it is measured again; returns how many cells that were.

    Whether a cell counts says nothing of its latencies, so measuring it again favours nobody. A cell in which the engine died was tried
    twice already.
    """
    return sum(
        _forget_invalid_of(_run_folder(launch, phase)) for phase in (launch.phase, launch.then) if phase
    )


def _forget_invalid_of(run: RunFolder) -> int:
    if read_receipt(run).status != "measured":
        return 0
    lost = [cell for cell in run.finished_cells() if _spoilt(read_cell(cell))]
    for cell in lost:
        shutil.rmtree(cell.path)
    if lost:
        run.receipt.unlink()
    return len(lost)


def _spoilt(document: dict[str, Any]) -> bool:
    return document["verdict"] != "valid" and death_of(document) is None


def _failure(launch: Launch) -> str | None:
    receipt = read_receipt(_run_folder(launch, launch.phase))
    return receipt.reason if receipt.status != "measured" else None


def _run_folder(launch: Launch, phase: str) -> RunFolder:
    date = read_json(launch.folder.campaign_file)["date"]
    return launch.folder.run(date, launch.config, phase)


def say_on_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
