"""What the Snakefile asks while it is read: which campaign, which date, which receipts, what was asked for.

Rules stay thin: whatever needs an ``if`` is decided here and can be tested without Snakemake.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable, MutableMapping
from contextlib import ExitStack, redirect_stderr
from dataclasses import dataclass
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any, NoReturn

import msgspec
from snakemake.cli import parse_args
from snakemake.io import report

from connector_tax.base.artifacts.layout import CampaignFolder, RunFolder
from connector_tax.base.artifacts.parcel import put_back
from connector_tax.base.config import CampaignConfig, parse_campaign
from connector_tax.base.config.secrets import hand_on
from connector_tax.base.documents.figures import FigureIndex, read_figure_index
from connector_tax.base.errors import ArtifactError, ConnectorTaxError
from connector_tax.base.files import to_json, write_text_if_changed
from connector_tax.base.imports import PROJECT, closure
from connector_tax.base.last_words import INTERRUPTED, KILLED, Mark, last_words, marks_of, without_a_word
from connector_tax.base.locks import started_once
from connector_tax.base.opening import is_date, shown
from connector_tax.base.plan import (
    campaign_document,
    config_of,
    phases_before,
    priority_of,
    read_campaign_file,
    run_spec_hash,
    slot_of,
)
from connector_tax.base.plan.edits import as_stored, config_before, edited_costs, launches_hash
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.cell import Phase, is_repeat
from connector_tax.base.redaction import published_text
from connector_tax.unseen_edits import refuse_an_unseen_edit, refuse_another_campaign

# Targets that measure nothing. Asked for by name, they take what is on disk: no rule that could measure
# exists then, so a clone that scrambled every time stamp cannot start an engine.
READING = frozenset({"analysis", "figures", "report", "manifest"})
NOT_MEASURING = READING | {"revert_patch"}
TARGETS_VARIABLE = "CONNECTOR_TAX_TARGETS"
DATE_VARIABLE = "CONNECTOR_TAX_DATE"
_STARTED = ExitStack()
_LOGS_BEFORE: dict[Path, Mark] = {}


def stop(message: str) -> NoReturn:
    """End with one message; Snakemake would wrap it in a traceback of its own parser."""
    print(f"error: {published_text(message)}", file=sys.stderr, flush=True)
    os._exit(2)


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
    """Of the figures in ``figures/``; read where Snakemake's report asks for one, since every other run has no need of them.

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
    """One line in which reStructuredText finds no markup: captions hold names from files that anybody may have written."""
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", " ".join(text.split()))


