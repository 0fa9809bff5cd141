"""Turns ``aggregate.json`` into the page's content: numbers with units, codes, places on axes; no words."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product

from connector_tax.base.documents.aggregate import (
    PLAIN,
    Aggregate,
    Attribution,
    Cell,
    ConnectorRow,
    Hypothesis,
    Latency,
    LatencyMetric,
    Metric,
    Problem,
    Quantity,
    TaxRow,
)
from connector_tax.base.files import printable
from connector_tax.base.records.cell import is_phase, phase_place, phase_word
from connector_tax.read.figures.words import main_tax_for, problem_text, rated_cells, reason_text
from connector_tax.read.report.tables import (
    Axis,
    Line,
    Number,
    Table,
    Unit,
    axis_of,
    bare,
    lengths_table,
    name,
    named,
    number,
    proofs_of,
    provenance_of,
    tables_of,
)
from connector_tax.read.stats.connectors import METRICS, connector_rows

# A zoomed axis is offered if rows without a tax fill less than this share of the common one.
ZOOM_BELOW = 0.25
MULTIPLES = (-0.25, 1.5)
LETTERS = "abcdefghijklmno"
# Completed requests of a cell in the published experiment.
USUAL_COMPLETED = 200


@dataclass(frozen=True, slots=True)
class Row:
    """A connector on the first screen.

    Attributes:
        why, why_text: code of why a latency has no number, and a file's words on it, else empty.
        by_plain: the reason is plain's, not the connector's.
        values: by column; None if there is none.
    """

    id: str
    label: str
    verdict: str
    clear: tuple[str, ...]
    letters: str
    why: str
    why_text: str
    by_plain: bool
    values: Mapping[str, Number | None]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the first screen.

    Attributes:
        zoomed: the axis of rows without a tax; None if not needed.
        floor: plain against itself.
    """

    key: str
    axis: Axis
    unit: Unit
    zoomed: Axis | None = None
    floor: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The content of the headline.

    Attributes:
        taxed: rows with a tax, largest first.
        clear_of: rows known to have none.
        bound: upper bound of all their intervals; None if one is open, or a latency has none.
        without: rows without a number.
        by_plain: a row without a number because of plain.
    """

    taxed: Sequence[Row]
    clear_of: Sequence[Row]
    bound: Number | None
    without: Sequence[Row]
    by_plain: Row | None


@dataclass(frozen=True, slots=True)
class Claim:
    """A hypothesis.

    Attributes:
        value: the number that decides; None if there is none.
        criterion: one threshold or the two ends of a range, in the value's unit.
        details: (code of a number, whose, that number).
        why: why it is not testable.
    """

    of: Hypothesis
    subject: str
    value: Number | None
    criterion: tuple[float, ...]
    axis: Axis | None
    details: Sequence[tuple[str, str, Number]]
    why: str


@dataclass(frozen=True, slots=True)
class Cause:
    """A connector's step: segments (code, from, to) on the axis, the change of the step, and its hooks."""

    label: str
    segments: Sequence[tuple[str, float, float]]
    change: Number
    hooks: Number | None
    hooks_cpu: Number | None
    hidden: bool


@dataclass(frozen=True, slots=True)
class Multiple:
    """A connector's small plots: latency -> points (place, number, beyond the axis)."""

    label: str
    points: Mapping[str, Sequence[tuple[str, Number, bool]]]


@dataclass(frozen=True, slots=True)
class Panel:
    """A latency at one rate: (label, level, above plain's, saturated)."""

    metric: str
    rate_per_s: float
    axis: Axis
    plain: Number | None
    rows: Sequence[tuple[str, Number, bool, bool]]


