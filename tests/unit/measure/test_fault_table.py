"""docs/faults.md and tests/faults.yaml: no row without a test, and no test that is not there."""

import yaml
from named_tests import ROOT, lacking

PAGE = ROOT / "docs" / "faults.md"
TESTS: dict[str, list[str]] = yaml.safe_load((ROOT / "tests" / "faults.yaml").read_text())


def rows() -> list[list[str]]:
    """Cells of every row of a table of faults, without heads and rules."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in found if len(row) == 2 and row[0] != "fault" and not set(row[0]) <= set("-")]


def without_a_test(faults: list[str], tests: dict[str, list[str]]) -> list[str]:
    """What is wrong with what proves the faults."""
    wrong = [f"{fault}: no test" for fault in faults if not tests.get(fault)]
    return wrong + [
        f"{fault}: {missing}"
        for fault, named in tests.items()
        for test in named
        if (missing := lacking(test))
    ]


def test_every_row_names_a_test_that_exists() -> None:
    faults = [row[0] for row in rows()]
    assert len(faults) > 50 and all(cell for row in rows() for cell in row)
    assert without_a_test(faults, TESTS) == []
    assert [fault for fault in TESTS if fault not in faults] == []
