"""A document as its leaves, ``path -> value``; a table as a checksum per column; and how what is kept differs from what is found."""

import csv
import hashlib
import io
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from functools import cache
from typing import Any

from . import key_map

Leaf = float | bool | str | None
Leaves = dict[str, Leaf]
# Relative; and for what is the small difference of two large numbers, whose last digits another processor may have otherwise.
TOLERANCE, SMALL = 1e-12, 1e-11
# A list of more, such as a distribution, is held by how many they are, their sum, and the first of each so many.
MOST_NUMBERS = 40
# Keys that name an entry of a list to whoever reads of a difference.
NAMING = ("config", "id", "subject", "phase", "cell_id", "reference", "metric", "quantity", "hook", "router", "queue", "load")  # fmt: skip
_RATE = re.compile(r"[0-9.]+\Z")


def leaves_of(document: Any) -> Leaves:
    """Every number, truth value, null and code of parsed JSON; of a distribution its sum and some points."""
    walked = _walk(document, "", "")
    return {path: _kept(value) for path, key, value in walked if _is_held(path, key, value)}


def _walk(value: Any, path: str, key: str) -> Iterator[tuple[str, str, Any]]:
    """Path, innermost key that is neither an index nor a rate, value."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _walk(inner, f"{path}.{name}" if path else name, key if _RATE.match(name) else name)
    elif (
        isinstance(value, list) and len(value) > MOST_NUMBERS and all(type(n) in (int, float) for n in value)
    ):
        yield f"{path}.n", key, len(value)
        yield f"{path}.sum", key, math.fsum(value)
        yield from ((f"{path}[{index}]", key, value[index]) for index in range(0, len(value), MOST_NUMBERS))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _walk(inner, f"{path}[{index}]", key)
    else:
        yield path, key, value


def _is_held(path: str, key: str, value: Any) -> bool:
    section = re.split(r"[.\[]", path, maxsplit=1)[0]
    if key in key_map.CODES or f"{section}.{key}" in key_map.CODES:
        return True
    return key not in key_map.WORDS and not isinstance(value, str)


def _kept(value: Any) -> Leaf:
    """As a file holds it: fourteen digits tell what the tolerance tells."""
    return float(f"{value:.14g}") if isinstance(value, float) and math.isfinite(value) else value


def columns_of(table: str) -> dict[str, str]:
    """Name -> SHA-256 of its values, in the table's order; numbers by six digits, so that no last digit decides. Words have none."""
    header, *rows = csv.reader(io.StringIO(table))
    found = {}
    for index, name in enumerate(header):
        if any(fnmatch(name, words) for words in key_map.WORDS_IN_COLUMNS):
            found[name] = "words"
        else:
            text = "\n".join(_cell(row[index]) for row in rows)
            found[name] = hashlib.sha256(text.encode()).hexdigest()
    return found


def _cell(text: str) -> str:
    try:
        return f"{float(text):.6g}"
    except ValueError:
        return text


# --- What differs


def differences(kept: Mapping[str, Leaf], found: Mapping[str, Leaf]) -> list[str]:
    """A line for each leaf that differs, is gone or is new: its path as it is now, what it is of, the old value and the new one."""
    renamed = {
        renamed_path(path): value for path, value in kept.items() if covered(key_map.GONE, path) is None
    }
    codes = {**renamed, **found}
    lines = []
    for path, old in renamed.items():
        if path not in found:
            # What was null may have become a list that is empty.
            if old is None and path.endswith("[0]"):
                continue
            lines.append(f"{path}{_whose(path, codes)}: {json.dumps(old)} -> is not there")
        elif not same(now := _value_now(path, old), found[path]):
            lines.append(f"{path}{_whose(path, codes)}: {json.dumps(now)} -> {json.dumps(found[path])}")
    new = [path for path in found if path not in renamed and covered(key_map.NEW, path) is None]
    lines += [f"{path}{_whose(path, codes)}: is not kept -> {json.dumps(found[path])}" for path in new]
    return lines


def same(old: Leaf, new: Leaf) -> bool:
    """Whether two values are equal within the tolerance; true is not 1."""
    numbers = [
        value for value in (old, new) if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    if len(numbers) == 2:
        return math.isclose(*numbers, rel_tol=TOLERANCE, abs_tol=SMALL)
    return type(old) is type(new) and old == new


def _whose(path: str, codes: Mapping[str, Leaf]) -> str:
    """The codes that name the innermost entry of a list which has any: `` (mooncake_both, a, ttft_p90)``."""
    while path := path.rpartition("]")[0]:
        own = [codes.get(f"{path}].{key}") for key in NAMING]
        if named := ", ".join(str(value) for value in own if value is not None):
            return f" ({named})"
    return ""


def column_differences(kept: Mapping[str, str], found: Mapping[str, str], table: str) -> list[str]:
    """A line for each column that is gone, moved or of other values; new ones may follow behind those that are kept."""
    names = [key_map.COLUMNS.get(name, name) for name in kept]
    lines = [f"{table}: column {name}: is not there" for name in names if name not in found]
    if not lines and list(found)[: len(names)] != names:
        lines.append(f"{table}: columns come in another order, or new ones stand between them: {list(found)}")
    for name, old in zip(names, kept.values(), strict=True):
        if "words" not in (old, new := found.get(name, old)) and old != new:
            lines.append(f"{table}: column {name}: other values")
    return lines


# --- The map


def renamed_path(path: str) -> str:
    for before, now in key_map.RENAMED:
        if found := _pattern(before).match(path):
            wild = iter(found.groups()[1:])
            head = found[1] or ""
            path = head + re.sub(r"\*", lambda _: next(wild), now.removeprefix("**.")) + path[found.end() :]  # noqa: B023
    return path


def _value_now(path: str, old: Leaf) -> Leaf:
    changes = covered(key_map.VALUES, path) or {}
    now = changes.get(json.dumps(old))
    return old if now is None else json.loads(now)


def covered(patterns: Mapping[str, Any], path: str) -> Any:
    """What the first pattern that covers ``path`` stands for; None: no pattern does."""
    return next((value for pattern, value in patterns.items() if _pattern(pattern).match(path)), None)


@cache
def _pattern(pattern: str) -> re.Pattern[str]:
    """Group 1: what ``**`` stands for; the others: each ``*``. It ends where a key or an index ends."""
    anywhere, rest = (r"((?:.*[.])?)", pattern[3:]) if pattern.startswith("**.") else ("()", pattern)
    body = re.escape(rest).replace(r"\*", r"([^.\[\]]+)")
    return re.compile(rf"{anywhere}{body}(?=[.\[]|\Z)")


def report(lines: Sequence[str], most: int = 40) -> str:
    left = len(lines) - most
    return "\n".join([*lines[:most], *([f"... and {left} more"] if left > 0 else [])])
