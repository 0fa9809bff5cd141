"""Settings are those that the measured launches resolved; preflight's word stands where they say nothing."""

from pathlib import Path
from typing import Any

import pytest
from analysed import aggregate_json
from builders import ENGINE, SMALL, Campaign, campaign_config

from connector_tax.base.files import write_json
from connector_tax.read.ingest import read_campaign

ASYNC, BLOCKS = "scheduler_config.async_scheduling", "cache_config.num_gpu_blocks"
CONFIG = campaign_config(
    **{
        **SMALL,
        "connectors": ["plain", "noop_connector", "nixl_both"],
        "phase_b_prime": {"configs": [], "shapes": []},
    }
)


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    """Preflight saw synchronous scheduling, but for NIXL, whose launch it did not see."""
    found = Campaign(tmp_path, CONFIG, max_steps=40)
    configs = {"plain": {}, "noop_connector": {"log.x": {"plain": 1, "own": 2}}, "nixl_both": None}
    write_json(
        found.folder.engine_diff, {"schema": 1, "plain": {ASYNC: False, BLOCKS: 90}, "configs": configs}
    )
    return found


def resolved(**settings: Any) -> dict[str, Any]:
    return {**ENGINE, "settings": {name.replace("__", "."): value for name, value in settings.items()}}


def test_a_measured_launch_goes_before_preflight(campaign: Campaign) -> None:
    campaign.measure("plain", engine=resolved(a=1, cache_config__num_gpu_blocks=100))
    campaign.measure("nixl_both", engine=resolved(a=2, cache_config__num_gpu_blocks=80))
    data = read_campaign(campaign.root, steps=False)
    assert data.problems == ()
    assert data.settings_of("plain") == {"a": 1, BLOCKS: 100}
    assert data.settings_of("nixl_both") == {"a": 2, BLOCKS: 80}
    # Its own launches have not been measured.
    assert data.settings_of("noop_connector") == {ASYNC: False, BLOCKS: 90, "log.x": 2}
    changes = {
        "plain": {},
        "noop_connector": {"log.x": {"plain": 1, "own": 2}},
        "nixl_both": {"a": {"plain": 1, "own": 2}},
    }
    assert data.changes == changes == aggregate_json(data)["engine_diff"]


def test_what_a_launch_of_a_later_phase_does_not_tell_is_known_from_the_earlier(campaign: Campaign) -> None:
    campaign.measure("plain", engine=resolved(a=1, b=1))
    campaign.measure("plain", "b", rates=(2, 2), engine=resolved(b=2))
    assert read_campaign(campaign.root, steps=False).settings_of("plain") == {"a": 1, "b": 2}


@pytest.mark.parametrize("silent", ["plain", "nixl_both"])
def test_two_engines_are_compared_by_one_kind_of_evidence(campaign: Campaign, silent: str) -> None:
    """Cells of an earlier version hold no settings, and a list of preflight's is not that of a measured launch."""
    for config in ("plain", "nixl_both"):
        campaign.measure(config, engine=ENGINE if config == silent else resolved(a=1))
    data = read_campaign(campaign.root, steps=False)
    assert data.changes["nixl_both"] is None


def test_without_preflight_and_settings_nothing_is_known(campaign: Campaign) -> None:
    campaign.folder.engine_diff.unlink()
    campaign.measure("plain")
    data = read_campaign(campaign.root, steps=False)
    assert data.changes == {} and data.settings_of("plain") == {}


def test_the_second_launch_of_plain_is_no_configuration(campaign: Campaign) -> None:
    campaign.measure("plain", engine=resolved(a=1))
    campaign.measure("plain_again", "r1", rates=(2, 2), engine=resolved(a=1))
    assert "plain_again" not in read_campaign(campaign.root, steps=False).changes
