"""What a rehearsal prints of the taxes that it found."""

import sys
from pathlib import Path
from typing import Any

from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.run.rehearsal.outlook import tax_rows

sys.path.insert(0, str(Path(__file__).parents[2]))
from whole_aggregate import example


def tax(config: str, metric: str, n_blocks: int, reference: str = "ref_safe") -> dict[str, Any]:
    whose = {"config": config, "metric": metric, "reference": reference}
    return {
        **example()["main_taxes"][0],
        **whose,
        "point": 0.1,
        "low": 0.08,
        "high": 0.12,
        "n_blocks": n_blocks,
        "phase": "a" if n_blocks == 1 else None,
    }


def test_each_tax_says_over_how_many_launches_it_is() -> None:
    """One that lost its blocks does not stand under the words of the others; other rates have a line of their own nowhere."""
    found = [
        tax("x", "ttft_p90", 5),
        tax("x", "tpot_p90", 4),
        tax("y", "ttft_p90", 1),
        tax("x", "ttft_p90", 1, "neither"),
    ]
    assert tax_rows(aggregate_of({**example(), "main_taxes": found}))[1:] == [
        ["x", "+10.0% +- 2.0%, over 5 blocks", "+10.0% +- 2.0%, over 4 blocks"],
        ["y", "+10.0% +- 2.0%, of one launch", ""],
    ]
