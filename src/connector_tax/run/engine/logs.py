"""The engine's logs are masked once it has ended, since it writes them itself.

A filter between the engine and its log would be one more process that wakes with every line while it is measured. What a killed
measurement left is gone through by the next one that launches into the same folder.
"""

from collections.abc import Iterator
from pathlib import Path

from connector_tax.base.artifacts.layout import LOGS
from connector_tax.base.files import write_pieces
from connector_tax.base.secrets import masked

# A log may be larger than memory, so it is taken in whole lines of about this size together.
PIECE_CHARS = 1 << 22


def clean_logs(folder: Path) -> None:
    """Mask the logs in ``folder``; one without a secret is left as it is, with its time stamp.

    Raises:
        ArtifactError: there is no room for the masked log.
    """
    for name in LOGS:
        path = folder / name
        if path.is_file() and not path.is_symlink():
            _clean(path)


def _clean(path: Path) -> None:
    # Twice through a log that holds one, so that a log that holds none needs no room on the disk.
    if all(text == clean for text, clean in _pieces(path)):
        return
    masked_pieces = (clean.encode("utf-8", "surrogateescape") for _, clean in _pieces(path))
    write_pieces(path, masked_pieces, mode=path.stat().st_mode & 0o777)


def _pieces(path: Path) -> Iterator[tuple[str, str]]:
    """Yield a log in pieces, as they are and masked; whatever bytes an engine writes come out as they went in."""
    with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as log:
        while text := log.read(PIECE_CHARS):
            text += log.readline()
            yield text, masked(text)
