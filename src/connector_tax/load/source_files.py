"""Files that a person names, as bytes and lines: unpacked, without a byte-order mark, with one message for what cannot be read."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from connector_tax.base.errors import ArtifactError, ConfigError
from connector_tax.base.files import parse_json
from connector_tax.base.opening import MOST_LINES_BYTES, each_line_of, open_stream, shown
from connector_tax.run.workload.lengths import MOST_TOKENS

JSON_LINES = re.compile(rb"\s*\{")
_BOM = b"\xef\xbb\xbf"
# Enough to see what a file is.
_HEAD_BYTES = 4096


def tokens_of(name: str, value: Any) -> int:
    if type(value) is not int or not 1 <= value <= MOST_TOKENS:
        raise ValueError(
            f"{name}: {shown(value)} is not a whole number from 1 to {MOST_TOKENS}. Mend the line or take it out"
        )
    return value


def json_of(line: bytes) -> Any:
    try:
        return parse_json(line)
    except ValueError as error:
        raise ValueError(f"not JSON ({error}), as which a file is read that begins with {{") from error


@contextmanager
def at(source: Path, place: str) -> Iterator[None]:
    """What is wrong in a line, with its place in front."""
    try:
        yield
    except (ValueError, KeyError, RecursionError) as error:
        what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise ConfigError(f"{source}: {place}: {what}.") from error


@contextmanager
def reading(source: Path) -> Iterator[Path]:
    """The file that a person named, links on the way to it followed."""
    try:
        yield source.resolve()
    except FileNotFoundError as error:
        raise ConfigError(f"{source}: no such file.") from error
    except ArtifactError as error:
        raise ConfigError(str(error)) from error
    # RuntimeError: links in a circle; ValueError: a name that holds a null byte.
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(f"{source}: cannot be read ({error}).") from error


def head_of(source: Path) -> bytes:
    with reading(source) as path, open_stream(path, MOST_LINES_BYTES) as file:
        return file.read(_HEAD_BYTES).removeprefix(_BOM)


def whole(source: Path) -> bytes:
    with reading(source) as path, open_stream(path, MOST_LINES_BYTES) as file:
        content = file.read(MOST_LINES_BYTES + 1)
    if len(content) > MOST_LINES_BYTES:
        raise ConfigError(f"{source}: has more than {MOST_LINES_BYTES} bytes. Give a part of it.")
    return content.removeprefix(_BOM)


def lines_of(source: Path) -> Iterator[tuple[int, bytes]]:
    """(number from 1, content) of each line that is not empty."""
    with reading(source) as path:
        for number, line in enumerate(each_line_of(path, MOST_LINES_BYTES), start=1):
            content = line.removeprefix(_BOM) if number == 1 else line
            if content.strip():
                yield number, content


def refuse_same(source: Path, into: Path) -> None:
    with reading(source) as path:
        if path == into.resolve():
            raise ConfigError(f"{source}: would be written over. Give another name.")
