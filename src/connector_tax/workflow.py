"""Answers the Snakefile while it is read: the campaign, its date, its receipts and the targets.

Rules stay thin: every ``if`` is here, where it can be tested without Snakemake.
"""

import atexit
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping
from contextlib import ExitStack, redirect_stderr, suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from io import StringIO
from logging import CRITICAL, ERROR, Logger, LogRecord
from logging.handlers import MemoryHandler
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

from snakemake.cli import parse_args
from snakemake.common import NOTHING_TO_BE_DONE_MSG
from snakemake.io import report

from connector_tax.base.artifacts.layout import RECEIPT, CampaignFolder, RunFolder
from connector_tax.base.config import CampaignConfig, parse_campaign
from connector_tax.base.documents.figures import FigureIndex, read_figure_index
from connector_tax.base.errors import ArtifactError, ConnectorTaxError
from connector_tax.base.files import is_date, shown
from connector_tax.base.imports import PROJECT, closure, sha256_of_code
from connector_tax.base.job_failures import (
    COMMAND_VARIABLE,
    INTERRUPTED,
    KILLED,
    QUIET_VARIABLE,
    Mark,
    job_failures,
    marks_of,
    silent_jobs,
)
from connector_tax.base.locks import started_once
from connector_tax.base.plan import phases_before, priority_of, read_campaign_file, slot_of
from connector_tax.base.plan.start import (
    CampaignState,
    date_of,
    open_campaign,
    refuse_change,
    state_of,
    take_over_analysis,
)
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.cell import Phase, is_repeat
from connector_tax.base.secrets import masked

# Targets that measure nothing. If only these are asked for, no measuring rule exists, so that a clone with
# scrambled time stamps cannot start an engine.
READING = frozenset({"analysis", "figures", "report", "manifest"})
NOT_MEASURING = READING | {"revert_patch"}
TARGETS_VARIABLE = "CONNECTOR_TAX_TARGETS"
DATE_VARIABLE = "CONNECTOR_TAX_DATE"
SCRIPTS_VARIABLE, SNAKEMAKE_VARIABLE = "CONNECTOR_TAX_SCRIPTS", "CONNECTOR_TAX_SNAKEMAKE"
# Identifies the process that a person started, in the processes that Snakemake starts for jobs.
START_VARIABLE, _THIS_START = "CONNECTOR_TAX_START", f"{os.getpid()}.{time.time_ns()}"
_STARTED = ExitStack()
_LOGS_BEFORE: dict[Path, Mark] = {}


# Errors in Snakemake's log of a quiet start; printed at the end unless a job explains why it ended.
_HUSHED = MemoryHandler(capacity=10_000, flushLevel=CRITICAL + 1)


def stop(message: str, code: int = 2) -> NoReturn:
    """End with one message; Snakemake would add a traceback of its own parser."""
    print(f"error: {masked(message)}", file=sys.stderr, flush=True)
    _STARTED.close()
    atexit._run_exitfuncs()  # removes Snakemake's temporary folder, which os._exit leaves
    os._exit(code)


def requested_targets(arguments: list[str], environment: MutableMapping[str, str]) -> frozenset[str]:
    """Return the targets of the command line; jobs that Snakemake starts as processes inherit them.

    Snakemake knows its targets only after it has read the rules, but here they decide which rules exist.
    Without a target, the names in ``--until`` or ``--forcerun`` count as targets. Beside a target they do
    not, or ``figures --forcerun measure_a`` would bring the measuring rules back.
    """
    if TARGETS_VARIABLE not in environment:
        with redirect_stderr(StringIO()):  # Snakemake has named its profile once already
            _, parsed = parse_args(arguments)
        named = parsed.targets or parsed.until or parsed.forcerun or ()
        environment[TARGETS_VARIABLE] = "\n".join(map(str, named))
    return frozenset(environment[TARGETS_VARIABLE].splitlines())


def only_reads(targets: frozenset[str]) -> bool:
    return bool(targets) and all(t in NOT_MEASURING or _is_read_product(t) for t in targets)


