"""Phase C: conversations at the reference rate, through the whole study."""

import json
from typing import Any

import pytest
from checkout import Project

pytestmark = pytest.mark.emulated


def conversations(config: dict[str, Any]) -> None:
    config["connectors"] = ["plain", "noop_connector"]
    config["phase_a"]["rates_per_s"] = [20]
    config["phase_b"] = {"input_tokens": [64], "output_tokens": [8]}
    config["phase_b_prime"] = {}
    config["phase_c"] = {"sessions": ["config/sessions/talk.jsonl"], "warmup_s": 0.5}


def test_conversations_hit_the_prefix_cache_and_are_taxed(project: Project) -> None:
    chat = {"turns": [{"new_tokens": 64, "output_tokens": 8}]}
    chat["turns"] += [
        {"new_tokens": 16, "output_tokens": 8, "after": [k], "history": k, "wait_s": 0.05} for k in range(3)
    ]
    (project.root / "config/sessions/talk.jsonl").write_text(json.dumps(chat) + "\n")
    project.configure(conversations)
    done = project.snakemake("phase_b", "phase_c", "analysis")
    assert done.returncode == 0, done.stderr[-3000:]
    aggregate = json.loads((project.results / "aggregate.json").read_text())
    assert aggregate["problems"] == []
    cells = [c for c in aggregate["cells"] if c["phase"] == "c"]
    assert [(c["config"], c["cell_id"], c["verdict"]) for c in cells] == [
        ("noop_connector", "r5_talk", "valid"),
        ("plain", "r5_talk", "valid"),
    ]
    for cell in cells:
        assert cell["health"]["sessions"]["early"] == 0
        # 72 of 88, 96 of 112 and 120 of 136 tokens were said before; whole blocks of 16 are found.
        assert 0.3 < cell["prefix_cache_hit_share"] < 0.7
    assert {t["metric"] for t in aggregate["taxes"] if t["phase"] == "c"} >= {"ttft_p90", "tpot_p90"}
