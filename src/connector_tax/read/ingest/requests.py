"""``requests_*.jsonl`` to records, with everything that is wrong with the file."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from connector_tax.base.documents.aggregate import Problem, ProblemCode
from connector_tax.base.files import each_line_of
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.units import MOST_NS

# Of the faults of one file, so many are named.
SHOWN = 5
# Whatever a sound writer left of a request is one faulty line at its end.
MOST_FAULTS = 1000
# Holds every field against its type.
_DECODER = msgspec.json.Decoder(RequestRecord)


@dataclass
class _Faults:
    """The first ``SHOWN`` of a file's faults; of the others their number only, since a file may consist of them."""

    file: str
    first: list[Problem] = field(default_factory=list)
    count: int = 0

    def add(self, code: ProblemCode, at: int, detail: str = "") -> None:
        self.count += 1
        if len(self.first) < SHOWN:
            self.first.append(Problem(code, self.file, numbers={"at": at}, detail=detail))


def read_requests(path: Path) -> tuple[list[RequestRecord], list[Problem]]:
    """Records in order of ``seq``, and what is wrong: torn or foreign lines, duplicates, gaps (the first five).

    A file with a fault costs its cell, so reading ends after ``MOST_FAULTS`` of them; the records are those up to there.
    """
    if not path.exists():
        return [], []  # named by the checksum check already
    by_seq: dict[int, RequestRecord] = {}
    faults = _Faults(path.name)
    for number, line in enumerate(each_line_of(path), 1):
        fault = _take(line, number, by_seq)
        if fault is not None:
            faults.add(*fault)
            if faults.count == MOST_FAULTS:
                break
    turns = Counter((r.session, r.turn) for r in by_seq.values() if r.session is not None)
    for (session, _), n in turns.items():
        if n > 1:
            faults.add("turn_twice", session or 0)
    # A turn gets its number when it becomes ready; those that were not yet due when sending ended left gaps.
    if not turns and (missing := next((k for k in range(len(by_seq)) if k not in by_seq), None)) is not None:
        faults.add("request_missing", missing)
    return [by_seq[s] for s in sorted(by_seq)], faults.first


def _take(line: bytes, number: int, by_seq: dict[int, RequestRecord]) -> tuple[ProblemCode, int, str] | None:
    """Put the record of ``line`` into ``by_seq``, or return what is wrong with it."""
    try:
        record = _DECODER.decode(line.decode("utf-8", errors="replace"))
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
        return "line_no_request", number, str(error)[:80]
    if not _times_are_there(record):
        return "line_without_time", number, ""
    if record.seq in by_seq:
        return "request_twice", record.seq, ""
    by_seq[record.seq] = record
    return None


def _times_are_there(r: RequestRecord) -> bool:
    needed = (
        (r.seq, r.t_sched_ns)
        if r.status != "ok"
        else (r.seq, r.t_sched_ns, r.t_first_token_ns, r.t_last_token_ns)
    )
    optional = (r.t_send_ns, r.t_end_ns, r.prompt_tokens, r.completion_tokens, r.session, r.turn)
    return all(map(_is_time, needed)) and all(v is None or _is_time(v) for v in optional)


def _is_time(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < MOST_NS
