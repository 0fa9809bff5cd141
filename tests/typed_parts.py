"""Whole typed parts of an aggregate, made of those of ``tests/data/aggregate_example.json`` with some replaced."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from connector_tax.base.documents.aggregate import Attribution

EXAMPLE = Path(__file__).parent / "data" / "aggregate_example.json"
Part = TypeVar("Part")


def example() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(EXAMPLE.read_text(encoding="utf-8"))
    return found


def typed(value: Mapping[str, Any], kind: type[Part], **replaced: object) -> Part:
    return msgspec.convert({**value, **replaced}, kind)


def attribution_of(aggregate: Mapping[str, Any], config: str, **replaced: object) -> Attribution:
    """Of a configuration that may have none of its own."""
    return typed(aggregate["attribution"][0], Attribution, config=config, **replaced)


def hook(name: str, us: float, cpu_us: float | None) -> dict[str, Any]:
    """Once in each step of one token."""
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
