"""A campaign of Phase A alone, with and without blocks: planned, measured, analysed, drawn, and written down."""

from pathlib import Path
from typing import Any

import pytest
from builders import SMALL, Campaign, campaign_config
from read_through import unrendered

from connector_tax.base.errors import ConfigError
from connector_tax.base.files import read_json
from connector_tax.base.plan.start import state_of
from connector_tax.cli import command
from connector_tax.read.analysis import analyse
from connector_tax.read.report.manifest import build_manifest
from connector_tax.run.rehearsal.campaign import rehearse
from connector_tax.workflow import Study

NO_B: dict[str, Any] = {
    **SMALL,
    "connectors": ["plain", "noop_connector"],
    "phase_b": {"input_tokens": [], "output_tokens": []},
    "phase_b_prime": {"configs": [], "shapes": []},
}


def test_a_campaign_without_phase_b_goes_from_plan_to_report(tmp_path: Path) -> None:
    config = campaign_config(**NO_B, campaign="demo", repeats=3, repeat_requests=60)
    blocks = ("r1", "r2", "r3")
    assert config.phases == ("a", *blocks)
    campaign = Campaign(tmp_path / "results" / "demo", config)
    campaign.measure_everything()
    with unrendered():
        assert command("report").call([str(campaign.root)]) == 0
    found = read_json(campaign.folder.aggregate)
    assert {c["phase"] for c in found["cells"]} == {"a", *blocks} and not found["problems"]
    assert [found["configs"][c]["status"] for c in config.connector_ids] == ["measured"] * 2
    assert {t["config"] for t in found["main_taxes"]} == {"noop_connector"}
    assert campaign.folder.report.stat().st_size > 10_000


def test_measuring_is_over_when_phase_a_is_where_nothing_follows(tmp_path: Path) -> None:
    """The patch was taken out before anything was measured."""
    config = campaign_config(**NO_B, repeats=0)
    folder, date = Campaign(tmp_path / "demo", config).folder, "2026-01-01"
    study = Study(config, folder, date, True, state_of(config, folder, date), {}, False)
    assert study.left() == study.receipts("a") and len(study.receipts("a")) == 2
    assert study.receipts("b", "b_prime") == []


def test_a_campaign_without_phase_b_is_rehearsed(tmp_path: Path) -> None:
    _, times = rehearse(campaign_config(**NO_B, repeats=1), tmp_path, processes=1)
    assert [t.phase for t in times] == ["preflight", "a", "r1"]


def test_the_recorder_is_compared_in_a_phase_b_without_lengths() -> None:
    config = campaign_config(**NO_B, repeats=0, observer_effect=True)
    assert config.phases == ("a", "b")


def test_one_length_of_phase_b_without_the_other_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"phase_b\..*Give both, or neither"):
        campaign_config(**{**NO_B, "phase_b": {"input_tokens": [64], "output_tokens": []}})


def test_the_order_is_that_of_measuring_and_not_the_one_that_was_drawn(tmp_path: Path) -> None:
    """A sitting begins with plain, whatever was drawn."""
    config = campaign_config(**NO_B, campaign="demo", repeats=0)
    campaign = Campaign(tmp_path / "results" / "demo", config)
    drawn = read_json(campaign.folder.campaign_file)["order"]["a"]
    for connector in reversed(drawn):
        campaign.measure(connector)
    analyse(campaign.root)
    build_manifest(campaign.root)
    assert read_json(campaign.folder.aggregate)["provenance"]["order"]["a"] == drawn[::-1]
    rows = [line.split("\t") for line in campaign.folder.manifest.read_text().splitlines()[1:]]
    assert [(row[2], row[5]) for row in rows] == [(c, str(k)) for k, c in enumerate(drawn[::-1], 1)]
