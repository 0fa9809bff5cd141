"""What the recorder costs, from a campaign in which it is known."""

import sys
from pathlib import Path
from typing import Any

import pytest

from connector_tax.read.ingest import read_campaign

sys.path.insert(0, str(Path(__file__).parents[2]))
from analysed import aggregate_json
from builders import SMALL, Campaign, campaign_config
from invented_server import Behaviour

PLAIN = Behaviour(noise=0.05)
# Recording makes plain 5 % slower and the connector, which has hooks, 20 %; the connector itself costs 30 %.
BEHAVIOURS = {
    "plain": PLAIN.taxed(0.05),
    "plain unrecorded": PLAIN,
    "mooncake_both": PLAIN.taxed(0.56),
    "mooncake_both unrecorded": PLAIN.taxed(0.30),
}


@pytest.fixture(scope="module")
def value(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    config = campaign_config(**SMALL, observer_effect=True)
    campaign = Campaign(tmp_path_factory.mktemp("observed"), config, BEHAVIOURS)
    campaign.measure_everything()
    return aggregate_json(read_campaign(campaign.root))


def row(value: dict[str, Any], config: str, metric: str) -> dict[str, Any]:
    (found,) = [r for r in value["observer_effect"] if (r["config"], r["metric"]) == (config, metric)]
    return dict(found)


@pytest.mark.parametrize("metric", ["ttft_p50", "tpot_p50", "ttft_p90", "tpot_p90"])
@pytest.mark.parametrize(("config", "effect"), [("plain", 0.05), ("mooncake_both", 0.20)])
def test_the_recorders_cost_is_found(value: dict[str, Any], config: str, effect: float, metric: str) -> None:
    found = row(value, config, metric)["effect"]
    assert found["point"] == pytest.approx(effect, abs=0.03)
    assert found["low"] < found["point"] < found["high"]


def test_the_tax_without_the_recorder_stands_beside_the_one_with_it(value: dict[str, Any]) -> None:
    found = row(value, "mooncake_both", "tpot_p90")
    assert found["tax"]["point"] == pytest.approx(1.56 / 1.05 - 1, abs=0.04)
    assert found["tax_unrecorded"]["point"] == pytest.approx(0.30, abs=0.04)
    assert row(value, "plain", "tpot_p90")["tax"] is None


def test_cells_without_the_recorder_enter_no_other_number(value: dict[str, Any]) -> None:
    """A second cell of one shape would count twice in every mean over shapes."""
    assert not any("unrecorded" in t["cell_id"] for t in value["taxes"])
    assert any("unrecorded" in c["cell_id"] for c in value["cells"])
    assert not any("unrecorded" in str(p) for p in value["problems"])


def test_a_campaign_that_did_not_ask_has_none(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, campaign_config(**SMALL), BEHAVIOURS)
    campaign.measure_everything()
    assert aggregate_json(read_campaign(campaign.root))["observer_effect"] == []
