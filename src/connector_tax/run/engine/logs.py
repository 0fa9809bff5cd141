"""The engine's logs without secrets: it writes them itself, so they are gone through when it has ended.

A filter between the engine and its log would be one more process that wakes with every line while it is measured. What a killed
measurement left is gone through by the next one that launches into the same folder.
"""

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from connector_tax.base.artifacts.layout import LOGS
from connector_tax.base.config import EngineConfig
from connector_tax.base.errors import ConfigError
from connector_tax.base.files import writing_failed
from connector_tax.base.records.connector import ConnectorSpec
from connector_tax.base.redaction import published_text, secrets_in
from connector_tax.run.engine.command import engine_arguments, given_environment

# A log may be larger than memory, so it is taken in pieces of about this size.
CHUNK_CHARS = 1 << 22
# So much on both sides tells whether a secret lies across the end of a piece.
NEAR_CHARS = 1 << 16
# How many lines, or characters, before the first place the others are at which a piece may end.
_STEPS = (0, 1, 3, 7, 15, 31, 63, 127, 255)
# Longer than any secret by far: where a piece has grown to this many chunks, it ends anyway.
_MOST_CHUNKS = 4


def launch_secrets(engine: EngineConfig, connector: ConnectorSpec) -> frozenset[str]:
    """What an engine was given that it may print: of its arguments, its variables and its connector's configuration."""
    try:
        given = [engine_arguments(engine, connector), given_environment(engine, connector)]
    except ConfigError:  # a variable is not set any more: nothing was launched with it
        given = []
    return secrets_in([*given, engine.args, engine.model, connector.kv_transfer_config])


def clean_logs(folder: Path, secrets: frozenset[str]) -> None:
    """Take the secrets out of the logs in ``folder``; one without any is left as it is, with its time stamp.

    Raises:
        ArtifactError: there is no room for the log without them.
    """
    for name in LOGS:
        path = folder / name
        if path.is_file() and not path.is_symlink():
            _clean(path, secrets)


def _clean(path: Path, secrets: frozenset[str]) -> None:
    # Twice through a log that holds one, so that a log that holds none needs no room on the disk.
    if all(text == clean for text, clean in _chunks(path, secrets)):
        return
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with open(temporary, "w", encoding="utf-8", errors="surrogateescape", newline="") as log:
            log.writelines(clean for _, clean in _chunks(path, secrets))
        os.chmod(temporary, path.stat().st_mode & 0o777)
        os.replace(temporary, path)
    except OSError as error:
        raise writing_failed(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _chunks(path: Path, secrets: frozenset[str]) -> Iterator[tuple[str, str]]:
    """A log in pieces, as they are and without secrets; whatever bytes an engine writes come out as they went in."""
    rest = ""
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as log:
        while text := log.read(CHUNK_CHARS):
            rest += text
            end = _end_of_piece(rest, secrets) if len(text) == CHUNK_CHARS else 0
            if end:
                yield rest[:end], published_text(rest[:end], secrets)
                rest = rest[end:]
    yield rest, published_text(rest, secrets)


def _end_of_piece(text: str, secrets: frozenset[str]) -> int:
    """Where a piece may end, so that no secret is torn: a split there changes nothing of what is blanked around it.

    0 where no such place was found and the piece may grow still.
    """
    last = len(text) - NEAR_CHARS
    lines = [m.end() for m in re.finditer("\n", text[last - NEAR_CHARS : last])][-1 - _STEPS[-1] :]
    ends = [last - NEAR_CHARS + lines[-1 - back] for back in _STEPS if back < len(lines)]
    ends += [last - 16 * back for back in _STEPS]
    for end in ends:
        before, behind = text[end - NEAR_CHARS : end], text[end : end + NEAR_CHARS]
        apart = published_text(before, secrets) + published_text(behind, secrets)
        if apart == published_text(before + behind, secrets):
            return end
    return last if len(text) > _MOST_CHUNKS * CHUNK_CHARS else 0
