"""Reports of unfinished campaigns: each says at its top what is left, as ``status`` counts it."""

import html
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import SMALL, Campaign, campaign_config
from read_through import unrendered

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import CampaignConfig
from connector_tax.base.files import read_json, to_json, write_json, write_text_if_changed
from connector_tax.base.plan import read_campaign_file
from connector_tax.base.plan.duration import expected_preflight_s, expected_run_s
from connector_tax.base.plan.estimate import estimated_rates, expected_of
from connector_tax.base.units import duration_text
from connector_tax.read.analysis import analyse
from connector_tax.read.figures.draw_all import draw_figures
from connector_tax.read.ingest import read_campaign
from connector_tax.read.report.page import build_report, unfinished
from connector_tax.read.report.status import seconds_left, status_text
from connector_tax.read.stats.reference import select_reference_rates
from connector_tax.run.measure.launch import Progress

COMMAND = "connector-tax run mine.yaml"


def campaign(root: Path, **changes: object) -> Campaign:
    """Of two configurations and few requests."""
    small = {
        **SMALL,
        "connectors": ["plain", "mooncake_both"],
        "phase_a": {"rates_per_s": [2, 4], "input_tokens": 256, "output_tokens": 16},
        "analysis": {"bootstrap_draws": 200},
    }
    config = campaign_config(**{**small, **changes})
    return Campaign(root / config.campaign, config, max_steps=40)


def half(root: Path) -> Campaign:
    """Phase A of plain has ended, that of Mooncake has its cells and no receipt."""
    found = campaign(root)
    found.measure("plain")
    found.measure("mooncake_both", receipt=False)
    return found


def made(root: Path) -> str:
    """The page's text, after the analysis and figures that it is made of."""
    analyse(root)
    with unrendered():
        draw_figures(root)
    return build_report(root).read_text()


def preflight(root: Path) -> CampaignFolder:
    return campaign(root).folder


def half_way(root: Path) -> CampaignFolder:
    return half(root).folder


def no_rates(root: Path) -> CampaignFolder:
    """All of Phase A has ended, and what follows from it was not written yet."""
    found = half(root)
    found.receipt("mooncake_both")
    return found.folder


def in_phase_b(root: Path) -> CampaignFolder:
    folder = no_rates(root)
    rates = select_reference_rates(read_campaign(root / "demo", phases=("a",), steps=False))
    write_text_if_changed(folder.reference_rates, to_json(rates))
    return folder


@pytest.mark.parametrize(
    ("stage", "ended", "left", "preliminary"),
    [
        (preflight, 0, "phase A; phase B; phase B'", True),
        (half_way, 1, "phase A of Mooncake (both); phase B; phase B'", True),
        (no_rates, 2, "phase B; phase B'", False),
        (in_phase_b, 2, "phase B; phase B'", False),
    ],
)
def test_it_says_first_what_is_left(
    tmp_path: Path, stage: Callable[[Path], CampaignFolder], ended: int, left: str, preliminary: bool
) -> None:
    folder = stage(tmp_path)
    text = made(folder.root)
    said = re.sub(r"<[^>]*>", "", html.unescape(text.partition('class="left"')[2].partition("<h1>")[0]))
    assert f"{ended} of 6 runs have ended. Left: {left}." in said
    assert ("Reference rates are preliminary" in said) is preliminary
    status = status_text(config_of_half(tmp_path), folder.root, COMMAND)
    assert re.search(r"^about \S.* left", status, re.M)


def test_what_preflight_skipped_takes_no_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its launches end at once; as long as they have no receipt, they are left all the same."""
    folder = preflight(tmp_path)
    config = config_of_half(tmp_path)
    date = read_campaign_file(folder.campaign_file).date
    every_s = seconds_left(config, CampaignFolder(tmp_path / "not_started"))
    expected = expected_of(config)
    tried_s = expected_preflight_s(config, expected)
    assert seconds_left(config, folder) == pytest.approx(every_s - tried_s)
    assert 0 < tried_s < every_s
    status = read_json(folder.preflight_status)
    status["configs"]["mooncake_both"] = {"decision": "skip", "reason": "no such module"}
    write_json(folder.preflight_status, status)
    rates = estimated_rates(config, expected)
    of_plain_s = sum(expected_run_s(config, "plain", p, rates, expected=expected) for p in config.phases)
    assert seconds_left(config, folder) == pytest.approx(of_plain_s) != pytest.approx(every_s)
    Progress(folder, config, date, "plain", "a").say("x")
    assert f"about {duration_text(of_plain_s)} left" in capsys.readouterr().err
    status["configs"]["plain"] = status["configs"]["mooncake_both"]
    write_json(folder.preflight_status, status)
    now = status_text(config, folder.root, COMMAND)
    assert "\nabout 0 s left" in now and "nobody works on it; go on with: " in now


def test_what_failed_in_phase_a_takes_no_more_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is launched no more. The time of its other phases was left until their turn came."""
    folder, config = no_rates(tmp_path), config_of_half(tmp_path)
    date = read_campaign_file(folder.campaign_file).date
    every_s = seconds_left(config, folder)
    receipt = folder.run(date, "mooncake_both", "a").receipt
    write_json(receipt, {**read_json(receipt), "status": "failed", "reason": "it died"})
    expected, rates = (
        expected_of(config),
        estimated_rates(config, expected_of(config), lambda c: c != "plain"),
    )
    of_plain_s = sum(expected_run_s(config, "plain", p, rates, expected=expected) for p in ("b", "b_prime"))
    assert seconds_left(config, folder) == pytest.approx(of_plain_s) and of_plain_s < 0.6 * every_s
    Progress(folder, config, date, "plain", "b").say("x")
    assert f"about {duration_text(of_plain_s)} left" in capsys.readouterr().err


def test_finished_cells_of_a_run_that_goes_on_are_not_left(tmp_path: Path) -> None:
    folder, config = half_way(tmp_path), config_of_half(tmp_path)
    before_s = seconds_left(config, folder)
    shutil.rmtree(next(folder.root.glob("*_mooncake_both/phase_a/cells")))
    assert seconds_left(config, folder) > before_s


def config_of_half(tmp_path: Path) -> CampaignConfig:
    return campaign(tmp_path / "another").config


def test_a_campaign_that_is_over_says_nothing_of_it(tmp_path: Path) -> None:
    found = campaign(tmp_path)
    found.measure_everything()
    assert unfinished(found.folder) is not None
    for connector in found.config.connector_ids:
        if not found.run(connector, "b_prime").receipt.exists():
            found.receipt(connector, "b_prime")
    assert unfinished(found.folder) is None


def test_a_page_without_raw_results_does_not_say_that_nothing_was_measured(tmp_path: Path) -> None:
    folder = half_way(tmp_path)
    assert "Unfinished" in made(folder.root)
    for run in folder.runs():
        shutil.rmtree(run.path)
    assert "Unfinished" not in build_report(folder.root).read_text()
