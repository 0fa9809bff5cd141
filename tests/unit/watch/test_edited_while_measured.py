"""An edit leaves receipts of an earlier plan behind: until they are measured again those runs are left, on the page, in ``status`` and at a report's top."""

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import DATE, Campaign
from half import FILE, campaign

from connector_tax.base.files import write_json
from connector_tax.base.plan import campaign_document
from connector_tax.read.report.left import unfinished
from connector_tax.read.report.status import standing


def over(root: Path) -> Campaign:
    found = campaign(root)
    found.measure_everything()
    for connector in found.config.connector_ids:
        if not found.run(connector, "b_prime").receipt.exists():
            found.receipt(connector, "b_prime")
    assert unfinished(found.folder) == []
    return found


def edited(found: Campaign, **changes: object) -> None:
    """Started again with another config, and interrupted before anything was measured."""
    found.config = replace(found.config, **changes)  # type: ignore[arg-type]
    document = campaign_document(found.config, date=DATE, created_utc=f"{DATE}T00:00:00Z")
    write_json(found.folder.campaign_file, document)


def test_runs_of_an_earlier_launch_are_left(tmp_path: Path) -> None:
    found = over(tmp_path)
    edited(found, engine=replace(found.config.engine, served_model_name="another"))
    assert unfinished(found.folder)[0] == "2 of 6 runs of this campaign have ended."  # those without cells
    now = standing(found.folder, found.config, FILE)
    assert now.ended == 2 and now.left_s > 0 and now.time_left != "all measured"
    assert now.rows[0][1][0].text == "of an earlier plan"
    found.measure("plain")
    now = standing(found.folder, found.config, FILE)
    assert now.left["a"] == ("mooncake_both",)
    assert now.rows[0][1][0].text == "2 cells"


def test_another_load_of_one_phase_leaves_the_others(tmp_path: Path) -> None:
    found = over(tmp_path)
    edited(found, phase_b_output_tokens=(8, 16, 32))
    now = standing(found.folder, found.config, FILE)
    assert set(now.left) == {"b"}


def test_another_rate_leaves_phase_a_and_what_is_measured_at_its_rates_stays(tmp_path: Path) -> None:
    found = over(tmp_path)
    edited(found, phase_a_rates_per_s=(2.0, 4.0, 6.0), phase_a_stop_after_overloaded=None)
    assert set(standing(found.folder, found.config, FILE).left) == {"a"}


def test_a_secret_that_no_file_carries_is_no_edit(tmp_path: Path) -> None:
    """Hashes are over the secret, and ``campaign.json`` is without it."""
    found = campaign(tmp_path, engine={"env": {"HF_TOKEN": "hf_" + "aBcD1234" * 4}})
    found.measure("plain")
    assert standing(found.folder, found.config, FILE).left["a"] == ("mooncake_both",)
    assert "Left" in unfinished(found.folder)[1] and "phase A of mooncake_both" in unfinished(found.folder)[1]
