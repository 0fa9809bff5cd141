"""The sentence at the top: the tax with its interval, where it was measured, and what qualifies it."""

import math
import re
from collections.abc import Mapping
from typing import Any

from connector_tax.base.records.connector import is_connector
from connector_tax.base.statistics.outcomes import GAIN, NO_TAX_FOUND, TAX, UNDETERMINED
from connector_tax.read.figures.lookup import (
    Aggregate,
    Interval,
    confidence_words,
    configs,
    interval,
    is_of_one_launch,
    label_of,
    launches_behind,
    main_taxes,
    number,
    reference_flags,
    reference_rate,
    rows,
    source_note,
    told_apart,
    virtual_gpu,
    why_absent,
    why_not_phase_a,
    without_number,
)
from connector_tax.read.figures.words import (
    MEASURED,
    clean,
    hold_together,
    interval_texts,
    listing,
    rate,
    with_interval,
)
from connector_tax.read.report.qualifiers import flags_behind
from connector_tax.read.report.tax_text import OF_ONE_LAUNCH, holds, stands_in

SUBJECT = "mooncake_both"
FLAGS = {
    "fallback_lowest_rate": (
        "fallback_lowest_rate: no rate that all configurations measured lies below the saturation rate of each; plain's lowest rate stands in "
        "for ref_safe, and the tax may hold queueing"
    ),
    "fallback_lowest_rate_load": (
        "fallback_lowest_rate_load: plain is saturated at every measured rate, so the lowest stands in for ref_load"
    ),
    "non_monotonic_load": (
        "non_monotonic_load: plain is saturated at a rate below ref_load and keeps up at ref_load itself; Figure 1 shows which "
        "criterion fired"
    ),
}


def headline(aggregate: Aggregate) -> dict[str, Any]:
    """``sentence``, ``details`` and ``flags``; the subject is Mooncake (both), else see ``_largest``. Plain with a connector's settings is none."""
    found = main_taxes(aggregate, metric="ttft_p90", reference="ref_safe")
    taxes = {c: row for c, row in found.items() if is_connector(c)}
    flags = [FLAGS.get(f, f) for f in reference_flags(aggregate)]
    values = {c: v for c, row in taxes.items() if (v := interval(row)) is not None}
    lacking = without_number(aggregate, metric="ttft_p90", reference="ref_safe")
    if not values:
        return {
            "sentence": hold_together(
                f"No connector's tax on TTFT p90 could be measured at ref_safe ({_why_nobody(aggregate, lacking)})."
            ),
            "details": [],
            "flags": flags,
        }

    subject = SUBJECT if SUBJECT in values else _largest(taxes)
    row, value = taxes[subject], values[subject]
    at = reference_rate(aggregate, "ref_safe")
    name = label_of(aggregate, subject)
    where = "at ref_safe" + (f" ({rate(at)})" if at is not None else "")
    sentence = (
        f"{_sentence(name, where, row, value, confidence_words(aggregate))}{_unmeasured(aggregate, lacking)}"
    )
    if source_note(aggregate).startswith("Embedded engine"):
        sentence = f"On the embedded engine: {sentence}"
    elif (gpu := virtual_gpu(aggregate)) is not None:
        sentence = f"On a virtual {clean(str(gpu.get('name') or 'GPU'), 96)}: {sentence}"
    details = [
        _over_blocks(aggregate, row)
        + f"{number(row.get('n')) or 0:,.0f} requests with the connector, {number(row.get('n_plain')) or 0:,.0f} without; "
        f"{number(row.get('input_tokens')) or 0:,.0f} prompt and {number(row.get('output_tokens')) or 0:,.0f} output tokens."
    ]
    if (instead := stands_in(row)) and row.get("blocks") is None:
        why = why_not_phase_a(aggregate, row) or "Phase A's has no number"
        details.append(f"Measured {instead}, since {clean(why)}.")
    if row.get("overloaded"):
        details.append("Requests waited, with the connector or without, so the tax holds queueing as well.")
    if held := holds(row):
        details.append(f"The tax {clean(held)}.")
    if flags_of_it := list(flags_behind(aggregate, row)):
        details.append(
            f"The cells behind it are flagged {listing(flags_of_it, len(flags_of_it))}; what that means stands below."
        )
    tpot_row = main_taxes(aggregate, metric="tpot_p90", reference="ref_safe").get(subject)
    if (tpot := interval(tpot_row)) is not None:
        details.append(f"TPOT p90: {with_interval(tpot)}{_kind(tpot_row or {})}.")
    load_row = main_taxes(aggregate, metric="ttft_p90", reference="ref_load").get(subject)
    load = interval(load_row)
    load_rate = reference_rate(aggregate, "ref_load")
    if load is not None and load_rate != at:
        details.append(
            f"TTFT p90 at ref_load{f' ({rate(load_rate)})' if load_rate else ''}: {with_interval(load)}{_kind(load_row or {})}."
        )
    if len(values) + len(lacking) > 1:
        behind = launches_behind([taxes[c] for c in values])
        claim = told_apart(aggregate, values, without=list(lacking))
        details.append(f"TTFT p90 {where}: {claim}. {behind}")
    if subject != SUBJECT:
        details.append(f"{_why_this_one(taxes, subject)}; {why_absent(aggregate, SUBJECT)}.")
    return {
        "sentence": hold_together(sentence),
        "details": [hold_together(d) for d in details],
        "flags": flags,
    }


