"""``connector-tax report``: from raw results alone, and anew only as far as something is older."""

import os
import shutil
from pathlib import Path

import pytest
import yaml
from builders import Campaign, campaign_config
from read_through import BEHAVIOURS, SECTIONS

from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.files import read_json
from connector_tax.base.plan import named
from connector_tax.cli import command
from connector_tax.commands import report

MADE = ("aggregate.json", "aggregate.csv", "figures/index.json", "report.html")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Campaign(
        tmp_path_factory.mktemp("results") / "demo", campaign_config(**SECTIONS), BEHAVIOURS, max_steps=20
    )
    made.measure_everything()
    return made.root


@pytest.fixture
def root(whole: Path, tmp_path: Path) -> Path:
    """Raw results, with the times that they were written at."""
    shutil.copytree(whole, tmp_path / "demo", copy_function=shutil.copy2)
    return tmp_path / "demo"


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was made, in order; figures take seconds, and nothing is asked of them."""
    made: list[str] = []
    analyse = report.analyse

    def draw(root: Path, purpose: str = "page") -> None:
        made.append(purpose)
        (root / "figures").mkdir(exist_ok=True)
        (root / "figures" / "index.json").write_text('{"schema": 1, "figures": []}')

    def analysed(root: Path, processes: int | None) -> object:
        made.append("analysis")
        return analyse(root, 1)

    monkeypatch.setattr(report, "draw_figures", draw)
    monkeypatch.setattr(report, "analyse", analysed)
    return made


def report_of(path: Path, *options: str) -> int:
    return command("report").call([str(path), *options])


def test_raw_results_are_enough(root: Path, drawn: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert report_of(root) == 0
    assert all((root / name).is_file() for name in MADE) and drawn == ["analysis", "page"]
    out, err = capsys.readouterr()
    assert err.startswith("aggregate.json: ") and out.startswith("report: ")


def test_what_is_up_to_date_is_left_alone_and_what_is_older_is_made_again(
    root: Path, drawn: list[str]
) -> None:
    report_of(root)
    at = {name: (root / name).stat().st_mtime_ns for name in MADE}
    del drawn[:]
    report_of(root)
    assert drawn == [] and at == {name: (root / name).stat().st_mtime_ns for name in MADE}
    os.utime(next(root.glob("*_plain/phase_a/cells/*/requests*")))
    report_of(root)
    assert drawn == ["analysis", "page"]
    # The numbers are the same, and are not held for older the next time.
    report_of(root)
    assert drawn == ["analysis", "page"]
    shutil.rmtree(next(root.glob("*_mooncake_both/phase_b/cells/*")))
    report_of(root)
    assert drawn == ["analysis", "page"] * 2
    assert read_json(root / "aggregate.json")["problems"]
    shutil.rmtree(next(root.glob("*_mooncake_both")))
    report_of(root)
    assert drawn == ["analysis", "page"] * 3


def test_the_table_alone_draws_nothing(
    root: Path, drawn: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert report_of(root, "--markdown") == 0
    assert drawn == ["analysis"] and capsys.readouterr().out.startswith("Source: ")
    report_of(root, "--for", "paper")
    assert drawn == ["analysis", "page", "paper"]


def test_a_config_file_hands_on_its_settings_of_the_analysis(
    root: Path, drawn: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing else: the rest says how the results came about."""
    monkeypatch.setattr(named, "results_folder", lambda: root.parent)
    config = yaml.safe_load((PROJECT_ROOT / "config" / "demo.yaml").read_text())
    config["analysis"] = {"bootstrap_draws": 300}
    config["seed"] = 12345
    (root.parent / "my.yaml").write_text(yaml.safe_dump(config))
    report_of(root)
    report_of(root.parent / "my.yaml")
    found = read_json(root / "campaign.json")["config"]
    assert found["analysis"]["bootstrap_draws"] == 300 and found["seed"] != 12345
    assert drawn == ["analysis", "page"] * 2


def test_an_aggregate_of_another_version_is_made_again(root: Path, drawn: list[str]) -> None:
    """Whatever its time: what reads it would ask for just this command."""
    report_of(root)
    (root / "aggregate.json").write_text('{"schema": 1, "configs": []}')
    later = (root / "aggregate.json").stat().st_mtime + 1e6
    os.utime(root / "aggregate.json", (later, later))
    drawn.clear()
    report_of(root)
    assert drawn[0] == "analysis"
