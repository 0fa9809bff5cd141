"""Every picture says whether its numbers are of one launch or over blocks of launches, and adds up no two kinds."""

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.read.figures.draw_all import FIGURES
from connector_tax.read.figures.style import Drawn, Omitted, drawing_style

sys.path.insert(0, str(Path(__file__).parents[2]))
from whole_aggregate import EXAMPLE, no_number


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(EXAMPLE.read_text())
    return found


def drawn(name: str, aggregate: dict[str, Any]) -> Drawn | Omitted:
    with drawing_style("x"):
        return FIGURES[name](aggregate_of(aggregate))


def test_taxes_without_a_number_are_not_said_to_be_none(example: dict[str, Any]) -> None:
    aggregate = copy.deepcopy(example)
    for row in aggregate["decomposition"]:
        row["total"] = no_number("requests failed")
    result = drawn("fig7_decomposition", aggregate)
    assert isinstance(result, Omitted)
    assert result.reason == "no tax can be split: requests failed"