def _sentence(name: str, where: str, row: Mapping[str, Any], value: Interval, confidence: str) -> str:
    """What one tax says; of one with an open end, what the other end holds."""
    estimate = f"{with_interval(value)} ({confidence} interval{_kind(row)})"
    if value.told == NO_TAX_FOUND:
        return f"{name}: no tax on TTFT p90 is found {where}; the estimate is {estimate}."
    if value.told == UNDETERMINED:
        why = row.get("reason") or "an end of its interval is open"
        ends = "no bounds" if value.low is None and value.high is None else "an open end"
        return (
            f"{name}: whether it has a tax on TTFT p90 {where} is not known; the estimate is {estimate}. "
            f"The interval has {ends} and does not exclude zero: {clean(str(why))}."
        )
    if value.told == GAIN:
        return f"With {name} switched on TTFT p90 {where} is lower: {estimate}."
    amount, low, high = (text.lstrip("+") for text in interval_texts(value))
    if value.high is None:
        why = row.get("reason") or "not known"
        return (
            f"Merely switching on {name} costs at least {low} more TTFT p90 {where}, by its {confidence} interval{_kind(row)}. "
            f"The estimate is {amount}; the upper end is open: {clean(str(why))}."
        )
    return (
        f"Merely switching on {name} costs {amount} more TTFT p90 {where}, {confidence} interval {low} to {high}"
        f"{_kind(row)}."
    )


def _unmeasured(aggregate: Aggregate, lacking: Mapping[str, str]) -> str:
    """Connectors without a number that were not skipped, each with its reason: the sentence before would pass for the whole."""
    wanted = {c.id for c in configs(aggregate) if c.status != "skipped"}
    found = _by_reason(aggregate, {c: why for c, why in lacking.items() if c in wanted})
    return "".join(
        f" {listing(names, len(names))} {'has' if len(names) == 1 else 'have'} no number: {why}."
        for why, names in found.items()
    )


def _by_reason(aggregate: Aggregate, lacking: Mapping[str, str]) -> dict[str, list[str]]:
    """Reason -> whose it is; of several it says no longer ``it``."""
    found: dict[str, list[str]] = {}
    for config, why in lacking.items():
        found.setdefault(clean(why, 160), []).append(clean(label_of(aggregate, config), 40))
    return {why if len(names) == 1 else re.sub("^it (was )?", "", why): names for why, names in found.items()}


def _why_nobody(aggregate: Aggregate, lacking: Mapping[str, str]) -> str:
    """Without plain nobody has a tax; else each connector's reason."""
    plain = next((c for c in configs(aggregate) if c.id == "plain"), None)
    if plain is not None and plain.status not in MEASURED:
        return clean(why_absent(aggregate, "plain"))
    if not lacking:
        return "the campaign has no connector"
    return "; ".join(
        f"{listing(names, len(names))}: {why}" for why, names in _by_reason(aggregate, lacking).items()
    )


def _largest(taxes: Mapping[str, Mapping[str, Any]]) -> str:
    """The connector with the largest tax by the estimates that count: over blocks where somebody has those, and told apart from zero
    where one is.
    """

    def rank(config: str) -> tuple[bool, bool, float]:
        row, value = taxes[config], interval(taxes[config])
        point = -math.inf if value is None else value.point
        return (
            not is_of_one_launch(row.get("kind")),
            value is not None and value.told == TAX,
            point,
        )

    return max(taxes, key=rank)


def _why_this_one(taxes: Mapping[str, Mapping[str, Any]], subject: str) -> str:
    """What ``_largest`` went by."""
    once = is_of_one_launch(taxes[subject].get("kind"))
    among = "" if once or not any(is_of_one_launch(t.get("kind")) for t in taxes.values()) else " over blocks"
    own = [v for t in taxes.values() if (once or not is_of_one_launch(t.get("kind"))) and (v := interval(t))]
    value = interval(taxes[subject])
    word = UNDETERMINED if value is None else value.told
    alike = sum(v.told == word for v in own)
    if word == TAX:
        largest = f"Of the connectors that have a tax{among} this one has the largest"
        return largest if alike > 1 else f"No other connector is found to have a tax{among}"
    none = f"No connector is found to have a tax{among}"
    if word == GAIN:
        return f"{none}, and {f'of the gains{among} this is the smallest' if alike > 1 else f'this is the only gain{among}'}"
    return f"{none}, and of the estimates{among} this is the largest" if len(own) > 1 else none


def _kind(row: Mapping[str, Any]) -> str:
    """What the interval holds."""
    blocks = number(row.get("blocks"))
    return f", {OF_ONE_LAUNCH}" if blocks is None else f", over {blocks:.0f} blocks of launches"


def _over_blocks(aggregate: Aggregate, tax: Mapping[str, Any]) -> str:
    """How many blocks of launches, and Phase A's launch by itself beside them; nothing where one launch is all there is."""
    blocks = number(tax.get("blocks"))
    if blocks is None:
        return ""
    keys = ("config", "reference", "metric")
    one = next(
        (
            v
            for t in rows(aggregate.get("taxes"))
            if t.get("headline") and all(t.get(k) == tax.get(k) for k in keys) and (v := interval(t))
        ),
        None,
    )
    beside = "" if one is None else f"; one launch: {with_interval(one)}"
    return f"Over {blocks:.0f} blocks of launches{beside}. In all "
