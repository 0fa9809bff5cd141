"""Opening files of results: regular ones of at most one size, and names that stay in their folder.

A colleague's results are data. A damaged file is one message, and what documents name lies beside them.
"""

import gzip
import os
import re
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import BinaryIO, cast

from connector_tax.base.errors import ArtifactError

# Of any file, and of what a packed one holds. 15 minutes of step records of the fastest engine seen are 0.2 GB.
MOST_BYTES = 4 << 30
# File systems take no longer name.
MOST_NAME_BYTES = 255
# Of a published campaign's streams.
PACKED = ".gz"
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_CAMPAIGN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def is_bare(name: object) -> bool:
    """Whether ``name`` names something in a folder and nothing beyond it: no separator, no dot in front, all printable."""
    return (
        isinstance(name, str)
        and bool(name)
        and not name.startswith(".")
        and "/" not in name
        and name.isprintable()
        and len(name.encode()) <= MOST_NAME_BYTES
    )


def bare(name: object, what: str) -> str:
    """``name``, if it is bare.

    Args:
        what: whose name it is, for messages.

    Raises:
        ArtifactError: it is not.
    """
    if not isinstance(name, str) or not is_bare(name):
        raise ArtifactError(
            f"{what} {shown(name)} is no bare name: without /, without a dot in front, printable, at most "
            f"{MOST_NAME_BYTES} bytes. Nothing is read or written there."
        )
    return name


def is_date(text: object) -> bool:
    """``YYYY-MM-DD`` of a day that there is."""
    if not isinstance(text, str) or not _DATE.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def is_campaign_name(text: object) -> bool:
    """As ``CampaignYaml`` has it."""
    return isinstance(text, str) and is_bare(text) and _CAMPAIGN.fullmatch(text) is not None


def shown(value: object, limit: int = 80) -> str:
    """``repr``, which escapes what is not printable, cut to about ``limit`` characters."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


def printable(text: str, most: int = 2000) -> str:
    """``text`` for a terminal or a page: what is not printable becomes a blank, what is over ``most`` characters is cut."""
    line = "".join(c if c.isprintable() else " " for c in text[:most])
    return line if len(text) <= most else f"{line}... ({len(text)} characters)"


def is_regular(path: Path) -> bool:
    """As ``Path.is_file``, which raises where its folder may not be entered: there is nothing to be read then."""
    try:
        return path.is_file()
    except PermissionError:
        return False


def open_regular(path: Path) -> BinaryIO:
    """Open ``path`` for reading, if it is a regular file of at most ``MOST_BYTES``.

    Raises:
        FileNotFoundError: there is nothing.
        ArtifactError: it is something else, larger, or cannot be opened.
    """
    try:
        found = path.stat()  # looked at first: a pipe would never be open
        if not stat.S_ISREG(found.st_mode):
            raise ArtifactError(f"{path}: cannot be read: it is no regular file.")
        if found.st_size > MOST_BYTES:
            raise ArtifactError(
                f"{path}: cannot be read: it has {found.st_size} bytes, at most {MOST_BYTES} are read of a file."
            )
        return path.open("rb")
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a name that holds a null byte
        raise ArtifactError(
            f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})."
        ) from error


@contextmanager
def open_stream(path: Path) -> Iterator[BinaryIO]:
    """As ``open_regular``; what a name ending in ``.gz`` holds is unpacked while it is read.

    Raises:
        ArtifactError: also where it is packed and damaged.
    """
    with open_regular(path) as file:
        if path.suffix != PACKED:
            yield file
            return
        try:
            with gzip.GzipFile(fileobj=file, mode="rb") as unpacked:
                yield cast(BinaryIO, unpacked)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ArtifactError(f"{path}: cannot be unpacked ({error}).") from error


def read_whole(path: Path) -> bytes:
    """Return everything in ``path``; refuses as ``open_regular`` does."""
    with open_regular(path) as handle:
        return handle.read()


def lines_of(content: bytes) -> list[str]:
    """Of JSONL or a log: only a line feed ends a line. U+2028 and its like, at which ``str.splitlines`` cuts, are text.

    Bytes that are no UTF-8 become U+FFFD.
    """
    lines = content.decode("utf-8", errors="replace").split("\n")
    return lines if lines[-1] else lines[:-1]


def each_line_of(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file without their line feeds; refuses as ``open_stream`` does.

    Raises:
        ArtifactError: also where it holds more than ``MOST_BYTES``.
    """
    left = MOST_BYTES
    with open_stream(path) as handle:
        while line := handle.readline(left + 1):
            left -= len(line)
            if left < 0:
                raise ArtifactError(f"{path}: holds more than {MOST_BYTES} bytes.")
            yield line.removesuffix(b"\n")


def is_folder(path: Path) -> bool:
    """No name too long is an error, as it is to ``Path.is_dir``: there is no such folder."""
    try:
        return path.is_dir()
    except OSError:
        return False


def in_the_way(path: Path) -> str:
    """What lies where ``path`` was to be made, in words. An error says so of files and folders alike, whichever was wanted."""
    other = next(
        (p for p in (*reversed(path.parents), path) if os.path.lexists(p) and not is_folder(p)), None
    )
    if other is not None and other != path:
        return f"{other} is no folder"
    return f"a {'folder' if other is None else 'link' if other.is_symlink() else 'file'} lies there"
