"""A campaign that is resumed with another vLLM, driver or card is refused by name, before anything is launched."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import ENGINE, Campaign, campaign_config
from host_faults import DATE, small_campaign
from msgspec.structs import replace

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.documents.identity import EngineIdentity
from connector_tax.base.errors import ConfigError
from connector_tax.base.files import read_json, write_json
from connector_tax.run.measure.launch import refuse_another_engine
from connector_tax.run.measure.run import measure_run


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    """Plain's Phase A, with a driver."""
    config = campaign_config()
    made = Campaign(tmp_path, replace(config, engine=replace(config.engine, mix_cards=False)))
    made.measure("plain", engine={**ENGINE, "driver": "580.65.06"}, receipt=False)
    return made


def ask(campaign: Campaign, phase: str = "a", **changes: Any) -> None:
    """Whether nixl_both may be measured with plain's engine but for ``changes``."""
    engine = msgspec.convert({**ENGINE, "driver": "580.65.06", **changes}, EngineIdentity)
    run = campaign.run("nixl_both", phase)
    refuse_another_engine(CampaignFolder(campaign.root), campaign.config, run, engine)


def test_the_same_engine_goes_on(campaign: Campaign) -> None:
    ask(campaign)
    # Written before drivers were.
    ask(campaign, driver=None)


@pytest.mark.parametrize(
    ("phase", "changes", "said"),
    [
        ("a", {"versions": {**ENGINE["versions"], "vllm": "0.33.0"}}, "vllm 0.33.0 / 0.32.0"),
        ("b", {"driver": "590.1"}, "driver 590.1 / 580.65.06"),
    ],
)
def test_another_vllm_or_driver_is_refused_in_every_phase(
    campaign: Campaign, phase: str, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match="was begun with another engine") as told:
        ask(campaign, phase, **changes)
    assert said in str(told.value)


def test_another_card_is_refused_in_the_phase_that_was_begun_on_one(campaign: Campaign) -> None:
    other = {"gpu": ["GPU 0: NVIDIA H20 (UUID: GPU-2)"]}
    with pytest.raises(ConfigError, match="phase A was begun on GPU 0: ") as told:
        ask(campaign, **other)
    assert "and would go on on GPU 0: NVIDIA H20 (UUID: GPU-2)" in str(told.value)
    ask(campaign, "b", **other)


def test_a_card_of_the_same_kind_will_do_where_cards_are_mixed(campaign: Campaign) -> None:
    campaign.config = replace(campaign.config, engine=replace(campaign.config.engine, mix_cards=True))
    ask(campaign, gpu=["GPU 3: NVIDIA H20 (UUID: GPU-2)"])
    with pytest.raises(ConfigError, match="phase A was begun on"):
        ask(campaign, gpu=["GPU 3: NVIDIA B200 (UUID: GPU-2)"])


def test_a_package_that_was_installed_since_is_no_other_engine(campaign: Campaign) -> None:
    """It took no part in what was measured without it."""
    assert ENGINE["versions"].get("flashinfer") is None
    ask(campaign, versions={**ENGINE["versions"], "flashinfer": "0.5"})


def test_nothing_is_launched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))
    folder = small_campaign(tmp_path)
    measure_run(folder.campaign_file, "plain", "a")
    (cell,) = folder.run(DATE, "plain", "a").finished_cells()
    document = read_json(cell.cell_json)
    document["engine"]["versions"]["python"] = "3.9.1"
    write_json(cell.cell_json, document)
    with pytest.raises(ConfigError, match=r"python .* / 3\.9\.1"):
        measure_run(folder.campaign_file, "nixl_both", "a")
    assert not folder.run(DATE, "nixl_both", "a").launch_sh.exists()
    assert not folder.run(DATE, "nixl_both", "a").receipt.exists()
