"""Gives each launch an empty store folder, so that no launch hits what another one cached.

``${STORE}`` in an entry of ``connectors.yaml`` (``kv_transfer_config``, ``env``, ``extra_args``) stands
for the folder. Specifications and hashes hold the placeholder; only the engine's command and
environment hold the path.

The folders lie under TMPDIR, which clusters point at a local disk: one prompt's KV may take hundreds of MiB.
They are numbered slots, and a launch takes the first free one, because engines key caches of compiled code by
configuration and the path should stay the same. ``flock`` holds a slot until its holder ends; the next launch
on this host removes what killed measurements left.
"""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from msgspec.structs import replace

from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import writing_failed
from connector_tax.base.locks import open_lock, take_lock
from connector_tax.base.records.connector import STORE, ConnectorSpec

WHAT = "the store of a launch"


@contextmanager
def own_store(connector: ConnectorSpec) -> Iterator[ConnectorSpec]:
    """Yield ``connector`` with ``${STORE}`` replaced by an empty folder, which is removed afterwards.

    Raises:
        ArtifactError: the folder cannot be made or emptied.
        EngineError: its file system does not lock files.
    """
    root = stores_folder()
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise writing_failed(root, error) from error
    lock, folder = _take_slot(root)
    with lock:
        try:
            _remove_leftovers(root, but=folder)
            _empty(folder)
            yield with_store(connector, folder)
        finally:
            _remove(folder)


def stores_folder() -> Path:
    return Path(tempfile.gettempdir()) / f"connector-tax-stores-{os.getuid()}"


def with_store(connector: ConnectorSpec, folder: Path) -> ConnectorSpec:
    """Return ``connector`` with ``folder`` in place of every ``${STORE}``."""
    return replace(
        connector,
        kv_transfer_config=_filled(connector.kv_transfer_config, str(folder)),
        env=_filled(connector.env, str(folder)),
        extra_args=tuple(_filled(list(connector.extra_args), str(folder))),
    )


def folder_in(connector: ConnectorSpec) -> Path | None:
    """Return the store folder that ``connector`` contains; None if there is none."""
    slot = re.compile(re.escape(str(stores_folder())) + r"/\d+")
    texts = json.dumps(
        [connector.kv_transfer_config, connector.env, connector.extra_args], ensure_ascii=False
    )
    match = slot.search(texts)
    return None if match is None else Path(match[0])


def _filled(value: Any, path: str) -> Any:
    if isinstance(value, str):
        return value.replace(STORE, path)
    if isinstance(value, dict):
        return {name: _filled(item, path) for name, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, path) for item in value]
    return value


def _take_slot(root: Path) -> tuple[TextIO, Path]:
    """Return the lock, which the caller closes, and the folder of the first free slot."""
    index = 0
    while (lock := _lock(root / f"{index}.lock")) is None:
        index += 1
    return lock, root / str(index)


def _lock(path: Path) -> TextIO | None:
    """Return the open file that holds the lock, which engines do not inherit; None if it is taken."""
    lock = open_lock(path, WHAT)
    try:
        if take_lock(lock, WHAT):
            return lock
    except BaseException:
        lock.close()
        raise
    lock.close()
    return None


def _remove_leftovers(root: Path, but: Path) -> None:
    """Empty slots whose holders are gone."""
    for lock_path in sorted(root.glob("*.lock")):
        folder = lock_path.with_suffix("")
        if folder == but or not folder.exists():
            continue
        handle = _lock(lock_path)
        if handle is not None:
            with handle:
                _remove(folder)


def _empty(folder: Path) -> None:
    _remove(folder)
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise writing_failed(folder, error) from error


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ArtifactError(
            f"{folder}: the store of a launch cannot be removed ({error}); what it holds would be the next"
            " launch's cache hits. Remove it by hand, then start again."
        ) from error