@dataclass(frozen=True, slots=True)
class Study:
    """One campaign as the rules see it.

    Attributes:
        date: of the first start, since it names folders; the same on every resume.
        created_utc: of the first start; None before it.
        earlier: the config of the last start, as ``campaign.json`` has it; None where there is none that this version reads.
    """

    config: CampaignConfig
    folder: CampaignFolder
    date: str
    created_utc: str | None
    measuring: bool
    earlier: CampaignConfig | None = None

    @property
    def logs(self) -> Path:
        return self.folder.logs

    def pictures(self, caption: str) -> list[str]:
        """``figures/`` as an input that Snakemake's report shows, where it is there; not what lies in folders beneath it.

        Args:
            caption: template of a picture's caption, as seen from the rule's file.
        """
        if not self.folder.figures.is_dir():
            return []
        shown_as: Any = {"caption": caption, "category": "Figures", "labels": {"figure": "{figure}"}}
        return [report(str(self.folder.figures), patterns=["{figure,fig[1-9]_[a-z0-9_]+}.svg"], **shown_as)]

    def captions(self) -> "Captions":
        return Captions(self.folder.figures / "index.json")

    def receipt(self, phase: Phase) -> Path:
        """The receipt of ``{connector}`` in ``phase``, as a Snakemake pattern; ``phase`` may be one, too."""
        return self.folder.run(self.date, "{connector}", phase).receipt

    def receipts(self, *phases: Phase) -> list[str]:
        """Of those of ``phases`` that the campaign has."""
        return [
            str(self.folder.run(self.date, c, phase).receipt)
            for phase in phases
            if phase in self.config.phases
            for c in self.config.members(phase)
        ]

    def configurations(self) -> list[str]:
        """Everything that any phase launches."""
        return list(dict.fromkeys(c for phase in self.config.phases for c in self.config.members(phase)))

    def repeats(self) -> list[Phase]:
        return [p for p in self.config.phases if is_repeat(p)]

    def last_receipts(self) -> list[str]:
        """When all are there, measuring is over. Phase A's are needed for the other phases', and stand here where there are none."""
        return self.receipts(*(self.config.phases[1:] or ("a",)))

    def receipts_to_read(self) -> list[str]:
        """All of them where measuring is part of the DAG, else those on disk; ends the run without any."""
        if self.measuring:
            return self.receipts(*self.config.phases)
        found = [str(r.receipt) for r in self.folder.runs() if r.receipt.exists()]
        if not found:
            stop(
                f"{self.folder.root}: nothing measured there yet, so there is nothing to read. "
                f"Run `snakemake --cores {len(self.config.engine.slots)}` first, or put shipped results in place."
            )
        return found

    def rates_to_read(self) -> list[str]:
        """``reference_rates.json``; a campaign that stopped before it can be read without."""
        wanted = self.measuring or self.folder.reference_rates.exists()
        return [str(self.folder.reference_rates)] if wanted else []

    def put_in_to_read(self) -> list[str]:
        """``put_in.json`` of a campaign on the embedded engine; one that was measured without it can be read without."""
        wanted = self.config.engine.kind == "emulator" and self.measuring
        return [str(self.folder.put_in)] if wanted or self.folder.put_in.exists() else []

    def spec_hash(self, phase: Phase | None) -> Callable[[Any], str]:
        """For ``params``: a changed parameter reruns the runs it touches. None: the phase is a wildcard."""
        return lambda wildcards: run_spec_hash(self.config, wildcards.connector, phase or wildcards.phase)

    def launches_hash(self) -> str:
        return launches_hash(self.config)

    def receipts_before(self, phase: Phase) -> list[str]:
        """What must have ended before a phase begins that is measured at the reference rates."""
        return self.receipts(*phases_before(self.config, phase)) if phase in self.config.phases else []

    def card(self, phase: Phase | None) -> dict[str, Callable[[Any], int]]:
        """For ``resources`` of a campaign of several cards whose phases stay on one: which one a job takes. None: the phase is a wildcard."""

        def taken(slot: int) -> Callable[[Any], int]:
            return lambda wildcards: int(slot_of(self.config, phase or wildcards.phase) == slot)

        slots = self.config.engine.slots
        # Any phase will do: it is one and the same for all of them whether they stay.
        if len(slots) == 1 or slot_of(self.config, "a") is None:
            return {}
        return {f"card{k}": taken(k) for k in range(len(slots))}

    def limits(self, wanted: int | None) -> dict[str, int]:
        """What all jobs together may take of a resource: as many engines as there are cards, and of each card one.

        Snakemake only counts; which card a job has is settled by a lock when it starts.

        Args:
            wanted: engines side by side, of the command line; None: not given.
        """
        slots = len(self.config.engine.slots)
        if wanted is not None and wanted > slots and self.measuring:
            print(
                f"--resources gpu={wanted}: campaign {self.config.campaign} may use {slots} (engine.gpus: "
                f"{', '.join(map(str, self.config.engine.slots))}). Name more cards there to have more engines side by side.",
                file=sys.stderr,
            )
        return {"gpu": min(slots, slots if wanted is None else wanted), **dict.fromkeys(self.card("a"), 1)}

    @property
    def runs(self) -> list[RunFolder]:
        """All that are wanted, there or not."""
        config = self.config
        return [
            self.folder.run(self.date, c, phase) for phase in config.phases for c in config.members(phase)
        ]

    def position(self, phase: Phase | None) -> Callable[[Any], int]:
        """For ``priority``, as ``priority_of``. None: the phase is a wildcard."""
        return lambda wildcards: priority_of(self.config, phase or wildcards.phase, wildcards.connector)

    def begin(self) -> None:
        """Before the first job of a start: nobody else works on this campaign, and ``campaign.json`` is as configured.

        Two starts would remove each other's receipts: Snakemake deletes what a failed job was to make.
        """
        if self.measuring:
            try:
                # Held by this process until it ends; the kernel drops the lock then, however that is.
                _STARTED.enter_context(started_once(self.folder.start_lock, self.config.campaign))
                put_back(self.folder)
                refuse_another_campaign(self.config, self.earlier, self.runs, self.folder)
                costs = None if self.earlier is None else edited_costs(as_stored(self.config), self.earlier)
            except ConnectorTaxError as error:
                stop(str(error))
            if costs is not None and any(run.receipt.is_file() for run in self.runs):
                print(
                    f"{self.folder.campaign_file}: changed is {costs}: every cell is measured again",
                    file=sys.stderr,
                )
        _LOGS_BEFORE.clear()
        _LOGS_BEFORE.update(marks_of(self.logs))
        self.write_campaign_file()

    def say_why(self, failed: Iterable[Any] = (), account: Iterable[str] = ()) -> None:
        """After a start that ended early: what its jobs said of it, and which of them said nothing.

        Args:
            failed: Snakemake's jobs.
            account: files with what Snakemake itself said of its rules. It stands above, and is longer.
        """
        words = last_words(self.logs, _LOGS_BEFORE)
        told = "\n".join(Path(file).read_text(encoding="utf-8", errors="replace") for file in account)
        words |= without_a_word(failed, words, _LOGS_BEFORE, told)
        said = [line for lines in words.values() for line in lines]
        if any(line.startswith((INTERRUPTED, KILLED)) for line in said):
            said.append("The same command goes on.")
        if said:
            print(published_text("\n".join(["", "Why it ended:", *said])), file=sys.stderr, flush=True)

    def write_campaign_file(self) -> None:
        """``campaign.json``, which every script reads; only its config changes after the first start.

        Where nothing is measured only the settings of the analysis are taken over: the rest says how the
        results came about, whatever the config file says today.
        """
        path = self.folder.campaign_file
        created = self.created_utc or f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        document = campaign_document(self.config, date=self.date, created_utc=created)
        try:
            if not self.measuring:
                if not path.exists():
                    return
                analysis = document.config["analysis"]
                document = read_campaign_file(path)
                config_of(document)  # refuses what another version wrote
                document = msgspec.structs.replace(document, config={**document.config, "analysis": analysis})
            write_text_if_changed(path, to_json(document))
        except ConnectorTaxError as error:
            stop(str(error))


