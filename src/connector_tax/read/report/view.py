"""``aggregate.json`` to the facts of the page: numbers with units, codes and places on axes. Words are in the templates."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from connector_tax.base.documents.aggregate import (
    PLAIN,
    Aggregate,
    Attribution,
    Cell,
    ConnectorRow,
    Hypothesis,
    Latency,
    LatencyMetric,
    MainTaxRow,
    MeasuredCell,
    Metric,
    ProblemRow,
    Quantity,
    TaxRow,
)
from connector_tax.base.documents.rates import Reference
from connector_tax.base.opening import printable
from connector_tax.base.records.cell import is_phase, phase_place, phase_word
from connector_tax.read.figures.questions import standing_tax
from connector_tax.read.report.numbers import Axis, Number, Unit, axis_of, bare, number
from connector_tax.read.report.tables import Table, Value, name, provenance_of, tables_of
from connector_tax.read.stats.connectors import METRICS, blocks_of, connector_rows

Tax = TaxRow | MainTaxRow
MOST_HOOKS = 6
# A zoomed axis is worth a switch where rows without a tax fill less of the common one.
ZOOM_BELOW = 0.25
MULTIPLES = (-0.25, 1.5)
LETTERS = "abcdefghijklmno"


@dataclass(frozen=True, slots=True)
class Detail:
    """A code of why, whose it is, and what the analysis says of it."""

    code: str
    subject: str
    text: str


@dataclass(frozen=True, slots=True)
class Row:
    """One connector on the first screen; ``values`` by column, None where there is none."""

    id: str
    label: str
    verdict: str
    clear: tuple[str, ...]
    letters: str
    why: Detail | None
    values: Mapping[str, Number | None]


@dataclass(frozen=True, slots=True)
class Column:
    """
    Attributes:
        zoomed: the axis of the rows without a tax; None where they need none.
        floor: plain against itself.
    """

    key: str
    axis: Axis
    unit: Unit
    zoomed: Axis | None = None
    floor: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What the headline is made of.

    Attributes:
        taxed: the rows that have a tax, dearest first.
        clear_of: how many have none, and are known.
        bound: no interval of them reaches above it; None where one is open.
        without: those that have no number.
    """

    taxed: Sequence[Row]
    clear_of: Sequence[Row]
    bound: Number | None
    without: Sequence[Row]
    plain_why: Detail | None


@dataclass(frozen=True, slots=True)
class Where:
    """Where the first screen's taxes were measured; None of what differs."""

    rate_per_s: float
    input_tokens: int
    output_tokens: int
    n: tuple[int, int]
    n_plain: tuple[int, int]
    blocks: int | None


@dataclass(frozen=True, slots=True)
class Power:
    """The smallest taxes that four of five such campaigns find, by latency; with ``blocks`` one number each, else from and to."""

    ttft: tuple[Number, ...]
    tpot: tuple[Number, ...]


@dataclass(frozen=True, slots=True)
class Claim:
    """One hypothesis.

    Attributes:
        value: what decides it; None where it has no number.
        criterion: one threshold or the two ends of a range, in the value's unit.
        details: (code of a number or a label, that number).
    """

    id: str
    subject: str
    outcome: str
    label: str
    value: Number | None
    criterion: tuple[float, ...]
    axis: Axis | None
    details: Sequence[tuple[str, str, Number]]
    p: Number | None
    p_holm: Number | None
    at_equal_speed: str | None
    sentence: str


@dataclass(frozen=True, slots=True)
class Cause:
    """One connector's step: segments (code, from, to) on the axis, the change of the step, and its hooks."""

    label: str
    segments: Sequence[tuple[str, float, float]]
    change: Number
    hooks: Number | None
    hooks_cpu: Number | None
    hidden: bool
    rows: Sequence[Sequence[Value]]


@dataclass(frozen=True, slots=True)
class Multiple:
    """The small pictures of one connector: by latency its points (place from the left, number, beyond the axis)."""

    id: str
    label: str
    points: Mapping[str, Sequence[tuple[str, Number, bool]]]
    rows: Sequence[Sequence[Value]]


