"""Phase D: a known cost per cached block is found again, through the whole study."""

import json
from typing import Any

import pytest
import yaml
from checkout import Project

pytestmark = pytest.mark.emulated

PER_BLOCK_US = 0.1


def levels(config: dict[str, Any]) -> None:
    config["connectors"] = ["plain", "noop_connector"]
    config["phase_a"]["rates_per_s"] = [20]
    config["phase_b"] = {"input_tokens": [64], "output_tokens": [8]}
    config["phase_b_prime"] = {}
    config["phase_d"] = {
        "cached_tokens": [0, 16_000, 32_000],
        "running": [2, 6],
        "input_tokens": 32,
        "output_tokens": 32,
    }
    config["phase_d"] |= {"warmup_s": 0.2, "duration_s": 1.5, "min_completed": 6}


def test_a_cost_per_cached_block_is_found_again(project: Project) -> None:
    model = project.root / "config/engine_model_demo.yaml"
    costs = yaml.safe_load(model.read_text())
    costs["connectors"]["NoOpConnector/kv_both"]["per_cached_block_us"] = PER_BLOCK_US
    model.write_text(yaml.safe_dump(costs))
    project.configure(levels)
    done = project.snakemake("phase_b", "phase_d", "analysis")
    assert done.returncode == 0, done.stderr[-3000:]
    aggregate = json.loads((project.results / "aggregate.json").read_text())
    assert aggregate["problems"] == []
    cells = [c for c in aggregate["cells"] if c["phase"] == "d"]
    assert [c["verdict"] for c in cells] == ["valid"] * 12
    plain, noop = (
        next(e for e in aggregate["growth"] if e["config"] == c) for c in ("plain", "noop_connector")
    )
    for entry in (plain, noop):
        blocks = [c["cached_blocks"] for c in entry["cells"]]
        assert max(blocks) > 1800
        assert min(blocks) < 600
    (build,) = (s["per_1000_cached_blocks"] for s in noop["slopes"] if s["quantity"] == "build_meta_us")
    assert build["point"] == pytest.approx(1000 * PER_BLOCK_US, rel=0.05)
    (flat,) = (s["per_1000_cached_blocks"] for s in noop["slopes"] if s["quantity"] == "get_finished_us")
    assert abs(flat["point"]) < 0.01
    (folder,) = project.results.glob("*_plain/phase_d/cells/c6_32x32_k16000")
    assert json.loads((folder / "cell.json").read_text())["cache"]["computed_tokens"] >= 16_000
