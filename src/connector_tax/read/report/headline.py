"""The sentence at the top: the tax with its interval, where it was measured, and what qualifies it."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from connector_tax.base.documents.aggregate import Aggregate, Interval
from connector_tax.base.documents.rates import Reference
from connector_tax.base.records.connector import is_connector
from connector_tax.base.statistics.outcomes import GAIN, NO_TAX_FOUND, TAX, UNDETERMINED, unresolved
from connector_tax.read.figures.claims import told_apart, without_number
from connector_tax.read.figures.flags import flags_behind
from connector_tax.read.figures.questions import (
    Tax,
    blocks_of,
    confidence_words,
    main_taxes,
    on_embedded_engine,
    reference_rate,
    why_absent,
    why_no_number,
)
from connector_tax.read.figures.words import (
    MEASURED,
    clean,
    hold_together,
    interval_texts,
    launches_behind,
    listing,
    rate,
    with_interval,
)
from connector_tax.read.report.questions import why_not_phase_a
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


@dataclass(frozen=True, slots=True)
class Headline:
    """What stands above everything else; ``flags`` qualify the reference rates."""

    sentence: str
    details: list[str]
    flags: list[str]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The TTFT taxes at ref_safe, and whose the headline is about.

    Attributes:
        taxes, values: connector -> its tax, its number; none is empty.
        lacking: connectors without a number -> why.
    """

    aggregate: Aggregate
    subject: str
    taxes: Mapping[str, Tax]
    values: Mapping[str, Interval]
    lacking: Mapping[str, str]

    @property
    def tax(self) -> Tax:
        return self.taxes[self.subject]

    @property
    def where(self) -> str:
        return _at(self.aggregate, "ref_safe")


def headline(aggregate: Aggregate) -> Headline:
    """The subject is Mooncake (both), else see ``_largest``. Plain with a connector's settings is none."""
    rates = aggregate.reference_rates
    flags = [] if rates is None else [FLAGS.get(flag, flag) for flag in rates.flags]
    found = main_taxes(aggregate, metric="ttft_p90", reference="ref_safe")
    taxes = {c: tax for c, tax in found.items() if is_connector(c)}
    values = {c: v for c, tax in taxes.items() if (v := tax.interval) is not None}
    lacking = without_number(aggregate, metric="ttft_p90", reference="ref_safe")
    if not values:
        why = _why_nobody(aggregate, lacking)
        sentence = (
            f"No connector's tax on TTFT p90 could be measured at ref_safe and Phase A's shape ({why})."
        )
        return Headline(hold_together(sentence), [], flags)
    chosen = Chosen(aggregate, SUBJECT if SUBJECT in values else _largest(taxes), taxes, values, lacking)
    details = (*_about_the_number(chosen), *_other_numbers(chosen), *_the_others(chosen))
    return Headline(hold_together(_first(chosen)), [hold_together(d) for d in details], flags)


def _at(aggregate: Aggregate, reference: Reference) -> str:
    """``at ref_safe (4 req/s)``."""
    at = reference_rate(aggregate, reference)
    return f"at {reference}" + (f" ({rate(at)})" if at else "")


def _first(chosen: Chosen) -> str:
    """The tax, on what engine, and who has none."""
    aggregate, gpu = chosen.aggregate, chosen.aggregate.provenance.clock
    device = ""
    if on_embedded_engine(aggregate):
        device = "On the embedded engine: "
    elif gpu is not None:
        device = f"On a virtual {clean(gpu.name or 'GPU', 96)}: "
    return f"{device}{_sentence(chosen)}{_unmeasured(aggregate, chosen.lacking)}"


