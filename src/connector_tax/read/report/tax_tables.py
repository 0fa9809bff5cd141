"""Tables of taxes: at the reference rates, by phase, at every shape, and what load adds."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from connector_tax.base.documents.aggregate import Aggregate, Amplification, TaxRow
from connector_tax.base.documents.rates import Reference
from connector_tax.read.figures.questions import (
    Tax,
    blocks_of,
    confidence_words,
    in_order,
    main_taxes,
    phase_a_shape,
    reference_rate,
    standing_tax,
)
from connector_tax.read.figures.words import rate, with_interval
from connector_tax.read.report.put_in import put_in_text
from connector_tax.read.report.qualifiers import flagged
from connector_tax.read.report.tax_text import (
    LATENCY_METRICS,
    NOT_RESOLVED,
    OF_ONE_LAUNCH,
    STEP_METRICS,
    TaxText,
    in_place,
    own_of_phase,
    stands_in,
    tax_text,
)
from connector_tax.read.stats.attribution import BETWEEN_HOOKS

TAX_COLUMNS = {
    "ttft_p90": "TTFT p90",
    "tpot_p90": "TPOT p90",
    "step_p50_us": "median step",
    "callback_p50_us": "of it in the connector's hooks",
    "unexplained_us": "of it elsewhere",
}
# The same where some hooks are called between two steps.
BETWEEN_STEPS = {
    "callback_p50_us": "in the connector's hooks, also those between two steps",
    "unexplained_us": "median step less these hooks",
}
# The same where no column has the whole of which they are parts.
WITHOUT_STEP = {
    "callback_p50_us": "in the connector's hooks, per step (median)",
    "unexplained_us": "elsewhere in a step",
}
MEANINGS = {
    "ttft_p90": "TTFT is the time to the first token from the intended send",
    "tpot_p90": "TPOT the time per output token after the first",
}


@dataclass(frozen=True, slots=True)
class ReferenceRow:
    """``note``: whose launch stands in for Phase A's."""

    label: str
    id: str
    note: str
    taxes: list[TaxText]


@dataclass(frozen=True, slots=True)
class ReferenceTable:
    reference: Reference
    title: str
    metrics: list[str]
    columns: list[str]
    rows: list[ReferenceRow]


@dataclass(frozen=True, slots=True)
class TaxesOfConfig:
    config: str
    label: str
    taxes: list[TaxText]


@dataclass(frozen=True, slots=True)
class AmplificationRow:
    config: str
    label: str
    shape: str
    rates: str
    ttft: str
    tpot: str


@dataclass(frozen=True, slots=True)
class ShapeRow:
    label: str
    reference: str
    rate: str
    shape: str
    taxes: list[TaxText]


def reference_table(aggregate: Aggregate, reference: Reference) -> ReferenceTable | None:
    """One row per connector at one reference rate; None where no tax is available there."""
    columns = {m: main_taxes(aggregate, metric=m, reference=reference) for m in TAX_COLUMNS}
    columns = {m: found for m, found in columns.items() if found}
    if not columns:
        return None
    # Those with a reason in place of a number stand there with it; the one that stands for all launches comes last.
    every: tuple[Tax, ...] = (*aggregate.taxes, *aggregate.chosen_taxes)
    told: dict[tuple[str, str], Tax] = {
        (t.config, t.metric): t for t in every if t.reference == reference and t.phase == "a"
    }
    # Of what has no number anywhere, the reason of the tax that stands for all launches: others may have been measured, too.
    without = {
        (t.config, t.metric): t for t in aggregate.chosen_taxes if t.reference == reference and not t.known
    }
    reasons = told | without
    named = {*(config for config, _ in told), *(c for found in columns.values() for c in found)}
    at, names = reference_rate(aggregate, reference), _column_names(columns, called_between(aggregate))
    first = next(iter(next(iter(columns.values())).values()))
    shape = f"{first.input_tokens:,} prompt and {first.output_tokens:,} output tokens"
    return ReferenceTable(
        reference=reference,
        title=f"At {reference}" + (f", {rate(at)}" if at is not None else "") + f", {shape}",
        metrics=list(columns),
        columns=names,
        rows=[
            ReferenceRow(
                label=aggregate.label_of(c),
                id=c,
                note=_whose(
                    [
                        (name, found[c], told.get((c, m)))
                        for name, (m, found) in zip(names, columns.items(), strict=True)
                        if c in found
                    ]
                ),
                taxes=[
                    _main_tax(aggregate, found.get(c), reasons.get((c, m))) for m, found in columns.items()
                ],
            )
            for c in aggregate.config_ids
            if c in named
        ],
    )


def called_between(aggregate: Aggregate) -> bool:
    """Whether some hook takes time between two steps."""
    hooks = [h for entry in aggregate.attribution for h in entry.hooks if round(h.us_per_step)]
    return any(h.hook.rsplit("/", 1)[-1] in BETWEEN_HOOKS for h in hooks)