def _is_read_product(target: str) -> bool:
    """Return whether the path is a product of the analysis."""
    path = Path(os.path.relpath(target))
    folder = CampaignFolder(Path(*path.parts[:2]))
    return path in {
        *(folder.aggregate, folder.aggregate_csv, folder.report, folder.manifest),
        folder.figures / "index.json",
    }


@dataclass(frozen=True, slots=True)
class CaptionText:
    """A title and a caption in reStructuredText, each one line."""

    title: str
    caption: str


@dataclass(frozen=True, slots=True)
class Captions:
    """Captions of the figures in ``figures/``, read only if Snakemake's report asks for one.

    Snakemake shows its string form beside each figure.
    """

    index: Path

    def __str__(self) -> str:
        return f"as in {self.index}"

    def of(self, name: str) -> CaptionText:
        """Return the texts of one figure.

        Raises:
            ArtifactError: ``index.json`` cannot be read, or has no drawn figure of this name.
        """
        found = next((e for e in read_figure_index(self.index).figures if e.name == name and e.drawn), None)
        if found is None:
            raise ArtifactError(
                f"{self.index}: names no figure {shown(name)} that is drawn. {FigureIndex.REMEDY}"
            )
        return CaptionText(rst_text(found.title), rst_text(found.caption))


def rst_text(text: str) -> str:
    """Escape a text as one line without reStructuredText markup: captions hold names from untrusted files."""
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", " ".join(text.split()))


