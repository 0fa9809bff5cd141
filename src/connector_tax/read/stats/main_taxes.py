"""The one tax that stands for a configuration at a rate of Phase A: chosen here once, read everywhere.

Over blocks of launches where there are enough; else that of Phase A's cell; where that is lost, that of the cell of the same
rate and shape in Phase B or B'. Hypotheses, amplification, decomposition, figures, the headline, ``aggregate.csv`` and
``compare.py`` all take this one. Two of unlike kinds are never put into one number: the interval of one launch does not hold
what launches differ by.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.base.statistics.bootstrap import Estimate, unavailable
from connector_tax.read.stats.cells import CellEstimates
from connector_tax.read.stats.failed_blocks import FailedBlocks
from connector_tax.read.stats.launches import headline_shape, is_headline_cell
from connector_tax.read.stats.repeats import headline_taxes
from connector_tax.read.stats.saturation import queued
from connector_tax.read.stats.taxes import LATENCY_METRICS, NEITHER, OF_ONE_LAUNCH, Tax

# Phase A comes first: the reference rates were chosen with it.
PHASES_IN_ORDER = ("a", "b", "b_prime")
REFERENCES = ("ref_safe", "ref_load")
PARTS_OF_A_STEP = ("callback_p50_us", "unexplained_us")
Rates = dict[str, Any]
Cells = dict[tuple[str, str, str], CellEstimates]


@dataclass(frozen=True, slots=True)
class MainTax:
    """The chosen tax.

    Attributes:
        tax: where it was measured. Over blocks: the place of Phase A's cell, ``estimate`` over blocks, and the requests of all
            blocks on either side as ``n`` and ``n_plain``.
        n: requests or steps with the connector.
        blocks: how many blocks of launches; None where one launch measured it.
    """

    tax: Tax
    n: int
    blocks: int | None = None

    @property
    def kind(self) -> str:
        """What its interval holds: the requests of one launch, or what launches differ by as well."""
        return kind_of(self.blocks)

    @property
    def estimate(self) -> Estimate:
        return self.tax.estimate

    def is_unlike(self, other: "MainTax") -> bool:
        """Whether both have a number, and one is of one launch and the other over blocks."""
        known = self.estimate.point is not None and other.estimate.point is not None
        return known and (self.blocks is None) != (other.blocks is None)

    def like(self, other: "MainTax") -> Estimate:
        """This one's estimate, for a number made of both; unavailable, and why, where ``other`` is of the other kind."""
        if not self.is_unlike(other):
            return self.estimate
        return unavailable(
            f"{self.tax.config}'s tax is {self.kind}, {other.tax.config}'s {other.kind}: the two are not combined"
        )

    def to_json(self, confidence: float) -> dict[str, Any]:
        """As in ``taxes``, and where it is from."""
        value = {k: v for k, v in self.tax.to_json(confidence).items() if k != "headline"}
        value |= {"n": self.n, "blocks": self.blocks, "kind": self.kind}
        if self.blocks is not None:
            value["phase"] = None
        return value


def kind_of(blocks: int | None) -> str:
    """
    Args:
        blocks: of launches; None for one launch.
    """
    return OF_ONE_LAUNCH if blocks is None else f"over {blocks} blocks"


def fewer(first: int | None, second: int | None) -> int | None:
    """Of how many blocks a number is that is made of two numbers of one kind."""
    return None if first is None or second is None else min(first, second)


def launch_taxes(taxes: list[Tax], rates: Rates | None, shape: tuple[int, int]) -> list[MainTax]:
    """Of one launch each, at every rate of Phase A: its own where its cells count, else Phase B's or B's of that rate and shape.

    A cell that counts and has no number, since requests failed, stands with that reason: another launch in which none did would flatter. So does
    a lost one that no other stands in for.

    Args:
        shape: Phase A's prompt and output length.
    """
    best: dict[tuple[str, str, float, str], Tax] = {}
    for tax in sorted(taxes, key=_place):
        if (tax.input_tokens, tax.output_tokens) != shape or tax.phase not in PHASES_IN_ORDER:
            continue
        # Phase A's have a row for each reference; Phase B's cell holds for both where their rates are the same.
        for name in _references_at(rates, tax.rate_per_s) or [NEITHER]:
            key = (tax.config, name, tax.rate_per_s, tax.metric)
            if tax.phase == "a" and tax.reference != name:
                continue
            if key not in best or (best[key].lost and not tax.lost):
                best[key] = replace(tax, reference=name)
    return [MainTax(tax, tax.estimate.n) for tax in _steps_of_one_launch(best, taxes).values()]


