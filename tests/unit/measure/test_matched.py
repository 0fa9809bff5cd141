"""What preflight makes of what it saw: the launches of matched baselines, and connectors whose hooks nobody recorded."""

import json
from pathlib import Path
from typing import Any

import pytest
from builders import campaign_config

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.documents.receipt import Decision, MatchedLaunch, PreflightStatus
from connector_tax.base.errors import ConfigError
from connector_tax.base.files import write_json
from connector_tax.base.plan import launch_spec
from connector_tax.run.engine.settings import StepTiming
from connector_tax.run.measure.launch import engine_diff, matched_launch, with_matched_launches
from connector_tax.run.measure.preflight import STEP_LOG, recorders_heard

HMA = "scheduler_config.disable_hybrid_kv_cache_manager"
CONFIG = campaign_config(
    connectors=["plain", "noop_connector", "lmcache_only", "plain_matched_lmcache_only"],
    phase_b_prime={"configs": [], "shapes": []},
)
BASELINE = CONFIG.connector("plain_matched_lmcache_only")


def seen(root: Path, **settings: dict[str, Any]) -> CampaignFolder:
    folder = CampaignFolder(root)
    for connector_id, values in settings.items():
        write_json(folder.engine_settings(connector_id), {"schema": 1, "settings": values})
    return folder


def test_a_baseline_of_nothing_in_the_campaign_is_refused() -> None:
    with pytest.raises(ConfigError, match="not among this campaign's"):
        campaign_config(
            connectors=["plain", "plain_matched_nixl_both"], phase_b_prime={"configs": [], "shapes": []}
        )


def test_what_the_connector_changed_becomes_flags(tmp_path: Path) -> None:
    folder = seen(tmp_path, plain={HMA: False, "x": 1}, lmcache_only={HMA: True, "x": 2})
    launched, words = matched_launch(folder, BASELINE)
    assert launched is not None
    assert launched.extra_args == ("--disable-hybrid-kv-cache-manager",)
    assert words == f"as lmcache_only: {HMA}, x; not matched: x"


def test_a_baseline_has_room_for_as_many_kv_blocks(tmp_path: Path) -> None:
    blocks = "cache_config.num_gpu_blocks"
    folder = seen(tmp_path, plain={HMA: False, blocks: 100}, lmcache_only={HMA: True, blocks: 90})
    launched, words = matched_launch(folder, BASELINE)
    assert launched is not None
    assert launched.extra_args == ("--num-gpu-blocks-override", "90", "--disable-hybrid-kv-cache-manager")
    assert words == f"as lmcache_only: {HMA}"


@pytest.mark.parametrize(
    ("plain", "own", "reason"),
    [
        (
            {"cache_config.num_gpu_blocks": 100, "a": 1},
            {"cache_config.num_gpu_blocks": 90, "a": 1},
            "plain is its matched baseline",
        ),
        ({}, {"a": 1}, "not known"),
        ({"a": 1}, {"a": 2}, "no flag sets"),
    ],
)
def test_there_may_be_nothing_to_launch(
    tmp_path: Path, plain: dict[str, Any], own: dict[str, Any], reason: str
) -> None:
    launched, words = matched_launch(seen(tmp_path, plain=plain, lmcache_only=own), BASELINE)
    assert launched is None
    assert reason in words


def test_preflights_findings_are_part_of_the_launch_and_its_hash() -> None:
    launch = MatchedLaunch(extra_args=("--disable-hybrid-kv-cache-manager",), env={"A": "b"})
    decisions = {BASELINE.id: Decision("include", launch=launch), "plain": Decision("include")}
    config = with_matched_launches(CONFIG, PreflightStatus(configs=decisions))
    launched = launch_spec(config, BASELINE.id)
    assert launched.extra_args == ("--disable-hybrid-kv-cache-manager",)
    assert launched.env and launched.env["A"] == "b"
    assert launch_spec(config, "plain") == launch_spec(CONFIG, "plain")


def test_the_diff_says_what_was_not_seen(tmp_path: Path) -> None:
    folder = seen(tmp_path, plain={HMA: False}, lmcache_only={HMA: True}, noop_connector={HMA: False})
    assert engine_diff(CONFIG, folder).configs == {
        "plain": {},
        "noop_connector": {},
        "lmcache_only": {HMA: {"plain": False, "own": True}},
        BASELINE.id: None,
    }


RECORDED = campaign_config(
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
    timing, silent = recorders_heard(folder, RECORDED, set(RECORDED.connector_ids), FITS)
    assert timing.available
    assert list(silent) == ["noop_connector"]
    assert silent["noop_connector"].startswith("hook times are not known: no worker; the engine says: ")


def test_a_connector_that_was_not_launched_is_not_asked(tmp_path: Path) -> None:
    served(CampaignFolder(tmp_path), "plain", scheduler=[])
    assert recorders_heard(CampaignFolder(tmp_path), RECORDED, {"plain"}, FITS) == (FITS, {})
    unfit = StepTiming(False, "engine.step_timing is false")
    assert recorders_heard(CampaignFolder(tmp_path), RECORDED, {"plain"}, unfit) == (unfit, {})