def _column_names(columns: Collection[str], between: bool) -> list[str]:
    """The last two are parts of the median step, where that has a column and no hook is called outside steps."""
    apart = (BETWEEN_STEPS if between else {}) if "step_p50_us" in columns else WITHOUT_STEP
    return [apart.get(m, TAX_COLUMNS[m]) for m in columns]


def _whose(taxes: Sequence[tuple[str, Tax, Tax | None]]) -> str:
    """Once per row: whose launch stands in for Phase A's, in which columns where not in all, and why.

    Args:
        taxes: of one configuration, for each column in which it has a number: the column's name, the tax, what Phase A's cell says.
    """
    names = [name for name, _, _ in taxes]
    found: dict[str, list[str]] = {}
    for name, own, of_phase_a in taxes:
        if blocks_of(own) is None and (instead := stands_in(own)):
            reason = None if of_phase_a is None else of_phase_a.reason
            found.setdefault(f"{instead}, since {reason}" if reason else instead, []).append(name)
    # What goes without a reason, as hooks that plain has none of do, follows the others of its row.
    for note in list(found):
        if others := [o for o in found if o.startswith(f"{note}, since ")]:
            found[others[0]] += found.pop(note)
    return "; ".join(
        note if len(columns) == len(taxes) else f"{', '.join(sorted(columns, key=names.index))} {note}"
        for note, columns in found.items()
    )


def about_taxes(
    aggregate: Aggregate, tables: list[ReferenceTable], others: Sequence[TaxText] = ()
) -> list[str]:
    """What the tables of taxes hold, of the columns that they have.

    Args:
        others: taxes of latencies in other tables than those at the reference rates.
    """
    metrics = {m for table in tables for m in table.metrics}
    if any(t.n for t in others):
        metrics |= {*LATENCY_METRICS}
    against = metrics - {"callback_p50_us"}
    confidence = confidence_words(aggregate)
    steps = "steps" if against & set(STEP_METRICS) or "callback_p50_us" in metrics else ""
    both = "requests with the connector and without" if metrics & set(LATENCY_METRICS) else ""
    counts = ", or ".join(filter(None, (both, f"{steps} where a step is timed" if both and steps else steps)))
    head = "Against plain at the same rate and shape" if against else "A connector's own hooks"
    found = [f"{head}, with {confidence} intervals in brackets; n counts {counts}."] if metrics else []
    if not against and metrics:
        found.append("Plain has no number here.")
    meant = [words for m, words in MEANINGS.items() if m in metrics]
    if meant:
        found += [f"{', '.join(meant)}; p90 is the value that 90 of 100 requests stay within."]
    if against and metrics:
        found += [
            "Where the engine, with the connector or without, did not keep up with the rate, the tax holds queueing as well."
        ]
    if "step_p50_us" in metrics:
        at_safe = main_taxes(aggregate, metric="step_p50_us", reference="ref_safe")
        safe = any(not tax.overloaded for tax in at_safe.values())
        found.append(
            "Near saturation the median step computes prompts as well and no longer decodes alone, even where the engine keeps up"
            + (": read its column at ref_safe." if safe else ".")
        )
    if any(
        t.verdict.startswith(NOT_RESOLVED)
        for t in [*others, *(t for table in tables for row in table.rows for t in row.taxes)]
    ):
        found.append(
            f"{NOT_RESOLVED.capitalize()}: the interval holds zero and is wider than 100 percentage points. connector-tax rehearse --earlier "
            "says, of a campaign with blocks of launches, how large a tax has to be for so many blocks to find it."
        )
    if "unexplained_us" in metrics:
        between = "step_p50_us" in metrics and called_between(aggregate)
        found.append(
            "The median step less these hooks is no tax by itself: below zero, hooks are called between steps, or other parts of the step "
            "take less than plain's."
            if between
            else "The part of the median step that lies elsewhere is no tax by itself: where it is below zero, other parts of the step take less than plain's."
        )
    return found


def _main_tax(aggregate: Aggregate, tax: Tax | None, told: Tax | None = None) -> TaxText:
    """The number, and which launch it is of where that is not Phase A's; without one the reason."""
    if tax is None:
        return tax_text(told)
    text = tax_text(tax, flagged(aggregate, tax))
    return replace(
        text, n=", ".join(filter(None, (text.n, stands_in(tax)))), put_in=put_in_text(aggregate, tax)
    )


def repeats_by_phase(aggregate: Aggregate) -> list[TaxesOfConfig]:
    """Taxes at ref_safe that two launches measured: Phase A's, and the same rate and shape in Phase B."""
    places: dict[tuple[object, ...], dict[str, TaxRow]] = {}
    for tax in aggregate.taxes:
        if tax.reference == "ref_safe" and tax.metric in LATENCY_METRICS:
            places.setdefault(tax.place, {})[tax.phase] = tax
    twice: dict[str, dict[str, list[TaxText]]] = {}
    for by_phase in places.values():
        if {"a", "b"} <= by_phase.keys():
            first, second = by_phase["a"], by_phase["b"]
            texts = [_as_it_counts(aggregate, t) for t in (first, second)]
            twice.setdefault(first.config, {})[first.metric] = texts
    return [
        TaxesOfConfig(c, aggregate.label_of(c), [t for m in LATENCY_METRICS for t in twice[c].get(m, [])])
        for c in aggregate.config_ids
        if c in twice
    ]


