"""A virtual GPU in words: what the device was, what it therefore cannot show, and how well its clock kept the time."""

from collections.abc import Mapping
from statistics import median
from typing import Any

from connector_tax.read.figures.lookup import (
    Aggregate,
    all_cells,
    configs,
    mapping,
    number,
    strings,
    usable,
    virtual_gpu,
    virtual_name,
)
from connector_tax.read.figures.words import clean

Text = dict[str, Any]
NEVER_SHOWN = "kernels, memory traffic, transfers of KV between devices, what CUDA graphs really cost"
COPIES = "Copies of KV between the device and its host are clocked by stand-ins where a connector makes them."
STEP = ("base_us", "per_prefill_token_us", "per_decode_seq_us", "per_context_token_us")


def device_banner(aggregate: Aggregate) -> list[str]:
    """What must be known before any number of a virtual GPU is read; empty for every other campaign."""
    gpu = virtual_gpu(aggregate)
    if gpu is None:
        return []
    lines = [
        f"The device was a clock: vLLM's API server, engine core, scheduler, KV-cache manager and connectors ran as they are, and in "
        f"place of the model's forward pass a step lasted as long as the profile of the {virtual_name(gpu)} says{_step(gpu)}.",
        _not_shown(gpu),
    ]
    return [*lines, *_stand_ins(aggregate), *_kept_time(aggregate)]


def _step(gpu: Mapping[str, Any]) -> str:
    step = mapping(gpu.get("step"))
    found = [number(step.get(name)) for name in STEP]
    if any(v is None for v in found):
        return ""
    base, prefill, decode, context = found
    return (
        f": {base:,.0f} µs, {prefill:.4g} µs per prompt token, {decode:.4g} µs per decoding sequence and "
        f"{context:.4g} µs per token of context"
    )


def _not_shown(gpu: Mapping[str, Any]) -> str:
    host = mapping(gpu.get("host"))
    before, each, after = (
        number(host.get(k)) or 0.0
        for k in ("before_launch_us", "before_launch_per_seq_us", "after_launch_us")
    )
    if before or each or after:
        said = (
            f"What a GPU's runner does on the host is set to {before:g} µs and {each:g} µs a sequence before the launch and "
            f"{after:g} µs after it."
        )
        return f"It cannot show {NEVER_SHOWN}. {COPIES} {said}"
    return f"It cannot show {NEVER_SHOWN}, nor what a GPU's runner prepares on the host, which is set to none. {COPIES}"


def _stand_ins(aggregate: Aggregate) -> list[str]:
    """What was put in place of the device for each configuration, as the plugin inside its engines said it."""
    said = []
    for config in configs(aggregate):
        own = [mapping(c.get("health")) for c in all_cells(aggregate) if c.get("config") == config.id]
        found = dict.fromkeys(words for health in own for words in strings(health.get("stand_ins")))
        if found:
            said.append(f"{clean(config.label)} ({'; '.join(clean(words) for words in found)})")
    if not said:
        return []
    return [
        f"Stand-ins for the device, and for copies between it and the host: {'. '.join(said)}. What of a connector then runs for real, "
        "what is clocked and what is left out: docs/virtual-gpu.md."
    ]


def _kept_time(aggregate: Aggregate) -> list[str]:
    clocks = [c for cell in all_cells(aggregate) if usable(cell) and (c := clock_of(cell))]
    late = [v for c in clocks if (v := number(c.get("late_share"))) is not None]
    slack = [v for c in clocks if (v := number(mapping(c.get("slack_us")).get("p10"))) is not None]
    if not late or not slack:
        return []
    least = min(slack)
    host = (
        f"in nine of ten steps the host was done {least:,.0f} µs or more before the device, in the cell with the least"
        if least >= 0
        else f"in the cell with the least to spare, the device waited for the host in one step of ten, by {-least:,.0f} µs or more"
    )
    return [
        f"In its {len(late)} usable cells the clock ran late by at most {max(late):.2%} of the device's time; {host}."
    ]


def clock_of(cell: Mapping[str, Any]) -> Mapping[str, Any]:
    """``device_clock`` of the cell's health; empty for cells with a device of their own."""
    return mapping(mapping(cell.get("health")).get("device_clock"))


def device_view(aggregate: Aggregate) -> list[Text]:
    """One row per configuration with a clock: how late it was, how busy the device, and what the host had to spare."""
    found = []
    for config in configs(aggregate):
        own = [
            c
            for cell in all_cells(aggregate)
            if cell.get("config") == config.id and usable(cell) and (c := clock_of(cell))
        ]
        if own:
            found.append(_row(config.label, own))
    return found


def _row(label: str, clocks: list[Mapping[str, Any]]) -> Text:
    def of(*path: str) -> list[float]:
        values = []
        for clock in clocks:
            value: Any = clock
            for key in path:
                value = mapping(value).get(key)
            if (told := number(value)) is not None:
                values.append(told)
        return values

    late, busy = of("late_share"), of("device_busy_share")
    return {
        "label": clean(label),
        "cells": str(len(clocks)),
        "steps": f"{sum(of('steps')):,.0f}",
        "lateness": _us(of("lateness_us", "p50"), median),
        "late_share": f"{max(late):.2%}" if late else "–",
        "busy": f"{min(busy):.0%} to {max(busy):.0%}" if busy else "–",
        "slack_p10": _us(of("slack_us", "p10"), min),
        "slack_p50": _us(of("slack_us", "p50"), median),
    }


def _us(values: list[float], of: Any) -> str:
    return f"{of(values):,.0f} µs" if values else "–"
