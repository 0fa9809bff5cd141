"""The only writer of finished files: a temporary name, fsync, then rename.

A reader therefore sees a whole file or none, also after ``kill -9`` or a full disk.
"""

import hashlib
import json
import math
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from connector_tax.errors import ArtifactError, ConfigError
from connector_tax.redaction import published, published_text

T = TypeVar("T")


def write_text(path: Path, text: str, *, mode: int = 0o644) -> None:
    """``write_bytes`` of ``text`` in UTF-8, without the secrets in it."""
    write_bytes(path, published_text(text).encode(), mode=mode)


def write_bytes(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Put ``content`` at ``path``, whole or not at all.

    Raises:
        ArtifactError: the disk is full or the folder cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):  # the reason it failed may keep us from removing it, too
            temporary.unlink(missing_ok=True)
        raise writing_failed(path, error) from error


def write_text_if_changed(path: Path, text: str) -> bool:
    """Like ``write_text``, but leaves a file with this very content (and its mtime) alone."""
    text = published_text(text)
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return False
    write_text(path, text)
    return True


def to_json(value: Any) -> str:
    """Indented JSON with a final newline, without the secrets in it; refuses NaN, which JSON has no word for."""
    return json.dumps(published(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_json(path: Path, value: Any) -> None:
    write_text(path, to_json(value))


def read_json(path: Path) -> Any:
    """Parse one JSON file.

    Raises:
        ArtifactError: missing, unreadable, or not JSON; names the file and the place. A number that is not finite is
            not JSON: ``to_json`` writes none, and one that was let in would stop whoever writes it on.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse, parse_float=_finite)
    except FileNotFoundError as error:
        raise ArtifactError(f"{path}: no such file. Was it moved, or is its stage not done yet?") from error
    except (ValueError, UnicodeDecodeError) as error:
        raise ArtifactError(f"{path}: not valid JSON ({error}). Remove it to have it made again.") from error
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read ({error.strerror or error}).") from error


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is not a number")


def _finite(text: str) -> float:
    return float(text) if math.isfinite(float(text)) else _refuse(text)


def append_lines(path: Path, lines: Iterable[str]) -> None:
    """Write ``lines`` to a file of a folder that is still under its temporary name."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a", encoding="utf-8") as handle:
            handle.writelines(line + "\n" for line in lines)
            handle.flush()
            os.fsync(handle.fileno())
    except OSError as error:
        raise writing_failed(path, error) from error


def publish_folder(temporary: Path, final: Path) -> None:
    """Rename a complete folder into place; an older folder of that name is replaced.

    The older one is moved aside first and deleted last, so a crash in between leaves either the
    old or the new folder, never a mixture.
    """
    try:
        for path in sorted(temporary.rglob("*")):
            if path.is_file():
                with open(path, "rb") as handle:
                    os.fsync(handle.fileno())
        retired = final.with_name(f".{final.name}.{uuid.uuid4().hex[:8]}.retired")
        if final.exists():
            os.rename(final, retired)
        os.rename(temporary, final)
        _sync_folder(final.parent)
        shutil.rmtree(retired, ignore_errors=True)
    except OSError as error:
        raise writing_failed(final, error) from error


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as handle:
        while block := handle.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def hash_of(value: Mapping[str, Any] | list[Any]) -> str:
    """First 16 hex digits of the SHA-256 of the canonical JSON of ``value``."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def writing_failed(path: Path, error: OSError) -> ArtifactError:
    """The message for a failed write, with the free space, which is the usual reason."""
    folder = next((p for p in [path, *path.parents] if p.is_dir()), Path("/"))
    free_mib = shutil.disk_usage(folder).free // 2**20
    return ArtifactError(
        f"{path}: cannot write ({error.strerror or error}); {free_mib} MiB free on its disk. "
        "Nothing half-written was kept; make room or fix permissions, then start again to resume."
    )


def _sync_folder(folder: Path) -> None:
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
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path}: cannot be read ({error}). Give a JSONL file: {wanted} per line."
        ) from error
    found = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                found.append(parse(json.loads(line)))
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
                raise ConfigError(f"{path}: line {number}: {what}") from error
    if not found:
        raise ConfigError(f"{path}: holds nothing; {wanted} per line is wanted.")
    return tuple(found)
