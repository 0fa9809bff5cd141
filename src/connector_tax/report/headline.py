"""The sentence at the top: the tax with its interval, where it was measured, and what qualifies it."""

from collections.abc import Mapping
from typing import Any

from connector_tax.figures.lookup import (
    Aggregate,
    Interval,
    all_cells,
    interval,
    label_of,
    main_taxes,
    number,
    reference_flags,
    reference_rate,
    rows,
    source_note,
    why_absent,
)
from connector_tax.figures.words import hold_together, listing, percent, rate, with_interval
from connector_tax.report.tax_text import stands_in

SUBJECT = "mooncake_both"
FLAGS = {
    "fallback_lowest_rate": (
        "fallback_lowest_rate: no measured rate is free of saturation, so the lowest rate stands in for the "
        "reference rate and the tax holds queueing"
    ),
}


def headline(aggregate: Aggregate) -> dict[str, Any]:
    """``sentence``, ``details`` and ``flags``; the subject is Mooncake (both), else the dearest connector."""
    taxes = main_taxes(aggregate, metric="ttft_p90", reference="ref_safe")
    flags = [FLAGS.get(f, f) for f in reference_flags(aggregate)]
    values = {c: v for c, row in taxes.items() if (v := interval(row)) is not None}
    if not values:
        reason = why_absent(aggregate, SUBJECT)
        return {
            "sentence": f"No connector's tax could be measured at ref_safe ({reason}).",
            "details": [],
            "flags": flags,
        }

    subject = SUBJECT if SUBJECT in values else max(values, key=lambda c: values[c].point)
    row, value = taxes[subject], values[subject]
    blocks, repeated = _over_blocks(aggregate, subject)
    value = repeated or value
    at = reference_rate(aggregate, "ref_safe")
    name = label_of(aggregate, subject)
    where = "at ref_safe" + (f" ({rate(at)})" if at is not None else "")
    if value.covers_zero:
        sentence = f"{name}: no tax on TTFT p90 is found {where}; the estimate is {with_interval(value)}."
    else:
        word = "more" if value.point > 0 else "less"
        ends = [percent(e).lstrip("+") if e is not None else "no bound" for e in (value.low, value.high)]
        amount = percent(value.point) if value.point < 0 else percent(value.point).lstrip("+")
        sentence = (
            f"Merely switching on {name} costs {amount} {word} TTFT p90 {where}, "
            f"95 % interval {ends[0]} to {ends[1]}."
        )
        if value.point < 0:
            sentence = f"With {name} switched on TTFT p90 {where} is lower: {with_interval(value)}."
    if source_note(aggregate).startswith("Embedded engine"):
        sentence = f"On the embedded engine: {sentence}"
    own = f"one launch: {with_interval(values[subject])}, "
    details = [
        ("" if repeated is None else f"Over {blocks} blocks of launches; {own}")
        + f"{number(row.get('n')) or 0:,.0f} requests with the connector, {number(row.get('n_plain')) or 0:,.0f} without; "
        f"{number(row.get('input_tokens')) or 0:,.0f} prompt and {number(row.get('output_tokens')) or 0:,.0f} output tokens."
    ]
    if instead := stands_in(row):
        details.append(f"Measured {instead}: Phase A's cell does not count.")
    if flagged := _flags_of_its_cells(aggregate, row):
        details.append(
            f"The cells behind it are flagged {listing(flagged, 9)}; what that means stands below."
        )
    tpot = interval(main_taxes(aggregate, metric="tpot_p90", reference="ref_safe").get(subject))
    if tpot is not None:
        details.append(f"TPOT p90: {with_interval(tpot)}.")
    load = interval(main_taxes(aggregate, metric="ttft_p90", reference="ref_load").get(subject))
    load_rate = reference_rate(aggregate, "ref_load")
    if load is not None and load_rate != at:
        details.append(
            f"TTFT p90 at ref_load{f' ({rate(load_rate)})' if load_rate else ''}: {with_interval(load)}."
        )
    if subject != SUBJECT:
        details.append(f"This is the largest tax of those measured; {why_absent(aggregate, SUBJECT)}.")
    return {
        "sentence": hold_together(sentence),
        "details": [hold_together(d) for d in details],
        "flags": flags,
    }


def _flags_of_its_cells(aggregate: Aggregate, tax: Mapping[str, Any]) -> list[str]:
    """Of the connector's cell and of plain's, in the order of the alphabet."""
    found = {
        str(flag)
        for cell in all_cells(aggregate, str(tax.get("phase")))
        if cell.get("cell_id") == tax.get("cell_id") and cell.get("config") in ("plain", tax.get("config"))
        for flag in cell.get("flags") or []
    }
    return sorted(found)


def _over_blocks(aggregate: Aggregate, config: str) -> tuple[int, Interval | None]:
    """How many blocks of launches, and the tax of TTFT p90 at ref_safe over them, where there are any."""
    for entry in rows(aggregate.get("repeats")):
        if (entry.get("reference"), entry.get("metric")) == ("ref_safe", "ttft_p90"):
            for tax in rows(entry.get("taxes")):
                if tax.get("config") == config:
                    return int(number(entry.get("blocks")) or 0), interval(tax)
    return 0, None
