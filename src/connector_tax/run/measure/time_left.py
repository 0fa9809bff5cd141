"""Time limits: no cell and no launch begins that would not finish in time."""

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from connector_tax.base.config import EngineConfig
from connector_tax.base.entrypoint import end_in_log, log_to, run_entrypoint
from connector_tax.base.errors import ConfigError, EngineError
from connector_tax.base.plan import config_of, read_campaign_file
from connector_tax.base.plan.duration import LAUNCH_S, RELEASE_S, expected_cell_s
from connector_tax.base.records.cell import CellSpec
from connector_tax.base.units import duration_text, is_number
from connector_tax.run.engine.lifeline import end_in_order, end_with_parent

# After a cell's window its last requests finish and its step records are cut.
CUT_S = 5.0


class OutOfTime(Exception):
    """The remaining work does not fit before the limit; finished cells stay, and a later start continues."""


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """When measuring must be over.

    Attributes:
        until_s: on the clock of ``time.monotonic``.
        launch_s: expected time until a launch serves.
    """

    until_s: float
    launch_s: float

    @property
    def last_launch_s(self) -> float:
        """Return the latest start of a launch that is ready before the limit."""
        return self.until_s - self.launch_s

    def check_launch(self, first: CellSpec, requests_per_s: float) -> None:
        """Check that a launch and its ``first`` cell fit.

        Args:
            requests_per_s: of the cell; for sessions the rate of turns.

        Raises:
            OutOfTime: they take longer than what is left.
        """
        self._check(
            self.launch_s + _cell_s(first, requests_per_s, most=False), f"a launch and cell {first.cell_id}"
        )

    def check_cell(self, cell: CellSpec, requests_per_s: float, *, first: bool) -> None:
        """Check that ``cell`` fits: a launch's first cell if it can finish, a later one if it will.

        Args:
            requests_per_s: as in ``check_launch``.

        Raises:
            OutOfTime: it takes longer than what is left.
        """
        self._check(_cell_s(cell, requests_per_s, most=not first), f"cell {cell.cell_id}")

    def _check(self, needed_s: float, what: str) -> None:
        left_s = self.until_s - monotonic()
        if needed_s > left_s:
            raise OutOfTime(
                f"{what} may take {duration_text(needed_s)}, and {duration_text(max(left_s, 0.0))} are left"
            )


def _cell_s(cell: CellSpec, requests_per_s: float, *, most: bool) -> float:
    return expected_cell_s(cell, requests_per_s, most=most) + CUT_S


# A stage's limit: from its arguments, else the end of its batch job. Nothing begins that would be cut off.

# ``squeue --format=%L`` writes the remaining time as ``1-02:03:04``, ``02:03:04`` or ``03:04``.
LEFT = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)")
JOB = "SLURM_JOB_ID"
WITHOUT_END = ("UNLIMITED", "NOT_SET")
ASK_WITHIN_S = 30.0
# For the receipt and the process's own end, beside the engine's end.
ENDING_S = 10.0


def run_job(
    about: str | None,
    arguments: Callable[[argparse.ArgumentParser], None],
    work: Callable[[argparse.Namespace, TimeLimit | None], None],
) -> None:
    """Run a measuring script and exit; the exit code is 75 if the time is over.

    Args:
        arguments: adds the script's own; all have ``campaign_file``.
        work: gets the limit from the arguments, else from the batch job.
    """
    parser = argparse.ArgumentParser(description=about)
    add = parser.add_argument
    add("--campaign-file", type=Path, required=True, help="results/<campaign>/campaign.json")
    arguments(parser)
    within_help = (
        "begin nothing that would not be finished so many seconds from now; default: what is left of a"
        " SLURM job"
    )
    add("--within-s", type=float, help=within_help)
    add("--launch-s", type=float, help="what a launch takes here; with --within-s")
    add("--log", type=Path, help="everything printed also goes here")
    add("--end-with-parent", type=int, metavar="PID", help="also when it is killed; for Snakemake's jobs")

    def do() -> None:
        args = parser.parse_args()
        end_in_order()
        if args.end_with_parent is not None:
            end_with_parent(args.end_with_parent)
        log_to(args.log)
        try:
            work(args, time_limit(args, os.environ))
        except BaseException as error:
            # A batch system keeps its job's output, where nothing is printed twice.
            if args.end_with_parent and args.log and not in_batch_job(os.environ):
                end_in_log()
            if not isinstance(error, OutOfTime):
                raise
            print(f"not begun: {error}; what was finished is kept", file=sys.stderr)
            sys.exit(os.EX_TEMPFAIL)

    run_entrypoint(do)


def time_limit(args: argparse.Namespace, environ: Mapping[str, str]) -> TimeLimit | None:
    """Return the limit of ``run_job``'s arguments, else of the batch job; None without either.

    Raises:
        ConfigError: one of the two arguments is missing.
        EngineError: SLURM does not report the job's end.
    """
    if (args.within_s is None) != (args.launch_s is None):
        raise ConfigError("--within-s and --launch-s go together. Give both, or none.")
    if args.within_s is not None:
        return TimeLimit(time.monotonic() + args.within_s, args.launch_s)
    if not in_batch_job(environ):
        return None
    return batch_limit(config_of(read_campaign_file(args.campaign_file)).engine, environ)


def in_batch_job(environ: Mapping[str, str]) -> bool:
    return bool(environ.get(JOB))


def left_in_job_s(environ: Mapping[str, str], ask: Callable[[str], str] | None = None) -> float | None:
    """Return the seconds left in the batch job; None outside a job or without a limit.

    Args:
        ask: job id -> squeue's answer; None runs squeue.

    Raises:
        EngineError: SLURM does not report it.
    """
    job = environ.get(JOB)
    if not job:
        return None
    if is_number(end_time := environ.get("SLURM_JOB_END_TIME", "")):
        return float(end_time) - time.time()
    answer = (ask or _ask_squeue)(job).strip()
    if answer in WITHOUT_END:
        return None
    match = LEFT.fullmatch(answer)
    if match is None:
        raise EngineError(
            f"SLURM job {job}: squeue says {answer[:40]!r} where it should say what is left of its time. Give"
            " --within-s and --launch-s."
        )
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def batch_limit(engine: EngineConfig, environ: Mapping[str, str]) -> TimeLimit | None:
    """Return the limit for the engine to end within the job; None outside a job or without a limit."""
    left_s = left_in_job_s(environ)
    if left_s is None:
        return None
    ending_s = engine.stop_grace_s + RELEASE_S[engine.kind] + ENDING_S
    return TimeLimit(time.monotonic() + left_s - ending_s, LAUNCH_S[engine.kind])


def _ask_squeue(job: str) -> str:
    command = ["squeue", "--noheader", f"--jobs={job}", "--format=%L"]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=ASK_WITHIN_S
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise EngineError(
            f"SLURM job {job}: squeue does not say how much of its time is left ({error}). Give --within-s"
            " and --launch-s."
        ) from error
