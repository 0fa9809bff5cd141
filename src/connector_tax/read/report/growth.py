"""Phase D on the page: what a connector's times grow by with cached blocks and with running requests."""

import math
from collections.abc import Mapping
from typing import Any

from connector_tax.read.figures.lookup import (
    Aggregate,
    Interval,
    in_order,
    interval,
    label_of,
    mapping,
    number,
    rows,
)
from connector_tax.read.figures.words import MINUS, clean, with_interval
from connector_tax.read.report.tax_text import tokens

QUANTITIES = {
    "build_meta_us": "build_connector_meta",
    "get_finished_us": "get_finished",
    "start_load_kv_us": "start_load_kv",
    "connector_total_us": "all hooks together",
    "decode_step_us": "decoding step (control)",
    "decode_step_over_plain_us": "decoding step less plain's",
}
TAXES = ("ttft_p50", "tpot_p50")
# Of a hook that takes the same in every step, what arithmetic leaves of its slope is nothing.
LEAST_US = 0.01
Text = dict[str, Any]


def growth_view(aggregate: Aggregate) -> Text | None:
    """A table of slopes, a table of cells and what they come to; None where Phase D was not measured."""
    found = in_order(aggregate, rows(aggregate.get("growth")))
    if not found:
        return None
    return {
        "sentences": [_sentence(aggregate, entry) for entry in found if entry.get("config") != "plain"],
        "slopes": [_slope(aggregate, entry, s) for entry in found for s in rows(entry.get("slopes"))],
        "cells": [_cell(aggregate, entry, c) for entry in found for c in rows(entry.get("cells"))],
    }


def _sentence(aggregate: Aggregate, entry: Mapping[str, Any]) -> str:
    """What all hooks of one connector together come to."""
    label = clean(label_of(aggregate, str(entry.get("config"))), 60)
    total = next((s for s in rows(entry.get("slopes")) if s.get("quantity") == "connector_total_us"), {})
    slope = interval(total.get("per_1000_cached_blocks"))
    if slope is None or slope.low is None or slope.high is None:
        return f"{label}: whether its hooks grow with what is cached is not known."
    if not slope.excludes_zero:
        most = _at_least(max(abs(slope.low), abs(slope.high), LEAST_US))
        return f"{label}: no growth of its hooks with what is cached was found; more than {most:g} µs per 1,000 blocks is excluded."
    word = "take longer" if slope.point > 0 else "take less"
    ends = total.get("cached_blocks")
    span = f", over {tokens(ends[0])} to {tokens(ends[1])} blocks" if isinstance(ends, list) else ""
    return f"{label}: its hooks {word} the more is cached, by {_us(slope)} per 1,000 blocks and step{span}."


def _at_least(value: float) -> float:
    """Two significant digits, and not below ``value``: what is said to be excluded has to be."""
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(round(value / step, 9)) * step


def _slope(aggregate: Aggregate, entry: Mapping[str, Any], slope: Mapping[str, Any]) -> Text:
    quantity = str(slope.get("quantity"))
    return {
        "label": label_of(aggregate, str(entry.get("config"))),
        "quantity": QUANTITIES.get(quantity, quantity),
        "numbers": [_number(slope.get(k)) for k in ("per_1000_cached_blocks", "per_running_request")],
        "n": tokens(slope.get("n_cells")),
    }


def _cell(aggregate: Aggregate, entry: Mapping[str, Any], cell: Mapping[str, Any]) -> Text:
    us, taxes = mapping(cell.get("medians_us")), mapping(cell.get("p50_taxes"))
    blocks = number(cell.get("cached_blocks"))
    return {
        "label": label_of(aggregate, str(entry.get("config"))),
        "blocks": "unknown" if blocks is None else f"{blocks:,.0f}",
        "running": f"{number(cell.get('running')) or 0:g}",
        "hooks": _median(us.get("connector_total_us")) if "connector_total_us" in us else "",
        "taxes": [_ratio(taxes.get(name)) if taxes else "" for name in TAXES],
    }


def _number(value: Any) -> str:
    found = interval(value)
    if found is None:
        return f"not available: {mapping(value).get('reason') or 'not measured'}"
    return _us(found)


def _median(value: Any) -> str:
    """Of a cell, with the steps behind it."""
    text = _number(value)
    return text if interval(value) is None else f"{text}, n {tokens(mapping(value).get('n'))}"


def _us(value: Interval) -> str:
    """Three digits: slopes are small."""
    ends = (
        "no interval"
        if value.low is None or value.high is None
        else f"{_digits(value.low)}, {_digits(value.high)}"
    )
    return f"{_digits(value.point)} µs [{ends}]"


def _digits(value: float) -> str:
    if abs(value) < LEAST_US / 2:
        return "0"
    text = f"{value:+,.0f}" if abs(value) >= 99.5 else f"{value:+.3g}"
    return text.replace("-", MINUS)


def _ratio(value: Any) -> str:
    """With the requests of the side that has fewer; of one launch, as the page says of all of them."""
    found = interval(value)
    if found is None:
        return f"not available: {mapping(value).get('reason') or 'not measured'}"
    return f"{with_interval(found)}, n {tokens(mapping(value).get('n'))}"
