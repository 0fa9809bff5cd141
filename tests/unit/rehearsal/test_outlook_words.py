"""What a rehearsal prints of the taxes that it found."""

from typing import Any

from connector_tax.run.rehearsal.outlook import _taxes


def tax(config: str, metric: str, kind: str, reference: str = "ref_safe") -> dict[str, Any]:
    return {
        "config": config,
        "metric": metric,
        "reference": reference,
        "point": 0.1,
        "low": 0.08,
        "high": 0.12,
        "kind": kind,
    }


def test_each_tax_says_over_how_many_launches_it_is() -> None:
    """One that lost its blocks does not stand under the words of the others; other rates have a line of their own nowhere."""
    found = [
        tax("x", "ttft_p90", "over 5 blocks"),
        tax("x", "tpot_p90", "over 4 blocks"),
        tax("y", "ttft_p90", "of one launch"),
        tax("x", "ttft_p90", "of one launch", "neither"),
    ]
    lines = _taxes({"main_taxes": found, "provenance": {"confidence": 0.9}})
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
    assert len(_taxes({"main_taxes": found[:2], "provenance": {"confidence": 0.9}})) == 2
