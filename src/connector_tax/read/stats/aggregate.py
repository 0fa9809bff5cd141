"""Computes ``aggregate.json`` from a campaign's tables: every number of the report."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import msgspec

from connector_tax.base.config import CampaignConfig
from connector_tax.base.documents.aggregate import (
    SCHEMA_VERSION,
    Aggregate,
    Amplification,
    AnyReference,
    Attribution,
    Metric,
    Problem,
)
from connector_tax.base.documents.rates import ReferenceRatesFile
from connector_tax.base.errors import AnalysisError
from connector_tax.base.parallel import Each
from connector_tax.base.records.cell import CellSpec, Shape, is_repeat
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.base.seeds import stream
from connector_tax.base.statistics.bootstrap import Estimate, unavailable
from connector_tax.base.statistics.interim import interim_factor
from connector_tax.read.ingest import CampaignData
from connector_tax.read.stats.attribution import attribute
from connector_tax.read.stats.cell_rows import cell_row, measured_row, missing_hooks
from connector_tax.read.stats.cells import Estimates, estimate_cells
from connector_tax.read.stats.completeness import (
    absent_configs,
    config_states,
    failed_runs,
    judge_criteria,
    missing_cell_problems,
    missing_cells,
    missing_repeats,
)
from connector_tax.read.stats.connectors import connector_rows
from connector_tax.read.stats.decomposition import NOOP, decompose, two_parts
from connector_tax.read.stats.growth import growth
from connector_tax.read.stats.hypotheses import evidence_of, hypotheses_of, judge_hypotheses
from connector_tax.read.stats.injected import injected_delays, injected_taxes
from connector_tax.read.stats.launches import failed_blocks, launches_at
from connector_tax.read.stats.main_taxes import launch_taxes, main_at, main_taxes
from connector_tax.read.stats.observer import observer_effect
from connector_tax.read.stats.outputs import compare_outputs, other_computations
from connector_tax.read.stats.provenance import provenance
from connector_tax.read.stats.reference import saturation_by_config, select_reference_rates
from connector_tax.read.stats.repeats import headline_taxes, host_drift, outlook, rates_of_blocks, repeats
from connector_tax.read.stats.taxes import (
    METRICS,
    NEITHER,
    MissingCell,
    Tax,
    difference,
    no_ttft_tax,
    taxes_of,
    taxes_of_missing,
)

REFERENCE_OF_PHASE: dict[str, AnyReference] = {"b": "ref_safe", "b_prime": "ref_load", "c": "ref_safe"}


def aggregate(data: CampaignData, each: Each = map) -> Aggregate:
    """Compute everything that figures and report need; the result does not depend on ``each``."""
    config = data.config
    draws, confidence = config.analysis.bootstrap_draws, config.analysis.confidence
    saturation = saturation_by_config(data)
    rates, rate_problems = _reference_rates(data)
    usable = [c for c in data.cells() if c.usable]
    estimates = {
        e.cell.key: e for e in estimate_cells(usable, config.seed, draws, each, confidence=confidence)
    }
    absent, missing = absent_configs(data), missing_cells(data)
    no_ttft = no_ttft_tax(config.connectors)
    outputs = compare_outputs(data)
    no_tax = other_computations(outputs)
    taxes = _taxes(estimates, rates, [c for c in missing if c.config not in absent], no_ttft, no_tax)
    blocks = repeats(estimates, rates, confidence, no_ttft, no_tax)
    one_launch = launch_taxes(taxes, rates, config.phase_a_shape)
    rng = stream(config.seed, "repeats")
    at_safe = launches_at(estimates, rates.ref_safe_per_s, "ttft_p90") if rates is not None else {}
    failed = failed_blocks(estimates, rates_of_blocks(rates), no_ttft, no_tax)
    chosen = main_taxes(one_launch, blocks, estimates, rates, draws, rng, failed)
    evidence = evidence_of(taxes, chosen, absent, config, confidence, failed)
    verdicts = judge_hypotheses(evidence)
    equal_speed = headline_taxes(
        estimates,
        rates,
        "ttft_p90",
        draws,
        stream(config.seed, "at_equal_host_speed"),
        equal_speed=True,
        without={*no_ttft, *no_tax},
    )
    provenance_record, no_steps = provenance(data), _why_no_steps(data, estimates)
    document = Aggregate(
        schema_version=SCHEMA_VERSION,
        campaign=data.document.campaign,
        date=data.document.date,
        provenance=provenance_record,
        source=provenance_record.measured_on,
        step_timing_available=no_steps is None,
        step_timing_reason=no_steps,
        configs=config_states(data, absent, missing),
        cells=tuple(
            cell_row(c)
            if (cell_estimates := estimates.get(c.key)) is None
            else measured_row(cell_estimates, saturation, confidence)
            for c in data.cells()
        ),
        saturation={i: saturation[i].document for i in config.connector_ids if i in saturation},
        reference_rates=rates,
        taxes=tuple(t.row(confidence) for t in taxes),
        main_taxes=tuple(m.row(confidence) for m in chosen),
        attribution=_attribution(estimates, rates, no_tax, config.seed, confidence),
        engine_diff=data.changes,
        decomposition=tuple(decompose(chosen, data.changes, confidence, _why_no_noop(config, absent))),
        two_parts=tuple(two_parts(chosen, confidence)),
        repeats=tuple(blocks),
        failed_blocks=tuple(failed),
        host_drift=tuple(host_drift(estimates, rates, confidence)),
        power=tuple(outlook(one_launch, blocks, confidence)),
        observer_effect=tuple(observer_effect(estimates, confidence, no_tax)),
        growth=tuple(growth(estimates, data.cells(), confidence, no_tax)),
        put_in=injected_taxes(data.put_in, rates, chosen, confidence),
        burns=injected_delays(config, estimates, rates, confidence),
        amplification=_amplification(chosen, taxes, config, rates),
        hypotheses=tuple(hypotheses_of(verdicts, evidence, equal_speed)),
        outputs=tuple(outputs),
        criteria=tuple(judge_criteria(data, verdicts)),
        problems=(
            *(*failed_runs(data), *data.problems, *missing_cell_problems(data, missing), *rate_problems),
            *(*missing_repeats(data, absent, at_safe), *missing_hooks(data)),
        ),
    )
    return msgspec.structs.replace(document, connectors=connector_rows(document))


def _why_no_steps(data: CampaignData, estimates: Estimates) -> Problem | None:
    """Return why no cell has step records; None where one has."""
    if any(e.cell.steps is not None for e in estimates.values()):
        return None
    if data.preflight is not None and data.preflight.step_timing_reason:
        return Problem("step_timing_refused", detail=data.preflight.step_timing_reason)
    if not estimates:
        return Problem("no_usable_cell")
    return Problem("no_step_records" if data.config.engine.step_timing else "step_timing_off")


def _reference_rates(data: CampaignData) -> tuple[ReferenceRatesFile | None, list[Problem]]:
    """Return the rates on disk, at which Phase B ran, or recomputed if there are none.

    A problem reports if today's Phase A gives other rates, as after adding or removing cells.
    """
    file = "reference_rates.json"
    stored = data.reference_rates
    try:
        recomputed = select_reference_rates(data, shapes=False)
    except AnalysisError:
        return stored, [Problem("no_plain", "plain") if stored is None else Problem("rates_kept", file)]
    if stored is None:
        return recomputed, [Problem("rates_remade", file)]
    problems = []
    stored_values, recomputed_values = (
        (r.ref_safe_per_s, r.ref_load_per_s, r.flags) for r in (stored, recomputed)
    )
    if stored_values != recomputed_values:
        problems.append(
            Problem(
                "rates_changed",
                file,
                recomputed_values[2],
                {"safe": recomputed_values[0], "load": recomputed_values[1]},
            )
        )
    if dropped_configs := tuple(c for c in stored.participating if c not in recomputed.participating):
        problems.append(Problem("no_say_in_rates", file, dropped_configs))
    return stored, problems


def _taxes(
    estimates: Estimates,
    rates: ReferenceRatesFile | None,
    missing: list[MissingCell],
    no_ttft: dict[str, str],
    no_tax: dict[str, str],
) -> list[Tax]:
    """Return the taxes of all cells of Phases A to C, with a reason for cells without one.

    Missing cells, and cells with another computation than plain's, keep rows: without them a mean over
    lengths would silently cover fewer lengths.
    """
    if rates is None:
        return []
    taxes: list[Tax] = []
    for (config, phase, cell_id), cell_estimates in estimates.items():
        plain = estimates.get(("plain", phase, cell_id))
        for reference in _references(config, phase, cell_estimates.cell.spec, rates):
            taxes += taxes_of(cell_estimates, plain, reference, no_ttft.get(config), no_tax.get(config))
    for cell in missing:
        plain = estimates.get(("plain", cell.phase, cell.spec.cell_id))
        for reference in _references(cell.config, cell.phase, cell.spec, rates):
            taxes += taxes_of_missing(cell, plain, reference)
    return taxes


def _references(config: str, phase: str, spec: CellSpec, rates: ReferenceRatesFile) -> list[AnyReference]:
    """Return the reference rates for which a cell has taxes, ``neither`` at other rates of Phase A.

    Empty for plain, unrecorded cells, closed loops and repeats.
    """
    if config in ("plain", PLAIN_AGAIN) or spec.recorded is False or phase == "d" or is_repeat(phase):
        return []
    if phase == "a":
        return [*rates.references_at(spec.rate_per_s)] or [NEITHER]
    return [REFERENCE_OF_PHASE[phase]]


def _why_no_noop(config: CampaignConfig, absent: Mapping[str, Problem]) -> str | None:
    """Return why the no-op connector has no numbers; None where it was measured."""
    if NOOP not in config.connector_ids:
        return "not_in_campaign"
    return absent[NOOP].code if NOOP in absent else None


def _attribution(
    estimates: Estimates,
    rates: ReferenceRatesFile | None,
    no_tax: Collection[str],
    seed: int,
    confidence: float,
) -> tuple[Attribution, ...]:
    """Attribute the steps of each configuration's Phase A cell at ref_safe, relative to plain's."""
    cells = {
        config: cell_estimates.cell
        for (config, phase, _), cell_estimates in estimates.items()
        if phase == "a" and config not in (PLAIN_AGAIN, *no_tax) and cell_estimates.cell.steps is not None
        if rates is not None and cell_estimates.cell.spec.rate_per_s == rates.ref_safe_per_s
    }
    plain = cells.pop("plain", None)
    if plain is None or plain.steps is None:
        return ()
    plain_steps = plain.steps.load()
    entries = [
        attribute(
            cell.steps.load(),
            plain_steps,
            seed=seed,
            name=config,
            cell_id=cell.cell_id,
            confidence=confidence,
            factor=interim_factor(cell.spec, confidence),
        )
        for config, cell in cells.items()
        if cell.steps is not None
    ]
    return tuple(entry for entry in entries if entry is not None)


def _amplification(
    chosen: list[Tax], taxes: list[Tax], config: CampaignConfig, rates: ReferenceRatesFile | None
) -> tuple[Amplification, ...]:
    """Return tax under load minus tax at ref_safe, if both are of one launch or both over blocks.

    At Phase A's shape both are main taxes; at other shapes of Phase B' both are of one launch, Phase B's and
    Phase B''s. Taxes over blocks are drawn separately, so their interval is rather too wide. Empty if both
    rates are equal: the effect of load is then unmeasured, not zero. Shapes that Phase B' leaves out have
    that reason.
    """
    confidence = config.analysis.confidence
    in_b = {
        (t.config, t.metric, t.spec.shape): t
        for t in taxes
        if t.phase == "b" and t.spec.recorded is not False
    }
    at_safe = {metric: main_at(chosen, "ref_safe", metric) for metric in METRICS}
    pairs = [
        (load, safe)
        for metric in METRICS
        for name, safe in at_safe[metric].items()
        if (load := main_at(chosen, "ref_load", metric).get(name)) is not None
    ]
    for tax in taxes:
        if tax.phase == "b_prime" and tax.spec.shape != config.phase_a_shape:
            safe = in_b.get((tax.config, tax.metric, tax.spec.shape))
            # No rate, since it was not measured.
            spec_without_rate = replace(tax.spec, rate_per_s=0.0)
            missing_tax = replace(
                tax, spec=spec_without_rate, estimate=unavailable("no_cell", subject="phase_b")
            )
            pairs.append((tax, safe or missing_tax))
    rows = [_added(load, safe, confidence) for load, safe in pairs]
    for shape in rates.left_out if rates is not None and len(rates.apart()) > 1 else []:
        rows += [
            _amplified(name, metric, shape, unavailable("not_held"), confidence)
            for name in config.phase_b_prime.configs
            for metric in METRICS
            if name in at_safe[metric]
        ]
    return tuple(rows)


def _added(load: Tax, safe: Tax, confidence: float) -> Amplification:
    gap = difference(load.number, safe.number, of_second="ref_safe")
    unlike_launches = load.is_unlike(safe)
    if unlike_launches or load.rate_per_s == safe.rate_per_s:
        gap = unavailable("unlike_launches" if unlike_launches else "one_rate", gap.n)
    return msgspec.structs.replace(
        _amplified(load.config, load.metric, load.spec.shape, gap, confidence),
        rate_per_s=load.rate_per_s,
        safe_rate_per_s=safe.rate_per_s or None,
        n_blocks=None if unlike_launches else min(safe.n_blocks, load.n_blocks),
    )


def _amplified(config: str, metric: Metric, shape: Shape, gap: Estimate, confidence: float) -> Amplification:
    return Amplification(
        config=config,
        metric=metric,
        input_tokens=shape.input_tokens,
        output_tokens=shape.output_tokens,
        **msgspec.structs.asdict(gap.quantity(confidence)),
    )
