"""What is published can be made again from what is published: figures, report, README's table, the list of runs."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from matplotlib import image

from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.read.report.sections import part_of
from connector_tax.read.report.tax_table import tax_table

ROOT = Path(__file__).parents[2]
NAME = "virtual-h200"
MOST_BYTES = 40 * 2**20
VERDICTS = {"supported", "refuted"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The campaign with everything that is made from it, in a folder of its own."""
    root = tmp_path_factory.mktemp("results") / NAME
    shutil.copytree(ROOT / "results" / NAME, root)
    for script in ("analyze.py", "plot_connector_tax.py", "build_report.py"):
        done = subprocess.run(
            [sys.executable, str(ROOT / "scripts" / script), "--root", str(root)],
            cwd=root,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-3000:]
    return root


def test_the_command_that_makes_it_again_is_one_that_snakemake_takes(made: Path) -> None:
    """``make figures``, as it is written there; of what is finished it makes nothing."""
    done = subprocess.run(
        ["make", "--no-print-directory", "-n", "figures", "CONFIG=config/virtual-h200.yaml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    command = next(
        line for line in done.stdout.splitlines() if line.startswith(".venv/bin/connector-tax run ")
    ).split()
    planned = subprocess.run(
        [sys.executable, "-m", "connector_tax", *command[1:], "--dry-run"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert planned.returncode == 0, planned.stderr[-2000:]
    assert "scripts/measure.py" not in planned.stdout


@pytest.fixture(scope="module")
def aggregate(made: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((made / "aggregate.json").read_text())
    return found


def test_it_is_small() -> None:
    """What is made from it, in the same folder, is not counted: version control ignores that."""
    folder = ROOT / "results" / NAME
    raw = [p for pattern in ("*.json", "preflight/**/*", "2*/**/*") for p in folder.glob(pattern)]
    assert (
        2**20 < sum(p.stat().st_size for p in raw if p.is_file() and p.name != "aggregate.json") < MOST_BYTES
    )


def test_nothing_in_it_is_damaged(aggregate: dict[str, Any]) -> None:
    assert aggregate["problems"] == []


def test_its_aggregate_is_of_the_schema(aggregate: dict[str, Any]) -> None:
    schema = json.loads((ROOT / "workflow" / "schemas" / "aggregate.schema.json").read_text())
    assert [e.message for e in Draft202012Validator(schema).iter_errors(aggregate)] == []


def test_figures_and_report_are_made_again(made: Path) -> None:
    drawn = {p.stem[:4] for p in (made / "figures").glob("*.svg")}
    assert {f"fig{n}" for n in (1, 2, 3, 4, 5, 6, 7, 9)} <= drawn
    assert "virtual NVIDIA H200" in (made / "report.html").read_text()


def test_readme_holds_its_taxes(aggregate: dict[str, Any]) -> None:
    """``scripts/tax_table.py --root results/virtual-h200 --page README.md`` after an analysis writes them."""
    assert part_of((ROOT / "README.md").read_text(), f"taxes {NAME}") == tax_table(aggregate_of(aggregate))


def test_readme_shows_its_figure_4(made: Path) -> None:
    """Pixel by pixel, but for a shade: ``docs/images/`` holds a copy of what is drawn from the raw results."""
    drawn = image.imread(made / "figures" / "fig4_tax_bars.png")
    shown = image.imread(ROOT / "docs" / "images" / f"{NAME}-taxes.png")
    assert drawn.shape == shown.shape
    assert float(np.abs(drawn - shown).max()) < 0.02


def test_every_run_is_listed(made: Path) -> None:
    page = (ROOT / "MANIFEST.md").read_text()
    listed = part_of(page, f"campaign {NAME}")
    assert listed is not None
    for receipt in made.glob("*/phase_*/receipt.json"):
        assert f"{receipt.parent.parent.name}/{receipt.parent.name}" in listed
