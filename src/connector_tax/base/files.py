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

# Opening files of results: regular ones of at most one size, and names that stay in their folder.

# Of any file, and of what a packed one holds. 15 minutes of step records of the fastest engine seen are 0.2
# GB.
MOST_BYTES = 4 << 30
# File systems take no longer name.
MOST_NAME_BYTES = 255
# Of TMPDIR, below which a socket's path has ``/ct-xxxxxxxx/`` and up to 77 bytes, as LMCache 0.4's have.
MOST_FOLDER_BYTES = 17
# Of a published campaign's streams.
PACKED = ".gz"
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_CAMPAIGN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def is_bare(name: object) -> bool:
    """Whether ``name`` names something in a folder and nothing beyond it: no separator, no dot in front, all
    printable."""
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
    """As ``workflow/schemas/config.schema.yaml`` has it."""
    return isinstance(text, str) and is_bare(text) and _CAMPAIGN.fullmatch(text) is not None


def shown(value: object, limit: int = 80) -> str:
    """``repr``, which escapes what is not printable, cut to about ``limit`` characters."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


def printable(text: str, most: int = 2000) -> str:
    """``text`` for a terminal or a page: what is not printable becomes a blank, what is over ``most``
    characters is cut."""
    line = "".join(c if c.isprintable() else " " for c in text[:most])
    return line if len(text) <= most else f"{line}... ({len(text)} characters)"


def is_regular(path: Path) -> bool:
    """As ``Path.is_file``, which raises where its folder may not be entered: there is nothing to be read
    then."""
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
                f"{path}: cannot be read: it has {found.st_size} bytes, at most {MOST_BYTES} are read of a"
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
    """Of JSONL or a log: only a line feed ends a line. U+2028 and its like, at which ``str.splitlines`` cuts,
    are text.

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
    """What lies where ``path`` was to be made, in words. An error says so of files and folders alike,
    whichever was wanted."""
    other = next(
        (p for p in (*reversed(path.parents), path) if os.path.lexists(p) and not is_folder(p)), None
    )
    if other is not None and other != path:
        return f"{other} is no folder"
    return f"a {'folder' if other is None else 'link' if other.is_symlink() else 'file'} lies there"


T = TypeVar("T")


def socket_folder() -> tempfile.TemporaryDirectory[str]:
    """A temporary folder for sockets that only this user may enter: whose path with one has at most 107
    bytes, whatever TMPDIR is."""
    short = len(os.fsencode(tempfile.gettempdir())) <= MOST_FOLDER_BYTES
    return tempfile.TemporaryDirectory(prefix="ct-", dir=None if short else "/tmp")  # nosec B108  # made by mkdtemp


class Document(str):
    """JSON of ``to_json``, whose texts are masked already; its numbers and keys are to stay."""


def write_text(path: Path, text: str) -> None:
    """``write_bytes`` of ``text`` in UTF-8, without the secrets in it.

    Python has bytes of the environment and of paths that are no UTF-8 as lone surrogates; they are written
    ``\\udcff``. That is also JSON's own word for them, so a document reads back as it was.
    """
    write_bytes(path, _stored(text))


def write_bytes(path: Path, content: bytes) -> None:
    """Put ``content`` at ``path``, whole or not at all.

    Raises:
        ArtifactError: the disk is full or the folder cannot be written.
    """
    write_pieces(path, (content,))


def write_named(path: Path, text: str) -> None:
    """Put ``text`` where a user said, as a shell's ``>`` does: into a pipe or a terminal, and through a link.

    Raises:
        ArtifactError: the disk is full or the folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_stored(text))
    except OSError as error:
        raise writing_failed(path, error) from error


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Put ``lines`` at ``path``, all of them or none, as they are.

    Raises:
        ArtifactError: the disk is full or the folder cannot be written.
    """
    write_pieces(path, (f"{line}\n".encode(errors="backslashreplace") for line in lines))


def write_pieces(path: Path, content: Iterable[bytes], mode: int = 0o644) -> None:
    """``write_bytes`` of what is too large to be in memory at once."""
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
        # Also after an interrupt. The reason why it failed may keep us from removing it, too.
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise writing_failed(path, error) from error
        raise
    _remove_halves(path)


@contextmanager
def _held(temporary: Path) -> Iterator[BinaryIO]:
    """A new file with a lock on it, by which others see that its writer lives."""
    while True:
        with open(temporary, "wb") as handle:
            # A file system that does not lock keeps what a killed writer left.
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX)
            # Between the two somebody may have taken it for a half that nobody writes.
            if temporary.exists():
                yield handle
                return


def _remove_halves(path: Path) -> None:
    """What writers of ``path`` left that were killed; whoever still writes holds a lock. What cannot be
    removed is in nobody's way."""
    name = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.tmp")
    with suppress(OSError):
        for entry in [e for e in os.scandir(path.parent) if name.fullmatch(e.name)]:
            if entry.is_file(follow_symlinks=False):
                _remove_half(path.with_name(entry.name))


