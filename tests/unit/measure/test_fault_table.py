"""docs/faults.md: no row without a test, and no test that is not there."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from named_tests import ROOT, lacking

PAGE = ROOT / "docs" / "faults.md"
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def rows() -> list[list[str]]:
    """Cells of every row of a table, without heads and rules."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in found if row[0] != "fault" and not set(row[0]) <= set("-")]


def faults(table: list[list[str]]) -> list[str]:
    """What is wrong with the rows."""
    wrong = []
    for row in table:
        if len(row) != 4 or not all(row):
            wrong.append(f"{row[0]}: not four cells")
            continue
        named = TEST.findall(row[3])
        if not named:
            wrong.append(f"{row[0]}: no test")
        wrong += [f"{row[0]}: {missing}" for file, test in named if (missing := lacking(f"{file}::{test}"))]
    return wrong


def test_every_row_names_a_test_that_exists() -> None:
    assert len(rows()) > 50
    assert faults(rows()) == []


@pytest.mark.parametrize(
    ("test", "what"),
    [
        ("", "not four cells"),
        ("none yet", "no test"),
        ("`tests/unit/measure/test_fault_table.py::test_that_is_not_there`", "no such test"),
        ("`tests/unit/measure/test_that_is_not_there.py::test_x`", "no such test"),
    ],
)
def test_a_row_without_one_is_found(test: str, what: str) -> None:
    (said,) = faults([["a fault", "seen", "kept", test]])
    assert said.startswith("a fault: ") and what in said


def test_every_fault_is_a_row_once() -> None:
    names = [row[0] for row in rows()]
    assert len(names) == len(set(names))