def _about_the_number(chosen: Chosen) -> Iterator[str]:
    """What is behind it, and what it holds beside the connector's cost."""
    aggregate, tax = chosen.aggregate, chosen.tax
    yield (
        f"{_compares(tax)} {tax.n:,} requests with the connector and {tax.n_plain:,} without, "
        f"of {tax.input_tokens:,} prompt and {tax.output_tokens:,} output tokens each.{_one_launch_alone(aggregate, tax)}"
    )
    if (instead := stands_in(tax)) and blocks_of(tax) is None:
        why = why_not_phase_a(aggregate, tax) or "Phase A's has no number"
        yield f"Measured {instead}, since {clean(why)}."
    if tax.overloaded:
        yield "The engine did not keep up, with the connector or without, so the tax holds queueing as well."
    if held := holds(tax):
        yield f"The tax {clean(held)}."
    if flags := list(flags_behind(aggregate, tax)):
        yield f"The cells behind it are flagged {listing(flags, len(flags))}; section Flags says what that means."


def _other_numbers(chosen: Chosen) -> Iterator[str]:
    """TPOT, and the same latency under load."""
    aggregate = chosen.aggregate
    tpot = main_taxes(aggregate, metric="tpot_p90", reference="ref_safe").get(chosen.subject)
    if tpot is not None and (value := tpot.interval) is not None:
        yield f"TPOT p90: {_counted(tpot, value)}{_kind(tpot)}."
    load = main_taxes(aggregate, metric="ttft_p90", reference="ref_load").get(chosen.subject)
    same = reference_rate(aggregate, "ref_load") == reference_rate(aggregate, "ref_safe")
    if load is not None and (value := load.interval) is not None and not same:
        instead = "" if load.phase in (None, "a") or not load.of_one_launch else f", {stands_in(load)}"
        yield f"TTFT p90 {_at(aggregate, 'ref_load')}: {_counted(load, value)}{_kind(load)}{instead}."


def _counted(tax: Tax, value: Interval) -> str:
    """With its interval and the requests on either side."""
    return f"{with_interval(value)}, n {tax.n:,} and {tax.n_plain:,}"


def _the_others(chosen: Chosen) -> Iterator[str]:
    """What the other connectors have, and why the subject is not the usual one."""
    aggregate, values, lacking = chosen.aggregate, chosen.values, chosen.lacking
    if len(values) + len(lacking) > 1:
        claim = told_apart(aggregate, values, without=list(lacking))
        behind = launches_behind([chosen.taxes[c] for c in values])
        yield f"TTFT p90 {chosen.where}: {claim}. {behind}"
    if chosen.subject != SUBJECT:
        yield f"{_why_this_one(chosen.taxes, chosen.subject)}; {_why_not_usual(aggregate, lacking.get(SUBJECT))}."


def _why_not_usual(aggregate: Aggregate, reason: str | None) -> str:
    """Its tax's own reason; of one that has none, what became of the configuration."""
    if reason is None or reason == why_no_number(aggregate, SUBJECT):
        return why_absent(aggregate, SUBJECT)
    return f"{SUBJECT} has no number ({clean(reason, 160)})"


def _sentence(chosen: Chosen) -> str:
    """What one tax says; of one with an open end, what the other end holds."""
    tax, value, where = chosen.tax, chosen.values[chosen.subject], chosen.where
    name, confidence = chosen.aggregate.label_of(chosen.subject), confidence_words(chosen.aggregate)
    estimate = f"{with_interval(value)} ({confidence} interval{_kind(tax)})"
    if unresolved(value):
        return f"{name}: whether it has a tax on TTFT p90 {where} is not resolved here; the estimate is {estimate}."
    if value.told == NO_TAX_FOUND:
        return f"{name}: no tax on TTFT p90 is found {where}; the estimate is {estimate}."
    if value.told == UNDETERMINED:
        ends = "no bounds" if value.low is None and value.high is None else "an open end"
        return (
            f"{name}: whether it has a tax on TTFT p90 {where} is not known; the estimate is {estimate}. "
            f"The interval has {ends} and does not exclude zero: {clean(tax.reason or 'an end of its interval is open')}."
        )
    if value.told == GAIN:
        return f"With {name} switched on TTFT p90 {where} is lower: {estimate}."
    amount, low, high = (text.lstrip("+") for text in interval_texts(value))
    if value.high is None:
        return (
            f"Merely switching on {name} costs at least {low} more TTFT p90 {where}, by its {confidence} interval{_kind(tax)}. "
            f"The estimate is {amount}; the upper end is open: {clean(tax.reason or 'not known')}."
        )
    return (
        f"Merely switching on {name} costs {amount} more TTFT p90 {where}, {confidence} interval {low} to {high}"
        f"{_kind(tax)}."
    )