def _as_it_counts(aggregate: Aggregate, tax: TaxRow) -> TaxText:
    """A launch's tax as text; where no tax stands for its rate and shape, since another launch failed, its verdict is none either."""
    text = tax_text(tax, flagged(aggregate, tax))
    whose = (tax.config, tax.metric, tax.reference)
    chosen = next((t for t in aggregate.chosen_taxes if (t.config, t.metric, t.reference) == whose), None)
    if chosen is None or chosen.known or not tax.known:
        return text
    return replace(text, verdict="of one launch; no tax stands for this rate and shape", mood="none")


def amplification(aggregate: Aggregate) -> list[AmplificationRow]:
    """What load adds to both latencies, one row per configuration and shape."""
    found: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in aggregate.amplification:
        if row.metric in LATENCY_METRICS:
            value = row.interval
            shape = "" if row.input_tokens is None else f"{row.input_tokens:,} x {row.output_tokens:,}"
            rates = "" if row.rate_per_s is None else f"{row.rate_per_s:g} and {row.safe_rate_per_s:g}"
            # A difference of two percentages is in percentage points.
            found.setdefault((row.config, shape, rates), {})[row.metric] = (
                f"not available: {row.reason or 'unknown'}"
                if value is None
                else f"{with_interval(value).replace(' %', ' pp')}, {row.kind or OF_ONE_LAUNCH}{_two_launches(aggregate, row)}, n {row.n:,}"
            )
    return in_order(
        aggregate,
        [
            AmplificationRow(
                c, aggregate.label_of(c), shape, rates, v.get("ttft_p90", ""), v.get("tpot_p90", "")
            )
            for (c, shape, rates), v in found.items()
        ],
    )


def _two_launches(aggregate: Aggregate, row: Amplification) -> str:
    """Whose less whose, where the two taxes are of different phases' launches."""
    own = row.input_tokens is None or row.shape == phase_a_shape(aggregate)
    if not own:
        return f" each, {own_of_phase('b_prime')} less {own_of_phase('b')}"
    both = [
        main_taxes(aggregate, metric=row.metric, reference=r).get(row.config)
        for r in ("ref_load", "ref_safe")
    ]
    load, safe = (None if tax is None else blocks_of(tax) for tax in both)
    if load is not None and safe is not None and load != safe:
        # The row's own kind has the fewer.
        fewer, more = ("ref_load", "ref_safe") if load < safe else ("ref_safe", "ref_load")
        return f" at {fewer} and {max(load, safe)} at {more}"
    phases = [tax.phase for tax in both if tax is not None and tax.phase is not None]
    if len(set(phases)) < 2:
        return ""
    first, second = (own_of_phase(phase) for phase in phases)
    return f" each, {first} less {second}"


def shape_taxes(aggregate: Aggregate) -> list[ShapeRow]:
    """The latency taxes at Phase B's and B's shapes, one row each; the unavailable ones with their reason."""
    order = {config: k for k, config in enumerate(aggregate.config_ids)}
    found: dict[tuple[int, str, bool, str, float, int, int], dict[str, TaxRow]] = {}
    for tax in aggregate.taxes:
        if tax.phase in ("b", "b_prime") and tax.metric in LATENCY_METRICS:
            place = (order.get(tax.config, len(order)), tax.config)
            at = (tax.reference != "ref_safe", tax.reference, tax.rate_per_s)
            found.setdefault((*place, *at, tax.input_tokens, tax.output_tokens), {})[tax.metric] = tax
    return [
        ShapeRow(
            label=aggregate.label_of(config),
            reference=reference,
            rate=f"{at:g}",
            shape=f"{n_in:,} x {n_out:,}",
            taxes=[_shape_tax(aggregate, taxes.get(m)) for m in LATENCY_METRICS],
        )
        for (_, config, _, reference, at, n_in, n_out), taxes in sorted(found.items(), key=_without_reference)
    ]


def _without_reference(
    item: tuple[tuple[int, str, bool, str, float, int, int], object],
) -> tuple[int, str, bool, float, int, int]:
    """Other rates than ref_safe stand by rate, whichever they are."""
    place, config, other, _, rate_per_s, n_in, n_out = item[0]
    return place, config, other, rate_per_s, n_in, n_out


def _shape_tax(aggregate: Aggregate, row: TaxRow | None) -> TaxText:
    """The tax that stands at its rate and shape: at Phase A's shape it may be over blocks, or of Phase A's launch, and says so."""
    if row is None or (found := standing_tax(aggregate, row)) is row:
        return tax_text(row, "" if row is None else flagged(aggregate, row))
    return in_place(_main_tax(aggregate, found), found, row)
