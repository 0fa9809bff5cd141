"""The documentation is a site that builds without a warning; links of the top-level pages lead to something."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from connector_tax.cli import COMMANDS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    into = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(into)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return into


def test_every_page_is_in_the_site_and_every_command_has_its_help(site: Path) -> None:
    pages = {p.relative_to(ROOT / "docs").with_suffix(".html") for p in (ROOT / "docs").rglob("*.md")}
    assert pages <= {p.relative_to(site) for p in site.rglob("*.html")}
    commands = (site / "commands.html").read_text()
    assert [name for name in COMMANDS if f"usage: connector-tax {name} " not in commands] == []


def test_nothing_of_the_site_is_fetched_from_elsewhere(site: Path) -> None:
    loaded = re.compile(
        r'<(?:script|img|iframe)[^>]*\ssrc="(https?:|//)|<link[^>]*rel="stylesheet"[^>]*href="(https?:|//)'
    )
    assert [p.name for p in site.rglob("*.html") if loaded.search(p.read_text())] == []


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "config/README.md"])
def test_links_of_pages_outside_the_site_lead_to_a_file(page: str) -> None:
    path = ROOT / page
    links = re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text())
    assert [link for link in links if not (path.parent / link).exists()] == []
