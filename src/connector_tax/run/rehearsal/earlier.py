"""``aggregate.json`` of an earlier campaign, as far as a rehearsal asks for it; somebody else may have written it."""

from pathlib import Path
from typing import Any

from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import read_json
from connector_tax.base.forms import NUMBER, Form, misfit, named, optional, within

WORDS = {"ttft_p90": "TTFT p90", "tpot_p90": "TPOT p90"}
_RATIO: Form = within(0, 1e9)
_POWER: Form = {
    "config": str,
    "metric": named(lambda metric: isinstance(metric, str) and metric in WORDS, "no latency"),
    "one_launch": optional(NUMBER),
    "by_blocks": optional({...: optional({"point": NUMBER, "low": NUMBER, "high": NUMBER})}),
}
_SPREAD: Form = {"metric": str, "taxes": [{"sd": _RATIO}], "requests": within(1, 1e12)}


def _fault_of_cell(cell: Any) -> str | None:
    """Of one that could be read: its rate, and how long its requests took."""
    fault = misfit(cell, {"phase": str, "rate_per_s": within(0, 1e9)})
    place, value = "e2e_ms", {} if fault else cell.get("e2e_ms", {})
    for key in ("p90", "point"):
        fault = fault or misfit(value, {}, place)
        place, value = f"{place}.{key}", {} if fault else value.get(key, {})
    return fault or (None if value == {} else misfit(value, optional(within(0, 1e12)), place))


def _fault_of_repeats(entry: Any) -> str | None:
    """Those of ``ref_safe`` that say what differs within a launch are computed with."""
    fault = misfit(entry, {"reference": str, "taxes": list})
    if fault or entry["reference"] != "ref_safe" or entry.get("within_launch_sd") is None:
        return fault
    return misfit(entry, {"within_launch_sd": _RATIO, **(_SPREAD if entry["taxes"] else {})})


_PARTS: Form = {"power": [_POWER], "cells": [_fault_of_cell], "repeats": [_fault_of_repeats]}


def read_aggregate(path: Path) -> dict[str, Any]:
    """What ``power_lines`` and ``hours_lines`` take.

    Raises:
        ArtifactError: it cannot be read, or has not the form that they rely on; names the place.
    """
    aggregate: dict[str, Any] = read_json(path)
    fault = misfit(aggregate, {})
    fault = fault or misfit(aggregate, {part: form for part, form in _PARTS.items() if part in aggregate})
    if fault:
        raise ArtifactError(f"{path}: cannot be read: {fault}. Make it again with connector-tax analyze.")
    return aggregate
