"""The only writer of finished files: a temporary name, fsync, then rename.

A reader therefore sees a whole file or none, also after ``kill -9`` or a full disk.
"""

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from connector_tax.base.errors import IN_THE_WAY, ArtifactError, ConfigError
from connector_tax.base.opening import in_the_way, is_folder, open_regular, read_whole
from connector_tax.base.secrets import masked, masked_values

T = TypeVar("T")


class Document(str):
    """JSON of ``to_json``, whose texts are masked already; its numbers and keys are to stay."""


def write_text(path: Path, text: str) -> None:
    """``write_bytes`` of ``text`` in UTF-8, without the secrets in it.

    Python has bytes of the environment and of paths that are no UTF-8 as lone surrogates; they are written ``\\udcff``. That is
    also JSON's own word for them, so a document reads back as it was.
    """
    write_bytes(path, _stored(text))


def write_bytes(path: Path, content: bytes) -> None:
    """Put ``content`` at ``path``, whole or not at all.

    Raises:
        ArtifactError: the disk is full or the folder cannot be written.
    """
    _write(path, (content,))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Put ``lines`` at ``path``, all of them or none, as they are.

    Raises:
        ArtifactError: the disk is full or the folder cannot be written.
    """
    _write(path, (f"{line}\n".encode(errors="backslashreplace") for line in lines))


def _write(path: Path, content: Iterable[bytes]) -> None:
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _held(temporary) as handle:
            handle.writelines(content)
            handle.flush()
            os.fsync(handle.fileno())
            os.chmod(temporary, 0o644)
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
    """What writers of ``path`` left that were killed; whoever still writes holds a lock. What cannot be removed is in nobody's way."""
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
        ArtifactError: missing, no regular file, too large, or not JSON as ``parse_json`` has it; names file and place.
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
    """A file that grows by whole lines while others read it; one that an earlier writer left torn is ended first.

    Nothing is buffered: what a full disk refused must not be tried again, behind half of itself, when the file is closed.
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
            f"{path}: cannot write ({error.strerror}): {in_the_way(path)}. Move it away or name another place, then start again to resume."
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