@dataclass(frozen=True, slots=True)
class Left:
    """The unmeasured part of a campaign: phase -> configurations; empty means all of them."""

    ended: int
    runs: int
    phases: Sequence[tuple[str, Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Page:
    """The content of the page.

    Attributes:
        of: the aggregate; names and texts in it come from files that people write.
        left: the unmeasured part of the plan; None if there is none, or the plan is unknown.
        shown: the taxes of the first screen.
        bundled: the checkout has a published bundle of this campaign.
        early: fewest and most completed requests at which a cell may end, and how many cells ended before the
            most; None if all cells have the published experiment's count.
    """

    of: Aggregate
    left: Left | None
    bundled: bool
    source: str
    device: str
    cores: int | None
    answer: Answer
    shown: Sequence[TaxRow]
    rows: Sequence[Row]
    columns: Sequence[Column]
    footnotes: Sequence[tuple[str, str]]
    power: Mapping[str, tuple[Number, ...]]
    injected: tuple[int, int] | None
    mixed: Sequence[str]
    cores_shared: bool
    claims: Sequence[Claim]
    untested: Sequence[tuple[str, Sequence[Claim]]]
    outcomes: Mapping[str, int]
    causes: Sequence[Cause]
    causes_axis: Axis | None
    segments: Sequence[str]
    share_of_hooks: Sequence[Number]
    framework: Number | None
    settings: Mapping[str, Sequence[str]]
    multiples: Sequence[Multiple]
    lengths: tuple[Sequence[int], Sequence[int]]
    panels: Sequence[Panel]
    knees: Sequence[tuple[float, Sequence[str]]]
    tables: Mapping[str, Sequence[Table]]
    cells: Sequence[tuple[str, Sequence[Cell]]]
    n_failed: int
    n_metrics_missed: int
    early: tuple[int, int, int] | None
    flags: Sequence[tuple[str, int]]
    outputs: Mapping[str, int]
    proofs: Mapping[str, int]
    provenance: Sequence[tuple[str, str]]


def page_view(aggregate: Aggregate, left: Left | None = None, bundled: bool = False) -> Page:
    """Return the page's content; see ``Page`` for the arguments."""
    provenance, source = aggregate.provenance, aggregate.measured_on
    row_by_config = {row.config: row for row in aggregate.connectors or connector_rows(aggregate)}
    taxes = {(t.config, t.metric): t for t in aggregate.main_taxes if t.reference == "ref_safe" and t.known}
    marks = list(dict.fromkeys(m for row in row_by_config.values() for m in row.marks))
    rows = sorted((_row(aggregate, j, taxes, marks) for j in row_by_config.values()), key=_rank)
    order = {row.id for row in rows}
    entries = sorted(aggregate.attribution, key=lambda a: -(a.difference_us.point or 0))
    causes = [c for a in entries if a.config in order and (c := _cause(aggregate, a)) is not None]
    axis_values = [e for c in causes for e in (*c.change.ends, *(last for _, _, last in c.segments))]
    multiples, lengths, lengths_tables = _multiples(aggregate, rows)
    cells = cells_in_order(aggregate)
    flags = Counter(flag for cell in aggregate.cells for flag in cell.flags)
    claims = [_claim(aggregate, h) for h in sorted(aggregate.hypotheses, key=lambda h: h.id)]
    tested = [c for c in claims if c.of.outcome != "not testable"]
    untested = sorted((c for c in claims if c not in tested), key=lambda c: c.subject)
    segment_order = ("hooks_cpu", "hooks_wait", "hooks", "around", "model")
    used_segments = {code for c in causes for code, first, last in c.segments if last - first >= 1}
    return Page(
        of=aggregate,
        left=left,
        bundled=bundled,
        source=source.kind,
        device=name(source.device) if source.device else "",
        cores=cores if isinstance(cores := provenance.host.get("cores"), int) else None,
        answer=_answer(rows),
        shown=[t for (_, metric), t in taxes.items() if metric in METRICS],
        rows=rows,
        columns=_columns(rows, _floors(aggregate)),
        footnotes=list(zip(LETTERS, marks, strict=False)),
        power=_power(aggregate),
        injected=(p.held, p.asked) if (p := aggregate.put_in) is not None and p.asked else None,
        mixed=[phase_word(p) for p in provenance.mixed_cards or ()],
        cores_shared=bool(cells) and flags["cores_shared"] == len(cells),
        claims=tested,
        untested=[(k, list(g)) for k, g in groupby(untested, key=lambda c: c.subject)],
        outcomes=Counter(c.of.outcome for c in tested),
        causes=causes,
        causes_axis=axis_of(axis_values, 4, 0.03) if causes else None,
        segments=[code for code in segment_order if code in used_segments],
        share_of_hooks=sorted(
            (s for a in aggregate.attribution if (s := number(a.in_hooks_share, "share")) is not None),
            key=lambda s: s.point,
        ),
        framework=next(
            (number(t.framework, "tax") for t in aggregate.two_parts if t.metric == "ttft_p90"), None
        ),
        settings=_settings(aggregate),
        multiples=multiples,
        lengths=lengths,
        panels=_panels(aggregate),
        knees=_knees(aggregate),
        tables=tables_of(aggregate) | {"lengths": lengths_tables},
        cells=[(k, list(g)) for k, g in groupby(cells, key=lambda c: named(aggregate, c.config))],
        n_failed=sum(c.n_dropped + c.n_failed for c in aggregate.measured()),
        n_metrics_missed=sum(c.n_metrics_missed for c in aggregate.measured()),
        early=_early(aggregate),
        flags=flags.most_common(),
        outputs=Counter(o.verdict for o in aggregate.outputs),
        proofs=proofs_of(aggregate),
        provenance=provenance_of(aggregate),
    )


def _floors(aggregate: Aggregate) -> dict[str, tuple[float, float]]:
    return {
        r.metric: (r.noise_floor.low, r.noise_floor.high)
        for r in aggregate.repeats
        if r.reference == "ref_safe"
    }


def _row(
    aggregate: Aggregate,
    connector_row: ConnectorRow,
    taxes: Mapping[tuple[str, Metric], TaxRow],
    marks: Sequence[str],
) -> Row:
    config = connector_row.config
    put_in = aggregate.put_in.taxes if aggregate.put_in is not None else ()
    injected = {r.metric: r.tax for r in put_in if (r.config, r.reference) == (config, "ref_safe")}
    values: dict[str, Number | None] = {
        metric: _of_tax(
            taxes.get((config, metric)),
            "tax",
            clear=metric in connector_row.clear,
            injected=injected.get(metric),
        )
        for metric in METRICS
    }
    step = taxes.get((config, "step_p50_us"))
    values["step"] = _of_tax(step, "change_us", clear=step is not None and step.effect == "tax")
    attribution = next((a for a in aggregate.attribution if a.config == config), None)
    on_cpu = any(a.hooks_cpu_us is not None for a in aggregate.attribution)
    values["hooks_cpu" if on_cpu else "hooks"] = (
        None
        if attribution is None
        else number(attribution.hooks_cpu_us if on_cpu else attribution.hooks_us, "us")
    )
    return Row(
        id=config,
        label=named(aggregate, config),
        verdict=connector_row.verdict,
        clear=connector_row.clear,
        letters=" ".join(LETTERS[marks.index(m)] for m in connector_row.marks if m in marks),
        why=connector_row.reason.code if connector_row.reason is not None else "",
        why_text=_why_text(aggregate, connector_row),
        by_plain=connector_row.reason is not None and connector_row.reason.subject == PLAIN,
        values=values,
    )


def _of_tax(tax: TaxRow | None, unit: Unit, *, clear: bool, injected: float | None = None) -> Number | None:
    if tax is None or tax.point is None:
        return None
    return Number(tax.point, unit, tax.low, tax.high, clear=clear, injected=injected)


def _why_text(aggregate: Aggregate, connector_row: ConnectorRow) -> str:
    """Return the state's text for a missing number; empty if the code alone says it."""
    state = None if connector_row.reason is None else aggregate.configs.get(connector_row.reason.subject)
    if state is None or state.reason is None or state.reason == Problem(state.reason.code):
        return ""
    return " ".join(printable(problem_text(state.reason), 240).split())


def _rank(row: Row) -> tuple[int, float]:
    """Return a sort key: rows with a tax first, largest first; rows without a number last."""
    order = ("tax", "noise", "gain", "open", "none", "failed", "missing", "skipped")
    is_taxed = row.verdict == "tax"
    known = [v.point for m in (row.clear if is_taxed else METRICS) if (v := row.values[m]) is not None]
    if not known:
        return 2, float(order.index(row.verdict))
    return 0 if is_taxed else 1, -max(known)


def _answer(rows: Sequence[Row]) -> Answer:
    known = [r for r in rows if any(r.values[m] for m in METRICS)]
    clear_of = [r for r in known if r.verdict != "tax"]
    highs = [v.ends[1] for r in clear_of for m in METRICS if (v := r.values[m]) is not None]
    # A latency without a number has no bound.
    max_high = math.inf if any(r.why for r in clear_of) else max(highs, default=math.inf)
    return Answer(
        taxed=[r for r in known if r.verdict == "tax"],
        clear_of=clear_of,
        bound=bare(max_high, "share") if math.isfinite(max_high) else None,
        without=[r for r in rows if r not in known],
        by_plain=next((r for r in rows if r.by_plain), None),
    )


def _columns(rows: Sequence[Row], floors: Mapping[str, tuple[float, float]]) -> list[Column]:
    """Return the latencies on one common axis; step and hooks on their own."""
    numbers = [v for r in rows for m in METRICS if (v := r.values[m]) is not None]
    ends = [e for v in numbers for e in (*v.ends, v.point, v.injected or 0.0)]
    axis = axis_of([*ends, *(e for m, f in floors.items() if m in METRICS for e in f)])
    columns = []
    for metric in METRICS:
        floor = floors.get(metric)
        small = [v for r in rows if r.verdict != "tax" and (v := r.values[metric]) is not None]
        zoomed = axis_of([*(e for v in small for e in (*v.ends, v.point)), *(floor or ())], 2)
        wide = (axis.high - axis.low) * ZOOM_BELOW
        is_small = len(small) > 1 and zoomed.high - zoomed.low < wide
        columns.append(Column(metric, axis, "tax", zoomed if is_small else None, floor))
    shown = [r for r in rows if any(r.values[m] for m in METRICS)]
    for key in ("step", "hooks_cpu", "hooks"):
        key_numbers = [v for r in shown if (v := r.values.get(key)) is not None]
        if key_numbers:
            axis_values = [v.point for v in key_numbers] + [
                e for v in key_numbers for e in v.ends if key == "step"
            ]
            columns.append(Column(key, axis_of(axis_values, 1), "change_us" if key == "step" else "us"))
    return columns


def _power(aggregate: Aggregate) -> dict[str, tuple[Number, ...]]:
    """Return latency -> the smallest taxes that four of five such campaigns detect.

    Over blocks plain's own spread determines it, else the least and most of single launches' intervals. Empty
    if a latency has none.
    """
    smallest_taxes: dict[str, tuple[Number, ...]] = {}
    for entry in aggregate.repeats:
        if entry.reference == "ref_safe" and (
            smallest_tax := number(entry.noise_floor.found_4_of_5, "share")
        ):
            smallest_taxes[entry.metric] = (smallest_tax,)
    if not any(m in smallest_taxes for m in METRICS):
        for metric in METRICS:
            sizes = sorted(p.one_launch for p in aggregate.power if p.metric == metric and p.one_launch)
            ends = dict.fromkeys(sizes[k] for k in (0, -1) if sizes)
            smallest_taxes[metric] = tuple(smallest_tax for v in ends if (smallest_tax := bare(v, "share")))
    return smallest_taxes if all(smallest_taxes.get(m) for m in METRICS) else {}


# Hypothesis -> the number that decides, its unit, and the number that is its criterion.
DECIDING: dict[str, tuple[str, Unit, str]] = {
    "H1": ("tax_ttft_p90", "tax", "threshold"),
    "H2": ("gap", "points", "range"),
    "H3": ("share", "share", "threshold"),
    "H4": ("excess_over_stack", "tax", "tolerance"),
    "H5": ("slope_per_doubling", "points", ""),
    "H6": ("slope_per_doubling", "points", ""),
}


def _claim(aggregate: Aggregate, hypothesis: Hypothesis) -> Claim:
    key, unit, criterion = DECIDING[hypothesis.id]
    value = number(getattr(hypothesis.numbers, key), unit)
    criterion_value = getattr(hypothesis.numbers, criterion, None)
    ends: tuple[float, ...] = () if criterion_value is None else (criterion_value,)
    if criterion_value is not None and criterion in ("range", "tolerance"):
        ends = tuple(criterion_value) if criterion == "range" else (-criterion_value, criterion_value)
    return Claim(
        of=hypothesis,
        subject=named(aggregate, hypothesis.subject),
        value=value,
        criterion=ends,
        axis=None if value is None else axis_of([*value.ends, value.point, *ends], 2, 0.08),
        details=list(_details(aggregate, hypothesis, key)),
        why=printable("; ".join(reason_text(m.reason, m.subject) for m in hypothesis.missing), 600),
    )


def _details(
    aggregate: Aggregate, hypothesis: Hypothesis, deciding: str
) -> Iterator[tuple[str, str, Number]]:
    """Yield a verdict's other numbers: (code, whose, number), with rates if lengths have several."""
    rates = hypothesis.numbers.rates_per_s or {}
    differ = len({*rates.values()}) > 1
    for key in hypothesis.numbers.__struct_fields__:
        value = getattr(hypothesis.numbers, key)
        if key == deciding:
            continue
        if isinstance(value, Quantity) and (
            value_number := number(value, "share" if key == "share" else "tax")
        ):
            yield key, "", value_number
        if key in ("parts", "by_length"):
            code = "part" if key == "parts" else "length"
            for part_or_length, quantity in (value or {}).items():
                if (value_number := number(quantity, "tax")) is not None:
                    rates_text = (
                        ", ".join(f"{r:g}/s" for r in rates.get(part_or_length, ())) if differ else ""
                    )
                    yield (
                        code,
                        f"{rates_text}, {part_or_length}" if rates_text else named(aggregate, part_or_length),
                        value_number,
                    )


def _cause(aggregate: Aggregate, entry: Attribution) -> Cause | None:
    change = number(entry.difference_us, "change_us")
    if change is None:
        return None
    part_us = {p.part: p.point or 0.0 for p in entry.parts}
    hooks = part_us.get("scheduler_hooks", 0.0) + part_us.get("worker_hooks", 0.0)
    segment_sizes_us = {"hooks": hooks}
    if entry.hooks_cpu_us is not None:
        cpu = min(entry.hooks_cpu_us.point or 0.0, hooks)
        segment_sizes_us = {"hooks_cpu": cpu, "hooks_wait": hooks - cpu}
    segment_sizes_us |= {
        "around": part_us.get("schedule", 0.0) + part_us.get("update", 0.0),
        "model": part_us.get("round_trip", 0.0),
    }
    segments, start_us = [], 0.0
    for code, size_us in segment_sizes_us.items():
        if size_us > 0:
            segments.append((code, start_us, start_us + size_us))
            start_us += size_us
    return Cause(
        label=named(aggregate, entry.config),
        segments=segments,
        change=change,
        hooks=number(entry.hooks_us, "us"),
        hooks_cpu=number(entry.hooks_cpu_us, "us"),
        hidden=part_us.get("round_trip", 0.0) < 0 and hooks > change.ends[1],
    )


def _settings(aggregate: Aggregate) -> dict[str, list[str]]:
    """Return setting = value -> the connectors that switch it."""
    connectors_by_setting: dict[str, list[str]] = {}
    for config, changes in aggregate.engine_diff.items():
        for key, change in (changes or {}).items():
            value = printable(str(change["own"]), 60)
            connectors_by_setting.setdefault(f"{key.rpartition('.')[2]} = {value}", []).append(
                named(aggregate, config)
            )
    return connectors_by_setting


def _multiples(
    aggregate: Aggregate, rows: Sequence[Row]
) -> tuple[list[Multiple], tuple[list[int], list[int]], list[Table]]:
    """Return small plots of Phase B's cells per connector and latency, and a table of their numbers."""
    cells: dict[tuple[int, int], dict[str, dict[str, TaxRow]]] = {}
    for entry in aggregate.taxes:
        if entry.phase == "b" and entry.metric in METRICS and entry.reference == "ref_safe":
            taxes_of_config = cells.setdefault(entry.shape, {}).setdefault(entry.config, {})
            taxes_of_config[entry.metric] = main_tax_for(aggregate, entry)
    shapes, floors = sorted(cells), _floors(aggregate)
    inputs, outputs = sorted({i for i, _ in shapes}), sorted({o for _, o in shapes})
    points: dict[str, dict[str, list[tuple[str, Number, bool]]]] = {
        row.id: {m: [] for m in METRICS} for row in rows
    }
    lines: list[Line] = []
    for shape in shapes:
        # Percent: prompt lengths divide the width, output lengths divide their prompt length's part.
        position_in_group = (outputs.index(shape[1]) + 1) / (len(outputs) + 1)
        left_percent = f"{100 * (inputs.index(shape[0]) + position_in_group) / len(inputs):.2f}%"
        for row in rows:
            config_taxes = cells[shape].get(row.id, {})
            numbers = {m: _shape_tax(config_taxes.get(m), floors.get(m)) for m in METRICS}
            for metric, value in numbers.items():
                if value is not None:
                    is_beyond = not MULTIPLES[0] <= value.point <= MULTIPLES[1]
                    points[row.id][metric].append((left_percent, value, is_beyond))
            if config_taxes:
                rate = next(t.rate_per_s for t in config_taxes.values())
                ttft = config_taxes.get("ttft_p90")
                averaged = number(ttft.phase_averaged or None, "tax") if ttft is not None else None
                lines.append((shape, rate, row.id, numbers["ttft_p90"], numbers["tpot_p90"], averaged))
    pictures = [Multiple(row.label, points[row.id]) for row in rows if any(points[row.id].values())]
    return pictures, (inputs, outputs), lengths_table(aggregate, lines)


def _shape_tax(tax: TaxRow | None, floor: tuple[float, float] | None) -> Number | None:
    value = _of_tax(tax, "tax", clear=tax is not None and tax.effect == "tax")
    inside = value is not None and floor is not None and floor[0] <= value.point <= floor[1]
    return replace(value, clear=False) if value is not None and inside else value


LEVELS: dict[LatencyMetric, Latency] = {"ttft_p90": "ttft_ms", "tpot_p90": "tpot_ms"}


def _panels(aggregate: Aggregate) -> list[Panel]:
    cells = [cell for config in aggregate.config_ids for cell in rated_cells(aggregate, "a", config)]
    panels = []
    for (metric, latency), rate in product(LEVELS.items(), sorted({cell.rate_per_s for cell in cells})):
        rate_cells = [cell for cell in cells if cell.rate_per_s == rate]
        levels = [(c, v) for c in rate_cells if (v := number(c.latency(latency).p90, "ms")) is not None]
        plain = next((v for c, v in levels if c.config == PLAIN), None)
        limit = math.inf if plain is None else plain.ends[1]
        rows = [
            (named(aggregate, c.config), v, c.config != PLAIN and v.ends[0] > limit, c.saturated)
            for c, v in levels
        ]
        if rows:
            ends = [e for _, v in levels for e in (*v.ends, v.point)]
            panels.append(Panel(metric, rate, axis_of(ends, 3), plain, rows))
    return panels


def _knees(aggregate: Aggregate) -> list[tuple[float, list[str]]]:
    """Return rate -> configurations saturated from it on."""
    configs_by_rate: dict[float, list[str]] = {}
    for config, saturation in aggregate.saturation.items():
        if saturation.saturation_rate_per_s is not None:
            configs_by_rate.setdefault(saturation.saturation_rate_per_s, []).append(named(aggregate, config))
    return sorted(configs_by_rate.items())


def _early(aggregate: Aggregate) -> tuple[int, int, int] | None:
    """Return ``Page.early``."""
    rules = [rule for cell in aggregate.measured() if (rule := cell.stopped) is not None]
    if rules:
        max_planned = max(rule.planned[-1] for rule in rules)
        n_ended = sum(r.reached and bool(r.looks) and r.looks[-1].n_planned < r.planned[-1] for r in rules)
        return min(rule.planned[0] for rule in rules), max_planned, n_ended
    min_completed = aggregate.provenance.settings.get("cell", {}).get("min_completed", USUAL_COMPLETED)
    return (
        (min_completed, min_completed, 0)
        if isinstance(min_completed, int) and min_completed < USUAL_COMPLETED
        else None
    )


def cells_in_order(aggregate: Aggregate) -> list[Cell]:
    """Order cells by configuration, phase, then shape and rate."""
    order = {config: i for i, config in enumerate(aggregate.config_ids)}

    def sort_key(cell: Cell) -> tuple[float, ...]:
        measured = phase_place(cell.phase) if is_phase(cell.phase) else (99, 0)
        return (order.get(cell.config, len(order)), *measured, *cell.shape, cell.rate_per_s)

    return sorted(aggregate.cells, key=sort_key)
