"""Answers of servers as bytes, cut at every byte boundary -> what is recorded of the request.

The answers themselves lie in ``data/answers.json``: bytes as the characters of those numbers, ``stream`` and ``collect_ids`` where they
are not as usual. A new one is a new entry without a record, which ``make.py`` then writes.
"""

from pathlib import Path
from typing import Any

from one_answer import Answer, bytewise, check_split, recorded

from . import adapters, kept


def record_of(answer: Answer, name: str) -> dict[str, Any]:
    """What is recorded, however the bytes are read; tokens and the end are at the byte with which they came."""
    by_bytes = recorded(answer, bytewise(answer.wire))
    for k in range(len(answer.wire)):
        reads = [part for part in (answer.wire[:k], answer.wire[k:]) if part]
        check_split(answer, by_bytes, reads, f"{name}, cut at byte {k}")
    first, last, end, *tokens = by_bytes.stamps
    return {
        "status": by_bytes.status,
        "error": adapters.error_class(by_bytes.error),
        "prompt_tokens": by_bytes.prompt_tokens,
        "completion_tokens": by_bytes.completion_tokens,
        "output_ids": by_bytes.output_ids,
        "first_token_byte": first,
        "last_token_byte": last,
        "end_byte": end,
        "token_bytes": tokens,
        "reusable": by_bytes.reusable,
    }


def build(folder: Path) -> dict[str, Any]:
    found = {}
    for name, entry in kept("answers").items():
        how = {key: entry[key] for key in ("stream", "collect_ids") if key in entry}
        answer = Answer(entry["wire"].encode("latin-1"), **how)
        found[name] = {"wire": entry["wire"], **how, "record": record_of(answer, name)}
    return found
