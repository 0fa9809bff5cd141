"""What is published can be made again from what is published: figures, report, README's table, the list of runs."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from matplotlib import image

from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.base.files import sha256_of
from connector_tax.read.bundle import made_files, raw_files, verify
from connector_tax.read.report.page import taxes_markdown
from connector_tax.read.report.view import page_view

ROOT = Path(__file__).parents[2]
NAME = "virtual-h200-eight"
PARTS = ("Snakefile", "workflow", "profiles", "scripts", "launch", "patches", "config", "src", "published")


def part_of(text: str, name: str) -> str:
    """What stands between the two lines of a part that a program writes."""
    return text.split(f"<!-- begin {name} -->\n")[1].split(f"\n<!-- end {name} -->")[0]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project in which the bundle was unpacked by the command of results/README.md."""
    root = tmp_path_factory.mktemp("checkout")
    for part in PARTS:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy2
        copy(ROOT / part, root / part)
    unpack = f"tar -xf published/{NAME}.tar.xz results"
    assert f"`{unpack}`" in (ROOT / "results" / "README.md").read_text()
    subprocess.run(unpack.split(), cwd=root, check=True)
    return root


def make_figures(checkout: Path, *more: str) -> str:
    """As the Makefile has it."""
    shown = subprocess.run(
        ["make", "--no-print-directory", "-n", "figures", f"CONFIG=config/{NAME}.yaml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    command = next(
        line for line in shown.stdout.splitlines() if line.startswith(".venv/bin/connector-tax run ")
    )
    done = subprocess.run(
        [sys.executable, "-m", "connector_tax", *command.split()[1:], *more],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout / "src")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def made(checkout: Path) -> Path:
    """The campaign with everything that is made from it."""
    make_figures(checkout)
    return checkout / "results" / NAME


def test_making_it_again_measures_nothing_and_ends(
    made: Path, checkout: Path, published_campaign: Path
) -> None:
    """Whatever the times of its files: what was made then is made anew, raw files stay as they are, and of what is finished nothing is made."""
    assert made.stat().st_mtime > 1e9 and all(p.stat().st_mtime > 1e9 for p in made_files(made))
    raw = raw_files(published_campaign)
    assert [p.relative_to(made) for p in raw_files(made)] == [p.relative_to(published_campaign) for p in raw]
    assert all((made / p.relative_to(published_campaign)).read_bytes() == p.read_bytes() for p in raw)
    assert "Nothing to be done" in make_figures(checkout, "--", "--dry-run")


def test_whatever_is_published_has_its_checksum_in_the_list_and_every_bundle_is_sound() -> None:
    page = (ROOT / "MANIFEST.md").read_text()
    published = sorted(path for path in (ROOT / "published").rglob("*") if path.is_file())
    assert f"{NAME}.tar.xz" in [path.name for path in published]
    for path in published:
        assert f"| `{path.relative_to(ROOT)}` | `{sha256_of(path)}` |" in page
        assert not path.name.endswith(".tar.xz") or verify(path).findings == []


def test_its_bundle_holds_what_is_made_today(made: Path, published_campaign: Path) -> None:
    """By number. Last digits, and with them bytes, may be another processor's. Where this fails, make the bundle anew (docs/published.md)."""
    now, then = (json.loads((root / "aggregate.json").read_text()) for root in (made, published_campaign))
    assert list(differing(then, now, "$")) == []
    names = [{p.relative_to(r) for p in made_files(r)} for r in (made, published_campaign)]
    assert names[0] == names[1]


def differing(then: Any, now: Any, where: str) -> Iterator[str]:
    if isinstance(then, dict) and isinstance(now, dict) and then.keys() == now.keys():
        for key in then:
            yield from differing(then[key], now[key], f"{where}.{key}")
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for number, (one, other) in enumerate(zip(then, now, strict=True)):
            yield from differing(one, other, f"{where}[{number}]")
    elif then != (pytest.approx(now, rel=1e-6, abs=1e-9) if isinstance(now, float) else now):
        yield where


@pytest.fixture(scope="module")
def aggregate(made: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((made / "aggregate.json").read_text())
    return found


def test_figures_and_report_are_made_again(made: Path) -> None:
    drawn = {p.stem[:4] for p in (made / "figures").glob("*.svg")}
    assert {f"fig{n}" for n in (1, 2, 3, 4, 5, 6, 7, 9)} <= drawn
    assert "NVIDIA H200" in (made / "report.html").read_text()


def test_its_aggregate_is_whole_and_of_the_schema(aggregate: dict[str, Any]) -> None:
    schema = json.loads((ROOT / "workflow" / "schemas" / "aggregate.schema.json").read_text())
    assert (
        [e.message for e in Draft202012Validator(schema).iter_errors(aggregate)]
        == aggregate["problems"]
        == []
    )


def test_readme_holds_its_taxes(aggregate: dict[str, Any]) -> None:
    """``connector-tax report results/virtual-h200-eight --markdown`` prints them."""
    made = taxes_markdown(page_view(aggregate_of(aggregate)))
    assert part_of((ROOT / "README.md").read_text(), f"taxes {NAME}") == made


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
