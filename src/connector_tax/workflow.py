"""What the Snakefile asks while it is read: which campaign, which date, which receipts, what was asked for.

Rules stay thin: whatever needs an ``if`` is decided here and can be tested without Snakemake.
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
from connector_tax.base.last_words import (
    COMMAND_VARIABLE,
    INTERRUPTED,
    KILLED,
    QUIET_VARIABLE,
    Mark,
    last_words,
    marks_of,
    without_a_word,
)
from connector_tax.base.locks import started_once
from connector_tax.base.plan import phases_before, priority_of, read_campaign_file, slot_of
from connector_tax.base.plan.start import (
    Standing,
    date_of,
    open_campaign,
    refuse_change,
    standing,
    take_over_analysis,
)
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.cell import Phase, is_repeat
from connector_tax.base.secrets import masked

# Targets that measure nothing. Asked for by name, they take what is on disk: no rule that could measure
# exists then, so a clone that scrambled every time stamp cannot start an engine.
READING = frozenset({"analysis", "figures", "report", "manifest"})
NOT_MEASURING = READING | {"revert_patch"}
TARGETS_VARIABLE = "CONNECTOR_TAX_TARGETS"
DATE_VARIABLE = "CONNECTOR_TAX_DATE"
SCRIPTS_VARIABLE, SNAKEMAKE_VARIABLE = "CONNECTOR_TAX_SCRIPTS", "CONNECTOR_TAX_SNAKEMAKE"
# Of the process that was started, and not one that Snakemake started for a job.
START_VARIABLE, _THIS_START = "CONNECTOR_TAX_START", f"{os.getpid()}.{time.time_ns()}"
_STARTED = ExitStack()
_LOGS_BEFORE: dict[Path, Mark] = {}


# Errors of Snakemake's log in a quiet start; they are said at the end unless a job has words for why it
# ended.
_HUSHED = MemoryHandler(capacity=10_000, flushLevel=CRITICAL + 1)


def stop(message: str, code: int = 2) -> NoReturn:
    """End with one message; Snakemake would wrap it in a traceback of its own parser."""
    print(f"error: {masked(message)}", file=sys.stderr, flush=True)
    _STARTED.close()
    atexit._run_exitfuncs()  # removes Snakemake's temporary folder, which os._exit leaves
    os._exit(code)


def requested_targets(arguments: list[str], environment: MutableMapping[str, str]) -> frozenset[str]:
    """What was asked for on the command line; jobs that Snakemake starts as processes inherit it.

    Snakemake knows its targets only after it has read the rules, and here they decide which rules
    there are. Without a target, what ``--until`` or ``--forcerun`` names counts as one; beside a target
    they do not, or ``figures --forcerun measure_a`` would bring the measuring rules back.
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
    """Whether a file asked for by its path is one that the reading wing makes."""
    path = Path(os.path.relpath(target))
    folder = CampaignFolder(Path(*path.parts[:2]))
    return path in {
        *(folder.aggregate, folder.aggregate_csv, folder.report, folder.manifest),
        folder.figures / "index.json",
    }


@dataclass(frozen=True, slots=True)
class CaptionText:
    """In reStructuredText, each one line."""

    title: str
    caption: str


@dataclass(frozen=True, slots=True)
class Captions:
    """Of the figures in ``figures/``; read where Snakemake's report asks for one, since every other run has
    no need of them.

    Snakemake shows what it is as a string beside each figure.
    """

    index: Path

    def __str__(self) -> str:
        return f"as in {self.index}"

    def of(self, name: str) -> CaptionText:
        """
        Raises:
            ArtifactError: ``index.json`` cannot be read, or does not know a figure of this name.
        """
        found = next((e for e in read_figure_index(self.index).figures if e.name == name and e.drawn), None)
        if found is None:
            raise ArtifactError(
                f"{self.index}: names no figure {shown(name)} that is drawn. {FigureIndex.REMEDY}"
            )
        return CaptionText(rst_text(found.title), rst_text(found.caption))


def rst_text(text: str) -> str:
    """One line in which reStructuredText finds no markup: captions hold names from files that anybody may
    have written."""
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", " ".join(text.split()))


