"""Tables say of which launch their numbers are, and give no kind where there is none."""

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from connector_tax.report.parts import decomposition_view

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import ROOT

EXAMPLE = json.loads((ROOT / "tests" / "data" / "aggregate_example.json").read_text())
LOST = {"point": None, "low": None, "high": None, "n": 0, "kind": None, "reason": "requests failed"}


@pytest.fixture
def aggregate() -> dict[str, Any]:
    return copy.deepcopy(EXAMPLE)


def test_a_tax_without_a_number_has_no_kind(aggregate: dict[str, Any]) -> None:
    """The parts beside it keep their own."""
    row = aggregate["decomposition"][0]
    row |= {"kind": "of one launch", "total": LOST, "implementation": LOST}
    row["framework"]["kind"] = "over 5 blocks"
    found = decomposition_view(aggregate)[0]
    assert found["kind"] == ""
    assert found["parts"][2]["range"].endswith("], over 5 blocks")
    assert "launch" not in found["parts"][3]["range"]