def _remove_half(file: Path) -> None:
    with suppress(OSError), open(os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Its writer may have made the name again, where somebody else cleans as well.
        if os.path.samestat(os.fstat(handle.fileno()), os.lstat(file)):
            file.unlink()


def write_text_if_changed(path: Path, text: str) -> bool:
    """Like ``write_text``, but leaves a file with this very content (and its mtime) alone."""
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
    """Indented JSON with a final newline, without the secrets in it; refuses NaN, which JSON has no word for.

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
        ArtifactError: missing, no regular file, too large, or not JSON as ``parse_json`` has it; names file
            and place.
    """
    try:
        return parse_json(read_whole(path))
    except FileNotFoundError as error:
        why = (
            ". Was it moved, or is its stage not done yet?"
            if path.parent.is_dir()
            else f": there is no folder {path.parent}."
        )
        raise ArtifactError(f"{path}: no such file{why}") from error
    except ValueError as error:
        raise ArtifactError(f"{path}: not valid JSON ({error}). Remove it to have it made again.") from error


def parse_json(content: bytes) -> Any:
    """Parse JSON.

    Raises:
        ValueError: not JSON, a number that is none, or nested too deep.
    """
    try:
        return msgspec.json.decode(content)
    except RecursionError:
        raise ValueError("nested too deep") from None


def append_lines(path: Path, lines: Iterable[str]) -> None:
    """Write ``lines`` to a file of a folder that is still under its temporary name."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a", encoding="utf-8", errors="backslashreplace") as handle:
            handle.writelines(line + "\n" for line in lines)
            handle.flush()
            os.fsync(handle.fileno())
    except OSError as error:
        raise writing_failed(path, error) from error


class Lines:
    """A file that grows by whole lines while others read it; one that an earlier writer left torn is ended
    first.

    Nothing is buffered: what a full disk refused must not be tried again, behind half of itself, when the
    file is closed.
    """

    def __init__(self, path: Path) -> None:
        """
        Raises:
            ArtifactError: the file cannot be written.
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
        """
        Raises:
            ArtifactError: it cannot be written, or not whole.
        """
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
    """Rename a complete folder into place; an older folder of that name is replaced.

    The older one is moved aside first and deleted last, so a crash in between leaves either the
    old or the new folder, never a mixture.
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
    """Files, then the folders that name them, then the folder's own name: what is durable is whole."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            sync_folder(path)
        elif path.is_file():
            with open(path, "rb") as handle:
                os.fsync(handle.fileno())
    sync_folder(folder)


def sha256_of(path: Path) -> str:
    """Of a regular file; refuses others as ``open_regular`` does."""
    digest = hashlib.sha256()
    with open_regular(path) as handle:
        while block := handle.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def hash_of(value: Any) -> str:
    """First 16 hex digits of the SHA-256 of the canonical JSON of ``value``."""
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
    """The message for a failed write: what is in the way, or the free space, which is the usual reason."""
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
    """Make durable what its files are called."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def parse_lines(path: Path, parse: Callable[[Any], T], wanted: str) -> tuple[T, ...]:
    """Every line of a JSONL file that a person wrote, parsed; empty lines are left out.

    Args:
        parse: raises ValueError, TypeError or LookupError for a value that is none.
        wanted: what a line should hold, for messages.

    Raises:
        ConfigError: unreadable, empty, or a line that is not wanted; names the line and what is wrong.
    """
    try:
        # Only a line feed ends a line of JSONL: texts may hold U+2028, at which str.splitlines cuts.
        lines = path.read_bytes().decode("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path}: cannot be read ({error}). Give a JSONL file: {wanted} per line."
        ) from error
    found = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                found.append(parse(parse_json(line.encode())))
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
                raise ConfigError(f"{path}: line {number}: {what}") from error
    if not found:
        raise ConfigError(f"{path}: holds nothing; {wanted} per line is wanted.")
    return tuple(found)


# JSON to a document's type. What does not fit is told in the words of msgspec, with the file, the place and
# what would do.


class _Document(Protocol):
    """A type with ``schema: Literal[1]``, whose numbers are the versions that are read; a part of a document
    has none."""

    REMEDY: ClassVar[str]


D = TypeVar("D", bound=_Document)


def read_document(path: Path, kind: type[D]) -> D:
    """The document at ``path``.

    Raises:
        ArtifactError: missing, not JSON, of an unknown version or of another form; names the place and what
            would do.
    """
    return document_of(read_json(path), kind, str(path))


def document_of(value: Any, kind: type[D], where: str) -> D:
    """``value``, JSON that was parsed, as a ``kind``.

    Args:
        where: the file, for messages.

    Raises:
        ArtifactError: as ``read_document``.
    """
    known = _versions(kind)
    # One without a number is of the first version.
    if known and isinstance(value, dict) and value.get("schema", 1) not in known:
        raise ArtifactError(
            f"{where}: schema {value.get('schema')!r}, and this version of connector-tax reads"
            f" {' and '.join(map(str, known))}. Use the version that wrote it. {kind.REMEDY}"
        )
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ArtifactError(f"{where}: {error}. {kind.REMEDY}") from error


def as_json(document: Any) -> Any:
    """A document that was read, or a part of one, as parsed JSON again."""
    return msgspec.json.decode(msgspec.json.encode(document))


def _versions(kind: type[Any]) -> tuple[int, ...]:
    fields = msgspec.structs.fields(kind)
    return next((get_args(field.type) for field in fields if field.name == "schema"), ())
