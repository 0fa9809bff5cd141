"""A sound campaign of somebody else at ``results/demo`` of a project, for a test to change; a secret lies beside the results."""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from copy import copy
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[0]))
from builders import DATE, Campaign, campaign_config
from hostile import Watch, watched
from invented_server import Behaviour
from read_through import Result, read

SECTIONS: dict[str, Any] = {
    "campaign": "demo",
    "connectors": ["plain", "noop_connector"],
    "phase_a": {"rates_per_s": [2, 4], "input_tokens": 256, "output_tokens": 16},
    "phase_b": {"input_tokens": [256], "output_tokens": [16]},
    "phase_b_prime": {"configs": [], "shapes": []},
    "cell": {"warmup_s": 1, "duration_s": 5, "min_completed": 10, "max_cell_s": 10},
    "analysis": {"bootstrap_draws": 200},
}
PLAIN = Behaviour(noise=0.05)
BEHAVIOURS = {"plain": PLAIN, "noop_connector": PLAIN.taxed(0.1)}
CONFIG, CELL = "noop_connector", "r2_256x16"
RUN = f"{DATE}_{CONFIG}/phase_a"
FOLDER = f"{RUN}/cells/{CELL}"
SECRET = "the secret of somebody who never asked for it"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    root = tmp_path_factory.mktemp("sound") / "demo"
    campaign = Campaign(root, campaign_config(**SECTIONS), BEHAVIOURS, max_steps=20)
    campaign.measure_everything()
    assert read(root).problems == []
    shutil.rmtree(root / "tables")
    return campaign


@pytest.fixture
def campaign(sound: Campaign, tmp_path: Path) -> Campaign:
    """At ``results/demo`` of a project, with a secret beside the results."""
    shutil.copytree(sound.root, tmp_path / "project" / "results" / "demo")
    (tmp_path / "secret").write_text(SECRET)
    twin = copy(sound)
    twin.root = tmp_path / "project" / "results" / "demo"
    return twin


@pytest.fixture
def watch(campaign: Campaign, tmp_path: Path) -> Iterator[Watch]:
    """Whatever the test does, it opens nothing beside the results and starts nothing."""
    with watched(tmp_path, campaign.root.parent) as found:
        yield found
    assert found.opened == []
    assert found.started == []
    assert (tmp_path / "secret").read_text() == SECRET


def others(found: Result) -> set[tuple[str, ...]]:
    return {key for key, cell in found.cells().items() if cell["usable"]}


ALL = {(c, p, cell) for c in BEHAVIOURS for p, cell in (("a", CELL), ("a", "r4_256x16"), ("b", "r4_256x16"))}


def change_json(path: Path, change: Callable[[Any], None]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))
