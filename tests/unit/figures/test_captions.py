"""What a caption says of all intervals of its figure."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.read.figures.draw_all import FIGURES
from connector_tax.read.figures.style import Drawn, drawing_style

EXAMPLE = Path(__file__).parents[2] / "data" / "aggregate_example.json"


@pytest.mark.parametrize("name", FIGURES)
def test_a_caption_gives_the_campaigns_own_confidence(name: str) -> None:
    example: dict[str, Any] = json.loads(EXAMPLE.read_text())
    other = copy.deepcopy(example)
    other["provenance"]["confidence"] = 0.8
    with drawing_style(name):
        usual, changed = FIGURES[name](aggregate_of(example)), FIGURES[name](aggregate_of(other))
    assert isinstance(usual, Drawn)
    assert isinstance(changed, Drawn)
    assert "95 % interval" not in changed.caption
    assert changed.caption == usual.caption.replace("95 % interval", "80 % interval")
