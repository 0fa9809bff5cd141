"""The only writer of finished files: a temporary name, fsync, then rename.

A reader therefore sees a whole file or none, also after ``kill -9`` or a full disk.
"""

import errno
import fcntl
import gzip
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import date
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Protocol, TypeVar, cast, get_args

import msgspec

from connector_tax.base.errors import IN_THE_WAY, ArtifactError, ConfigError
from connector_tax.base.secrets import masked, masked_values

# Opening result files: regular files of limited size, under names that stay in their folder.

# Per file, also when unpacked. 15 minutes of step records of the fastest engine seen are 0.2 GB.
MOST_BYTES = 4 << 30
# The longest name that file systems allow.
MOST_NAME_BYTES = 255
# The longest TMPDIR: a socket's path adds ``/ct-xxxxxxxx/`` and up to 77 bytes, as with LMCache 0.4.
MOST_FOLDER_BYTES = 17
# Suffix of a published campaign's packed streams.
PACKED = ".gz"
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_CAMPAIGN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def is_bare(name: object) -> bool:
    """Return whether ``name`` stays in its folder: no separator, no leading dot, printable."""
    return (
        isinstance(name, str)
        and bool(name)
        and not name.startswith(".")
        and "/" not in name
        and name.isprintable()
        and len(name.encode()) <= MOST_NAME_BYTES
    )


def bare(name: object, what: str) -> str:
    """Return ``name``, if it is bare.

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
    """Return whether ``text`` is an existing day, ``YYYY-MM-DD``."""
    if not isinstance(text, str) or not _DATE.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def is_campaign_name(text: object) -> bool:
    """Check a campaign's name, as ``workflow/schemas/config.schema.json`` does."""
    return isinstance(text, str) and is_bare(text) and _CAMPAIGN.fullmatch(text) is not None


