"""Somebody else's texts are text in a manifest, on a page and in a terminal, and nobody waits for their pipes."""

import re
import sys
from pathlib import Path

import pytest

from connector_tax.errors import ArtifactError
from connector_tax.report.manifest import COLUMNS, build_manifest
from connector_tax.report.status import status_text

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import DATE, ROOT, Campaign
from hostile import Watch, put
from read_through import STAGES

CONFIG, CELL = "noop_connector", "r2_256x16"
RUN = f"{DATE}_{CONFIG}/phase_a"
FOLDER = f"{RUN}/cells/{CELL}"
SECRET = "the secret of somebody who never asked for it"


MARKUP = "<script>alert(1)</script> ![i](http://example.invalid/i.png) [l](javascript:1) \\| | `c` <!-- end campaign demo --> \x1b[2J"


def test_no_text_of_a_run_is_more_than_text_in_a_manifest(campaign: Campaign) -> None:
    """Git shows that page as Markdown: neither tag nor link, image, comment or further cell comes of a reason."""
    campaign.skip(CONFIG, MARKUP)
    script = campaign.run("plain", "a").launch_sh
    script.write_text(f"# As it ran: python {MARKUP}\n")
    _, page = build_manifest(campaign.root)
    text = page.read_text()
    rows = "\n".join(line for line in text.splitlines() if line.startswith("| "))
    shown = re.sub(r"`[^`]*`", "", rows)  # what stands in code is shown as it is
    assert "<script" not in shown and "\x1b" not in text
    assert not re.search(r"(?<!\\)[!\[]", shown)
    (row,) = [line for line in text.splitlines() if "&lt;script" in line and "| B |" in line]
    assert "\\!\\[i\\](http://example.invalid/i.png) \\[l\\](javascript:1)" in row
    for line in (x for x in text.splitlines() if x.startswith("| ")):
        assert _cells_of(line) == len(COLUMNS), line
    build_manifest(campaign.root)
    assert page.read_text() == text


def _cells_of(line: str) -> int:
    """As GitHub counts: a backslash takes the next character with it, whatever that is."""
    bars, k = 0, 0
    while k < len(line):
        bars += line[k] == "|"
        k += 2 if line[k] == "\\" else 1
    return bars - 1


def test_status_moves_no_cursor(campaign: Campaign, watch: Watch) -> None:
    campaign.skip(CONFIG, MARKUP + "x" * 300_000)
    text = status_text(campaign.config, campaign.root.parent, Path("demo.yaml"))
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) < 2100


@pytest.mark.parametrize(
    "name",
    [".start.lock", "logs/progress.log", f"{RUN}/engine.pid.json", f"{DATE}_plain/phase_a/receipt.json"],
)
def test_status_waits_for_no_pipe(campaign: Campaign, watch: Watch, name: str) -> None:
    path = campaign.root / name
    path.parent.mkdir(exist_ok=True)
    put(path, "pipe", path)
    (campaign.root / RUN / "receipt.json").unlink()
    try:
        assert "campaign demo" in status_text(campaign.config, campaign.root.parent, Path("demo.yaml"))
    except ArtifactError as error:
        assert "no regular file" in str(error)


def test_the_stages_are_those_of_the_workflow() -> None:
    """``read`` runs what the rules run; a stage that it left out would not be watched."""
    rules = (ROOT / "workflow" / "rules" / "read.smk").read_text()
    assert {name for name in STAGES if f"scripts/{name}.py" in rules} == set(STAGES)
