"""Over blocks the middle and the highest load decide, and each must be known."""

import json
import re
from pathlib import Path

import pytest
from made import DATE, GIVEN, QUIET, measured

from connector_tax.check.campaigns import Campaigns
from connector_tax.check.findings import read_findings
from connector_tax.check.verdict import FINE, NOT_JUDGED, verdict


@pytest.fixture
def campaigns(tmp_path: Path) -> Campaigns:
    return measured(tmp_path, own=QUIET.taxed(0.05), blocks=3, modes=("async",))


def _spoil(campaigns: Campaigns, phases: tuple[str, ...], rate_per_s: float) -> None:
    """The connector's cells of these blocks at one load do not count."""
    spoilt = 0
    for phase in phases:
        for cell in campaigns.folders["async"].run(DATE, GIVEN, phase).finished_cells():  # type: ignore[arg-type]
            document = json.loads(cell.cell_json.read_text())
            if document["spec"]["rate_per_s"] == rate_per_s:
                document |= {"verdict": "invalid", "reasons": ["the virtual GPU's clock ran late"]}
                cell.cell_json.write_text(json.dumps(document))
                spoilt += 1
    assert spoilt == len(phases)


@pytest.mark.parametrize(("load", "phases"), [(1, ("r2",)), (2, ("a", "r1", "r2"))])
def test_a_deciding_load_that_fewer_than_three_blocks_know_leaves_nothing_judged(
    campaigns: Campaigns, phases: tuple[str, ...], load: int
) -> None:
    """The other load alone would say that no tax is above the limit."""
    rate = campaigns.rates_per_s[load]
    _spoil(campaigns, phases, rate)
    findings = read_findings(campaigns, {})
    for limit in (None, 0.5):
        found = verdict(findings, limit)
        assert found.exit_code == NOT_JUDGED
        assert re.search(
            rf"not judged: TTFT p50, TTFT p90, TPOT p50 and TPOT p90 at {rate:g} req/s .*fewer than 3 blocks; .*clock ran late",
            found.line,
        )


def test_a_lost_cell_at_the_lowest_load_takes_nothing_from_a_verdict_over_blocks(
    campaigns: Campaigns,
) -> None:
    _spoil(campaigns, ("a",), campaigns.rates_per_s[0])
    found = verdict(read_findings(campaigns, {}), 0.5)
    assert found.exit_code == FINE and "over 3 blocks" in found.line
