"""Analysis, figures and report of a campaign that may be under way, in a process of its own: ``python -m`` this with two folders.

Everything that is made lies in the second folder. The campaign's is read. The process takes what cores are idle, begins before anything
large is imported, and ends when standard input does: whoever started it is gone then.
"""

import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import psutil

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.door import run_door
from connector_tax.base.files import write_json
from connector_tax.base.records.record import Record

# Libraries of numerics would start a thread per core.
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "ARROW_IO_THREADS"), "1"
)


# Runs that end while a report is made are few; one that never settles is made of what was read last.
MOST_TRIES = 3
READ = "read.json"


class Read(Record, frozen=True, kw_only=True):
    """``read.json``: what a report is made of.

    Attributes:
        utc_s: by when it was read.
        cells: how many there were.
    """

    REMEDY: ClassVar[str] = "Make the report again."

    utc_s: float
    cells: int


def take_idle_cores() -> None:
    """Run only where nobody else wants to: cores by SCHED_IDLE, which every other process displaces at once, and disks likewise."""
    os.nice(19)
    # Some sandboxes refuse these two. The lowest of the ordinary priorities stands then.
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with suppress(OSError, psutil.AccessDenied):
        psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)


def make(root: Path, made_in: Path) -> Path:
    """The report of the campaign at ``root``; it and all that it is made of lie in ``made_in``.

    Raises:
        ArtifactError: there is no campaign, or the disk is full.
    """
    # Numerics and drawing take a second of CPU time to import.
    from connector_tax.read.analysis import analyse
    from connector_tax.read.figures.draw_all import draw_figures
    from connector_tax.read.report.page import build_report, what_is_left

    # A campaign goes on while it is analysed. What is said to be left has to be what is not in the numbers.
    folder = CampaignFolder(root, made_in)
    for _ in range(MOST_TRIES):
        left = what_is_left(CampaignFolder(root))
        found = analyse(root, 1, made_in).aggregate
        if what_is_left(CampaignFolder(root)) == left:
            break
    read = Read(utc_s=time.time(), cells=len(found.cells))
    draw_figures(made_in)
    report = build_report(root, made_in, 1, left)
    write_json(folder.made / READ, read)
    return report


def _end_with_standard_input() -> None:
    # Not by sys.stdin: a thread that waits in it would hold its lock while the interpreter ends.
    while os.read(0, 1):
        pass
    os._exit(0)


def main() -> None:
    """Entry point; ends the process."""
    take_idle_cores()
    threading.Thread(target=_end_with_standard_input, daemon=True).start()
    root, made_in = map(Path, sys.argv[1:])
    make(root, made_in)


if __name__ == "__main__":
    run_door(main)
