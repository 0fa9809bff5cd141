"""A campaign as pandas tables: the numbers of its files, each with its source; a bundle as well, and nothing is left behind."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from builders import SMALL, Campaign, campaign_config

import connector_tax
from connector_tax.base.errors import ArtifactError
from connector_tax.read.analysis import analyse

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    found = Campaign(tmp_path_factory.mktemp("campaign"), campaign_config(**SMALL), max_steps=30)
    found.measure_everything()
    return found


def test_tables_have_the_numbers_of_the_files(found: Campaign) -> None:
    campaign = connector_tax.read_campaign(str(found.root))
    value = analyse(found.root)
    for table in (campaign.cells, campaign.taxes, campaign.requests, campaign.steps):
        assert set(table["source"]) == {value.measured_on.text} and len(table)
    files = sorted(found.root.rglob("requests_*.jsonl"))
    assert len(campaign.requests) == sum(len(file.read_text().splitlines()) for file in files)
    one = next(campaign.requests.itertuples())
    run = next(
        f for f in files if f.parent.name == one.cell_id and f"_{one.config}/phase_{one.phase}/" in str(f)
    )
    raw = json.loads(run.read_text().splitlines()[0])
    assert one.ttft_ms == pytest.approx((raw["t_first_token_ns"] - raw["t_sched_ns"]) / 1e6)
    assert one.in_window == (raw["phase"] == "window")
    assert len(campaign.cells) == len(value.cells) and len(campaign.taxes) >= len(value.taxes)
    main = campaign.taxes[campaign.taxes["main"]]
    assert list(main["point"].dropna()) == [t.point for t in value.main_taxes if t.point is not None]
    steps = campaign.steps.groupby(["config", "phase", "cell_id"]).size()
    assert dict(steps) == {
        (c.config, c.phase, c.cell_id): c.steps.n
        for c in campaign._data.cells()
        if c.steps is not None and c.steps.n
    }


def test_tables_are_of_the_runs_that_are_there_whatever_a_report_said_before(
    found: Campaign, tmp_path: Path
) -> None:
    root = tmp_path / found.root.name
    shutil.copytree(found.root, root)
    analyse(root)
    assert (root / "aggregate.json").is_file()
    gone = next(root.glob("*_noop_connector"))
    shutil.rmtree(gone)
    campaign = connector_tax.read_campaign(root)
    assert "noop_connector" not in set(campaign.cells["config"]) | set(campaign.requests["config"])


def test_what_is_no_campaign_is_one_message(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(ArtifactError, match=re.escape(str(path))):
            connector_tax.read_campaign(path)


def test_the_lines_of_the_docs_run_as_they_stand_and_leave_nothing_behind(tmp_path: Path) -> None:
    (lines,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "report.md").read_text(), re.DOTALL)
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", lines],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "virtual_gpu: NVIDIA H200" in done.stdout and "decode_only" in done.stdout
    assert list(tmp_path.iterdir()) == []