@dataclass(frozen=True, slots=True)
class Study:
    """One campaign as the rules see it.

    Attributes:
        date: of the first start, since it names folders; the same on every resume.
        found: which results are true, where this measures. Runs that have a true receipt have no rule, so
            nothing measures them again.
        newer: by product that is on disk and to be made again, a file that is newer: Snakemake makes again
            what is older than what it is made of, and not what is merely wrong.
        for_a_job: whether Snakemake started this process for a job, as it does through a batch system. It
            looks for nothing that is left: whoever started it did.
        command: what a person typed; empty where that was Snakemake.
        quiet: whether Snakemake is not to be heard.
    """

    config: CampaignConfig
    folder: CampaignFolder
    date: str
    measuring: bool
    found: Standing = field(default_factory=Standing)
    newer: Mapping[Path, str] = field(default_factory=dict)
    for_a_job: bool = False
    command: str = ""
    quiet: bool = False

    @property
    def logs(self) -> Path:
        return self.folder.logs

    def pictures(self, caption: str) -> list[str]:
        """``figures/`` as an input that Snakemake's report shows, where it is there; not what lies in folders
        beneath it.

        Args:
            caption: template of a picture's caption, as seen from the rule's file.
        """
        if not self.folder.figures.is_dir():
            return []
        shown_as: Any = {"caption": caption, "category": "Figures", "labels": {"figure": "{figure}"}}
        return [report(str(self.folder.figures), patterns=["{figure,fig[1-9]_[a-z0-9_]+}.svg"], **shown_as)]

    def captions(self) -> "Captions":
        return Captions(self.folder.figures / "index.json")

    def receipts(self, *phases: Phase) -> list[str]:
        """Of those of ``phases`` that the campaign has."""
        return [
            str(self.folder.run(self.date, c, phase).receipt)
            for phase in phases
            if phase in self.config.phases
            for c in self.config.members(phase)
        ]

    def left(self, phases: Collection[Phase] | None = None) -> list[str]:
        """The receipts that are to be made, of ``phases`` or of all."""
        return [
            str(self.folder.run(self.date, c, phase).receipt)
            for phase, ids in self.found.left.items()
            if phases is None or phase in phases
            for c in ids
        ]

    @property
    def receipt(self) -> str:
        """What a measuring job makes, as a Snakemake pattern."""
        return str(self.folder.root / f"{self.date}_{{connector}}" / "phase_{phase}" / RECEIPT)

    @property
    def left_pattern(self) -> str:
        """What ``{connector}`` may be, by what follows it in ``receipt``; of a campaign that is measured
        nothing."""
        if self.for_a_job:
            return ".+"
        pairs = [f"{re.escape(c)}(?=/phase_{phase}/)" for phase, ids in self.found.left.items() for c in ids]
        return "|".join(pairs) or "(?!)"

    def if_left(self, product: Path) -> list[str]:
        """A product that others wait for; none where it is true already, whatever its time."""
        return [str(product)] if product in self.found.void or not product.exists() else []

    def newer_than(self, product: Path) -> list[str]:
        """What a product is made again for, beside its inputs; none where it is not to be."""
        return [self.newer[product]] if product in self.newer else []

    def before(self, wildcards: Any) -> list[str]:
        """What a measuring job waits for, as far as it is not there."""
        phase = wildcards.phase
        wanted = self.newer_than(self.folder.run(self.date, wildcards.connector, phase).receipt)
        wanted += self.if_left(self.folder.preflight_status)
        if phase != "a":
            # Rates wait for Phase A. Where they stand its launches come first all the same: a configuration
            # that fails there is launched no more.
            wanted += self.if_left(self.folder.reference_rates) or self.left(("a",))
            wanted += self.left(phases_before(self.config, phase))
        return wanted

    def before_rates(self) -> list[str]:
        """What reference rates wait for; those that later phases were measured at stand."""
        rates = self.folder.reference_rates
        return [*self.newer_than(rates), *self.left(("a",))] if self.if_left(rates) else []

    def repeats(self) -> list[Phase]:
        return [p for p in self.config.phases if is_repeat(p)]

    def to_read(self) -> list[str]:
        """Receipts that the analysis is older than, or that are to be made; ends the run where there is none
        at all.

        Those that are older than the analysis are left out: there are many, and nothing follows from them.
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
        """What holds the settings of the analysis, where it is there; and what stands for an edit of them."""
        there = [self.folder.campaign_file] if self.folder.campaign_file.is_file() else []
        return [*self.newer_than(self.folder.aggregate), *map(str, there)]

    def rates_to_read(self) -> list[str]:
        """``reference_rates.json``; a campaign that stopped before it can be read without."""
        wanted = self.measuring or self.folder.reference_rates.exists()
        return [str(self.folder.reference_rates)] if wanted else []

    def put_in_to_read(self) -> list[str]:
        """``put_in.json`` of a campaign on the embedded engine; one that was measured without it can be read
        without."""
        wanted = self.config.engine.kind == "emulator" and self.measuring
        return [str(self.folder.put_in)] if wanted or self.folder.put_in.exists() else []

    def cards(self) -> dict[str, Callable[[Any], int]]:
        """For ``resources`` of a campaign of several cards whose phases stay on one: which one a job
        takes."""

        def taken(slot: int) -> Callable[[Any], int]:
            return lambda wildcards: int(slot_of(self.config, wildcards.phase) == slot)

        slots = self.config.engine.slots
        # Any phase will do: it is one and the same for all of them whether they stay.
        if len(slots) == 1 or slot_of(self.config, "a") is None:
            return {}
        return {f"card{k}": taken(k) for k in range(len(slots))}

    def limits(self, wanted: int | None) -> dict[str, int]:
        """What all jobs together may take of a resource: as many engines as there are cards, and of each card
        one.

        Snakemake only counts; which card a job has is settled by a lock when it starts.

        Args:
            wanted: engines side by side, of the command line; None: not given.
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
        """All that are wanted, there or not."""
        config = self.config
        return [
            self.folder.run(self.date, c, phase) for phase in config.phases for c in config.members(phase)
        ]

    def position(self, wildcards: Any) -> int:
        """For ``priority``, as ``priority_of``."""
        return priority_of(self.config, wildcards.phase, wildcards.connector)

    def refuse_unknown(self, targets: Iterable[str], rules: Iterable[Any]) -> None:
        """End the run where one of ``targets`` is no rule's name, nothing that a rule makes, and no result
        that is there."""
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
        """Before the first job of a start: nobody else works on this campaign, and ``campaign.json`` is as
        configured.

        Two starts would remove each other's receipts: Snakemake deletes what a failed job was to make.
        """
        try:
            if self.measuring:
                # Held by this process until it ends; the kernel drops the lock then, however that is.
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
        """After a start that ended early: what its jobs said of it, and which of them said nothing; exits
        where it was interrupted.

        Args:
            failed: Snakemake's jobs.
            account: files with what Snakemake itself said of its rules. It stands above, and is longer.
        """
        words = last_words(self.logs, _LOGS_BEFORE)
        told = "\n".join(Path(file).read_text(encoding="utf-8", errors="replace") for file in account)
        words |= without_a_word(failed, words, _LOGS_BEFORE, told)
        said = [line for lines in words.values() for line in lines]
        if not (said or failed):  # Snakemake was told to end, and not its job
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
        """Have the report's closing lines stand below all that Snakemake says; nothing where the report is
        not of this analysis."""
        made = [p.stat().st_mtime_ns for p in (self.folder.aggregate, self.folder.report) if p.is_file()]
        if len(made) == 2 and made[0] <= made[1]:
            # Here, since only the end of a run needs it.
            from connector_tax.read.report.page import closing_lines

            with suppress(ConnectorTaxError):  # a page of another version
                atexit.register(print, masked(closing_lines(self.folder.root)), flush=True)

    def hush(self, logger: Logger) -> None:
        """Where ``quiet``, let nothing of Snakemake be heard but errors that no job has words for."""
        for handler in list(logger.handlers):
            if self.quiet and handler.name == "DefaultStreamHandler":
                _HUSHED.setLevel(ERROR)
                _HUSHED.setTarget(handler)
                logger.removeHandler(handler)
                logger.addHandler(_HUSHED)

    def say_result_of_nothing(self, record: LogRecord) -> bool:
        """As a filter of Snakemake's log: its success hook is silent where there is nothing to be done. Lets
        every record pass."""
        if record.msg == NOTHING_TO_BE_DONE_MSG and not self.for_a_job:
            self.say_result()
        return True


