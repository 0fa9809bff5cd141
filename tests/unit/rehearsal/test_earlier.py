"""``plan --earlier``: an aggregate that somebody else wrote is read, or named as one that cannot be."""

import json
from pathlib import Path
from typing import Any

import pytest
from builders import campaign_config
from whole_aggregate import example, over_blocks

from connector_tax.base.documents.aggregate import read_aggregate
from connector_tax.base.errors import ArtifactError
from connector_tax.outlook import Asked, Outlook, outlook_text

POWER = {"config": "x", "metric": "ttft_p90", "power": 0.8, "one_launch": 0.05, "by_blocks": None}
CELL = example()["cells"][0]


@pytest.mark.parametrize(
    ("aggregate", "place"),
    [
        ({"power": 1}, r"Expected `array`, got `int` - at `\$\.power`"),
        ({"power": [{**POWER, "metric": "x"}]}, r"Invalid enum value 'x' - at `\$\.power\[0\]\.metric`"),
        ({"cells": [{**CELL, "e2e_ms": {"p90": 5}}]}, r"at `\$\.e2e_ms\.p90` \(of `\$\.cells\[0\]`\)"),
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
        read_aggregate(path)


def test_no_name_moves_a_cursor() -> None:
    config = campaign_config(base="demo.yaml")
    plan = Outlook(
        campaign="x",
        costs="y",
        hours=1.0,
        budget_hours=2.0,
        phases=(),
        ref_safe_per_s=2.0,
        ref_load_per_s=4.0,
        tests={"H1": (Asked("\x1b[2J", ()),)},
    )
    assert "\x1b" not in outlook_text(plan, [], config, "run")
