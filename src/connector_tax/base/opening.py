"""Opening what somebody else may have written: names that stay in their folder, regular files, sizes that fit.

Results are sent around and read by others. What lies under ``results/`` may therefore name any file, be a link to one, a
pipe that never ends, or larger than memory. Whoever opens a file there, or one that a document names, does it here.
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

# Of a document that is read whole. The largest, aggregate.json, has some 10 MB with 127 cells.
MOST_DOCUMENT_BYTES = 64 << 20
# Of a JSONL stream. 15 minutes of step records of the fastest engine seen are 0.2 GB.
MOST_STREAM_BYTES = 4 << 30
# Of one that is read whole before it is parsed: three million requests.
MOST_LINES_BYTES = 1 << 30
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


def open_regular(path: Path, most_bytes: int) -> BinaryIO:
    """``path`` for reading, if it is a regular file of at most ``most_bytes`` and no link to one.

    Raises:
        FileNotFoundError: there is nothing.
        ArtifactError: it is something else, larger, or cannot be opened.
    """
    try:
        # Looked at first: merely opening a device may do something.
        _refuse(path, os.lstat(path), most_bytes)
        # Not blocking: a pipe that took the file's place in between must not hold us.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a name that holds a null byte
        raise ArtifactError(
            f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})."
        ) from error
    try:
        _refuse(path, os.fstat(handle), most_bytes)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


@contextmanager
def open_stream(path: Path, most_bytes: int) -> Iterator[BinaryIO]:
    """As ``open_regular``; what a name ending in ``.gz`` holds is unpacked while it is read. Whoever reads counts: a small file may hold any amount.

    Raises:
        ArtifactError: also where it is packed and damaged.
    """
    with open_regular(path, most_bytes) as file:
        if path.suffix != PACKED:
            yield file
            return
        try:
            with gzip.GzipFile(fileobj=file, mode="rb") as unpacked:
                yield cast(BinaryIO, unpacked)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ArtifactError(f"{path}: cannot be unpacked ({error}).") from error


def _refuse(path: Path, found: os.stat_result, most_bytes: int) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise ArtifactError(
            f"{path}: cannot be read: it is a link, which is not followed. Put the file itself there."
        )
    if not stat.S_ISREG(found.st_mode):
        raise ArtifactError(f"{path}: cannot be read: it is no regular file.")
    if found.st_size > most_bytes:
        raise ArtifactError(
            f"{path}: cannot be read: it has {found.st_size} bytes, at most {most_bytes} are read of such a file."
        )


def read_whole(path: Path, most_bytes: int = MOST_DOCUMENT_BYTES) -> bytes:
    """Everything in ``path``; refuses as ``open_regular`` does."""
    with open_regular(path, most_bytes) as handle:
        content = handle.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ArtifactError(f"{path}: grew beyond {most_bytes} bytes while it was read.")
    return content


def lines_of(content: bytes) -> list[str]:
    """Of JSONL or a log: only a line feed ends a line. U+2028 and its like, at which ``str.splitlines`` cuts, are text.

    Bytes that are no UTF-8 become U+FFFD.
    """
    lines = content.decode("utf-8", errors="replace").split("\n")
    return lines if lines[-1] else lines[:-1]


def each_line_of(path: Path, most_bytes: int) -> Iterator[bytes]:
    """Lines of a file without their line feeds, one at a time; refuses as ``open_stream`` does.

    Raises:
        ArtifactError: also where it grows beyond ``most_bytes`` while it is read.
    """
    left = most_bytes
    with open_stream(path, most_bytes) as handle:
        while line := handle.readline(left + 1):
            left -= len(line)
            if left < 0:
                raise ArtifactError(f"{path}: grew beyond {most_bytes} bytes while it was read.")
            yield line.removesuffix(b"\n")


def links_beneath(folder: Path) -> list[Path]:
    """Every symbolic link in ``folder`` and below, in order of name; none is followed. ``folder`` itself may be one."""
    found = []
    for where, folders, files in os.walk(folder):
        found += [path for name in (*folders, *files) if (path := Path(where, name)).is_symlink()]
    return sorted(found)


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
