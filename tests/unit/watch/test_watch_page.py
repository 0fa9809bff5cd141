"""The page of a running campaign: what ``status`` says, as text whatever it holds, and how old the report is."""

import base64
import hashlib
import re
import sys
from html import unescape
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))
from half import FILE, HOSTILE, NOW, SECRET, campaign, half, hostile, maker, view

from connector_tax.base.config import CampaignConfig
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.read.report.status import status_text
from connector_tax.read.watch.making import Making, Report
from connector_tax.read.watch.page import live_html, page_html, page_policy, view_of
from connector_tax.read.watch.serving import config_now


def live(found: object, tmp_path: Path, **options: object) -> str:
    of = maker(found, tmp_path / "made", **options)  # type: ignore[arg-type]
    try:
        return live_html(view(found, of))  # type: ignore[arg-type]
    finally:
        of.close()


def test_it_says_what_status_says(tmp_path: Path) -> None:
    found = half(tmp_path)
    found.folder.progress_log.parent.mkdir()
    found.folder.progress_log.write_text("a line\nthe last one\n")
    text = unescape(re.sub(r"<[^>]*>", " ", live(found, tmp_path)))
    table, *rest = status_text(found.config, tmp_path, FILE).split("\n\n")[1:]
    words = [
        w
        for line in [*table.splitlines(), *"\n".join(rest).splitlines()]
        for w in re.split(r"  +", line.strip())
        if w
    ]
    said = [w.removeprefix("last: ") for w in words]
    assert len(said) > 12
    assert [w for w in said if w not in text] == []
    assert "1 of 6 runs have ended" in text


def test_before_the_first_start_it_says_how_to_start(tmp_path: Path) -> None:
    found = campaign(tmp_path)
    found.folder.campaign_file.unlink()
    text = live(found, tmp_path)
    assert "not started. Start it with: .venv/bin/snakemake --cores 1 --configfile config/mine.yaml" in text
    assert "<table>" not in text


def test_of_preflight_alone_nothing_has_ended(tmp_path: Path) -> None:
    assert "0 of 6 runs have ended" in live(campaign(tmp_path), tmp_path)


def test_a_campaign_that_is_over_has_nothing_left(tmp_path: Path) -> None:
    found = campaign(tmp_path)
    found.measure_everything()
    for connector in found.config.connector_ids:
        found.receipt(connector, "b_prime")
    text = live(found, tmp_path)
    assert "6 of 6 runs have ended; all measured" in text
    assert "works on it" not in text


@pytest.mark.parametrize("content", ["{", "[1]", '{"schema": 1}'])
def test_a_damaged_campaign_is_said_and_ends_nothing(tmp_path: Path, content: str) -> None:
    found = half(tmp_path)
    found.folder.campaign_file.write_text(content)
    assert "campaign.json" in live(found, tmp_path)


def test_a_link_in_the_folder_is_said_and_not_followed(tmp_path: Path) -> None:
    found = half(tmp_path)
    (found.root / "aside").symlink_to("/etc")
    assert "is a link" in live(found, tmp_path)


def test_what_files_hold_is_text_without_secrets_and_of_bounded_length(tmp_path: Path) -> None:
    found = hostile(tmp_path)
    of = maker(found, tmp_path / "made")
    try:
        text = page_html(view(found, of), "token")
    finally:
        of.close()
    assert text.count("<script") == 1 and "<img" not in text
    assert text.count("&lt;/script&gt;&lt;script&gt;") > 2
    assert "\u202e" not in text
    assert SECRET not in text and "&lt;redacted&gt;" in text
    assert len(text) < 40_000
    assert HOSTILE not in unescape(text)  # the mark that turns the text around is gone


def test_the_policy_knows_the_page_own_style_and_script_and_no_other(tmp_path: Path) -> None:
    found = half(tmp_path)
    of = maker(found, tmp_path / "made")
    try:
        text = page_html(view(found, of), "token")
    finally:
        of.close()
    for tag in ("style", "script"):
        (inside,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in page_policy()
    assert "unsafe" not in page_policy() and "default-src 'none'" in page_policy()


def test_it_says_of_when_the_report_is_and_what_it_took(tmp_path: Path) -> None:
    found = half(tmp_path)
    of = maker(found, tmp_path / "made")
    try:
        made = NOW.replace(hour=11, minute=40)
        of._state = Making(latest=Report(3, b"", made, cells=4, took_s=700.0, cpu_s=31.5))
        text = page_html(view(found, of), "token")
    finally:
        of.close()
    assert "the report is of 20 min before" in text and 'src="report?3"' in text
    assert "is of 4 cells, read by 11:40:00 UTC. Making it took 31.5 s of CPU time and 12 min in all" in text


def test_never_means_no_button(tmp_path: Path) -> None:
    found = half(tmp_path)
    for when, there in (("never", False), ("on-request", True), ("auto", True)):
        of = maker(found, tmp_path / "made", when)  # type: ignore[arg-type]
        try:
            assert ("<button>" in page_html(view(found, of), "token")) is there
        finally:
            of.close()


def test_what_disturbs_is_said(tmp_path: Path) -> None:
    assert "stops while a cell is measured" in live(half(tmp_path), tmp_path)
    text = live(half(tmp_path / "other"), tmp_path, during_cells=True)
    assert "disturbed" in text and "stops while" not in text


def test_the_config_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    value = yaml.safe_load((PROJECT_ROOT / "config" / "demo.yaml").read_text())
    file.write_text(yaml.safe_dump(value))
    config = config_now(file, "demo")
    assert isinstance(config, CampaignConfig) and config.seed == value["seed"]
    file.write_text(yaml.safe_dump(value | {"seed": 12}))
    config = config_now(file, "demo")
    assert isinstance(config, CampaignConfig) and config.seed == 12
    found = half(tmp_path / "results")
    of = maker(found, tmp_path / "made", "never")
    try:
        for text, said in (
            ("seed: [", "not valid YAML"),
            (yaml.safe_dump(value | {"campaign": "other"}), "is of campaign other now"),
        ):
            file.write_text(text)
            now = config_now(file, "demo")
            assert said in view_of(found.folder, now, file, of, NOW).fault
    finally:
        of.close()
