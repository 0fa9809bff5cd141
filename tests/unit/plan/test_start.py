"""A campaign does not change, and a receipt is true as long as its cells are on disk: how each start begins."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from builders import DATE, SMALL, Campaign, campaign_config
from msgspec.structs import replace

from connector_tax.base.artifacts.receipts import read_receipt, write_receipt
from connector_tax.base.config import CampaignConfig
from connector_tax.base.errors import ArtifactError, ConfigError
from connector_tax.base.files import read_json, write_json
from connector_tax.base.plan import read_campaign_file
from connector_tax.base.plan.start import CampaignState, open_campaign, state_of
from connector_tax.commands.verify import COMMAND as VERIFY

CONNECTORS = ("plain", "noop_connector")


def begun(root: Path, **sections: Any) -> Campaign:
    """All of Phase A, and nothing more."""
    wanted = {"connectors": list(CONNECTORS), "phase_b_prime": {"configs": ["plain"], "shapes": [[64, 16]]}}
    found = Campaign(root / "demo", campaign_config(**{**SMALL, **wanted, **sections}), max_steps=10)
    for connector in found.config.connector_ids:
        found.measure(connector)
    return found


def over(root: Path) -> Campaign:
    found = begun(root)
    write_json(found.folder.reference_rates, RATES)
    for connector in CONNECTORS:
        found.measure(connector, "b", rates=(2.0, 2.0))
        run = found.run(connector, "b_prime")
        write_receipt(run, campaign="demo", status="not_needed", reason="ref_load equals ref_safe")
    return found


RATES: dict[str, Any] = {"ref_safe_per_s": 2.0, "ref_load_per_s": 2.0, "b_prime_needed": False}


def stands(found: Campaign) -> CampaignState:
    return state_of(found.config, found.folder, DATE)


def with_engine(config: CampaignConfig, **changes: Any) -> CampaignConfig:
    return replace(config, engine=replace(config.engine, **changes))


def listing(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_nothing_is_left_of_a_campaign_that_is_over_whatever_times_its_files_have(tmp_path: Path) -> None:
    found = over(tmp_path)
    open_campaign(found.config, found.folder)
    before = listing(found.root)
    for k, path in enumerate(sorted(found.root.rglob("*"), key=str)):
        os.utime(path, (k * 7919 % 1000, k * 7919 % 1000))
    assert stands(found).left == stands(found).void == {}
    open_campaign(found.config, found.folder)
    shutil.copytree(found.root, tmp_path / "elsewhere" / "demo")
    found.root = tmp_path / "elsewhere" / "demo"
    open_campaign(found.config, found.folder)
    assert listing(found.root) == before
    assert stands(found).left == {}


@pytest.mark.parametrize("what", ["gone", "cut off", "longer", "a file less", "its document"])
def test_a_receipt_whose_cell_is_lost_or_damaged_is_void(tmp_path: Path, what: str) -> None:
    """Nothing was to be done, and it was measured in no start; a dry run still removes nothing."""
    found = over(tmp_path)
    run = found.run("plain", "b")
    cell = run.finished_cells()[1]
    if what == "gone":
        shutil.move(cell.path, tmp_path / "away")
    elif what == "cut off":
        os.truncate(cell.requests, 200)
    elif what == "longer":
        with cell.metrics.open("a") as lines:
            lines.write("{}\n")
    elif what == "a file less":
        cell.metrics.unlink()
    else:
        os.truncate(cell.cell_json, 20)
    before = listing(found.root)
    now = stands(found)
    assert now.left == {"b": ("plain",)}
    removed = [cell.cell_json, run.receipt] if what == "its document" else [run.receipt]
    assert list(now.void) == removed and f"cell {cell.cell_id}" in now.void[run.receipt]
    assert listing(found.root) == before
    said: list[str] = []
    open_campaign(found.config, found.folder, say=said.append)
    assert len(said) == len(removed) and all(cell.cell_id in line for line in said)
    assert before.keys() - listing(found.root).keys() == {str(p.relative_to(found.root)) for p in removed}
    assert found.folder.reference_rates.exists()


def test_a_cell_whose_document_was_edited_is_measured_again(tmp_path: Path) -> None:
    """It was taken for the cell that it says it is, and the next receipt listed it as it was by then."""
    found = over(tmp_path)
    run = found.run("plain", "b")
    cell = run.finished_cells()[0]
    write_json(cell.cell_json, {**read_json(cell.cell_json), "verdict": "invalid", "reasons": ["by hand"]})
    open_campaign(found.config, found.folder)
    assert not cell.cell_json.exists() and cell.requests.exists()


@pytest.mark.parametrize("content", ["{", '{"schema": 99}'])
def test_a_receipt_that_cannot_be_read_is_void(tmp_path: Path, content: str) -> None:
    found = over(tmp_path)
    found.run("plain", "b").receipt.write_text(content)
    assert stands(found).left == {"b": ("plain",)}
    open_campaign(found.config, found.folder)
    assert not found.run("plain", "b").receipt.exists()


def test_rates_follow_from_phase_a_until_something_is_measured_at_them(tmp_path: Path) -> None:
    found = begun(tmp_path)
    write_json(found.folder.reference_rates, RATES)
    write_json(found.folder.put_in, {})
    receipt = found.run("plain", "a").receipt
    receipt.unlink()
    open_campaign(found.config, found.folder)
    assert not found.folder.reference_rates.exists() and not found.folder.put_in.exists()

    found.receipt("plain")
    write_json(found.folder.reference_rates, RATES)
    found.measure("noop_connector", "b", rates=(2.0, 2.0), receipt=False)
    receipt.unlink()
    said: list[str] = []
    open_campaign(found.config, found.folder, say=said.append)
    assert read_json(found.folder.reference_rates) == RATES
    assert said == [
        f"{found.folder.reference_rates}: stands, since later phases were measured at it; phase A is measured again of plain"
    ]


def test_what_was_left_out_is_measured_when_its_reason_is_gone(tmp_path: Path) -> None:
    """Preflight skipped it and lets it be measured now; it failed in Phase A and is tried again; the rates are others."""
    found = over(tmp_path)
    found.skip("noop_connector", "it is not installed")
    assert stands(found).left == {}
    found.folder.preflight_status.unlink()
    left = {"a": ("noop_connector",), "b": ("noop_connector",), "b_prime": ("noop_connector",)}
    assert stands(found).left == left
    found.decisions["noop_connector"] = found.decisions["plain"]
    found._write_preflight()
    assert stands(found).left == left

    found.receipt("noop_connector", "a")
    receipt = found.run("noop_connector", "a").receipt
    write_json(receipt, {**read_json(receipt), "status": "failed", "reason": "it died"})
    assert stands(found).left == {} and stands(found).ends_at_once("noop_connector")
    receipt.unlink()
    assert stands(found).left == left

    found.folder.reference_rates.unlink()
    assert stands(found).left["b_prime"] == CONNECTORS


EDITS: list[tuple[str, dict[str, Any]]] = [
    ("seed", {"seed": 99}),
    ("phase_a_rates_per_s", {"phase_a": {**SMALL["phase_a"], "rates_per_s": [2, 4, 8, 16]}}),
    ("cell.duration_s", {"cell": {**SMALL["cell"], "duration_s": 21}}),
    ("engine.args.enable_prefix_caching", {"engine": {"args": {"enable_prefix_caching": 1}}}),
]


@pytest.mark.parametrize(("key", "changes"), EDITS, ids=[e[0] for e in EDITS])
def test_another_value_of_what_enters_a_hash_is_another_campaign(
    tmp_path: Path, key: str, changes: dict[str, Any]
) -> None:
    engine = {"args": {"enable_prefix_caching": True}}
    found = begun(tmp_path, engine=engine)
    wanted = {"connectors": list(CONNECTORS), "phase_b_prime": {"configs": ["plain"], "shapes": [[64, 16]]}}
    edited = campaign_config(**{**SMALL, **wanted, "engine": engine, **changes})
    before = listing(found.root)
    with pytest.raises(ConfigError, match=rf"campaign\.json: {key}: was .* is ") as told:
        open_campaign(edited, found.folder)
    assert "\n" not in str(told.value)
    assert "undo the edit, or give the campaign another name" in str(told.value)
    assert listing(found.root) == before


def test_what_enters_no_hash_may_change_at_any_time(tmp_path: Path) -> None:
    found = over(tmp_path)
    engine = {
        "python": "/opt/vllm/bin/python",
        "gpu": 3,
        "port": 9000,
        "wait_for_card_s": 5.0,
        "ready_timeout_s": 7.0,
        "stop_grace_s": 3.0,
        "release_timeout_s": 9.0,
        "release_tolerance_mib": 1,
    }
    edited = with_engine(
        replace(found.config, analysis=replace(found.config.analysis, confidence=0.9)), **engine
    )
    open_campaign(edited, found.folder)
    assert state_of(edited, found.folder, DATE).left == {}
    stored = read_campaign_file(found.folder.campaign_file).config
    assert stored["engine"]["gpu"] == 3 and stored["analysis"]["confidence"] == 0.9


def test_a_connector_more_is_measured_and_one_less_is_another_campaign(tmp_path: Path) -> None:
    """No cell of the others is another one for it; and preflight has to ask it."""
    found = over(tmp_path)
    config = campaign_config(
        **{
            **SMALL,
            "connectors": [*CONNECTORS, "nixl_both"],
            "phase_b_prime": {"configs": ["plain"], "shapes": [[64, 16]]},
        }
    )
    found.config = config
    now = stands(found)
    assert now.left == dict.fromkeys(("a", "b", "b_prime"), ("nixl_both",))
    assert list(now.void) == [found.folder.preflight_status]
    open_campaign(config, found.folder)
    assert found.folder.reference_rates.exists()
    found.measure("nixl_both", receipt=False)
    with pytest.raises(ConfigError, match=r"connectors\.nixl_both"):
        open_campaign(replace(config, connectors=config.connectors[:2]), found.folder)


def test_an_entry_by_which_nothing_was_measured_may_change(tmp_path: Path) -> None:
    """Preflight skipped it for a variable that is not right: mending that was another campaign."""
    found = begun(tmp_path)
    shutil.rmtree(found.run("noop_connector", "a").path)
    found.skip("noop_connector", "it does not start")
    plain, noop = found.config.connectors
    found.config = replace(found.config, connectors=(plain, replace(noop, env={"A": "1"})))
    with pytest.raises(ConfigError, match=r"connectors\.plain\.env\.A"):
        open_campaign(replace(found.config, connectors=(replace(plain, env={"A": "1"}), noop)), found.folder)
    open_campaign(found.config, found.folder)
    assert not found.folder.preflight_status.exists()
    assert stands(found).left["a"] == ("noop_connector",)
    open_campaign(replace(found.config, connectors=(plain,)), found.folder)


def test_a_config_may_change_as_long_as_nothing_is_measured(tmp_path: Path) -> None:
    """A first start without ENGINE_PYTHON, or with an argument that no engine takes, is mended in the file. Preflight is made again."""
    found = begun(tmp_path)
    for connector in CONNECTORS:
        shutil.rmtree(found.run(connector, "a").path)
    run = found.run("noop_connector", "a")
    write_receipt(run, campaign="demo", status="failed", reason="it did not launch")
    edited = with_engine(found.config, env={"A": "1"})
    open_campaign(edited, found.folder)
    assert read_campaign_file(found.folder.campaign_file).config["engine"]["env"]["A"] == "1"
    assert not found.folder.preflight_status.exists() and not run.receipt.exists()


def test_a_secret_of_the_config_is_in_no_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE", "hf_" + "aBcD1234" * 4)
    monkeypatch.setenv("TWO", "hf_" + "x" * 32)
    found = begun(tmp_path, engine={"env": {"HF_TOKEN": "${ONE}", "A": "1"}})
    open_campaign(found.config, found.folder)
    with pytest.raises(ConfigError, match=r"was '\$\{ONE\}' .* is '\$\{TWO\}'") as told:
        open_campaign(with_engine(found.config, env={"HF_TOKEN": "${TWO}", "A": "1"}), found.folder)
    assert "aBcD" not in str(told.value) and "xxxx" not in str(told.value)


def test_another_content_of_the_cost_model_is_another_campaign(tmp_path: Path) -> None:
    found = begun(tmp_path)
    with pytest.raises(ConfigError, match=r"engine\.model_sha256"):
        open_campaign(with_engine(found.config, model_sha256="0" * 64), found.folder)


def test_a_renamed_folder_is_not_gone_on_with(tmp_path: Path) -> None:
    """Cells name their campaign; by another name all of them would be left out."""
    found = over(tmp_path)
    renamed = replace(found.config, campaign="other")
    with pytest.raises(ConfigError, match=r"campaign: was 'demo' .* is 'other'"):
        open_campaign(renamed, found.folder)
    found.folder.campaign_file.unlink()
    with pytest.raises(ArtifactError, match=r"receipt\.json: is of campaign 'demo', and this is other"):
        open_campaign(renamed, found.folder)
    assert read_receipt(found.run("plain", "a")).status == "measured"


def test_a_byte_that_was_changed_in_place_is_found_by_verify(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A start looks at sizes alone, since checksums of a whole campaign take minutes."""
    found = over(tmp_path)
    assert VERIFY.call([str(found.root)]) == 0
    assert "14 cells: all as they were measured" in capsys.readouterr().out
    cell = found.run("plain", "b").finished_cells()[0]
    content = bytearray(cell.requests.read_bytes())
    content[10] ^= 1
    cell.requests.write_bytes(content)
    assert stands(found).void == {}
    assert VERIFY.call([str(found.root)]) == 1
    assert f"{cell.path}: {cell.requests.name} differs from its checksum" in capsys.readouterr().out


