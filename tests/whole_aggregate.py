"""Whole aggregates for tests: the example as JSON or as the typed document, and its complete parts."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

EXAMPLE = Path(__file__).parent / "data" / "aggregate_example.json"
Part = TypeVar("Part")


def example() -> dict[str, Any]:
    """Return a fresh copy of the example, to be changed and given to ``aggregate_of``."""
    found: dict[str, Any] = json.loads(EXAMPLE.read_text(encoding="utf-8"))
    return found


def number(point: float, low: float | None, high: float | None) -> dict[str, Any]:
    """Return a quantity over 200 requests of one launch."""
    return {"point": point, "low": low, "high": high, "n": 200, "n_blocks": 1}


def no_number(reason: str) -> dict[str, Any]:
    return {"point": None, "low": None, "high": None, "n": 0, "n_blocks": None, "reason": reason}


def over_blocks(point: float, low: float, high: float, blocks: int = 3, **more: Any) -> dict[str, Any]:
    """Return ``repeats`` of TTFT p90 at ref_safe without a tax: only plain's noise between launches."""
    ends = {"point": point, "low": low, "high": high}
    floor = {**ends, "half_width": (high - low) / 2, "found_4_of_5": None, "at_equal_host_speed": None}
    of = {"reference": "ref_safe", "rate_per_s": 2, "metric": "ttft_p90", "blocks": blocks}
    return {**of, "noise_floor": floor, "between_launch_sd": None, "drift": None, "taxes": [], **more}


def block_tax(config: str, by_block: dict[str, float]) -> dict[str, Any]:
    """Return a tax over those blocks, somewhere above zero."""
    told = {"point": 0.4, "low": 0.3, "high": 0.5, "verdict": "tax", "sd": 0.01, "adjusted": None}
    return {"config": config, "n": len(by_block), **told, "by_block": by_block}


def knee(rate_per_s: float | None) -> dict[str, Any]:
    return {"saturation_rate_per_s": rate_per_s, "fired": {}, "criteria": {}, "non_monotonic": []}


def typed(value: Mapping[str, Any], kind: type[Part], **replaced: object) -> Part:
    return msgspec.convert({**value, **replaced}, kind)


def hook(name: str, us: float, cpu_us: float | None) -> dict[str, Any]:
    """Return a hook called once in each step of one token."""
    n = 0 if cpu_us is None else 100
    times = {"us_per_step": us, "us_per_call": us, "us_per_token": us}
    return {"hook": name, "calls_per_step": 1.0, **times, "cpu_us_per_step": cpu_us, "n_cpu_steps": n}


def device_clock(late_share: float) -> dict[str, Any]:
    return {
        "steps": 1000,
        "lateness_us": {"p50": 10.0, "p99": 50.0, "max": 90.0},
        "late_share": late_share,
        "device_busy_share": 0.8,
        "slack_us": {"p10": 100.0, "p50": 200.0},
    }
