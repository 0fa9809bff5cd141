"""A block in which a connector's requests failed is no block that was lost: the blocks that are left would flatter."""

import sys
from pathlib import Path
from typing import Any

import pytest

from connector_tax.ingest import read_campaign
from connector_tax.stats.aggregate import aggregate

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import SMALL, Behaviour, Campaign, campaign_config, fail

from connector_tax.artifacts.layout import CellFolder
from connector_tax.records.cell import CellSpec

PLAIN = Behaviour(noise=0.05)
BEHAVIOURS = {
    "plain": PLAIN,
    "plain_again": PLAIN,
    "mooncake_both": PLAIN.taxed(0.30),
    "nixl_both": PLAIN.taxed(0.20),
}


class Failing(Campaign):
    """One in seven requests of Mooncake's fails in the first block of repeats."""

    def cell(self, connector: str, spec: CellSpec, **more: Any) -> CellFolder:
        if (connector, spec.phase) == ("mooncake_both", "r1"):
            more["change"] = fail(every=7)
        return super().cell(connector, spec, **more)


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    changes = {"analysis": {"bootstrap_draws": 200}, "connectors": ["plain", "mooncake_both", "nixl_both"]}
    config = campaign_config(**{**SMALL, **changes, "phase_b_prime": {"configs": ["plain"]}}, repeats=3)
    campaign = Failing(tmp_path_factory.mktemp("failed") / "campaign", config, BEHAVIOURS, max_steps=60)
    campaign.measure_everything()
    return aggregate(read_campaign(campaign.root))


def tax_of(found: dict[str, Any], config: str) -> dict[str, Any]:
    (row,) = [
        t
        for t in found["main_taxes"]
        if (t["config"], t["reference"], t["metric"]) == (config, "ref_safe", "ttft_p90")
    ]
    return row


def test_its_tax_is_unavailable_and_says_in_which_block(failed: dict[str, Any]) -> None:
    """Four sound blocks would be enough for a tax of 30 %."""
    own = tax_of(failed, "mooncake_both")
    assert (own["point"], own["verdict"]) == (None, "unavailable")
    assert own["reason"] == "its ttft_p90 has no value in block R1: requests failed or did not finish"
    h1 = next(h for h in failed["hypotheses"] if h["id"] == "H1" and h["subject"] == "mooncake_both")
    assert h1["outcome"] == "not testable" and "block R1" in h1["sentence"]


def test_the_others_keep_theirs(failed: dict[str, Any]) -> None:
    assert tax_of(failed, "nixl_both")["kind"] == "over 5 blocks"
    assert {t["config"] for e in failed["repeats"] for t in e["taxes"]} == {"nixl_both"}
