"""``requests_*.jsonl`` to records, with everything that is wrong with the file."""

from collections import Counter
from pathlib import Path

import msgspec

from connector_tax.base.documents.aggregate import Problem, ProblemCode
from connector_tax.base.opening import each_line_of
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.units import MOST_NS

# Of the faults of one file, so many are named.
SHOWN = 5
# Whatever a sound writer left of a request is one faulty line at its end.
MOST_FAULTS = 1000
# Holds every field against its type.
_DECODER = msgspec.json.Decoder(RequestRecord)


def read_requests(path: Path) -> tuple[list[RequestRecord], list[Problem]]:
    """Records in order of ``seq``, and what is wrong: torn or foreign lines, duplicates, gaps (the first five).

    A file with a fault costs its cell, so reading ends after ``MOST_FAULTS`` of them; the records are those up to there.
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
    turns = Counter((r.session, r.turn) for r in by_seq.values() if r.session is not None)
    faults += [("turn_twice", session or 0, "") for (session, _), n in turns.items() if n > 1]
    # A turn gets its number when it becomes ready; those that were not yet due when sending ended left gaps.
    if not turns and (missing := next((k for k in range(len(by_seq)) if k not in by_seq), None)) is not None:
        faults.append(("request_missing", missing, ""))
    named = [Problem(code, path.name, numbers={"at": at}, detail=said) for code, at, said in faults[:SHOWN]]
    return [by_seq[s] for s in sorted(by_seq)], named


def _times_are_there(r: RequestRecord) -> bool:
    needed = (r.seq, r.t_sched_ns, *((r.t_first_token_ns, r.t_last_token_ns) if r.status == "ok" else ()))
    optional = (r.t_send_ns, r.t_end_ns, r.prompt_tokens, r.completion_tokens, r.session, r.turn)
    return None not in needed and all(v is None or 0 <= v < MOST_NS for v in (*needed, *optional))
