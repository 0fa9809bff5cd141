"""Results of somebody else, some of which this user may not read: they are named, and nothing is taken for whole that is not."""

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import ROOT, SMALL, Campaign, campaign_config

PR_CAPBSET_DROP, DAC_OVERRIDE, DAC_READ_SEARCH = 24, 1, 2
LIBC = ctypes.CDLL(None)


def anybody() -> None:
    """In a child, before its command: modes hold for root as well."""
    if os.geteuid() == 0:
        for capability in (DAC_OVERRIDE, DAC_READ_SEARCH):
            LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


READS = """
import sys
from pathlib import Path
from connector_tax.base.artifacts.thinning import thin
from connector_tax.base.errors import ArtifactError
from connector_tax.read.analysis import analyse
from connector_tax.read.bundle import bundle
root = Path(sys.argv[1])
analyse(root)
for make in (lambda: bundle(root, root.with_suffix(".tar.xz"), partial=True), lambda: thin(root, root.with_name("thinned"))):
    try:
        make()
    except ArtifactError as error:
        print(error)
"""


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    found = Campaign(tmp_path / "results" / "demo", campaign_config(**SMALL), max_steps=30)
    found.measure("plain")
    found.measure("nixl_both")
    return found


def test_a_cell_that_may_not_be_read_is_named_and_no_copy_is_made_without_it(campaign: Campaign) -> None:
    closed = campaign.run("nixl_both", "a").finished_cells()[0]
    closed.path.chmod(0)
    try:
        command = [sys.executable, "-c", READS, str(campaign.root)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, preexec_fn=anybody)
    finally:
        closed.path.chmod(0o755)
    assert done.returncode == 0, done.stderr
    problems = json.loads((campaign.root / "aggregate.json").read_text())["problems"]
    assert any(p["subject"].endswith(closed.cell_id) and "Permission denied" in p["detail"] for p in problems)
    refused = done.stdout.splitlines()
    assert len(refused) == 2
    assert all(said.startswith(f"{closed.path}: cannot be read (Permission denied)") for said in refused)
    assert not campaign.root.with_suffix(".tar.xz").exists()
    assert not campaign.root.with_name("thinned").exists()