@dataclass(frozen=True, slots=True)
class Study:
    """One campaign as the rules see it.

    Attributes:
        date: of the first start, since it names folders; the same on every resume.
        found: the valid results, if this start measures. Runs with a valid receipt have no rule, so nothing
            measures them again.
        newer: outdated product on disk -> a newer file. Snakemake remakes a product only if an input is
            newer.
        for_a_job: Snakemake started this process for a job, as through a batch system. It then looks for no
            leftovers, since the first process did.
        command: as a person typed it; empty if that was Snakemake.
        quiet: Snakemake's output is hidden.
    """

    config: CampaignConfig
    folder: CampaignFolder
    date: str
    measuring: bool
    found: CampaignState = field(default_factory=CampaignState)
    newer: Mapping[Path, str] = field(default_factory=dict)
    for_a_job: bool = False
    command: str = ""
    quiet: bool = False

    @property
    def logs(self) -> Path:
        return self.folder.logs

    def pictures(self, caption: str) -> list[str]:
        """Return ``figures/``, if it exists, as an input that Snakemake's report shows, without subfolders.

        Args:
            caption: the caption's template, relative to the rule's file.
        """
        if not self.folder.figures.is_dir():
            return []
        shown_as: Any = {"caption": caption, "category": "Figures", "labels": {"figure": "{figure}"}}
        return [report(str(self.folder.figures), patterns=["{figure,fig[1-9]_[a-z0-9_]+}.svg"], **shown_as)]

    def captions(self) -> "Captions":
        return Captions(self.folder.figures / "index.json")

    def receipts(self, *phases: Phase) -> list[str]:
        """Return the receipts of those ``phases`` that the campaign has."""
        return [
            str(self.folder.run(self.date, c, phase).receipt)
            for phase in phases
            if phase in self.config.phases
            for c in self.config.members(phase)
        ]

    def left(self, phases: Collection[Phase] | None = None) -> list[str]:
        """Return the receipts still to be made, of ``phases`` or of all."""
        return [
            str(self.folder.run(self.date, c, phase).receipt)
            for phase, ids in self.found.left.items()
            if phases is None or phase in phases
            for c in ids
        ]

    @property
    def receipt(self) -> str:
        """A measuring job's output, as a Snakemake pattern."""
        return str(self.folder.root / f"{self.date}_{{connector}}" / "phase_{phase}" / RECEIPT)

    @property
    def left_pattern(self) -> str:
        """Values of ``{connector}``, by what follows it in ``receipt``; matches nothing if none is left."""
        if self.for_a_job:
            return ".+"
        pairs = [f"{re.escape(c)}(?=/phase_{phase}/)" for phase, ids in self.found.left.items() for c in ids]
        return "|".join(pairs) or "(?!)"

    def if_left(self, product: Path) -> list[str]:
        """Return a product that others wait for, unless it is valid already, whatever its time."""
        return [str(product)] if product in self.found.void or not product.exists() else []

    def newer_than(self, product: Path) -> list[str]:
        """Return the extra input that makes an outdated product again; nothing if it is up to date."""
        return [self.newer[product]] if product in self.newer else []

    def before(self, wildcards: Any) -> list[str]:
        """Return what a measuring job waits for, as far as it is missing."""
        phase = wildcards.phase
        wanted = self.newer_than(self.folder.run(self.date, wildcards.connector, phase).receipt)
        wanted += self.if_left(self.folder.preflight_status)
        if phase != "a":
            # Rates wait for Phase A. Even if they exist, Phase A's launches come first: a configuration that
            # fails there is not launched again.
            wanted += self.if_left(self.folder.reference_rates) or self.left(("a",))
            wanted += self.left(phases_before(self.config, phase))
        return wanted

    def before_rates(self) -> list[str]:
        """Return what reference rates wait for; rates that later phases were measured at stay."""
        rates = self.folder.reference_rates
        return [*self.newer_than(rates), *self.left(("a",))] if self.if_left(rates) else []

    def repeats(self) -> list[Phase]:
        return [p for p in self.config.phases if is_repeat(p)]

    def to_read(self) -> list[str]:
        """Return receipts newer than the analysis or still to be made; ends the run if there are none at all.

        Older receipts are left out: there are many, and they change nothing.
        """
        runs = [run for run in self.folder.runs() if run.receipt.is_file()]
        if not runs and not self.measuring:
            stop(
                f"{self.folder.root}: nothing measured there yet, so there is nothing to read. "
                "Measure it first with connector-tax run, or put shipped results in place."
            )
        made = [self.folder.aggregate, self.folder.manifest]
        since_ns = min((p.stat().st_mtime_ns if p.is_file() else 0) for p in made)
        newer = [str(run.receipt) for run in runs if run.receipt.stat().st_mtime_ns > since_ns]
        return list(dict.fromkeys([*self.left(), *newer]))

    def settings_to_read(self) -> list[str]:
        """Return the file with the analysis settings, if it exists, and a marker if they were edited."""
        there = [self.folder.campaign_file] if self.folder.campaign_file.is_file() else []
        return [*self.newer_than(self.folder.aggregate), *map(str, there)]

    def rates_to_read(self) -> list[str]:
        """Return ``reference_rates.json``; a campaign that stopped before it is read without it."""
        wanted = self.measuring or self.folder.reference_rates.exists()
        return [str(self.folder.reference_rates)] if wanted else []

    def put_in_to_read(self) -> list[str]:
        """Return ``put_in.json`` for the embedded engine; a campaign without it is read without it."""
        wanted = self.config.engine.kind == "emulator" and self.measuring
        return [str(self.folder.put_in)] if wanted or self.folder.put_in.exists() else []

    def cards(self) -> dict[str, Callable[[Any], int]]:
        """Return ``resources`` that say which GPU a job takes; empty for one GPU or if phases may move."""

        def taken(slot: int) -> Callable[[Any], int]:
            return lambda wildcards: int(slot_of(self.config, wildcards.phase) == slot)

        slots = self.config.engine.slots
        # Any phase will do: whether they stay is the same for all.
        if len(slots) == 1 or slot_of(self.config, "a") is None:
            return {}
        return {f"card{k}": taken(k) for k in range(len(slots))}

    def limits(self, wanted: int | None) -> dict[str, int]:
        """Return the limits on all jobs together: as many engines as GPUs, and one per GPU.

        Snakemake only counts. A lock decides which GPU a job gets when it starts.

        Args:
            wanted: parallel engines, from the command line; None: not given.
        """
        slots = len(self.config.engine.slots)
        if wanted is not None and wanted > slots and self.measuring:
            print(
                f"--resources gpu={wanted}: campaign {self.config.campaign} may use {slots} (engine.gpus:"
                f" {', '.join(map(str, self.config.engine.slots))}). Name more cards there to have more"
                " engines side by side.",
                file=sys.stderr,
            )
        return {"gpu": min(slots, slots if wanted is None else wanted), **dict.fromkeys(self.cards(), 1)}

    @property
    def runs(self) -> list[RunFolder]:
        config = self.config
        return [
            self.folder.run(self.date, c, phase) for phase in config.phases for c in config.members(phase)
        ]

    def position(self, wildcards: Any) -> int:
        return priority_of(self.config, wildcards.phase, wildcards.connector)

    def refuse_unknown(self, targets: Iterable[str], rules: Iterable[Any]) -> None:
        """End the run if a target is neither a rule, nor a rule's output, nor an existing result."""
        known = {rule.name: rule for rule in rules}
        for target in targets:
            made = any(rule.is_producer(target) for rule in known.values())
            there = Path(target).exists() and Path(target).is_relative_to(self.folder.root)
            if not (target in known or made or there):
                close = get_close_matches(target, known, 1)
                meant = f"Did you mean {close[0]}?" if close else f"Stages: {', '.join(known)}."
                stop(
                    f"{target}: no stage of a campaign, and no file of {self.folder.root} that one makes."
                    f" {meant}"
                )

    def begin(self) -> None:
        """Lock the campaign and write ``campaign.json``, or take over its analysis settings, before any job.

        Two starts would remove each other's receipts: Snakemake deletes a failed job's outputs.
        """
        try:
            if self.measuring:
                # Held until this process ends; the kernel then releases the lock, however it ended.
                _STARTED.enter_context(started_once(self.folder.start_lock, self.config.campaign))
                open_campaign(self.config, self.folder, self.date)
            else:
                take_over_analysis(self.config, self.folder)
        except ConnectorTaxError as error:
            stop(str(error))
        _LOGS_BEFORE.clear()
        _LOGS_BEFORE.update(marks_of(self.logs))
        try:  # `connector-tax run` has blocked it
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        except KeyboardInterrupt:
            stop("interrupted before anything was begun", 130)

    def say_why(self, failed: Collection[Any] = (), account: Iterable[str] = ()) -> None:
        """Print why a start ended early, by its jobs; exits with 130 if it was interrupted.

        Args:
            failed: Snakemake's jobs.
            account: files with Snakemake's own messages about its rules, already printed above.
        """
        words = job_failures(self.logs, _LOGS_BEFORE)
        told = "\n".join(Path(file).read_text(encoding="utf-8", errors="replace") for file in account)
        words |= silent_jobs(failed, words, _LOGS_BEFORE, told)
        said = [line for lines in words.values() for line in lines]
        if not (said or failed):  # the signal reached Snakemake, and not its job
            said = [f"{INTERRUPTED}what was finished is kept"]
        interrupted = any(line.startswith(INTERRUPTED) for line in said)
        if interrupted or any(line.startswith(KILLED) for line in said):
            said.append(f"Go on: {self.command}" if self.command else "The same command goes on.")
        if said:
            _HUSHED.setTarget(None)
            print(masked("\n".join(["", "Why it ended:", *said])), file=sys.stderr, flush=True)
        if interrupted:
            sys.exit(130)  # Snakemake ends with 1 whatever happened

    def say_result(self) -> None:
        """Print the report's closing lines below Snakemake's output, if the report is of this analysis."""
        made = [p.stat().st_mtime_ns for p in (self.folder.aggregate, self.folder.report) if p.is_file()]
        if len(made) == 2 and made[0] <= made[1]:
            # Imported here, since only the end of a run needs it.
            from connector_tax.read.report.page import closing_lines

            with suppress(ConnectorTaxError):  # a page of another version
                atexit.register(print, masked(closing_lines(self.folder.root)), flush=True)

    def hush(self, logger: Logger) -> None:
        """If ``quiet``, hide Snakemake's output; errors that no job explains are printed at the end."""
        for handler in list(logger.handlers):
            if self.quiet and handler.name == "DefaultStreamHandler":
                _HUSHED.setLevel(ERROR)
                _HUSHED.setTarget(handler)
                logger.removeHandler(handler)
                logger.addHandler(_HUSHED)

    def say_result_of_nothing(self, record: LogRecord) -> bool:
        """Filter Snakemake's log, whose success hook stays silent if nothing is to be done; passes all."""
        if record.msg == NOTHING_TO_BE_DONE_MSG and not self.for_a_job:
            self.say_result()
        return True


