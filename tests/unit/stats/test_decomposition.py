"""A tax in three parts that add up, worked out by hand."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from connector_tax.intervals.bootstrap import Estimate
from connector_tax.stats.decomposition import decompose


def cell(latency_ms: float) -> Any:
    """Every percentile is ``latency_ms``, and so is every resample."""
    estimate = Estimate(latency_ms, np.full(50, latency_ms), 200)
    return SimpleNamespace(latency=lambda name, q: estimate)


PLAIN, NOOP, OWN, MATCHED = cell(100.0), cell(104.0), cell(130.0), cell(110.0)
CHANGED = {"scheduler_config.disable_hybrid_kv_cache_manager": {"plain": False, "own": True}}


def parts(cells: dict[str, Any], diff: dict[str, Any]) -> dict[str, Any]:
    row = next(r for r in decompose(cells, diff, 0.95) if r["metric"] == "ttft_p90")
    assert row["config"] == "x"
    return {name: row[name] for name in ("total", "flags", "framework", "implementation")}


def test_flags_framework_and_implementation_add_up() -> None:
    """130 against 100 is 30 %: 10 % by flags, 4 % by the framework, 16 % by the connector."""
    cells = {"plain": PLAIN, "noop_connector": NOOP, "x": OWN, "plain_matched_x": MATCHED}
    found = parts(cells, {"x": CHANGED, "noop_connector": {}})
    points = {name: part["point"] for name, part in found.items()}
    assert points == pytest.approx({"total": 0.3, "flags": 0.1, "framework": 0.04, "implementation": 0.16})
    assert found["implementation"]["low"] == pytest.approx(0.16)


def test_a_connector_that_changes_no_setting_has_no_flags_part() -> None:
    found = parts({"plain": PLAIN, "noop_connector": NOOP, "x": OWN}, {"x": {}, "noop_connector": {}})
    assert found["flags"]["point"] == 0
    assert found["implementation"]["point"] == pytest.approx(0.26)


@pytest.mark.parametrize(
    ("cells", "diff", "part", "reason"),
    [
        (
            {"noop_connector": NOOP},
            {"x": CHANGED, "noop_connector": {}},
            "flags",
            "plain_matched_x was not measured",
        ),
        ({"noop_connector": NOOP}, {"noop_connector": {}}, "flags", "settings are not known"),
        ({}, {"x": {}}, "framework", "noop_connector has no usable cell"),
    ],
)
def test_a_part_that_cannot_be_had_says_why(
    cells: dict[str, Any], diff: dict[str, Any], part: str, reason: str
) -> None:
    found = parts({"plain": PLAIN, "x": OWN, **cells}, diff)
    assert found[part]["point"] is None
    assert reason in found[part]["reason"]
    assert found["implementation"]["point"] is None
    assert found["total"]["point"] == pytest.approx(0.3)