def test_a_campaign_file_that_is_gone_costs_no_run(tmp_path: Path) -> None:
    """Runs are named by their date: with today's all of them would be measured again."""
    found = over(tmp_path)
    found.folder.campaign_file.unlink()
    assert open_campaign(found.config, found.folder) == DATE
    assert stands(found).left == {}


def test_a_thinned_campaign_stays_one(tmp_path: Path) -> None:
    """The next thinning packed what was packed, and its page did not say that it was thinned."""
    found = over(tmp_path)
    document = read_json(found.folder.campaign_file)
    thinned = {"rule": "some", "source": {"campaign.json": "0" * 64}}
    write_json(found.folder.campaign_file, {**document, "thinned": thinned})
    open_campaign(found.config, found.folder)
    assert read_json(found.folder.campaign_file)["thinned"] == thinned


def test_where_the_campaign_file_is_gone_cells_say_what_they_were_measured_by(tmp_path: Path) -> None:
    """Cells of a run that had not ended were measured again by the other config, and put in place of the good ones; all others were left out."""
    found = begun(tmp_path)
    found.folder.campaign_file.unlink()
    found.run("noop_connector", "a").receipt.unlink()
    before = listing(found.root)
    other = replace(found.config, seed=99)
    with pytest.raises(ConfigError, match=r"phase_a/cells/r2_256x16: was measured by another config"):
        open_campaign(other, found.folder)
    assert listing(found.root) == before
    open_campaign(with_engine(found.config, port=9000), found.folder)
