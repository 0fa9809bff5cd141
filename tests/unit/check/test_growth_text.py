"""How hooks grow, in words: nothing where that is known, and not known where it is not."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made import request

from connector_tax.check.campaigns import write_campaigns
from connector_tax.check.findings import Findings
from connector_tax.check.text import check_text
from connector_tax.check.verdict import Verdict
from connector_tax.read.stats.step_slopes import CellSteps, slopes

HOOK = "scheduler/build_connector_meta"


def _cells(*, collinear: bool, us_per_request: float, fixed: int | None = None) -> list[CellSteps]:
    """Three cells of one launch; collinear: prompts of one length alone, so new blocks follow from running and new requests."""
    rng, cells = np.random.default_rng(0), []
    for k in range(3):
        n = 200
        running = rng.integers(1, 6, n).astype(float)
        new = (rng.random(n) < 0.2).astype(float)
        blocks = (running - new) / 16 + 16 * new if collinear else rng.random(n)
        at = np.column_stack([running, running * 16.5 + rng.random(n), np.linspace(0, 1, n) + k, blocks, new])
        if fixed is not None:
            at[:, fixed] = 3.0
        us = us_per_request * running + rng.normal(0, 0.01, n)
        cells.append(CellSteps("checked a 1", {HOOK: us}, {HOOK: np.ones(n)}, {HOOK: np.full(n, np.nan)}, at))
    return cells


@pytest.fixture
def findings(tmp_path: Path) -> Findings:
    return Findings(write_campaigns(request(tmp_path), tmp_path), None, {}, {}, (), None)


def _said(findings: Findings, cells: list[CellSteps]) -> list[str]:
    text = check_text(replace(findings, growth=slopes(cells, 1)), Verdict(0, "fine"), explain=False)
    lines = text.splitlines()
    begin = next(k for k, line in enumerate(lines) if line.startswith("how hooks grow"))
    return lines[begin + 1 : -2]


def test_loads_that_moved_together_are_not_said_to_cost_nothing(findings: Findings) -> None:
    """500 us for each running request, and no way to tell."""
    assert _said(findings, _cells(collinear=True, us_per_request=500.0)) == [
        "    not known: these loads moved together"
    ]


def test_a_load_that_never_moved_is_named_beside_what_is_known(findings: Findings) -> None:
    found = _said(findings, _cells(collinear=False, us_per_request=500.0, fixed=2))
    assert found[0].startswith(f"    {HOOK}: running request +500 ")
    assert found[1:] == ["    not known per 1,000 prefix blocks: every step had the same"]
    found = _said(findings, _cells(collinear=False, us_per_request=0.0, fixed=2))
    assert found == ["    nothing", "    not known per 1,000 prefix blocks: every step had the same"]


def test_nothing_is_said_where_all_is_known_and_none_is_dear(findings: Findings) -> None:
    assert _said(findings, _cells(collinear=False, us_per_request=0.0)) == ["    nothing"]


def test_too_few_steps_are_no_answer(findings: Findings) -> None:
    (line,) = _said(findings, [])
    assert line.startswith("    not known: there are too few step records")