def shown(value: object, limit: int = 80) -> str:
    """Return ``repr(value)``, which escapes unprintable characters, cut to about ``limit`` characters."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


def printable(text: str, max_chars: int = 2000) -> str:
    """Return ``text`` for a terminal or a page: blanks for unprintable characters, cut at ``max_chars``."""
    line = "".join(c if c.isprintable() else " " for c in text[:max_chars])
    return line if len(text) <= max_chars else f"{line}... ({len(text)} characters)"


def is_regular(path: Path) -> bool:
    """Return ``path.is_file()``, but False instead of an error if its folder may not be entered."""
    try:
        return path.is_file()
    except PermissionError:
        return False


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file of at most ``MOST_BYTES`` for reading.

    Raises:
        FileNotFoundError: nothing is there.
        ArtifactError: it is something else, larger, or cannot be opened.
    """
    try:
        status = path.stat()  # first, since opening a pipe would block
        if not stat.S_ISREG(status.st_mode):
            raise ArtifactError(f"{path}: cannot be read: it is no regular file.")
        if status.st_size > MOST_BYTES:
            raise ArtifactError(
                f"{path}: cannot be read: it has {status.st_size} bytes, at most {MOST_BYTES} are read of a"
                " file."
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
    """Open a file as ``open_regular`` does; a name that ends in ``.gz`` is unpacked during the read.

    Raises:
        ArtifactError: also for damaged packed content.
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
    with open_regular(path) as handle:
        return handle.read()


def lines_of(content: bytes) -> list[str]:
    """Return the lines of JSONL or a log, with U+FFFD for bytes that are not UTF-8.

    Only a line feed ends a line. U+2028 and its like, at which ``str.splitlines`` cuts, are text.
    """
    lines = content.decode("utf-8", errors="replace").split("\n")
    return lines if lines[-1] else lines[:-1]


def each_line_of(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file without their line feeds; refuses as ``open_stream`` does.

    Raises:
        ArtifactError: also if it holds more than ``MOST_BYTES``.
    """
    bytes_left = MOST_BYTES
    with open_stream(path) as handle:
        while line := handle.readline(bytes_left + 1):
            bytes_left -= len(line)
            if bytes_left < 0:
                raise ArtifactError(f"{path}: holds more than {MOST_BYTES} bytes.")
            yield line.removesuffix(b"\n")


def is_folder(path: Path) -> bool:
    """Return ``path.is_dir()``, but False instead of an error for too long a name."""
    try:
        return path.is_dir()
    except OSError:
        return False


def in_the_way(path: Path) -> str:
    """Return in words what lies in the place of ``path``, which the error does not tell."""
    obstacle = next(
        (
            ancestor
            for ancestor in (*reversed(path.parents), path)
            if os.path.lexists(ancestor) and not is_folder(ancestor)
        ),
        None,
    )
    if obstacle is not None and obstacle != path:
        return f"{obstacle} is no folder"
    return f"a {'folder' if obstacle is None else 'link' if obstacle.is_symlink() else 'file'} lies there"


T = TypeVar("T")


def socket_folder() -> tempfile.TemporaryDirectory[str]:
    """Make a private temporary folder for sockets.

    A socket's path in it has at most 107 bytes, whatever TMPDIR is.
    """
    short = len(os.fsencode(tempfile.gettempdir())) <= MOST_FOLDER_BYTES
    return tempfile.TemporaryDirectory(prefix="ct-", dir=None if short else "/tmp")  # nosec B108  # made by mkdtemp


class Document(str):
    """JSON text of ``to_json`` with its strings masked already; its numbers and keys must stay."""


def write_text(path: Path, text: str) -> None:
    """Write ``text`` in UTF-8 with its secrets masked, as ``write_bytes`` does.

    Python represents bytes of the environment and of paths that are not UTF-8 as lone surrogates. They are
    written as ``\\udcff``, which is also JSON's escape, so a document reads back unchanged.
    """
    write_bytes(path, _stored(text))


def write_bytes(path: Path, content: bytes) -> None:
    """Put ``content`` at ``path``, whole or not at all.

    Raises:
        ArtifactError: the disk is full or the folder cannot be written.
    """
    write_pieces(path, (content,))


def write_named(path: Path, text: str) -> None:
    """Write ``text`` where a user said, as a shell's ``>`` does: into a pipe or terminal, and through a link.

    Raises:
        ArtifactError: as ``write_bytes``.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_stored(text))
    except OSError as error:
        raise writing_failed(path, error) from error


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Put ``lines`` at ``path`` unmasked, all of them or none.

    Raises:
        ArtifactError: as ``write_bytes``.
    """
    write_pieces(path, (f"{line}\n".encode(errors="backslashreplace") for line in lines))


def write_pieces(path: Path, content: Iterable[bytes], mode: int = 0o644) -> None:
    """Write content that is too large for memory, as ``write_bytes`` does."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _held(temporary) as handle:
            handle.writelines(content)
            handle.flush()
            os.fsync(handle.fileno())
            os.chmod(temporary, mode)
            os.replace(temporary, path)
        sync_folder(path.parent)
    except BaseException as error:
        # Also after an interrupt. Removal may fail for the same reason as the write.
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise writing_failed(path, error) from error
        raise
    _remove_halves(path)


@contextmanager
def _held(temporary: Path) -> Iterator[BinaryIO]:
    """Open a new file with a lock on it, which shows that its writer lives."""
    while True:
        with open(temporary, "wb") as handle:
            # Without file locks the leftovers of killed writers stay.
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX)
            # Between open and lock another process may have removed it as a leftover.
            if temporary.exists():
                yield handle
                return


def _remove_halves(path: Path) -> None:
    """Remove what killed writers of ``path`` left, if possible; living writers hold a lock."""
    name = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.tmp")
    with suppress(OSError):
        for entry in [e for e in os.scandir(path.parent) if name.fullmatch(e.name)]:
            if entry.is_file(follow_symlinks=False):
                _remove_half(path.with_name(entry.name))


def _remove_half(file: Path) -> None:
    with suppress(OSError), open(os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The name may belong to a new file, if another process cleans up as well.
        if os.path.samestat(os.fstat(handle.fileno()), os.lstat(file)):
            file.unlink()


def write_text_if_changed(path: Path, text: str) -> bool:
    """Write as ``write_text``, unless the file has this content; return whether it was written."""
    content = _stored(text)
    unchanged = (
        path.is_file()
        and not path.is_symlink()
        and path.stat().st_size == len(content)
        and path.read_bytes() == content
    )
    if not unchanged:
        write_bytes(path, content)
    return not unchanged


def _stored(text: str) -> bytes:
    clean = text if isinstance(text, Document) else masked(text)
    return clean.encode(errors="backslashreplace")


def to_json(value: Any) -> Document:
    """Return indented JSON with a final newline and masked secrets; refuse NaN, which JSON cannot express.

    Args:
        value: JSON, or a document of ``base/documents``.
    """
    if isinstance(value, msgspec.Struct):
        value = value.to_json() if hasattr(value, "to_json") else msgspec.to_builtins(value)
    return Document(json.dumps(masked_values(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_json(path: Path, value: Any) -> None:
    write_text(path, to_json(value))


def read_json(path: Path) -> Any:
    """Parse one JSON file.

    Raises:
        ArtifactError: missing, not a regular file, too large, or not JSON by ``parse_json``; names file and
            place.
    """
    try:
        return parse_json(read_whole(path))
    except FileNotFoundError as error:
        hint = (
            ". Was it moved, or is its stage not done yet?"
            if path.parent.is_dir()
            else f": there is no folder {path.parent}."
        )
        raise ArtifactError(f"{path}: no such file{hint}") from error
    except ValueError as error:
        raise ArtifactError(f"{path}: not valid JSON ({error}). Remove it to have it made again.") from error


def parse_json(content: bytes) -> Any:
    """Parse JSON.

    Raises:
        ValueError: not JSON, an invalid number, or nested too deep.
    """
    try:
        return msgspec.json.decode(content)
    except RecursionError:
        raise ValueError("nested too deep") from None


def append_lines(path: Path, lines: Iterable[str]) -> None:
    """Append ``lines`` to a file in a folder that still has its temporary name."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a", encoding="utf-8", errors="backslashreplace") as handle:
            handle.writelines(line + "\n" for line in lines)
            handle.flush()
            os.fsync(handle.fileno())
    except OSError as error:
        raise writing_failed(path, error) from error


