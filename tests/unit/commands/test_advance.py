"""``connector-tax advance``: what may change between two sittings."""

import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import DATE, SMALL, Campaign, campaign_config

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import CampaignConfig, load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.errors import ConfigError, EngineError
from connector_tax.base.files import write_json
from connector_tax.base.plan import campaign_document, read_campaign_file
from connector_tax.commands import advance
from connector_tax.commands.advance import _open_campaign
from connector_tax.run.measure.sitting import Sitting


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
    with pytest.raises(ConfigError, match="changed since the first sitting: engine") as refused:
        _open_campaign(config, folder)
    assert "Undo the edit, or start `connector-tax run`, or give the campaign another name. " in str(
        refused.value
    )
    # Equal to Python, and another flag to the engine.
    args = {**config.engine.args, "enable_prefix_caching": 1}
    with pytest.raises(ConfigError, match="changed since the first sitting: engine"):
        _open_campaign(replace(edited, engine=replace(edited.engine, args=args)), folder)
    assert read_campaign_file(folder.campaign_file) == kept


def test_a_variable_that_is_not_set_any_more_is_no_edit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the second sitting's shell ENGINE_PYTHON was not exported again, and the config file was said to be changed."""
    demo, folder = load_campaign(PROJECT_ROOT / "config/demo.yaml"), CampaignFolder(tmp_path / "demo")
    monkeypatch.delenv("ENGINE_PYTHON", raising=False)
    _open_campaign(replace(demo, engine=replace(demo.engine, python="/opt/vllm/bin/python")), folder)
    folder.preflight.mkdir()
    folder.preflight_status.write_text("{}")
    unset = replace(demo, engine=replace(demo.engine, python="${ENGINE_PYTHON}"))
    with pytest.raises(ConfigError, match=r"variables that are not set here .*: ENGINE_PYTHON\. Set them"):
        _open_campaign(unset, folder)


def test_what_a_start_with_an_edit_left_that_was_interrupted_is_not_taken_for_finished(
    tmp_path: Path,
) -> None:
    """``campaign.json`` is edited since then, and receipts are of the config before: the campaign was said to be measured."""
    config = campaign_config(**{**SMALL, "connectors": ["plain"], "phase_b_prime": {"configs": ["plain"]}})
    campaign = Campaign(tmp_path / "demo", config, max_steps=30)
    campaign.measure("plain")
    campaign.measure("plain", "b", rates=(4.0, 8.0))
    rates = {"ref_safe_per_s": 4.0, "ref_load_per_s": 8.0, "b_prime_needed": False}
    write_json(campaign.folder.reference_rates, rates)
    a, b = (campaign.run(*run).receipt for run in (("plain", "a"), ("plain", "b")))
    _open_campaign(campaign.config, campaign.folder)
    for edit, files in (
        ({"engine": replace(campaign.config.engine, env={"A": "1"})}, [a, campaign.folder.reference_rates]),
        ({"phase_b_input_tokens": (64,)}, [b]),
    ):
        edited = replace(campaign.config, **edit)
        document = campaign_document(edited, date=DATE, created_utc=f"{DATE}T00:00:00Z")
        write_json(campaign.folder.campaign_file, document)
        with pytest.raises(ConfigError, match=r"receipts \(1\) are of another config") as told:
            _open_campaign(edited, campaign.folder)
        assert str(told.value).splitlines()[-1].split() == ["rm", *map(str, files)]


def test_rates_of_a_phase_that_is_measured_again_are_selected_again(tmp_path: Path) -> None:
    """An edit's start was interrupted in Phase A: the sitting that finished it went on at the rates before, and said that all was measured."""
    campaign = Campaign(tmp_path / "demo", campaign_config(**SMALL), max_steps=30)
    for connector in campaign.config.members("a"):
        campaign.measure(connector)
    rates = {"ref_safe_per_s": 4.0, "ref_load_per_s": 8.0, "b_prime_needed": False}
    write_json(campaign.folder.reference_rates, rates)
    _open_campaign(campaign.config, campaign.folder)
    assert campaign.folder.reference_rates.is_file()
    campaign.run("plain", "a").receipt.unlink()
    _open_campaign(campaign.config, campaign.folder)
    assert not campaign.folder.reference_rates.exists()


def test_a_campaign_file_that_is_gone_costs_no_run(tmp_path: Path) -> None:
    """Runs are named by their date: with today's all of them would be measured again."""
    config, folder = load_campaign(PROJECT_ROOT / "config/demo.yaml"), CampaignFolder(tmp_path / "demo")
    folder.run("2026-01-31", "plain", "a").path.mkdir(parents=True)
    assert _open_campaign(config, folder) == "2026-01-31"


def test_what_a_killed_take_put_aside_is_back_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sitting measured it again, and the next take removed what had been put aside."""
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))
    for name in ("end_in_order", "hand_on"):  # of this process
        monkeypatch.setattr(advance, name, lambda *given: None)
    run = CampaignFolder(tmp_path / "demo").run("2026-01-31", "plain", "a")
    aside = run.path.with_name(".phase_a.replaced") / "cells" / "r1_8x8"
    aside.mkdir(parents=True)

    def sits(*given: Any, **named: Any) -> Sitting:
        assert [cell.cell_id for cell in run.finished_cells()] == ["r1_8x8"]
        return Sitting((), ("phase A of plain",), "the time is over")

    monkeypatch.setattr(advance, "sit", sits)
    config = PROJECT_ROOT / "config/demo.yaml"
    given = ["--configfile", str(config), "--results", str(tmp_path), "--minutes", "9"]
    for _ in range(2):  # within one second
        assert advance.COMMAND.call([*given, "--save", str(tmp_path / "out")]) == 75
    assert len(list((tmp_path / "out").iterdir())) == 2


def test_an_archive_has_no_secret_of_a_launch_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has gone through its log, and the archive is sent around."""
    monkeypatch.setenv("HF_TOKEN", "planted-token-1")
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))
    for name in ("end_in_order", "hand_on"):  # of this process
        monkeypatch.setattr(advance, name, lambda *given: None)
    run = CampaignFolder(tmp_path / "demo").run("2026-01-31", "plain", "a")

    def killed(config: CampaignConfig, folder: CampaignFolder, *given: Any, **named: Any) -> None:
        for place in (run.path, folder.preflight / "noop_connector"):
            place.mkdir(parents=True)
            (place / run.stderr.name).write_text("args: {'hf_token': 'planted-token-1'}, planted-token-1\n")
        raise EngineError("phase A of plain failed (exit code -9)")

    monkeypatch.setattr(advance, "sit", killed)
    config = PROJECT_ROOT / "config/demo.yaml"
    given = ["--configfile", str(config), "--results", str(tmp_path), "--save", str(tmp_path / "out")]
    with pytest.raises(EngineError, match="exit code -9"):
        advance.COMMAND.call([*given, "--minutes", "9"])
    with tarfile.open(next((tmp_path / "out").iterdir())) as tar:
        logs = [m for m in tar.getmembers() if m.name.endswith(run.stderr.name)]
        assert len(logs) == 2
        for log in logs:
            content = tar.extractfile(log)
            assert content is not None and b"planted" not in content.read()
