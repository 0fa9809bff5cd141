"""What a rehearsal prints of the taxes that it found."""

import sys
from pathlib import Path
from typing import Any

from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.run.rehearsal.outlook import _taxes

sys.path.insert(0, str(Path(__file__).parents[2]))
from whole_aggregate import example


def tax(config: str, metric: str, kind: str, reference: str = "ref_safe") -> dict[str, Any]:
    whose = {"config": config, "metric": metric, "reference": reference}
    return {**example()["main_taxes"][0], **whose, "point": 0.1, "low": 0.08, "high": 0.12, "kind": kind}


def lines_of(found: list[dict[str, Any]]) -> list[str]:
    whole = example()
    whole["provenance"]["confidence"] = 0.9
    return _taxes(aggregate_of({**whole, "main_taxes": found}))


def test_each_tax_says_over_how_many_launches_it_is() -> None:
    """One that lost its blocks does not stand under the words of the others; other rates have a line of their own nowhere."""
    found = [
        tax("x", "ttft_p90", "over 5 blocks"),
        tax("x", "tpot_p90", "over 4 blocks"),
        tax("y", "ttft_p90", "of one launch"),
        tax("x", "ttft_p90", "of one launch", "neither"),
    ]
    lines = lines_of(found)
    assert lines[0].split() == [
        "x",
        "+10.0%",
        "+-",
        "2.0%,",
        "over",
        "5",
        "blocks",
        "+10.0%",
        "+-",
        "2.0%,",
        "over",
        "4",
        "blocks",
    ]
    assert lines[1].split() == ["y", "+10.0%", "+-", "2.0%,", "of", "one", "launch"]
    assert lines[2:] == [
        "+- is half of the 90 % interval",
        "Where it is of one launch, what differs between launches comes on top (repeats)",
    ]
    assert len(lines_of(found[:2])) == 2