def _steps_of_one_launch(
    best: dict[tuple[str, str, float, str], Tax], taxes: list[Tax]
) -> dict[tuple[str, str, float, str], Tax]:
    """``best``, with both parts of the launch whose median step they are parts of.

    Each may be known where the step is not, hooks without plain's cell, or be lost where it is known, in a launch that heard no hooks.
    """
    measured = {(t.config, t.phase, t.cell_id, t.metric): t for t in taxes}
    found = dict(best)
    for (config, name, rate, metric), part in best.items():
        step = best.get((config, name, rate, "step_p50_us"))
        if metric in PARTS_OF_A_STEP and step is not None and not step.lost and step.phase != part.phase:
            own = measured[config, step.phase, step.cell_id, metric]
            found[config, name, rate, metric] = replace(own, reference=name)
    return found


def _place(tax: Tax) -> int:
    return PHASES_IN_ORDER.index(tax.phase) if tax.phase in PHASES_IN_ORDER else len(PHASES_IN_ORDER)


def main_taxes(
    of_launches: list[MainTax],
    blocks: list[dict[str, Any]],
    cells: Cells,
    rates: Rates | None,
    draws: int,
    rng: np.random.Generator,
    failed: list[FailedBlocks],
) -> list[MainTax]:
    """``of_launches``, with the tax over blocks wherever there is one, and none where requests failed in a block.

    Args:
        blocks: ``repeats`` of ``aggregate.json``.
    """
    found = {(m.tax.config, m.tax.reference, m.tax.rate_per_s, m.tax.metric): m for m in of_launches}
    for entry in blocks:
        reference, metric = entry["reference"], entry["metric"]
        drawn = headline_taxes(cells, rates, metric, draws, rng, reference)
        for row in entry["taxes"]:
            # Equal rates have one entry of blocks, which holds for both.
            for name in _references_at(rates, entry["rate_per_s"]):
                key = (row["config"], name, float(entry["rate_per_s"]), metric)
                own = _over_blocks(entry, row, drawn[row["config"]], cells)
                if own is not None:
                    of_launch = found.get(key)
                    holds = None if of_launch is None else of_launch.tax.holds
                    found[key] = replace(own, tax=replace(own.tax, reference=name, holds=holds))
    return list(_without_number(found, failed, rates).values())


def _without_number(
    found: dict[tuple[str, str, float, str], MainTax], failed: list[FailedBlocks], rates: Rates | None
) -> dict[tuple[str, str, float, str], MainTax]:
    """``found``, with taxes unavailable of which requests failed in a block; that of a launch in which none did would flatter.

    Where it is plain that failed, all of that rate and latency.
    """
    for lost in failed:
        names = _references_at(rates, lost.rate_per_s)
        for key, own in found.items():
            config, *place = key
            asked = (
                lost.config in ("plain", config)
                and place[0] in names
                and place[1:] == [lost.rate_per_s, lost.metric]
            )
            if asked and (own.estimate.point is not None or own.tax.lost):
                estimate = unavailable(lost.reason, own.tax.estimate.n)
                found = found | {key: replace(own, tax=replace(own.tax, estimate=estimate), blocks=None)}
    return found


def _references_at(rates: Rates | None, rate_per_s: float) -> list[str]:
    return [r for r in REFERENCES if rates is not None and rates[f"{r}_per_s"] == rate_per_s]


def _over_blocks(
    entry: dict[str, Any], row: dict[str, Any], estimate: Estimate, cells: Cells
) -> MainTax | None:
    """None where no cell of a block says what shape it has."""
    sides = {"own": (row["config"],), "plain": ("plain", PLAIN_AGAIN)}
    shape, rate = headline_shape(cells), float(entry["rate_per_s"])
    name, q = LATENCY_METRICS[entry["metric"]]
    measured = {
        side: [
            own
            for (config, phase, _), own in cells.items()
            if config in ids and phase in row["by_block"] and is_headline_cell(own, phase, shape, rate)
        ]
        for side, ids in sides.items()
    }
    if not measured["own"]:
        return None
    spec = measured["own"][0].cell.spec
    overloaded = tuple(
        side
        for side, own in measured.items()
        if any(queued(c.cell) for c in own)
    )  # fmt: skip
    counts = {side: sum(c.latency(name, q).n for c in own) for side, own in measured.items()}
    tax = Tax(
        config=row["config"],
        reference=entry["reference"],
        phase="a",
        cell_id=spec.cell_id,
        rate_per_s=spec.rate_per_s,
        input_tokens=spec.input_tokens,
        output_tokens=spec.output_tokens,
        metric=entry["metric"],
        estimate=estimate,
        n_plain=counts["plain"],
        overloaded=overloaded,
    )
    return MainTax(tax, counts["own"], row["n"])


def main_at(chosen: list[MainTax], reference: str, metric: str) -> dict[str, MainTax]:
    """Configuration -> its tax there."""
    return {m.tax.config: m for m in chosen if (m.tax.reference, m.tax.metric) == (reference, metric)}
