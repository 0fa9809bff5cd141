"""A disk that is full while the reading wing writes: one message, no half of a file, and the same command makes it once there is room."""

import subprocess
import sys

import pytest
from builders import Campaign, campaign_config
from host_faults import ROOT, environment
from read_through import BEHAVIOURS, SECTIONS


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    root = tmp_path_factory.mktemp("host") / "results" / "demo"
    made = Campaign(root, campaign_config(**SECTIONS), BEHAVIOURS, max_steps=20)
    made.measure_everything()
    return made


def run(campaign: Campaign, stage: str, **fault: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, f"scripts/{stage}.py", "--root", str(campaign.root)]
    command += ["--manifest", str(campaign.root / "MANIFEST.md")] if stage == "build_manifest" else []
    return subprocess.run(
        command, cwd=ROOT, env=environment(campaign.folder, **fault), capture_output=True, text=True
    )


# In the order in which they are made of one another.
@pytest.mark.parametrize(
    ("stage", "patterns", "made"),
    [
        ("analyze", ("*/.aggregate.json.*", "*/.aggregate.csv.*"), "aggregate.json"),
        ("plot_connector_tax", ("*/fig2_*.svg",), "figures/index.json"),
        ("build_report", ("*/.report.html.*",), "report.html"),
        ("build_manifest", ("*/.MANIFEST.tsv.*",), "MANIFEST.tsv"),
    ],
)
def test_each_product_is_whole_or_not_there(
    campaign: Campaign, stage: str, patterns: tuple[str, ...], made: str
) -> None:
    for pattern in patterns:
        found = run(campaign, stage, INJECTED_FULL=pattern)
        assert found.returncode == 2, found.stderr
        assert found.stderr.count("error: ") == 1 and "No space left on device" in found.stderr
        assert "Traceback" not in found.stderr
        assert not [p for p in campaign.root.glob("*.*") if p.is_file() and p.stat().st_size == 0]
        assert not (campaign.root / "figures").exists() or stage != "plot_connector_tax"
    done = run(campaign, stage)
    assert done.returncode == 0, done.stderr
    assert (campaign.root / made).stat().st_size > 0
