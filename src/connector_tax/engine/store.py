"""An empty store folder for each launch, gone after it: what one launch kept must not be another's cache hit.

``${STORE}`` in an entry of ``connectors.yaml`` stands for it, in ``kv_transfer_config``, ``env`` and ``extra_args``. Specifications
and hashes hold the placeholder; only the engine's command and environment hold the path.

The folders lie under TMPDIR, which a cluster points at a local disk with space; KV of one prompt may be hundreds of MiB. They are
numbered slots, and a launch takes the first free one: engines key caches of compiled code with their configuration, so the path
had better be the same from launch to launch. A slot is held by ``flock``, which the kernel drops with its holder: what a
measurement left that was killed is removed by the next launch on this host, whoever's it is.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from connector_tax.errors import ArtifactError
from connector_tax.files import writing_failed
from connector_tax.records.connector import STORE, ConnectorSpec


@contextmanager
def own_store(connector: ConnectorSpec) -> Iterator[ConnectorSpec]:
    """``connector`` with an empty folder of its own in the place of ``${STORE}``, for the time of the body.

    Raises:
        ArtifactError: the folder cannot be made or emptied.
    """
    root = stores_folder()
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, folder = _take_slot(root)
    except OSError as error:
        raise writing_failed(root, error) from error
    try:
        _remove_leftovers(root, but=folder)
        _empty(folder)
        yield with_store(connector, folder)
    finally:
        try:
            _remove(folder)
        finally:
            os.close(handle)


def stores_folder() -> Path:
    """Where the slots of this user lie."""
    return Path(tempfile.gettempdir()) / f"connector-tax-stores-{os.getuid()}"


def with_store(connector: ConnectorSpec, folder: Path) -> ConnectorSpec:
    """``connector`` with ``folder`` for every ``${STORE}``."""
    return replace(
        connector,
        kv_transfer_config=_filled(connector.kv_transfer_config, str(folder)),
        env=_filled(connector.env, str(folder)),
        extra_args=tuple(_filled(list(connector.extra_args), str(folder))),
    )


def _filled(value: Any, path: str) -> Any:
    if isinstance(value, str):
        return value.replace(STORE, path)
    if isinstance(value, dict):
        return {name: _filled(part, path) for name, part in value.items()}
    if isinstance(value, list):
        return [_filled(part, path) for part in value]
    return value


def _take_slot(root: Path) -> tuple[int, Path]:
    """The lock's descriptor, to be closed at the end, and the folder of the first slot that nobody holds."""
    number = 0
    while (handle := _lock(root / f"{number}.lock")) is None:
        number += 1
    return handle, root / str(number)


def _lock(path: Path) -> int | None:
    """An open descriptor that holds the lock; None where somebody else does. Not inherited by engines."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


def _remove_leftovers(root: Path, but: Path) -> None:
    """Empty the slots whose holders are gone."""
    for lock in sorted(root.glob("*.lock")):
        folder = lock.with_suffix("")
        if folder == but or not folder.exists():
            continue
        handle = _lock(lock)
        if handle is not None:
            _remove(folder)
            os.close(handle)


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
            f"{folder}: the store of a launch cannot be removed ({error}); what it holds would be the next launch's cache hits. "
            "Remove it by hand, then start again."
        ) from error
