"""Makes one row of codes per connector: verdict, why a number is missing, and what qualifies it."""

from collections.abc import Iterator, Mapping

from connector_tax.base.documents.aggregate import (
    MARKS,
    PLAIN,
    Aggregate,
    ConnectorRow,
    LatencyMetric,
    Mark,
    MeasuredCell,
    NoiseFloor,
    Reason,
    ReasonCode,
    RowVerdict,
    TaxRow,
)
from connector_tax.base.records.connector import is_connector
from connector_tax.base.statistics.decisions import GAIN, TAX
from connector_tax.base.steptime.hooks_recorded import FLAG

METRICS: tuple[LatencyMetric, ...] = ("ttft_p90", "tpot_p90")
MEASURED = ("measured", "partial")
# A ratio: a wider interval around zero shows neither a tax nor its practical absence.
WIDEST = 1.0
Taxes = Mapping[LatencyMetric, TaxRow]


def connector_rows(aggregate: Aggregate) -> tuple[ConnectorRow, ...]:
    """Return ``connectors`` of ``aggregate.json``, in the campaign's order."""
    taxes: dict[str, dict[LatencyMetric, TaxRow]] = {}
    for tax in aggregate.main_taxes:
        if tax.reference == "ref_safe" and tax.metric in METRICS:
            taxes.setdefault(tax.config, {})[tax.metric] = tax
    floors: dict[str, NoiseFloor] = {
        entry.metric: entry.noise_floor for entry in aggregate.repeats if entry.reference == "ref_safe"
    }
    max_blocks = max(
        (t.n_blocks for tax_by_metric in taxes.values() for t in tax_by_metric.values()), default=1
    )
    return tuple(
        _row(aggregate, config, taxes.get(config, {}), floors, max_blocks)
        for config in aggregate.config_ids
        if is_connector(config)
    )


def _row(
    aggregate: Aggregate, config: str, taxes: Taxes, floors: Mapping[str, NoiseFloor], max_blocks: int
) -> ConnectorRow:
    known = {m: t for m, t in taxes.items() if t.known}
    beyond = {m: t for m, t in known.items() if _is_beyond(t, floors.get(m))}
    excluded = aggregate.configs[config].ttft_is_no_tax is not None
    missing = any(m not in known and not (m == "ttft_p90" and excluded) for m in METRICS)
    reason = _reason(aggregate, config) if missing or not known else None
    row_verdict: RowVerdict
    if not known:
        row_verdict = _without_number(aggregate, config, reason)
    elif any(t.effect == TAX for t in beyond.values()):
        row_verdict = "tax"
    elif beyond:
        row_verdict = "gain"
    elif any(t.effect in (TAX, GAIN) for t in known.values()):
        row_verdict = "noise"
    elif missing or any(_is_open(t) for t in known.values()):
        row_verdict = "open"
    else:
        row_verdict = "none"
    marks = set(_marks(aggregate, config, known, max_blocks))
    return ConnectorRow(
        config=config,
        verdict=row_verdict,
        clear=tuple(m for m in METRICS if m in beyond and beyond[m].effect == row_verdict),
        reason=reason,
        marks=tuple(m for m in MARKS if m in marks),
    )


def _is_beyond(tax: TaxRow, floor: NoiseFloor | None) -> bool:
    """Return whether a tax is significant and lies outside the noise floor of plain against plain."""
    if tax.effect not in (TAX, GAIN) or tax.point is None:
        return False
    return floor is None or not floor.low <= tax.point <= floor.high


def _is_open(tax: TaxRow) -> bool:
    """Return whether an interval that holds zero has an open end, or is too wide for "no tax"."""
    return tax.low is None or tax.high is None or tax.high - tax.low > WIDEST


def _without_number(aggregate: Aggregate, config: str, reason: Reason | None) -> RowVerdict:
    if aggregate.configs[config].status == "skipped":
        return "skipped"
    subject_state = None if reason is None else aggregate.configs.get(reason.subject)
    no_rate = reason is not None and reason.code == "no_reference_rate"
    return (
        "missing"
        if no_rate or (subject_state is not None and subject_state.status == "missing")
        else "failed"
    )


def _reason(aggregate: Aggregate, config: str) -> Reason:
    """Return the first cause that applies; those of the whole configuration come first."""
    by_status: dict[str, ReasonCode] = {
        "skipped": "skipped",
        "failed": "run_failed",
        "missing": "not_measured",
    }
    state = aggregate.configs[config]
    if state.status in by_status:
        return Reason(code=by_status[state.status], subject=config)
    plain = aggregate.configs.get(PLAIN)
    if plain is None or plain.status not in MEASURED:
        return Reason(code="plain_missing", subject=PLAIN)
    if aggregate.reference_rates is None:
        return Reason(code="no_reference_rate", subject=PLAIN)
    if _answers_differ(aggregate, config):
        return Reason(code="answers_differ", subject=config)
    for block in aggregate.failed_blocks:
        if block.reference == "ref_safe" and block.config in (config, PLAIN):
            return Reason(code="requests_failed", subject=block.config)
    ref_safe_per_s = aggregate.reference_rates.ref_safe_per_s
    for side in (config, PLAIN):
        cells = [
            c for c in aggregate.cells if (c.config, c.phase, c.rate_per_s) == (side, "a", ref_safe_per_s)
        ]
        if any("overloaded" in c.flags for c in cells):
            return Reason(code="saturated", subject=side)
        if any(isinstance(c, MeasuredCell) and c.n_failed + c.n_dropped for c in cells):
            return Reason(code="requests_failed", subject=side)
        if not any(isinstance(c, MeasuredCell) for c in cells):
            return Reason(code="cell_left_out", subject=side)
    return Reason(code="no_number", subject=config)


def _marks(aggregate: Aggregate, config: str, known: Taxes, max_blocks: int) -> Iterator[Mark]:
    state, taxes = aggregate.configs[config], known.values()
    if state.status == "partial":
        yield "partial"
    if any(t.overloaded for t in taxes):
        yield "overloaded"
    if any(t.phase not in ("a", None) for t in taxes):
        yield "other_phase"
    if any(t.n_blocks < max_blocks for t in taxes):
        yield "fewer_blocks"
    if any(t.low is None or t.high is None for t in taxes):
        yield "open_interval"
    if state.ttft_is_no_tax is not None:
        yield "ttft_excluded"
    if _answers_differ(aggregate, config):
        yield "answers_differ"
    kind = aggregate.measured_on.kind
    if state.copies_kv is not None and kind != "embedded_engine":
        yield "copies_kv"
        if kind == "virtual_gpu":
            yield "copy_clocked"
    if _spinning(aggregate, config) - _spinning(aggregate, PLAIN):
        yield "spins"
    if any(FLAG in c.flags for c in aggregate.cells if c.config == config):
        yield "hooks_unknown"


def _answers_differ(aggregate: Aggregate, config: str) -> bool:
    return any(o.config == config and o.verdict == "differs" for o in aggregate.outputs)


def _spinning(aggregate: Aggregate, config: str) -> set[tuple[str, str]]:
    """Return (process, thread) of threads that occupy a core while the engine is idle."""
    return {(s.process, s.thread) for c in aggregate.measured("a", config) for s in c.cpu.spinning or ()}