def open_study(
    config: Foreign, where: str, *, measuring: bool, environment: MutableMapping[str, str]
) -> Study:
    """Check the config, and find the campaign's folder and date; ends the run on a mistake.

    Args:
        where: the config file, for messages.
        environment: says who started this; removed, since launches must not see it. It carries the date of a
            campaign without ``campaign.json`` to the processes that Snakemake starts, perhaps after midnight.
    """
    try:
        campaign = parse_campaign(config, where=where)
        folder = CampaignFolder(Path("results") / campaign.campaign)
        earlier = read_campaign_file(folder.campaign_file) if folder.campaign_file.exists() else None
        date = environment.setdefault(DATE_VARIABLE, date_of(folder, earlier))
        if earlier is not None:
            date = earlier.date
        elif not is_date(date):
            stop(f"{DATE_VARIABLE}={shown(date)}: no date (YYYY-MM-DD). It names folders; unset it.")
        found, outdated = CampaignState(), list[Path]()
        for_a_job = environment.setdefault(START_VARIABLE, _THIS_START) != _THIS_START
        if measuring and not for_a_job:
            changed = earlier is not None and refuse_change(campaign, earlier, folder)
            found = state_of(campaign, folder, date, changed=changed)
            for line in found.said(folder):
                print(masked(line), file=sys.stderr)
            outdated += found.void
        if earlier is not None and folder.aggregate.exists() and not for_a_job:
            outdated += [folder.aggregate] * (
                earlier.config.get("analysis") != campaign.to_json()["analysis"]
            )
        command, quiet = environment.pop(COMMAND_VARIABLE, ""), bool(environment.pop(QUIET_VARIABLE, ""))
        newer = _newer_than(outdated)
        study = Study(campaign, folder, date, measuring, found, newer, for_a_job, command, quiet)
        folder.refuse_what_is_no_folder(study.runs if measuring else ())
    except ConnectorTaxError as error:
        stop(str(error))
    return study


def _newer_than(files: Collection[Path]) -> dict[Path, str]:
    """Map all ``files`` to one newer file of this process."""
    if not files:
        return {}
    newer = Path(_STARTED.enter_context(TemporaryDirectory(prefix="connector-tax."))) / "void"
    newer.touch()
    newest_s = max(time.time(), *(file.stat().st_mtime + 1 for file in files))
    os.utime(newer, (newest_s, newest_s))
    return dict.fromkeys(files, str(newer))


def put_own_python_first(environment: MutableMapping[str, str]) -> None:
    """Make ``python`` this interpreter, and set ``SCRIPTS`` and ``SNAKEMAKE``, in ``environment``."""
    environment[SCRIPTS_VARIABLE] = os.path.relpath(PROJECT / "scripts")
    environment[SNAKEMAKE_VARIABLE] = str(os.getpid())
    environment["PATH"] = os.pathsep.join(
        [str(Path(sys.executable).parent), environment.get("PATH", os.defpath)]
    )


def code(script: str) -> str:
    """Hash a script and all project files that it uses; as a parameter, only edits there rerun it."""
    return sha256_of_code(closure(script))
