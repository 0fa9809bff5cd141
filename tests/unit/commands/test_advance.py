"""``connector-tax advance``: what may change between two sittings."""

from dataclasses import replace
from pathlib import Path

import pytest

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.errors import ConfigError
from connector_tax.base.plan import read_campaign_file
from connector_tax.commands.advance import _open_campaign


def test_a_config_may_change_until_something_is_made_of_it(tmp_path: Path) -> None:
    """A first start without ENGINE_PYTHON is refused. The second one, with it, was refused as well, since the config had changed."""
    config, folder = load_campaign(PROJECT_ROOT / "config/demo.yaml"), CampaignFolder(tmp_path / "demo")
    _open_campaign(config, folder)
    edited = replace(config, engine=replace(config.engine, python="/opt/vllm/bin/python"))
    _open_campaign(edited, folder)
    kept = read_campaign_file(folder.campaign_file)
    assert kept.config["engine"]["python"] == "/opt/vllm/bin/python"

    folder.preflight.mkdir()
    folder.preflight_status.write_text("{}")
    with pytest.raises(ConfigError, match="changed in the config file since the first sitting: engine"):
        _open_campaign(config, folder)
    assert read_campaign_file(folder.campaign_file) == kept