def open_study(
    config: Foreign, where: str, *, measuring: bool, environment: MutableMapping[str, str]
) -> Study:
    """Check the config and find the campaign's folder and date; ends the run on a mistake.

    Args:
        where: the config file, for messages.
        environment: says who started this, which no launch is to know of; and carries the date of a campaign
            that has no ``campaign.json`` yet to processes that Snakemake starts, perhaps after midnight.
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
        found, outdated = Standing(), list[Path]()
        for_a_job = environment.setdefault(START_VARIABLE, _THIS_START) != _THIS_START
        if measuring and not for_a_job:
            changed = earlier is not None and refuse_change(campaign, earlier, folder)
            found = standing(campaign, folder, date, changed=changed)
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
    """One file of this process for all of them."""
    if not files:
        return {}
    newer = Path(_STARTED.enter_context(TemporaryDirectory(prefix="connector-tax."))) / "void"
    newer.touch()
    newest_s = max(time.time(), *(file.stat().st_mtime + 1 for file in files))
    os.utime(newer, (newest_s, newest_s))
    return dict.fromkeys(files, str(newer))


def put_own_python_first(environment: MutableMapping[str, str]) -> None:
    """``python`` is then this interpreter, ``SCRIPTS`` where ours lie and ``SNAKEMAKE`` this process, in
    everything that is started with ``environment``."""
    environment[SCRIPTS_VARIABLE] = os.path.relpath(PROJECT / "scripts")
    environment[SNAKEMAKE_VARIABLE] = str(os.getpid())
    environment["PATH"] = os.pathsep.join(
        [str(Path(sys.executable).parent), environment.get("PATH", os.defpath)]
    )


def code(script: str) -> str:
    """Of a script and all that it runs or reads of this project, as a parameter: an edit there runs it again,
    nothing else."""
    return sha256_of_code(closure(script))
