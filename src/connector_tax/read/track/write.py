"""A history to its three files."""

from pathlib import Path

import msgspec

from connector_tax.base.documents.history import History
from connector_tax.base.files import write_json, write_text
from connector_tax.read.track.dashboard import records
from connector_tax.read.track.page import render


def write_history(history: History, folder: Path) -> list[Path]:
    """
    Raises:
        ArtifactError: the folder cannot be written.
    """
    paths = [folder / name for name in ("history.json", "pytorch-benchmark.json", "index.html")]
    write_json(paths[0], history)
    write_json(paths[1], msgspec.to_builtins(records(history)))
    write_text(paths[2], render(history))
    return paths
