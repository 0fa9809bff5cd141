"""``requests_*.jsonl`` to records, with everything that is wrong with the file."""

from collections import Counter
from pathlib import Path

import msgspec

from connector_tax.opening import MOST_LINES_BYTES, lines_of, read_whole
from connector_tax.records.request import RequestRecord
from connector_tax.units import MOST_NS

# Holds every field against its type.
_DECODER = msgspec.json.Decoder(RequestRecord)


def read_requests(path: Path) -> tuple[list[RequestRecord], list[str]]:
    """Records in order of ``seq``, and what is wrong: torn or foreign lines, duplicates, gaps (the first five)."""
    if not path.exists():
        return [], []  # named by the checksum check already
    by_seq: dict[int, RequestRecord] = {}
    faults: list[str] = []
    for number, line in enumerate(lines_of(read_whole(path, MOST_LINES_BYTES)), 1):
        try:
            record = _DECODER.decode(line)
        except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
            faults.append(f"line {number} is not a request ({str(error)[:80]})")
            continue
        if not _times_are_there(record):
            faults.append(f"line {number} lacks a time, or has one that none can be")
        elif record.seq in by_seq:
            faults.append(f"request {record.seq} stands twice")
        else:
            by_seq[record.seq] = record
    turns = Counter((r.session, r.turn) for r in by_seq.values() if r.session is not None)
    faults += [
        f"turn {turn} of session {session} stands twice" for (session, turn), n in turns.items() if n > 1
    ]
    # A turn gets its number when it becomes ready; those that were not yet due when sending ended left gaps.
    missing = sorted(set(range(len(by_seq))) - set(by_seq)) if not turns else []
    if missing:
        faults.append(f"request {missing[0]} is missing")
    return [by_seq[s] for s in sorted(by_seq)], faults[:5]


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
