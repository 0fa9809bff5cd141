"""Whole aggregates for tests: the example, changed as JSON, as the typed document; and the parts that have to be whole in it."""

import json
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).parent / "data" / "aggregate_example.json"


def example() -> dict[str, Any]:
    """Anew at each call, to be changed and given to ``aggregate_of``."""
    found: dict[str, Any] = json.loads(EXAMPLE.read_text(encoding="utf-8"))
    return found


def number(point: float, low: float | None, high: float | None) -> dict[str, Any]:
    """A quantity over 200 requests of one launch."""
    return {"point": point, "low": low, "high": high, "n": 200, "kind": "of one launch"}


def no_number(reason: str) -> dict[str, Any]:
    """A quantity that is unavailable."""
    return {"point": None, "low": None, "high": None, "n": 0, "kind": None, "reason": reason}


def knee(rate_per_s: float | None) -> dict[str, Any]:
    """``saturation`` of a configuration."""
    return {"saturation_rate_per_s": rate_per_s, "fired": {}, "criteria": {}, "non_monotonic": []}
