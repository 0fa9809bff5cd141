"""Blocks of repeated launches and the pair without a recorder, through the whole study."""

import json
from itertools import pairwise
from typing import Any

import pytest
from checkout import Project

pytestmark = pytest.mark.emulated
BLOCKS = 2


def repeated(config: dict[str, Any]) -> None:
    config["connectors"] = ["plain", "mooncake_both"]
    config["phase_a"]["rates_per_s"] = [20]
    config["phase_b"] = {"input_tokens": [64], "output_tokens": [8]}
    config["phase_b_prime"] = {}
    config["accuracy"] = {"prompts": 0}
    config |= {"repeats": BLOCKS, "observer_effect": True}


def test_every_block_launches_everything_once_and_plain_twice(project: Project) -> None:
    project.configure(repeated)
    done = project.snakemake("phase_b", "repeats", "analysis")
    assert done.returncode == 0, done.stderr[-3000:]
    aggregate = json.loads((project.results / "aggregate.json").read_text())
    assert aggregate["problems"] == []
    cells = {(c["config"], c["phase"]): c for c in aggregate["cells"] if c["phase"].startswith("r")}
    members = ("plain", "plain_again", "mooncake_both")
    assert set(cells) == {(m, f"r{k}") for m in members for k in range(1, BLOCKS + 1)}
    assert all(c["verdict"] == "valid" and c["cell_id"] == "r20_256x16" for c in cells.values())
    starts = [
        json.loads(path.read_text())["clock"]["utc_ns"]
        for k in range(1, BLOCKS + 1)
        for path in sorted(project.results.glob(f"*/phase_r{k}/cells/*/cell.json"))
    ]
    blocks = [starts[i : i + 3] for i in range(0, len(starts), 3)]
    assert all(max(one) < min(other) for one, other in pairwise(blocks))
    (entry,) = [e for e in aggregate["repeats"] if e["metric"] == "tpot_p90"]
    # Phase A is a block as well; Phase B does not measure its shape here.
    assert (entry["blocks"], [t["config"] for t in entry["taxes"]]) == (BLOCKS + 1, ["mooncake_both"])
    # How large it is, is what this host makes of it; what is said of it follows from its interval.
    (tax,) = entry["taxes"]
    assert tax["low"] <= tax["point"] <= tax["high"]
    assert (tax["verdict"] == "tax") is (tax["low"] > 0)
    assert {(o["config"], o["metric"]) for o in aggregate["observer_effect"]} >= {
        ("plain", "tpot_p50"),
        ("mooncake_both", "tpot_p50"),
    }
    criteria = {c["number"]: c for c in aggregate["criteria"]}
    assert criteria[6]["outcome"] == "met", criteria[6]["evidence"]
