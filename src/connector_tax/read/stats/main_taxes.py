"""Chooses the main tax of a configuration at a rate of Phase A, for all readers.

It is the tax over blocks of launches if there are enough; else that of Phase A's cell; else that of the cell
with the same rate and shape in Phase B or B'. Hypotheses, amplification, decomposition, figures, the
headline, ``aggregate.csv`` and ``compare.py`` all use it. A tax of one launch and one over blocks are never
combined: the interval of one launch lacks the spread between launches.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from connector_tax.base.documents.aggregate import (
    AnyReference,
    BlockTax,
    FailedBlock,
    Metric,
    Repeats,
    Side,
)
from connector_tax.base.documents.rates import Reference, ReferenceRatesFile
from connector_tax.base.records.cell import Shape
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.base.statistics.bootstrap import Estimate, unavailable
from connector_tax.read.stats.cells import Estimates
from connector_tax.read.stats.launches import headline_shape, is_headline_cell
from connector_tax.read.stats.reference import queued
from connector_tax.read.stats.repeats import headline_taxes
from connector_tax.read.stats.taxes import AVERAGED, LATENCY_METRICS, NEITHER, Tax

# Phase A comes first: the reference rates were chosen with it.
PHASES_IN_ORDER = ("a", "b", "b_prime")
PARTS_OF_A_STEP = ("callback_p50_us", "unexplained_us")
Key = tuple[str, AnyReference, float, Metric]


def launch_taxes(taxes: list[Tax], rates: ReferenceRatesFile | None, shape: Shape) -> list[Tax]:
    """Choose a tax of one launch at every rate of Phase A: its own usable cell's, else Phase B's or B''s.

    A usable cell without a number because of failed requests keeps that reason: a launch without failures
    would flatter. So does a missing one without a replacement.

    Args:
        shape: Phase A's.
    """
    best: dict[Key, Tax] = {}
    for phase in PHASES_IN_ORDER:
        for tax in taxes:
            if tax.phase != phase or tax.spec.shape != shape:
                continue
            # Phase A's taxes have a row per reference; a cell of Phase B serves both if their rates are
            # equal.
            names: list[AnyReference] = [*_references_at(rates, tax.rate_per_s)]
            for name in names or [NEITHER]:
                key = (tax.config, name, tax.rate_per_s, tax.metric)
                if phase == "a" and tax.reference != name:
                    continue
                if key not in best or (best[key].cell_missing and not tax.cell_missing):
                    best[key] = replace(tax, reference=name)
    return [*_steps_of_one_launch(best, taxes).values()]


def _steps_of_one_launch(best: dict[Key, Tax], taxes: list[Tax]) -> dict[Key, Tax]:
    """Return ``best`` with both parts of a step taken from the launch of its median step.

    A part may be known without the step (hooks without plain's cell), or missing where it is known (a launch
    that recorded no hooks).
    """
    measured = {(t.config, t.phase, t.spec.cell_id, t.metric): t for t in taxes}
    chosen = dict(best)
    for (config, name, rate, metric), part in best.items():
        step = best.get((config, name, rate, "step_p50_us"))
        if (
            metric in PARTS_OF_A_STEP
            and step is not None
            and not step.cell_missing
            and step.phase != part.phase
        ):
            step_part = measured[config, step.phase, step.spec.cell_id, metric]
            chosen[config, name, rate, metric] = replace(step_part, reference=name)
    return chosen


def main_taxes(
    of_launches: list[Tax],
    blocks: Sequence[Repeats],
    estimates: Estimates,
    rates: ReferenceRatesFile | None,
    draws: int,
    rng: np.random.Generator,
    failed: Sequence[FailedBlock],
) -> list[Tax]:
    """Return ``of_launches`` with taxes over blocks where there are any, and none after failures in a block.

    Args:
        blocks: ``repeats`` of ``aggregate.json``.
    """
    chosen = {(t.config, t.reference, t.rate_per_s, t.metric): t for t in of_launches}
    for entry in blocks:
        drawn = headline_taxes(estimates, rates, entry.metric, draws, rng, entry.reference)
        averaged = _phase_averaged(entry, estimates, rates, draws, rng)
        for row in entry.taxes:
            tax = _over_blocks(entry, row, drawn[row.config], averaged.get(row.config), estimates)
            if tax is None:
                continue
            # Equal rates share one entry of blocks.
            for name in _references_at(rates, entry.rate_per_s):
                chosen[row.config, name, entry.rate_per_s, tax.metric] = replace(tax, reference=name)
    return list(_without_number(chosen, failed, rates).values())


def _phase_averaged(
    entry: Repeats,
    estimates: Estimates,
    rates: ReferenceRatesFile | None,
    draws: int,
    rng: np.random.Generator,
) -> dict[str, Estimate]:
    """Return configuration -> its TTFT tax over blocks with phases averaged out; empty if unknown."""
    if entry.metric != "ttft_p90" or not any(AVERAGED in e.latencies for e in estimates.values()):
        return {}
    # A separate generator leaves the draws of the other taxes unchanged.
    child_rng = rng.spawn(1)[0]
    taxes = headline_taxes(estimates, rates, "ttft_p90_phase_averaged", draws, child_rng, entry.reference)
    return {row.config: taxes.get(row.config) or unavailable("few_blocks") for row in entry.taxes}


def _without_number(
    taxes: dict[Key, Tax], failed: Sequence[FailedBlock], rates: ReferenceRatesFile | None
) -> dict[Key, Tax]:
    """Return ``taxes`` without numbers whose requests failed in a block.

    The other launches would flatter; if plain failed, all taxes of that rate and latency go.
    """
    for block in failed:
        names = _references_at(rates, block.rate_per_s)
        for key, tax in taxes.items():
            config, name, *rate_and_metric = key
            affected = block.config in ("plain", config) and name in names
            if (
                affected
                and rate_and_metric == [block.rate_per_s, block.metric]
                and (tax.estimate.point is not None or tax.cell_missing)
            ):
                subject = "" if block.config == config else block.config
                estimate = unavailable(block.reason, tax.estimate.n, subject)
                taxes = taxes | {key: replace(tax, estimate=estimate, n_blocks=1)}
    return taxes


def _references_at(rates: ReferenceRatesFile | None, rate_per_s: float) -> list[Reference]:
    return [] if rates is None else rates.references_at(rate_per_s)


def _over_blocks(
    entry: Repeats, row: BlockTax, estimate: Estimate, averaged: Estimate | None, estimates: Estimates
) -> Tax | None:
    """Return the tax over blocks; None without a shape from a block's cell, or for another latency."""
    metric = next((m for m in LATENCY_METRICS if m == entry.metric), None)
    if metric is None:
        return None
    sides: dict[Side, tuple[str, ...]] = {"own": (row.config,), "plain": ("plain", PLAIN_AGAIN)}
    shape = headline_shape(estimates)
    measured = {
        side: [
            own
            for (config, phase, _), own in estimates.items()
            if config in ids
            and phase in row.by_block
            and is_headline_cell(own, phase, shape, entry.rate_per_s)
        ]
        for side, ids in sides.items()
    }
    if not measured["own"]:
        return None
    latency_key = LATENCY_METRICS[metric]
    counts = {side: sum(c.latency(*latency_key).n for c in own) for side, own in measured.items()}
    tax = Tax(
        config=row.config,
        reference=entry.reference,
        phase="a",
        spec=measured["own"][0].cell.spec,
        metric=metric,
        estimate=estimate,
        n=counts["own"],
        n_plain=counts["plain"],
        overloaded=tuple(side for side, own in measured.items() if any(queued(c.cell) for c in own)),
        n_blocks=row.n,
    )
    if averaged is not None:
        n = sum(e.n for c in measured["own"] if (e := c.latencies[AVERAGED]).point is not None)
        tax = replace(tax, phase_averaged=replace(averaged, n=n), averaged_blocks=averaged.n)
    return tax


def main_at(chosen: Sequence[Tax], reference: Reference, metric: Metric) -> dict[str, Tax]:
    """Return configuration -> its tax there."""
    return {t.config: t for t in chosen if (t.reference, t.metric) == (reference, metric)}
