"""The documentation is a site that builds without a warning; links of the top-level pages lead to something."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from connector_tax.cli import COMMANDS

ROOT = Path(__file__).parents[2]


def built(source: Path, into: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(into)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    into = tmp_path_factory.mktemp("site")
    done = built(ROOT, into)
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


def test_a_link_to_nothing_ends_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("[nowhere](gone.md) [no place](#gone)\n")
    own = (ROOT / "mkdocs.yml").read_text().partition("nav:\n  - index.md")[0]
    (tmp_path / "mkdocs.yml").write_text(own)
    done = built(tmp_path, tmp_path / "site")
    assert done.returncode != 0 and "gone.md" in done.stderr and "#gone" in done.stderr


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "config/README.md"])
def test_links_of_pages_outside_the_site_lead_to_a_file(page: str) -> None:
    path = ROOT / page
    links = re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text())
    assert [link for link in links if not (path.parent / link).exists()] == []


# How the pages write a command, in their own words.
CONVENTION = (
    "Run the commands of a block in the checkout's folder, as they stand. Sentences leave `.venv/bin/` out of a command's name: "
    "`connector-tax report` is `.venv/bin/connector-tax report`."
)
INSTALLED = "connector-tax|snakemake|mkdocs|pytest|ruff|mypy"
# Where a command begins: a line of a block, also behind variables that are set for it, a comment's mark or another command.
BARE = re.compile(
    rf"^(?:.*(?:&&|;|\|) )?(?:# +|\$ )?(?:[A-Z_]+=\S+ )*(?:{INSTALLED}) (?!.*\.$)", re.MULTILINE
)


def one_line(text: str) -> str:
    return " ".join(text.split())


def with_commands() -> list[Path]:
    """Pages of today; decisions say what was true at their time."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "config" / "README.md"]
    return pages + [p for p in (ROOT / "docs").rglob("*.md") if p.parent.name != "decisions"]


def test_a_block_of_commands_runs_as_it_stands_and_a_sentence_names_them_without_their_folder() -> None:
    found = []
    for path in with_commands():
        text = one_line(path.read_text()).replace(CONVENTION, "")
        found += [f"{path.name}: `{span}`" for span in re.findall(r"(?<!`)`(\.venv/bin/[^`]*)`", text)]
        blocks = re.findall(r"^ *```(?:bash)?\n(.*?)^ *```$", path.read_text(), re.MULTILINE | re.DOTALL)
        found += [
            f"{path.name}: {line}"
            for block in blocks
            for line in BARE.findall(re.sub("^ +", "", block, flags=re.MULTILINE))
        ]
    assert found == []


def test_examples_in_files_that_people_edit_run_as_they_stand() -> None:
    files = [ROOT / "Snakefile", *(ROOT / "config").glob("*.yaml"), *(ROOT / "profiles").rglob("*.yaml")]
    indented = {p.name: re.findall(rf"^# {{3}}({INSTALLED}) ", p.read_text(), re.MULTILINE) for p in files}
    assert {name: found for name, found in indented.items() if found} == {}


def test_how_a_command_is_written_is_said() -> None:
    assert CONVENTION in one_line((ROOT / "docs" / "commands.md").read_text())
