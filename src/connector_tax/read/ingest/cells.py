"""Reads a cell's folder into ``CellData``: records, faults of its files, and a check of the campaign."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from connector_tax.base.artifacts.cells import read_cell
from connector_tax.base.artifacts.layout import CellFolder, RunFolder
from connector_tax.base.config import CampaignConfig
from connector_tax.base.documents.aggregate import Problem, ProblemCode
from connector_tax.base.documents.cell import CellDocument, FileEntry
from connector_tax.base.documents.receipt import ReceiptCell
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import as_json, bare, each_line_of, sha256_of
from connector_tax.base.plan.cells import cells_of, launch_spec
from connector_tax.base.records.cell import CellSpec, CellWindow
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.base.records.rates import ReferenceRates
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.units import MOST_NS
from connector_tax.read.ingest.samples import Samples, read_samples
from connector_tax.read.ingest.steps import StepRecords, open_steps

# Faults named per file.
SHOWN = 5
# A sound writer leaves at most one faulty line, at the end.
MOST_FAULTS = 1000
# Checks every field against its type.
_DECODER = msgspec.json.Decoder(RequestRecord)


def read_requests(path: Path) -> tuple[list[RequestRecord], list[Problem]]:
    """Read records ordered by ``seq``, and name the first faults: torn or foreign lines, duplicates, gaps.

    A faulty file costs its cell, so reading ends after ``MOST_FAULTS`` faults, with the records up to there.
    """
    if not path.exists():
        return [], []  # named by the checksum check already
    by_seq: dict[int, RequestRecord] = {}
    faults: list[tuple[ProblemCode, int, str]] = []
    for number, line in enumerate(each_line_of(path), 1):
        try:
            record = _DECODER.decode(line.decode("utf-8", errors="replace"))
        except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
            faults.append(("line_no_request", number, str(error)[:80]))
        else:
            if not _times_are_there(record):
                faults.append(("line_without_time", number, ""))
            elif record.seq in by_seq:
                faults.append(("request_twice", record.seq, ""))
            else:
                by_seq[record.seq] = record
        if len(faults) == MOST_FAULTS:
            break
    turn_counts = Counter((r.session, r.turn) for r in by_seq.values() if r.session is not None)
    faults += [("turn_twice", session or 0, "") for (session, _), n in turn_counts.items() if n > 1]
    # A turn gets its number when ready; turns not yet due when sending ended leave gaps.
    if (
        not turn_counts
        and (missing := next((k for k in range(len(by_seq)) if k not in by_seq), None)) is not None
    ):
        faults.append(("request_missing", missing, ""))
    problems = [
        Problem(code, path.name, numbers={"at": at}, detail=detail) for code, at, detail in faults[:SHOWN]
    ]
    return [by_seq[s] for s in sorted(by_seq)], problems


def _times_are_there(r: RequestRecord) -> bool:
    needed = (r.seq, r.t_sched_ns, *((r.t_first_token_ns, r.t_last_token_ns) if r.status == "ok" else ()))
    optional = (r.t_send_ns, r.t_end_ns, r.prompt_tokens, r.completion_tokens, r.session, r.turn)
    return None not in needed and all(v is None or 0 <= v < MOST_NS for v in (*needed, *optional))


# Fields that preflight fills in for a matched baseline, once it has seen the other engine.
MATCHED = {"extra_args", "env"}


def other_campaign(
    config: CampaignConfig, run: RunFolder, folder: CellFolder, document: CellDocument
) -> list[Problem]:
    """Return why the cell in ``folder`` belongs to another campaign; empty if it belongs to this one."""
    identity = (document.campaign, document.connector, document.phase, document.cell_id)
    if identity != (config.campaign, run.connector_id, run.phase, folder.cell_id):
        return [Problem("of_other_campaign", names=identity)]
    if run.connector_id not in (*config.connector_ids, PLAIN_AGAIN):
        return []
    faults: list[Problem] = []
    launched, planned_launch = (
        as_json(launch or {}) for launch in (document.launch, launch_spec(config, run.connector_id))
    )
    ignored_keys = MATCHED if config.connector(run.connector_id).matches is not None else set()
    if different := [
        k
        for k in planned_launch
        if k in launched and k not in ignored_keys and launched[k] != planned_launch[k]
    ]:
        faults.append(Problem("launched_otherwise", names=tuple(different)))
    planned_spec = _planned(config, run, document.spec)
    if planned_spec is None:
        faults.append(Problem("not_planned"))
    elif different := [k for k, v in document.spec.to_json().items() if v != planned_spec.to_json().get(k)]:
        faults.append(Problem("loaded_otherwise", names=tuple(different)))
    return faults


def _planned(config: CampaignConfig, run: RunFolder, spec: CellSpec) -> CellSpec | None:
    """Return the campaign's own cell of this rate and shape.

    Reference rates come from the cell, since they are results, not settings.
    """
    turns = [f.turns_per_session for f in config.phase_c.sessions] if run.phase == "c" else [1]
    for rate in (spec.rate_per_s * n for n in turns):
        for cell in cells_of(config, run.connector_id, run.phase, ReferenceRates(rate, rate)):
            if cell.cell_id == spec.cell_id:
                return cell
    return None


# The errors that readers raise on a file of another form than expected.
UNREADABLE = (ArtifactError, LookupError, AttributeError, TypeError, ValueError, OverflowError)


@dataclass(frozen=True, slots=True)
class CellData:
    """A finished cell.

    Attributes:
        faults: why the files exclude it from statistics; each is also in ``problems``.
        off: evidence that its connector was off.
        steps: read on demand, one cell at a time, since they are large; None if there are none.
    """

    config: str
    phase: str
    cell_id: str
    spec: CellSpec
    window: CellWindow
    document: CellDocument
    requests: list[RequestRecord]
    samples: Samples
    steps: StepRecords | None
    faults: tuple[Problem, ...] = ()
    off: tuple[Problem, ...] = ()

    @property
    def key(self) -> tuple[str, str, str]:
        return self.config, self.phase, self.cell_id

    @property
    def began_utc_ns(self) -> int:
        clock = self.document.clock
        return clock.utc_ns - clock.monotonic_ns + self.window.t0_ns

    @property
    def usable(self) -> bool:
        """Return whether the cell may enter the statistics."""
        return not self.faults and self.document.verdict == "valid"

    @property
    def reasons(self) -> tuple[Problem, ...]:
        """Return why the cell is unusable, causes found during measurement first."""
        measured = (Problem("invalid", detail=reason) for reason in self.document.reasons)
        return (*measured, *self.off, *self.faults)


def read_cell_data(
    place: tuple[RunFolder, CellFolder, ReceiptCell | None],
    config: CampaignConfig,
    steps: bool,
) -> CellData | Problem:
    """Return a cell's content, or a problem if it is unreadable; callable in other processes.

    Args:
        place: the cell, and its receipt entry; None without a receipt.
        steps: read step records.
    """
    run, folder, entry = place
    try:
        document = read_cell(folder)
        faults = other_campaign(config, run, folder, document)
        faults += _changed_files(folder, (entry or document).files)
        if folder.requests.name not in document.files:
            faults.append(Problem("file_missing", folder.requests.name))
        requests, request_faults = read_requests(folder.requests)
        faults += request_faults
        records = None
        if steps and not faults and folder.engine_step.exists():
            # As launched; older cells do not record it.
            connector = document.kv_transfer_config is not None
            records = open_steps(folder.engine_step, document.window, connector=connector)
        return CellData(
            config=run.connector_id,
            phase=run.phase,
            cell_id=folder.cell_id,
            spec=document.spec,
            window=document.window,
            document=document,
            requests=requests,
            samples=read_samples(folder.metrics, document.window),
            steps=records,
            faults=tuple(faults),
        )
    except UNREADABLE as error:
        return unread(folder.path, error)


def _changed_files(folder: CellFolder, files: Mapping[str, FileEntry]) -> list[Problem]:
    """Name changed files; every byte is read each time, since time and size prove nothing."""
    faults = []
    for name, expected in files.items():
        try:
            if sha256_of(folder.path / bare(name, "file")) != expected.sha256:
                faults.append(Problem("file_changed", name))
        except FileNotFoundError:
            faults.append(Problem("file_missing", name))
        except ArtifactError as error:
            message = str(error).replace(f"{folder.path}/", "")
            faults.append(Problem("file_unreadable", name, detail=message))
    return faults


def unread(path: Path, error: Exception, code: ProblemCode = "unreadable") -> Problem:
    """Convert an error to a problem, without the path, which is the subject; a KeyError only has the key."""
    message = f"no {error}" if isinstance(error, KeyError) else str(error)
    return Problem(code, str(path), detail=message.removeprefix(f"{path}: ").replace(f"{path}/", ""))
