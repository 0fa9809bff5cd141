"""``aggregate.json`` to what the page shows: formatted text in lists, so that the template only lays out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from connector_tax.base.documents.aggregate import (
    Aggregate,
    Cell,
    CriterionOutcome,
    MeasuredCell,
    ProblemRow,
    Quantity,
)
from connector_tax.base.documents.campaign import CampaignDocument
from connector_tax.base.documents.rates import REFERENCES, Reference
from connector_tax.base.records.cell import is_phase, phase_place
from connector_tax.read.figures.questions import (
    as_far_as_measured,
    confidence_words,
    on_embedded_engine,
    reference_rate,
    source_note,
)
from connector_tax.read.figures.words import MEASURED, RANDOM_WORDS
from connector_tax.read.report.attribution import AttributionTables, attribution_view, without_attribution
from connector_tax.read.report.burns import BurnsView, burns_view
from connector_tax.read.report.conversations import ConversationRow, conversations_view
from connector_tax.read.report.device import ClockRow, device_banner, device_view
from connector_tax.read.report.growth import GrowthView, growth_view
from connector_tax.read.report.headline import Headline, headline
from connector_tax.read.report.host import DriftTable, host_drift_view, host_view
from connector_tax.read.report.observer import ObserverView, observer_view
from connector_tax.read.report.parts import (
    PartsRow,
    SettingsRow,
    decomposition_view,
    settings_view,
    two_parts_view,
)
from connector_tax.read.report.prior import prior_sentences
from connector_tax.read.report.processes import Processes, processes_view
from connector_tax.read.report.provenance import ProvenanceGroup, provenance_groups
from connector_tax.read.report.put_in import about_put_in
from connector_tax.read.report.qualifiers import (
    PHASE_NAMES,
    FlagRow,
    OutputsRow,
    flags_view,
    knee_text,
    last_look,
    outputs_view,
    repeatable,
)
from connector_tax.read.report.repeats import BlocksTable, failed_sentences, repeats_view
from connector_tax.read.report.tax_tables import (
    AmplificationRow,
    ReferenceTable,
    ShapeRow,
    TaxesOfConfig,
    about_taxes,
    amplification,
    reference_table,
    repeats_by_phase,
    shape_taxes,
)
from connector_tax.read.report.tax_text import milliseconds, shape_text
from connector_tax.read.report.verdict_rows import VerdictRow, verdict_row

# Of each cell, at least.
PUBLISHED_COMPLETED = 200


@dataclass(frozen=True, slots=True)
class CriterionRow:
    number: int
    title: str
    outcome: str
    sign: str
    mood: str
    evidence: str


@dataclass(frozen=True, slots=True)
class ConfigRow:
    id: str
    label: str
    status: str
    mood: str
    reason: str
    install: str
    cells: str
    saturation: str


@dataclass(frozen=True, slots=True)
class LatencyText:
    """``reason``: why there is no number."""

    text: str
    range: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CellRow:
    """``key``: configuration, phase and cell id."""

    key: tuple[str, str, str]
    label: str
    phase: str
    rate: str
    shape: str
    verdict: str
    mood: str
    n: str
    ttft: list[LatencyText]
    tpot: list[LatencyText]
    throughput: str
    waiting: str
    one_sample: bool
    saturated: str
    notes: str


@dataclass(frozen=True, slots=True)
class Recipe:
    what: str
    commands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """Everything on the page but the figures, by the names that the template has for it."""

    campaign: str
    date: str
    unfinished: Sequence[str]
    banner: list[str]
    headline: Headline
    confidence: str
    hypotheses: list[VerdictRow]
    taxes: list[ReferenceTable]
    has_terms: bool
    burns: BurnsView | None
    about_taxes: list[str]
    repeats: list[TaxesOfConfig]
    blocks: list[BlocksTable]
    has_blocks: bool
    failed_blocks: list[str]
    host_drift: list[DriftTable]
    amplification: list[AmplificationRow]
    shape_taxes: list[ShapeRow]
    attribution: list[AttributionTables]
    without_attribution: list[str]
    decomposition: list[PartsRow]
    two_parts: list[PartsRow]
    settings: list[SettingsRow]
    observer_effect: ObserverView
    processes: list[Processes]
    host: list[str]
    device: list[ClockRow]
    conversations: list[ConversationRow]
    growth: GrowthView | None
    prior: list[str]
    flags: list[FlagRow]
    outputs: list[OutputsRow]
    repeatable: str
    criteria: list[CriterionRow]
    looks: tuple[int, ...]
    configs: list[ConfigRow]
    arrivals: str
    cells: list[CellRow]
    problems: Sequence[ProblemRow]
    provenance: list[ProvenanceGroup]
    reproduce: list[Recipe]


def page_view(
    aggregate: Aggregate, campaign: CampaignDocument | None, unfinished: Sequence[str] = ()
) -> Page:
    """
    Args:
        campaign: ``campaign.json``; None where there is none.
        unfinished: what of the plan is not measured yet, in sentences; none of a campaign that has ended.
    """
    references = _references(aggregate)
    tables = [t for r in references if (t := reference_table(aggregate, r)) is not None]
    # With blocks their table has both launches, beside the tax that stands.
    repeats = [] if aggregate.repeats else repeats_by_phase(aggregate)
    shapes = shape_taxes(aggregate)
    talks = conversations_view(aggregate)
    alpha = 1 - aggregate.provenance.confidence
    head = headline(aggregate)
    return Page(
        campaign=aggregate.campaign,
        date=aggregate.date,
        unfinished=unfinished,
        banner=_banner(aggregate),
        headline=head,
        confidence=confidence_words(aggregate),
        hypotheses=[verdict_row(h, alpha) for h in aggregate.hypotheses],
        taxes=tables,
        # Rates that were chosen with a plain that is not here any more are told of under Problems.
        has_terms=bool(tables) and not head.flags and _plain_is_there(aggregate),
        burns=burns_view(aggregate),
        about_taxes=about_taxes(
            aggregate,
            tables,
            [
                *(t for row in repeats for t in row.taxes),
                *(t for row in shapes for t in row.taxes),
                *(t for row in talks for t in row.taxes),
            ],
        ),
        repeats=repeats,
        blocks=repeats_view(aggregate),
        has_blocks=any(entry.taxes for entry in aggregate.repeats),
        failed_blocks=failed_sentences(aggregate),
        host_drift=host_drift_view(aggregate),
        amplification=amplification(aggregate) if len(references) > 1 else [],
        shape_taxes=shapes,
        attribution=attribution_view(aggregate),
        without_attribution=without_attribution(aggregate),
        decomposition=decomposition_view(aggregate),
        two_parts=two_parts_view(aggregate),
        settings=settings_view(aggregate),
        observer_effect=observer_view(aggregate),
        processes=processes_view(aggregate),
        host=host_view(aggregate),
        device=device_view(aggregate),
        conversations=talks,
        growth=growth_view(aggregate),
        prior=prior_sentences(aggregate),
        flags=flags_view(aggregate),
        outputs=outputs_view(aggregate),
        repeatable=repeatable(aggregate),
        criteria=[_criterion(c) for c in aggregate.criteria],
        looks=_looks(aggregate),
        configs=[_config(aggregate, config) for config in aggregate.config_ids],
        arrivals=RANDOM_WORDS if aggregate.provenance.random_arrivals else "",
        cells=[_cell(aggregate, c) for c in cells_in_order(aggregate)],
        problems=aggregate.problems,
        provenance=provenance_groups(aggregate.provenance, campaign),
        reproduce=_reproduce(aggregate),
    )


def _references(aggregate: Aggregate) -> tuple[Reference, ...]:
    """Both reference rates, or one where they are the same."""
    first, second = (reference_rate(aggregate, r) for r in REFERENCES)
    return REFERENCES[:1] if first is not None and first == second else REFERENCES


def _plain_is_there(aggregate: Aggregate) -> bool:
    plain = aggregate.configs.get("plain")
    return plain is not None and plain.status in MEASURED


def _banner(aggregate: Aggregate) -> list[str]:
    """What must be known before any number is read."""
    if device := device_banner(aggregate):
        return device
    if on_embedded_engine(aggregate):
        return [
            "These are numbers of the embedded engine, a model of a server whose connector costs are set in a "
            "file. They show that the pipeline works. They say nothing about real connectors.",
            *about_put_in(aggregate),
        ]
    note = source_note(aggregate)
    return [f"{note}. A connector may cost a different share of a step there."] if note else []


def _criterion(value: CriterionOutcome) -> CriterionRow:
    return CriterionRow(
        number=value.number,
        title=value.title,
        outcome=value.outcome,
        sign={"reported": "✓", "met": "✓", "not met": "✗"}.get(value.outcome, "–"),
        mood={"met": "good", "not met": "bad"}.get(value.outcome, "none"),
        evidence=value.evidence,
    )


def _config(aggregate: Aggregate, config: str) -> ConfigRow:
    state, saturation = aggregate.configs[config], aggregate.saturation.get(config)
    knee = None if saturation is None else saturation.saturation_rate_per_s
    cells = [cell for cell in aggregate.cells if cell.config == config]
    if saturation is not None and knee is not None:
        keeps_up = knee_text(knee, saturation.non_monotonic, as_far_as_measured(aggregate, config, knee))
    elif saturation is not None:
        keeps_up = "at no measured rate"
    else:
        # Without a cell of Phase A it was asked at no rate.
        keeps_up = "not known: no usable cell of phase A" if state.status in MEASURED else ""
    return ConfigRow(
        id=config,
        label=state.label,
        status=state.status,
        mood={"measured": "good", "partial": "open"}.get(state.status, "none"),
        reason=state.bare_reason,
        install=state.install or "",
        cells=f"{sum(c.usable for c in cells)} of {len(cells)} usable" if cells else "none",
        saturation=keeps_up,
    )


def cells_in_order(aggregate: Aggregate) -> list[Cell]:
    """By configuration, phase, then rate and shape."""
    return sorted(aggregate.cells, key=_cell_place(aggregate))


def _cell_place(aggregate: Aggregate) -> Callable[[Cell], tuple[float, ...]]:
    """Sorts cells by configuration, phase, then rate and shape as numbers."""
    order = {config: i for i, config in enumerate(aggregate.config_ids)}

    def place(cell: Cell) -> tuple[float, ...]:
        measured = phase_place(cell.phase) if is_phase(cell.phase) else (len(PHASE_NAMES) + 1, 0)
        return (order.get(cell.config, len(order)), *measured, cell.rate_per_s, *cell.shape)

    return place


def _cell(aggregate: Aggregate, cell: Cell) -> CellRow:
    measured = cell if isinstance(cell, MeasuredCell) else None
    missed = 0 if measured is None else measured.n_metrics_missed
    notes = [f"{missed} samples of /metrics were missed or could not be read"] if missed else []
    counts = (
        () if measured is None else (measured.n_window, measured.n_ok, measured.n_dropped, measured.n_failed)
    )
    fired = () if measured is None else measured.saturation_criteria.fired
    ttft, tpot = (None, None) if measured is None else (measured.ttft_ms, measured.tpot_ms)
    return CellRow(
        key=(cell.config, cell.phase, cell.cell_id),
        label=aggregate.label_of(cell.config),
        phase=PHASE_NAMES.get(cell.phase, cell.phase.upper()),
        rate="closed loop" if cell.phase == "d" else f"{cell.rate_per_s:g}",
        shape=shape_text(cell),
        verdict=cell.verdict if cell.usable or cell.verdict != "valid" else "not usable",
        mood="none" if cell.usable else "bad",
        n=" / ".join(f"{n:,}" for n in counts) or " / ".join("?" * 4),
        ttft=[_latency(q) for q in ((None,) * 3 if ttft is None else (ttft.p50, ttft.p90, ttft.p99))],
        tpot=[_latency(q) for q in ((None,) * 2 if tpot is None else (tpot.p50, tpot.p90))],
        throughput=_plain(None if measured is None else measured.throughput_ratio, 3),
        waiting=_plain(None if measured is None else measured.waiting_p50, 1),
        one_sample=measured is not None and measured.n_waiting == 1,
        saturated=", ".join(f.replace("_", " ") for f in fired),
        notes="; ".join([*cell.reasons, *cell.flags, *notes, *last_look(cell)]),
    )


def _looks(aggregate: Aggregate) -> tuple[int, ...]:
    """Completed requests at which a cell may end; empty where that is never before the published experiment's number."""
    planned = next((c.stopped.planned for c in aggregate.measured() if c.stopped), ())
    least = ((aggregate.provenance.settings or {}).get("cell") or {}).get("min_completed")
    looks = planned or (() if least is None else (least,))
    return looks if looks and looks[0] < PUBLISHED_COMPLETED else ()


def _latency(quantity: Quantity | None) -> LatencyText:
    value = None if quantity is None else quantity.interval
    if value is None:
        return LatencyText("–", reason=(quantity and quantity.reason) or "")
    ends = [milliseconds(v) if v is not None else "∞" for v in (value.low, value.high)]
    bare = value.low is None and value.high is None
    return LatencyText(milliseconds(value.point), "" if bare else f"[{ends[0]}, {ends[1]}]")


def _reproduce(aggregate: Aggregate) -> list[Recipe]:
    root = f"results/{aggregate.campaign}"
    cores = len(aggregate.provenance.cards or ()) or 1
    return [
        Recipe(
            "Numbers, figures and this page from the raw artifacts, on any machine (no GPU, no vLLM):",
            tuple(f".venv/bin/connector-tax {c} --root {root}" for c in ("analyze", "figures", "report")),
        ),
        Recipe(
            f"The whole campaign, with the configuration file it was started from (as resolved: {root}/campaign.json):",
            (f".venv/bin/snakemake --cores {cores} --configfile config/<file>.yaml",),
        ),
        Recipe(
            "One server, exactly as it was launched:",
            (f"bash {root}/<date>_<configuration>/phase_a/launch.sh",),
        ),
    ]


def _plain(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"