def _unmeasured(aggregate: Aggregate, lacking: Mapping[str, str]) -> str:
    """Connectors without a number that were not skipped, each with its reason: the sentence before would pass for the whole."""
    wanted = {c for c, state in aggregate.configs.items() if state.status != "skipped"}
    found = _by_reason(aggregate, {c: why for c, why in lacking.items() if c in wanted})
    return "".join(
        f" {listing(names, len(names))} {'has' if len(names) == 1 else 'have'} no number: {why}."
        for why, names in found.items()
    )


def _by_reason(aggregate: Aggregate, lacking: Mapping[str, str]) -> dict[str, list[str]]:
    """Reason -> whose it is; of several it says no longer ``it``."""
    found: dict[str, list[str]] = {}
    for config, why in lacking.items():
        found.setdefault(clean(why, 160), []).append(clean(aggregate.label_of(config), 40))
    return {
        why if len(names) == 1 else re.sub("^it (was |has )?", "", why): names for why, names in found.items()
    }


def _why_nobody(aggregate: Aggregate, lacking: Mapping[str, str]) -> str:
    """Without plain nobody has a tax; else each connector's reason."""
    plain = aggregate.configs.get("plain")
    if plain is not None and plain.status not in MEASURED:
        return clean(why_absent(aggregate, "plain"))
    if not lacking:
        return "the campaign has no connector"
    return "; ".join(
        f"{listing(names, len(names))}{', each' if len(names) > 1 else ''}: {why}"
        for why, names in _by_reason(aggregate, lacking).items()
    )


def _largest(taxes: Mapping[str, Tax]) -> str:
    """The connector with the largest tax by the estimates that count: over blocks where somebody has those, and told apart from zero
    where one is.
    """

    def rank(config: str) -> tuple[bool, bool, float]:
        tax = taxes[config]
        return not tax.of_one_launch, tax.told == TAX, -math.inf if tax.point is None else tax.point

    return max(taxes, key=rank)


def _why_this_one(taxes: Mapping[str, Tax], subject: str) -> str:
    """What ``_largest`` went by."""
    once, word = taxes[subject].of_one_launch, taxes[subject].told
    among = "" if once or not any(t.of_one_launch for t in taxes.values()) else " over blocks"
    own = [t for t in taxes.values() if once or not t.of_one_launch]
    alike = sum(t.told == word for t in own)
    if word == TAX:
        largest = f"Of the connectors that have a tax{among} this one has the largest"
        return largest if alike > 1 else f"No other connector is found to have a tax{among}"
    none = f"No connector is found to have a tax{among}"
    if word == GAIN:
        return f"{none}, and {f'of the gains{among} this is the smallest' if alike > 1 else f'this is the only gain{among}'}"
    return f"{none}, and of the estimates{among} this is the largest" if len(own) > 1 else none


def _kind(tax: Tax) -> str:
    """What the interval holds."""
    blocks = blocks_of(tax)
    return f", {OF_ONE_LAUNCH}" if blocks is None else f", over {blocks} blocks of launches"


def _compares(tax: Tax) -> str:
    blocks = blocks_of(tax)
    return "It compares" if blocks is None else f"Over {blocks} blocks of launches it compares"


def _one_launch_alone(aggregate: Aggregate, tax: Tax) -> str:
    """Phase A's launch beside a tax over blocks; nothing where one launch is all there is, or where Phase A has no number."""
    if blocks_of(tax) is None:
        return ""
    whose = (tax.config, tax.reference, tax.metric)
    one = next(
        (
            _counted(t, value)
            for t in aggregate.taxes
            if t.headline and (t.config, t.reference, t.metric) == whose and (value := t.interval)
        ),
        None,
    )
    return "" if one is None else f" Phase A's launch alone: {one}."