class Lines:
    """A file that grows by whole lines while others read it; a torn last line is ended first.

    Unbuffered: what a full disk refused must not be written again on close, after a part of itself.
    """

    def __init__(self, path: Path) -> None:
        """Open ``path`` for appending.

        Raises:
            ArtifactError: it cannot be written.
        """
        self._path = path
        try:
            self._file = FileIO(path, "a+")
            size = self._file.seek(0, os.SEEK_END)
            torn = size > 0 and os.pread(self._file.fileno(), 1, size - 1) != b"\n"
        except OSError as error:
            raise writing_failed(path, error) from error
        if torn:
            self._append(b"\n")

    def write(self, line: str) -> None:
        """Append one line; raise ArtifactError if it cannot be written whole."""
        self._append(line.encode(errors="backslashreplace") + b"\n")

    def _append(self, content: bytes) -> None:
        try:
            if self._file.write(content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise writing_failed(self._path, error) from error

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()


def publish_folder(temporary: Path, final: Path) -> None:
    """Rename a complete folder into place, replacing an older one of that name.

    The older one is moved aside first and deleted last, so a crash in between leaves either folder, never a
    mixture.
    """
    try:
        sync_beneath(temporary)
        retired = final.with_name(f".{final.name}.{uuid.uuid4().hex[:8]}.retired")
        if final.exists():
            os.rename(final, retired)
        os.rename(temporary, final)
        sync_folder(final.parent)
        shutil.rmtree(retired, ignore_errors=True)
    except OSError as error:
        raise writing_failed(final, error) from error


def sync_beneath(folder: Path) -> None:
    """Make a folder durable: its files, then the folders that name them, then its own name."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            sync_folder(path)
        elif path.is_file():
            with open(path, "rb") as handle:
                os.fsync(handle.fileno())
    sync_folder(folder)


def sha256_of(path: Path) -> str:
    """Return the checksum of a regular file; refuses others as ``open_regular`` does."""
    digest = hashlib.sha256()
    with open_regular(path) as handle:
        while block := handle.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def hash_of(value: Any) -> str:
    """Return the first 16 hex digits of the SHA-256 of the canonical JSON of ``value``."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def copy_file(source: Path, target: Path) -> None:
    """Copy content and mode of a regular file; refuses others as ``open_regular`` does."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open_regular(source) as reading, open(target, "xb") as writing:
            shutil.copyfileobj(reading, writing)
        shutil.copymode(source, target)
    except OSError as error:
        raise writing_failed(target, error) from error


def writing_failed(path: Path, error: OSError) -> ArtifactError:
    """Return the error for a failed write; it names what is in the way, or the free space."""
    if error.errno in IN_THE_WAY:
        return ArtifactError(
            f"{path}: cannot write ({error.strerror}): {in_the_way(path)}. Move it away or name another"
            " place, then start again to resume."
        )
    folder = next((p for p in [path, *path.parents] if is_folder(p)), Path("/"))
    free_mib = shutil.disk_usage(folder).free // 2**20
    return ArtifactError(
        f"{path}: cannot write ({error.strerror or error}); {free_mib} MiB free on its disk. "
        "Nothing half-written was kept; make room or fix permissions, then start again to resume."
    )


def sync_folder(folder: Path) -> None:
    """Make the names of its files durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def parse_lines(path: Path, parse: Callable[[Any], T], expected: str) -> tuple[T, ...]:
    """Return the parsed lines of a JSONL file that a person wrote; empty lines are skipped.

    Args:
        parse: raises ValueError, TypeError or LookupError for an invalid value.
        expected: what a line should hold, for messages.

    Raises:
        ConfigError: unreadable, empty, or with an invalid line; names the line and what is wrong.
    """
    try:
        # U+2028 ends no line, as in ``lines_of``.
        lines = path.read_bytes().decode("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path}: cannot be read ({error}). Give a JSONL file: {expected} per line."
        ) from error
    parsed = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                parsed.append(parse(parse_json(line.encode())))
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                fault = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
                raise ConfigError(f"{path}: line {number}: {fault}") from error
    if not parsed:
        raise ConfigError(f"{path}: holds nothing; {expected} per line is wanted.")
    return tuple(parsed)


# JSON to a document's type. Errors quote msgspec and name the file, the place and a remedy.


class _Document(Protocol):
    """A document type; its field ``schema: Literal[...]`` lists the versions that are read, if any."""

    REMEDY: ClassVar[str]


D = TypeVar("D", bound=_Document)


def read_document(path: Path, kind: type[D]) -> D:
    """Read the document at ``path``.

    Raises:
        ArtifactError: missing, not JSON, of an unknown version or of another form; names the place and a
            remedy.
    """
    return document_of(read_json(path), kind, str(path))


def document_of(value: Any, kind: type[D], where: str) -> D:
    """Convert ``value``, parsed JSON, to a ``kind``.

    Args:
        where: the file, for messages.

    Raises:
        ArtifactError: as ``read_document``.
    """
    known_versions = _versions(kind)
    # Without a number it is version 1.
    if known_versions and isinstance(value, dict) and value.get("schema", 1) not in known_versions:
        raise ArtifactError(
            f"{where}: schema {value.get('schema')!r}, and this version of connector-tax reads"
            f" {' and '.join(map(str, known_versions))}. Use the version that wrote it. {kind.REMEDY}"
        )
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ArtifactError(f"{where}: {error}. {kind.REMEDY}") from error


def as_json(document: Any) -> Any:
    """Return a document, or a part of one, as parsed JSON."""
    return msgspec.json.decode(msgspec.json.encode(document))


def _versions(kind: type[Any]) -> tuple[int, ...]:
    fields = msgspec.structs.fields(kind)
    return next((get_args(field.type) for field in fields if field.name == "schema"), ())
