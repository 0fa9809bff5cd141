"""``requests_*.jsonl`` to records, with everything that is wrong with the file."""

import json
from pathlib import Path

from connector_tax.records.request import STATUSES, RequestRecord


def read_requests(path: Path) -> tuple[list[RequestRecord], list[str]]:
    """Records in order of ``seq``, and what is wrong: torn or foreign lines, duplicates, gaps."""
    if not path.exists():
        return [], []  # named by the checksum check already
    by_seq: dict[int, RequestRecord] = {}
    faults: list[str] = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        try:
            record = RequestRecord.from_json(json.loads(line))
        except (ValueError, TypeError) as error:
            faults.append(f"line {number} is not a request ({str(error)[:80]})")
            continue
        if record.status not in STATUSES:
            faults.append(f"line {number} has the unknown status {record.status!r}")
        elif record.seq in by_seq:
            faults.append(f"request {record.seq} stands twice")
        else:
            by_seq[record.seq] = record
    missing = sorted(set(range(len(by_seq))) - set(by_seq))
    if missing:
        faults.append(f"request {missing[0]} is missing")
    return [by_seq[s] for s in sorted(by_seq)], faults[:5]
