"""Measures what switching on a KV connector costs a vLLM server, before a block is transferred."""

from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"


def read_campaign(path: str | Path) -> Any:
    """Return pandas tables of a campaign (``Frames``): ``cells``, ``taxes``, ``requests``, ``steps``.

    Args:
        path: its results folder, or a bundle, packed or unpacked.

    Raises:
        ArtifactError: there is no campaign.
    """
    # By name: this module is above all layers, and pandas takes a second to import.
    return import_module(".read.frames", __name__).Frames(Path(path))
