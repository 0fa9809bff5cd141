"""Preflight asks the engines' own records whether each connector was heard, not only plain's."""

import json
from pathlib import Path

from builders import campaign_config

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.run.engine.settings import StepTiming
from connector_tax.run.measure.preflight import STEP_LOG, recorders_heard

CONFIG = campaign_config(
    connectors=["plain", "noop_connector", "nixl_both", "plain_matched_nixl_both"],
    phase_b_prime={"configs": [], "shapes": []},
)
FITS = StepTiming(True, None)


def served(folder: CampaignFolder, connector_id: str, **hooks: list[str]) -> None:
    """A launch whose processes wrote their headers."""
    for process, names in hooks.items():
        path = folder.preflight / connector_id / STEP_LOG.with_name(f"{STEP_LOG.stem}.{process}.7.jsonl")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"kind": "header", "process": process, "hooks": names}) + "\n")


def test_a_connector_that_was_not_heard_is_named_and_the_others_are_not(tmp_path: Path) -> None:
    """Plain and its matched baselines have no hooks to hear."""
    folder = CampaignFolder(tmp_path)
    for plain in ("plain", "plain_matched_nixl_both"):
        served(folder, plain, scheduler=[])
    served(folder, "noop_connector", scheduler=["build_connector_meta"])
    served(folder, "nixl_both", scheduler=["build_connector_meta"], worker=["get_finished"])
    timing, silent = recorders_heard(folder, CONFIG, set(CONFIG.connector_ids), FITS)
    assert timing.available
    assert list(silent) == ["noop_connector"]
    assert silent["noop_connector"].startswith("hook times are not known: no worker; the engine says: ")


def test_a_connector_that_was_not_launched_is_not_asked(tmp_path: Path) -> None:
    served(CampaignFolder(tmp_path), "plain", scheduler=[])
    assert recorders_heard(CampaignFolder(tmp_path), CONFIG, {"plain"}, FITS) == (FITS, {})
    unfit = StepTiming(False, "engine.step_timing is false")
    assert recorders_heard(CampaignFolder(tmp_path), CONFIG, {"plain"}, unfit) == (unfit, {})
