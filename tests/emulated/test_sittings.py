"""``connector-tax run --minutes``: a campaign in sittings, packed on one checkout and taken over in another."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from checkout import Project

pytestmark = pytest.mark.emulated

# For the end of an engine 8.5 s are kept, so this leaves 17 s to measure in: half of the campaign.
MINUTES = "0.43"


def measured(project: Project, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "connector_tax", "run", "config/test.yaml"]
    return subprocess.run(
        [*command, *arguments], cwd=project.root, env=project.environment, capture_output=True, text=True
    )


def two_configurations(config: dict[str, Any]) -> None:
    config["connectors"] = ["plain", "noop_connector"]
    config["phase_b"]["input_tokens"] = [64]
    config["cell"].update(duration_s=2, max_cell_s=8)


def test_sittings_measure_each_cell_once_and_what_they_pack_is_the_campaign(
    project: Project, tmp_path: Path
) -> None:
    """The other host begins each sitting with what was taken over at home, as one does that is lent anew."""
    campaign = project
    campaign.configure(two_configurations)
    # Preflight takes as long as the host lets it.
    made = campaign.snakemake("results/test/preflight/preflight_status.json")
    assert made.returncode == 0, made.stderr[-3000:]
    home = Project(tmp_path / "home")
    (home.root / "config" / "test.yaml").write_text((campaign.root / "config" / "test.yaml").read_text())
    shutil.copytree(campaign.results, home.results)
    parcels = tmp_path / "parcels"
    seen: dict[str, int] = {}
    codes = []
    while not codes or codes[-1] == 75:
        sitting = measured(campaign, "--minutes", MINUTES, "--save", str(parcels))
        codes.append(sitting.returncode)
        assert codes[-1] in (0, 75), sitting.stderr[-3000:]
        cells = campaign.cells()
        assert seen.items() <= cells.items(), "a finished cell was measured again"
        seen = cells
        assert len(codes) < 20
    assert len(codes) >= 2
    taken = measured(home, "--take", *map(str, parcels.glob("*.tar.gz")))
    assert taken.returncode == 0, taken.stderr
    assert home.cells().keys() == seen.keys()
    assert not list(home.results.glob("*/phase_*/steps")), "raw logs of whole launches stay where they are"
    for project in (home, campaign):
        made = project.snakemake("analysis")
        assert made.returncode == 0, made.stderr[-3000:]
    ours, theirs = (json.loads((p.results / "aggregate.json").read_text()) for p in (home, campaign))
    assert ours == theirs