@dataclass(frozen=True, slots=True)
class Panel:
    """One latency at one rate: (label, level, above plain's, saturated)."""

    metric: str
    rate_per_s: float
    axis: Axis
    plain: Number | None
    rows: Sequence[tuple[str, Number, bool, bool]]


@dataclass(frozen=True, slots=True)
class CellRow:
    """``key``: configuration, phase and cell id."""

    key: tuple[str, str, str]
    label: str
    phase: str
    rate_per_s: float
    input_tokens: int
    output_tokens: int
    usable: bool
    n: tuple[int, int, int, int] | None
    ttft: Number | None
    tpot: Number | None
    saturated: tuple[str, ...]
    flags: tuple[str, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CellGroup:
    label: str
    cells: Sequence[CellRow]


@dataclass(frozen=True, slots=True)
class Left:
    """What of a campaign is not measured: by phase the configurations, none where it is all of them."""

    ended: int
    runs: int
    phases: Sequence[tuple[str, Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Page:
    campaign: str
    date: str
    source: str
    device: str
    facts: Mapping[str, str]
    virtual_gpu: Mapping[str, float]
    cores: int | None
    left: Left | None
    answer: Answer
    where: Where | None
    rows: Sequence[Row]
    columns: Sequence[Column]
    footnotes: Sequence[tuple[str, str]]
    has_floor: bool
    power: Power | None
    injected: tuple[int, int] | None
    rate_flags: Sequence[str]
    mixed: Sequence[str]
    cores_shared: bool
    confidence: float
    claims: Sequence[Claim]
    untested: Sequence[tuple[str, Sequence[Claim]]]
    outcomes: Mapping[str, int]
    criteria: Sequence[tuple[int, str, str, str]]
    causes: Sequence[Cause]
    causes_axis: Axis | None
    segments: Sequence[str]
    plain_step: Number | None
    share_of_hooks: tuple[Number, Number] | None
    framework: Number | None
    settings: Mapping[str, Sequence[str]]
    multiples: Sequence[Multiple]
    lengths: tuple[Sequence[int], Sequence[int]]
    beyond: int
    panels: Sequence[Panel]
    knees: Sequence[tuple[str, float]]
    rates: Sequence[float]
    random_arrivals: bool
    tables: Mapping[str, Sequence[Table]]
    cells: Sequence[CellGroup]
    n_cells: int
    n_unusable: int
    n_failed: int
    n_metrics_missed: int
    flags: Sequence[tuple[str, int]]
    problems: Sequence[ProblemRow]
    outputs: Mapping[str, int]
    provenance: Sequence[tuple[str, str]]
    bundled: bool = False


def page_view(aggregate: Aggregate, left: Left | None = None, bundled: bool = False) -> Page:
    """
    Args:
        left: what of the plan is not measured yet; None of a campaign that has ended, or whose plan nobody knows.
        bundled: whether a published bundle of this campaign lies in the checkout.
    """
    provenance = aggregate.provenance
    judged = {row.config: row for row in aggregate.connectors or connector_rows(aggregate)}
    taxes = _taxes_at(aggregate, "ref_safe")
    marks = _marks_in_use(judged.values())
    rows = sorted((_row(aggregate, j, taxes, marks) for j in judged.values()), key=_rank)
    causes, segments = _causes(aggregate, rows)
    multiples, lengths, beyond = _multiples(aggregate, rows)
    cells = [_cell(aggregate, c) for c in cells_in_order(aggregate)]
    floors = _floors(aggregate)
    flags = Counter(flag for cell in aggregate.cells for flag in cell.flags)
    tested = [h for h in aggregate.hypotheses if h.outcome != "not testable"]
    claims = [_claim(aggregate, h) for h in sorted(aggregate.hypotheses, key=lambda h: h.id)]
    on = aggregate.measured_on
    return Page(
        campaign=aggregate.campaign,
        date=aggregate.date,
        source=on.kind,
        device=name(on.device) if on.device else "",
        facts={k: name(str(v)) for k, v in provenance.versions.items() if v},
        virtual_gpu={} if (clock := provenance.clock) is None else dict(clock.step),
        cores=cores if isinstance(cores := provenance.host.get("cores"), int) else None,
        left=left,
        answer=_answer(aggregate, rows),
        where=_where(taxes),
        rows=rows,
        columns=_columns(rows, floors),
        footnotes=list(zip(LETTERS, marks, strict=False)),
        has_floor=bool(floors),
        power=_power(aggregate),
        injected=(p.held, p.asked) if (p := aggregate.put_in) is not None and p.asked else None,
        rate_flags=aggregate.reference_rates.flags if aggregate.reference_rates else (),
        mixed=[phase_word(p) for p in provenance.mixed_cards or ()],
        cores_shared=bool(aggregate.cells) and flags["cores_shared"] == len(aggregate.cells),
        confidence=provenance.confidence,
        claims=[c for c in claims if c.outcome != "not testable"],
        untested=_by_subject([c for c in claims if c.outcome == "not testable"]),
        outcomes=Counter(h.outcome for h in tested),
        criteria=[(c.number, c.title, c.outcome, c.evidence) for c in aggregate.criteria],
        causes=causes,
        causes_axis=_causes_axis(causes),
        segments=segments,
        plain_step=bare(aggregate.attribution[0].plain_step_us, "us") if aggregate.attribution else None,
        share_of_hooks=_share_of_hooks(aggregate),
        framework=_framework(aggregate),
        settings=_settings(aggregate),
        multiples=multiples,
        lengths=lengths,
        beyond=beyond,
        panels=_panels(aggregate),
        knees=[
            (name(aggregate.label_of(c)), s.saturation_rate_per_s)
            for c, s in aggregate.saturation.items()
            if s.saturation_rate_per_s is not None
        ],
        rates=sorted({c.rate_per_s for c in aggregate.measured("a") if c.rate_per_s > 0}),
        random_arrivals=provenance.random_arrivals,
        tables=tables_of(aggregate),
        cells=[CellGroup(k, list(g)) for k, g in groupby(cells, key=lambda c: c.label)],
        n_cells=len(cells),
        n_unusable=sum(not c.usable for c in cells),
        n_failed=sum(c.n[2] + c.n[3] for c in cells if c.n),
        n_metrics_missed=sum(c.n_metrics_missed for c in aggregate.measured()),
        flags=flags.most_common(),
        problems=aggregate.problems,
        outputs=Counter(o.verdict for o in aggregate.outputs),
        provenance=provenance_of(aggregate),
        bundled=bundled,
    )


def _taxes_at(aggregate: Aggregate, reference: Reference) -> dict[tuple[str, Metric], Tax]:
    return {(t.config, t.metric): t for t in aggregate.chosen_taxes if t.reference == reference and t.known}


def _floors(aggregate: Aggregate) -> dict[str, tuple[float, float]]:
    return {
        r.metric: (r.noise_floor.low, r.noise_floor.high)
        for r in aggregate.repeats
        if r.reference == "ref_safe"
    }


def _injected(aggregate: Aggregate) -> dict[tuple[str, str], float]:
    rows = aggregate.put_in.taxes if aggregate.put_in is not None else ()
    return {(r.config, r.metric): r.tax for r in rows if r.reference == "ref_safe" and r.tax is not None}


def _marks_in_use(rows: Iterable[ConnectorRow]) -> list[str]:
    return list(dict.fromkeys(m for row in rows for m in row.marks))


def _row(
    aggregate: Aggregate, judged: ConnectorRow, taxes: Mapping[tuple[str, Metric], Tax], marks: Sequence[str]
) -> Row:
    config, injected = judged.config, _injected(aggregate)
    values: dict[str, Number | None] = {}
    for metric in METRICS:
        tax = taxes.get((config, metric))
        values[metric] = _of_tax(
            tax, "tax", clear=metric in judged.clear, injected=injected.get((config, metric))
        )
    step = taxes.get((config, "step_p50_us"))
    values["step"] = _of_tax(step, "change_us", clear=step is not None and step.told == "tax")
    own = next((a for a in aggregate.attribution if a.config == config), None)
    on_cpu = any(a.hooks_cpu_us is not None for a in aggregate.attribution)
    values["hooks_cpu" if on_cpu else "hooks"] = (
        None if own is None else number(own.hooks_cpu_us if on_cpu else own.hooks_us, "us")
    )
    return Row(
        id=config,
        label=name(aggregate.label_of(config)),
        verdict=judged.verdict,
        clear=judged.clear,
        letters=" ".join(LETTERS[marks.index(m)] for m in judged.marks if m in marks),
        why=_why(aggregate, judged),
        values=values,
    )


def _of_tax(tax: Tax | None, unit: Unit, *, clear: bool, injected: float | None = None) -> Number | None:
    if tax is None or tax.point is None:
        return None
    return Number(tax.point, unit, tax.low, tax.high, tax.n, tax.n_plain, clear=clear, injected=injected)


def _why(aggregate: Aggregate, judged: ConnectorRow) -> Detail | None:
    if judged.reason is None:
        return None
    subject = judged.reason.subject
    state = aggregate.configs.get(subject)
    text = state.bare_reason if state is not None and state.reason else ""
    if not text:
        own = (
            t.reason
            for t in aggregate.chosen_taxes
            if t.config == judged.config and t.reference == "ref_safe" and t.metric in METRICS
        )
        text = next((reason for reason in own if reason), "")
    return Detail(
        judged.reason.code, name(aggregate.label_of(subject)), " ".join(printable(text, 240).split())
    )


def _rank(row: Row) -> tuple[int, float]:
    """Rows with a tax first, dearest first; rows without a number last."""
    order = ("tax", "noise", "gain", "open", "none", "failed", "missing", "skipped")
    known = [v.point for m in METRICS if (v := row.values[m]) is not None]
    group = 0 if row.verdict == "tax" else 2 if not known else 1
    return group, -max(known) if known else float(order.index(row.verdict))


def _answer(aggregate: Aggregate, rows: Sequence[Row]) -> Answer:
    known = [r for r in rows if any(r.values[m] for m in METRICS)]
    clear_of = [r for r in known if r.verdict != "tax"]
    highs = [(v.ends[1], v) for r in clear_of for m in METRICS if (v := r.values[m]) is not None]
    top = max(highs, key=lambda pair: pair[0], default=None)
    bound = None if top is None or not math.isfinite(top[0]) else Number(top[0], "share", has_interval=False)
    plain = next(
        (r.why for r in rows if r.why and r.why.code in ("plain_missing", "no_reference_rate")), None
    )
    return Answer(
        taxed=[r for r in known if r.verdict == "tax"],
        clear_of=clear_of,
        bound=bound,
        without=[r for r in rows if r not in known],
        plain_why=plain,
    )


def _where(taxes: Mapping[tuple[str, Metric], Tax]) -> Where | None:
    found = [t for (_, metric), t in taxes.items() if metric in METRICS]
    if not found:
        return None
    one = found[0]
    blocks = [b for t in found if (b := blocks_of(t)) is not None]
    return Where(
        one.rate_per_s,
        one.input_tokens,
        one.output_tokens,
        (min(t.n for t in found), max(t.n for t in found)),
        (min(t.n_plain for t in found), max(t.n_plain for t in found)),
        max(blocks) if blocks else None,
    )


def _columns(rows: Sequence[Row], floors: Mapping[str, tuple[float, float]]) -> list[Column]:
    """The latencies on one axis; step and hooks each on its own."""
    both = [v for r in rows for m in METRICS if (v := r.values[m]) is not None]
    ends = [e for v in both for e in (*v.ends, v.point, v.injected or 0.0)]
    axis = axis_of([*ends, *(e for m, f in floors.items() if m in METRICS for e in f)])
    found = []
    for metric in METRICS:
        floor = floors.get(metric)
        small = [v for r in rows if r.verdict != "tax" and (v := r.values[metric]) is not None]
        zoomed = axis_of([*(e for v in small for e in (*v.ends, v.point)), *(floor or ())], 2)
        wide = (axis.high - axis.low) * ZOOM_BELOW
        is_small = len(small) > 1 and zoomed.high - zoomed.low < wide
        found.append(Column(metric, axis, "tax", zoomed if is_small else None, floor))
    for key in ("step", "hooks_cpu", "hooks"):
        shown = [r for r in rows if any(r.values[m] for m in METRICS)]
        own = [v for r in shown if (v := r.values.get(key)) is not None]
        if own:
            places = [v.point for v in own] + [e for v in own for e in v.ends if key == "step"]
            found.append(Column(key, axis_of(places, 1), "change_us" if key == "step" else "us"))
    return found


def _power(aggregate: Aggregate) -> Power | None:
    """Over blocks what plain's own spread says, else what one launch's intervals say, from the best row to the worst."""
    found: dict[str, tuple[Number, ...]] = {}
    for entry in aggregate.repeats:
        q = entry.noise_floor.found_4_of_5
        if entry.reference == "ref_safe" and q is not None and not isinstance(q, float):
            found[entry.metric] = (Number(q.point, "share", q.low, q.high),)
    if not any(m in found for m in METRICS):
        for metric in METRICS:
            sizes = sorted(p.one_launch for p in aggregate.power if p.metric == metric and p.one_launch)
            if sizes:
                found[metric] = tuple(
                    Number(v, "share", has_interval=False) for v in dict.fromkeys((sizes[0], sizes[-1]))
                )
    if not found.get("ttft_p90") or not found.get("tpot_p90"):
        return None
    return Power(found["ttft_p90"], found["tpot_p90"])


# Hypothesis -> the number that decides, its unit, and which of its numbers is the criterion.
DECIDING: dict[str, tuple[str, Unit, str]] = {
    "H1": ("tax_ttft_p90", "tax", "threshold"),
    "H2": ("gap", "points", "range"),
    "H3": ("share", "share", "threshold"),
    "H4": ("excess_over_stack", "tax", "tolerance"),
    "H5": ("slope_per_doubling", "points", ""),
    "H6": ("slope_per_doubling", "points", ""),
}


def _claim(aggregate: Aggregate, found: Hypothesis) -> Claim:
    key, unit, criterion = DECIDING[found.id]
    value = number(getattr(found.numbers, key), unit)
    wanted = getattr(found.numbers, criterion, None) if criterion else None
    if wanted is None:
        ends: tuple[float, ...] = ()
    elif criterion == "range":
        ends = tuple(wanted)
    else:
        ends = (-wanted, wanted) if criterion == "tolerance" else (wanted,)
    axis = None if value is None else axis_of([*value.ends, value.point, *ends], 2, 0.08)
    same = found.at_equal_host_speed
    return Claim(
        id=found.id,
        subject=name(aggregate.label_of(found.subject)),
        outcome=found.outcome,
        label=found.label or "",
        value=value,
        criterion=ends,
        axis=axis,
        details=list(_details(aggregate, found, key)),
        p=bare(found.p_value),
        p_holm=bare(found.p_holm),
        at_equal_speed=same.outcome if same is not None and same.outcome != found.outcome else None,
        sentence=printable(found.sentence, 600),
    )


def _details(aggregate: Aggregate, found: Hypothesis, deciding: str) -> Iterator[tuple[str, str, Number]]:
    """The other numbers of a verdict: (code, whose, number)."""
    for key in found.numbers.__struct_fields__:
        value = getattr(found.numbers, key)
        if key == deciding:
            continue
        if isinstance(value, Quantity) and (own := number(value, "share" if key == "share" else "tax")):
            yield key, "", own
        if key in ("parts", "by_length"):
            code = "part" if key == "parts" else "length"
            for of, quantity in (value or {}).items():
                if (own := number(quantity, "tax")) is not None:
                    yield code, name(aggregate.label_of(of)), own


def _by_subject(claims: Sequence[Claim]) -> list[tuple[str, Sequence[Claim]]]:
    found: dict[str, list[Claim]] = {}
    for claim in claims:
        found.setdefault(claim.subject, []).append(claim)
    return list(found.items())


def _causes(aggregate: Aggregate, rows: Sequence[Row]) -> tuple[list[Cause], list[str]]:
    order = {row.id: k for k, row in enumerate(rows)}
    entries = sorted(
        (a for a in aggregate.attribution if a.config in order), key=lambda a: -(a.difference_us.point or 0)
    )
    causes = [c for a in entries if (c := _cause(aggregate, a)) is not None]
    used = [code for c in causes for code, first, last in c.segments if last - first >= 1]
    wanted = ("hooks_cpu", "hooks_wait", "hooks", "around", "model")
    return causes, [code for code in wanted if code in used]


def _cause(aggregate: Aggregate, entry: Attribution) -> Cause | None:
    change = number(entry.difference_us, "change_us")
    if change is None:
        return None
    part = {p.part: p.point or 0.0 for p in entry.parts}
    hooks = part.get("scheduler_hooks", 0.0) + part.get("worker_hooks", 0.0)
    cpu = None if entry.hooks_cpu_us is None else min(entry.hooks_cpu_us.point or 0.0, hooks)
    sizes = {"hooks": hooks} if cpu is None else {"hooks_cpu": cpu, "hooks_wait": hooks - cpu}
    sizes |= {
        "around": part.get("schedule", 0.0) + part.get("update", 0.0),
        "model": part.get("round_trip", 0.0),
    }
    segments, at = [], 0.0
    for code, size in sizes.items():
        if size > 0:
            segments.append((code, at, at + size))
            at += size
    hooked = [h for h in entry.hooks if round(h.us_per_step, 1) > 0]
    return Cause(
        label=name(aggregate.label_of(entry.config)),
        segments=segments,
        change=change,
        hooks=number(entry.hooks_us, "us"),
        hooks_cpu=number(entry.hooks_cpu_us, "us"),
        hidden=part.get("round_trip", 0.0) < 0 and hooks > change.ends[1],
        rows=[
            (
                name(h.hook),
                bare(h.calls_per_step),
                bare(h.us_per_step, "us"),
                bare(h.cpu_us_per_step, "us") if h.cpu_us_per_step is not None else None,
            )
            for h in hooked[:MOST_HOOKS]
        ],
    )


def _causes_axis(causes: Sequence[Cause]) -> Axis | None:
    if not causes:
        return None
    ends = [e for c in causes for e in (*c.change.ends, *(last for _, _, last in c.segments))]
    return axis_of(ends, 4, 0.03)


def _share_of_hooks(aggregate: Aggregate) -> tuple[Number, Number] | None:
    known = [s for a in aggregate.attribution if (s := number(a.in_hooks_share, "share")) is not None]
    if not known:
        return None
    by_size = sorted(known, key=lambda s: s.point)
    return by_size[0], by_size[-1]


def _framework(aggregate: Aggregate) -> Number | None:
    return next((number(t.framework, "tax") for t in aggregate.two_parts if t.metric == "ttft_p90"), None)


def _settings(aggregate: Aggregate) -> dict[str, list[str]]:
    """Setting = value -> the connectors that switch it."""
    found: dict[str, list[str]] = {}
    for config, changes in aggregate.engine_diff.items():
        for key, change in (changes or {}).items():
            value = printable(str(change["own"]), 60)
            found.setdefault(f"{key.rpartition('.')[2]} = {value}", []).append(
                name(aggregate.label_of(config))
            )
    return found


def _multiples(
    aggregate: Aggregate, rows: Sequence[Row]
) -> tuple[list[Multiple], tuple[list[int], list[int]], int]:
    """Of Phase B's cells: one small picture a connector and latency, prompts side by side and outputs inside them."""
    cells: dict[str, dict[tuple[int, int], dict[str, Tax]]] = {}
    floors = _floors(aggregate)
    for entry in aggregate.taxes:
        if entry.phase == "b" and entry.metric in METRICS and entry.reference == "ref_safe":
            own_of = cells.setdefault(entry.config, {}).setdefault(entry.shape, {})
            own_of[entry.metric] = standing_tax(aggregate, entry)
    shapes = {shape for own in cells.values() for shape in own}
    inputs, outputs = sorted({i for i, _ in shapes}), sorted({o for _, o in shapes})
    found, beyond = [], 0
    for row in rows:
        own = cells.get(row.id, {})
        points: dict[str, list[tuple[str, Number, bool]]] = {m: [] for m in METRICS}
        lines: list[Sequence[Value]] = []
        for shape in sorted(own):
            numbers = {m: _shape_tax(own[shape].get(m), floors.get(m)) for m in METRICS}
            for metric, value in numbers.items():
                if value is not None:
                    far = not MULTIPLES[0] <= value.point <= MULTIPLES[1]
                    beyond += far
                    points[metric].append((_place(shape, inputs, outputs), value, far))
            rate = next(t.rate_per_s for t in own[shape].values())
            lines.append((f"{shape[0]:,} × {shape[1]:,}", f"{rate:g}", *numbers.values()))
        if any(points.values()):
            found.append(Multiple(row.id, row.label, points, lines))
    return found, (inputs, outputs), beyond


def _place(shape: tuple[int, int], inputs: Sequence[int], outputs: Sequence[int]) -> str:
    """In percent: prompt lengths share the width, output lengths that of their prompt length."""
    inside = (outputs.index(shape[1]) + 1) / (len(outputs) + 1)
    return f"{100 * (inputs.index(shape[0]) + inside) / len(inputs):.2f}%"


def _shape_tax(tax: Tax | None, floor: tuple[float, float] | None) -> Number | None:
    if tax is None or tax.point is None:
        return None
    clear = tax.told == "tax" and not (floor is not None and floor[0] <= tax.point <= floor[1])
    return _of_tax(tax, "tax", clear=clear)


LEVELS: dict[LatencyMetric, Latency] = {"ttft_p90": "ttft_ms", "tpot_p90": "tpot_ms"}


def _panels(aggregate: Aggregate) -> list[Panel]:
    cells: dict[float, list[MeasuredCell]] = {}
    for config in aggregate.config_ids:
        for cell in aggregate.measured("a", config):
            if cell.rate_per_s > 0:
                cells.setdefault(cell.rate_per_s, []).append(cell)
    found = []
    for metric, latency in LEVELS.items():
        for rate in sorted(cells):
            levels = [(c, number(c.latency(latency).p90, "ms")) for c in cells[rate]]
            plain = next((v for c, v in levels if c.config == PLAIN), None)
            rows = [
                (
                    name(aggregate.label_of(c.config)),
                    v,
                    plain is not None and c.config != PLAIN and v.ends[0] > plain.ends[1],
                    c.saturated,
                )
                for c, v in levels
                if v is not None
            ]
            if rows:
                ends = [e for _, v, _, _ in rows for e in (*v.ends, v.point)]
                found.append(Panel(metric, rate, axis_of(ends, 3), plain, rows))
    return found


def cells_in_order(aggregate: Aggregate) -> list[Cell]:
    """By configuration, phase, then rate and shape."""
    return sorted(aggregate.cells, key=_cell_place(aggregate))


def _cell_place(aggregate: Aggregate) -> Callable[[Cell], tuple[float, ...]]:
    order = {config: i for i, config in enumerate(aggregate.config_ids)}

    def place(cell: Cell) -> tuple[float, ...]:
        measured = phase_place(cell.phase) if is_phase(cell.phase) else (99, 0)
        return (order.get(cell.config, len(order)), *measured, cell.rate_per_s, *cell.shape)

    return place


def _cell(aggregate: Aggregate, cell: Cell) -> CellRow:
    own = cell if isinstance(cell, MeasuredCell) else None
    return CellRow(
        key=(cell.config, cell.phase, cell.cell_id),
        label=name(aggregate.label_of(cell.config)),
        phase=cell.phase,
        rate_per_s=cell.rate_per_s,
        input_tokens=cell.input_tokens,
        output_tokens=cell.output_tokens,
        usable=cell.usable,
        n=None if own is None else (own.n_window, own.n_ok, own.n_dropped, own.n_failed),
        ttft=None if own is None else number(own.ttft_ms.p90, "ms"),
        tpot=None if own is None else number(own.tpot_ms.p90, "ms"),
        saturated=() if own is None else own.saturation_criteria.fired,
        flags=cell.flags,
        reasons=tuple(printable(r, 300) for r in cell.reasons),
    )