def open_study(
    config: Foreign, where: str, *, measuring: bool, environment: MutableMapping[str, str]
) -> Study:
    """Check the config and find the campaign's folder and date; ends the run on a mistake.

    Args:
        where: the config file, for messages.
        environment: carries the date of a campaign that has no ``campaign.json`` yet to processes that
            Snakemake starts, perhaps after midnight; and the secrets of the config, which no file carries.
    """
    try:
        campaign = parse_campaign(config, where=where)
        hand_on(campaign, environment)
        folder = CampaignFolder(Path("results") / campaign.campaign)
        if measuring:
            folder.refuse_links()
        else:
            folder.links()
        earlier = read_campaign_file(folder.campaign_file) if folder.campaign_file.exists() else None
    except ConnectorTaxError as error:
        stop(str(error))
    first = folder.measured_on() or f"{datetime.now(UTC):%Y-%m-%d}"
    today = environment.setdefault(DATE_VARIABLE, first)
    if not is_date(today):
        stop(f"{DATE_VARIABLE}={shown(today)}: no date (YYYY-MM-DD). It names folders; unset it.")
    study = (
        Study(campaign, folder, today, None, measuring)
        if earlier is None
        else Study(
            campaign, folder, earlier.date, earlier.created_utc or None, measuring, config_before(earlier)
        )
    )
    try:
        if measuring:
            folder.refuse_what_is_no_folder(study.runs)
        if study.earlier is not None:
            refuse_an_unseen_edit(campaign, study.earlier, study.runs if measuring else None, folder, where)
    except ConnectorTaxError as error:
        stop(str(error))
    return study


def put_own_python_first(environment: MutableMapping[str, str]) -> None:
    """``python`` is then this interpreter, in everything that is started with ``environment``."""
    environment["PATH"] = os.pathsep.join(
        [str(Path(sys.executable).parent), environment.get("PATH", os.defpath)]
    )


def code(script: str) -> list[str]:
    """A script and all that it runs or reads of this project, as inputs: an edit there runs it again, nothing else."""
    return [str(path.relative_to(PROJECT)) for path in closure(script)]
