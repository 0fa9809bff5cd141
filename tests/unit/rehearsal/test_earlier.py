"""``rehearse --earlier``: an aggregate that somebody else wrote is read, or named as one that cannot be."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.errors import ArtifactError
from connector_tax.run.rehearsal.outlook import power_lines

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import ROOT
from whole_aggregate import example, over_blocks

EXAMPLE = ROOT / "tests" / "data" / "aggregate_example.json"
BOUNDS = {"point": 0.031, "low": 0.019, "high": 0.089}
POWER = {"config": "x", "metric": "ttft_p90", "power": 0.8, "one_launch": 0.05, "by_blocks": None}
CELL = example()["cells"][0]


def test_the_example_is_read() -> None:
    assert power_lines(EXAMPLE)[0].startswith("smallest tax found")


@pytest.mark.parametrize(
    ("aggregate", "place"),
    [
        ({"power": 1}, r"Expected `array`, got `int` - at `\$\.power`"),
        ({"power": [{**POWER, "config": 1}]}, r"Expected `str`, got `int` - at `\$\.power\[0\]\.config`"),
        ({"power": [{**POWER, "metric": "x"}]}, r"Invalid enum value 'x' - at `\$\.power\[0\]\.metric`"),
        ({"cells": [1]}, r"Expected `object`, got `int` - at `\$\.cells\[0\]`"),
        ({"cells": [{**CELL, "e2e_ms": {"p90": 5}}]}, r"at `\$\.e2e_ms\.p90` \(of `\$\.cells\[0\]`\)"),
        (
            {"repeats": [over_blocks(0, 0, 0, within_launch_sd="1")]},
            r"at `\$\.repeats\[0\]\.within_launch_sd`",
        ),
        (
            {"repeats": [over_blocks(0, 0, 0, within_launch_sd=1e200)]},
            r"at `\$\.repeats\[0\]\.within_launch_sd`",
        ),
    ],
)
def test_what_is_of_another_form_is_one_message(
    tmp_path: Path, aggregate: dict[str, Any], place: str
) -> None:
    path = tmp_path / "aggregate.json"
    path.write_text(json.dumps({**example(), **aggregate}))
    with pytest.raises(ArtifactError, match=rf"aggregate\.json: .*{place}.*\. Make it again"):
        power_lines(path)


def test_no_name_moves_a_cursor(tmp_path: Path) -> None:
    path = tmp_path / "aggregate.json"
    path.write_text(json.dumps({**example(), "power": [{**POWER, "config": "\x1b[2J"}]}))
    assert "\x1b" not in "".join(power_lines(path))


def test_what_blocks_would_find_has_an_interval(tmp_path: Path) -> None:
    path = tmp_path / "aggregate.json"
    row = {**POWER, "by_blocks": {"3": BOUNDS, "5": None}}
    path.write_text(json.dumps({**example(), "power": [row]}))
    assert power_lines(path)[1].split("TTFT p90")[1].split() == [
        "5.0%",
        "3.1%",
        "(1.9%",
        "to",
        "8.9%)",
        "unknown",
    ]
    row["by_blocks"] = {"3": 0.1}
    path.write_text(json.dumps({**example(), "power": [row]}))
    with pytest.raises(ArtifactError, match=r"Expected `object \| null`, got `float` - at .*by_blocks"):
        power_lines(path)
