"""``rehearse --earlier``: an aggregate that somebody else wrote is read, or named as one that cannot be."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.errors import ArtifactError
from connector_tax.run.rehearsal.earlier import read_aggregate
from connector_tax.run.rehearsal.outlook import power_lines

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import ROOT

EXAMPLE = ROOT / "tests" / "data" / "aggregate_example.json"
BOUNDS = {"point": 0.031, "low": 0.019, "high": 0.089}
REPEATS = {"reference": "ref_safe", "metric": "ttft_p90", "within_launch_sd": 0.1, "taxes": [{"sd": 1}]}


def test_the_example_is_read() -> None:
    assert read_aggregate(EXAMPLE) == json.loads(EXAMPLE.read_text())
    assert power_lines(EXAMPLE)[0].startswith("smallest tax found")


@pytest.mark.parametrize(
    ("aggregate", "place"),
    [
        ([1], "it is no object"),
        ({"power": 1}, "power is no list"),
        ({"power": [{"config": 1}]}, r"power\[0\]\.config is no str"),
        ({"power": [{"config": "a", "metric": "x"}]}, r"power\[0\]\.metric is no latency: 'x'"),
        ({"cells": [1]}, r"cells\[0\] it is no object"),
        ({"cells": [{"phase": "a", "rate_per_s": 1, "e2e_ms": {"p90": 5}}]}, "e2e_ms.p90 is no object"),
        ({"repeats": [{"reference": "ref_safe"}]}, "no taxes"),
        ({"repeats": [REPEATS]}, "no requests"),
        ({"repeats": [{**REPEATS, "within_launch_sd": "1"}]}, "within_launch_sd is no int or float"),
    ],
)
def test_what_is_of_another_form_is_one_message(tmp_path: Path, aggregate: Any, place: str) -> None:
    path = tmp_path / "aggregate.json"
    path.write_text(json.dumps(aggregate))
    with pytest.raises(ArtifactError, match=rf"aggregate\.json: cannot be read: .*{place}"):
        power_lines(path)


def test_no_name_moves_a_cursor(tmp_path: Path) -> None:
    path = tmp_path / "aggregate.json"
    row = {"config": "\x1b[2J", "metric": "ttft_p90", "one_launch": None, "by_blocks": {"\x1b3": BOUNDS}}
    path.write_text(json.dumps({"power": [row]}))
    assert "\x1b" not in "".join(power_lines(path))


def test_what_blocks_would_find_has_an_interval(tmp_path: Path) -> None:
    path = tmp_path / "aggregate.json"
    row = {"config": "x", "metric": "ttft_p90", "one_launch": 0.05, "by_blocks": {"3": BOUNDS, "5": None}}
    path.write_text(json.dumps({"power": [row]}))
    assert power_lines(path)[1].split("TTFT p90")[1].split() == [
        "5.0%",
        "3.1%",
        "(1.9%",
        "to",
        "8.9%)",
        "unknown",
    ]
    row["by_blocks"] = {"3": 0.1}
    path.write_text(json.dumps({"power": [row]}))
    with pytest.raises(ArtifactError, match=r"by_blocks\.3 is no object\. Make it again"):
        power_lines(path)
