"""Splits a tax in three parts: flags that the connector switches, vLLM's framework, the connector's own code.

flags = matched plain against plain; framework = the no-op connector's tax minus its own flags; implementation
= the rest, so that the three add up to the tax. A connector that changes no setting has no flags part. If the
flags of either are unknown, the tax has the published experiment's two parts: the no-op connector's whole
tax, and the rest. ``two_parts`` has these as well, for TTFT p90 and the median step, including switched
settings.

Each part has the launches and the n of its taxes.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from connector_tax.base.documents.aggregate import Decomposition, LatencyMetric, TaxPart, TwoParts
from connector_tax.base.records.connector import MATCHED
from connector_tax.base.records.rates import CONSEQUENCES
from connector_tax.base.statistics.bootstrap import Estimate, unavailable
from connector_tax.read.stats.main_taxes import main_at
from connector_tax.read.stats.taxes import LATENCY_METRICS, Tax, difference

NOOP = "noop_connector"
PARTS = ("flags", "framework", "implementation")
Changes = dict[str, list[str] | None]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a tax.

    Attributes:
        n_blocks: the fewest of the taxes that entered it.
        measured: any tax did; unchanged settings are known to cost nothing without measurement.
    """

    estimate: Estimate
    n_blocks: int = 1
    measured: bool = True

    def less(self, other: "Part", *, of_other: str) -> "Part":
        """Subtract another part; ``of_other`` is the subject if the other's number is missing."""
        if not other.measured:
            return self
        rest = difference(self.estimate, other.estimate, of_second=of_other)
        return Part(rest, min(self.n_blocks, other.n_blocks))

    def row(self, confidence: float) -> TaxPart:
        """Return the row for ``aggregate.json``, without launches if unmeasured or unavailable."""
        has_number = self.measured and self.estimate.point is not None
        return self.estimate.tax_part(confidence, self.n_blocks if has_number else None)


Taxes = Mapping[str, Part]
NO_FLAGS = Part(Estimate(0.0, np.zeros(1), 0), measured=False)


def decompose(
    chosen: list[Tax],
    engine_diff: Mapping[str, Collection[str] | None],
    confidence: float,
    no_noop: str | None = None,
) -> list[Decomposition]:
    """Return ``decomposition`` of ``aggregate.json``, a row per connector and latency.

    Args:
        chosen: the main taxes; those at ref_safe are split.
        engine_diff: configuration -> settings that differ from plain's; None if unknown.
        no_noop: why the no-op connector has no numbers; else None.
    """
    changed: Changes = {
        config: None if settings is None else sorted(set(settings) - CONSEQUENCES)
        for config, settings in engine_diff.items()
    }
    by_metric = {metric: main_at(chosen, "ref_safe", metric) for metric in LATENCY_METRICS}
    configs = dict.fromkeys(config for taxes in by_metric.values() for config in taxes)
    return [
        _row(config, metric, taxes, changed, confidence, no_noop)
        for config in configs
        if _is_split(config)
        for metric, taxes in by_metric.items()
        if config in taxes
    ]


def _is_split(config: str) -> bool:
    return config != NOOP and not config.startswith(MATCHED)


def _row(
    config: str,
    metric: LatencyMetric,
    main_taxes: dict[str, Tax],
    changed: Changes,
    confidence: float,
    no_noop: str | None,
) -> Decomposition:
    """Split one tax; its parts are all over blocks of launches, or all of one launch."""
    whole = main_taxes[config]
    taxes = {
        c: _with_subject(c, Part(main.like(whole), main.n_blocks), config) for c, main in main_taxes.items()
    }
    noop = taxes.get(NOOP) or Part(unavailable(no_noop or "no_cell", subject=NOOP))
    parts = _in_three(config, taxes, changed, noop)
    split: Literal[0, 2, 3] = 3
    if any(part.estimate.point is None for part in parts.values()):
        # Without flags, which are then part of either.
        two = {"framework": noop, "implementation": taxes[config].less(noop, of_other=NOOP)}
        if NOOP in main_taxes and main_taxes[NOOP].estimate.point is not None:
            # Nothing is subtracted from a whole tax.
            two["framework"] = Part(main_taxes[NOOP].number, main_taxes[NOOP].n_blocks)
        # The reason for missing flags stays; the other two are the published experiment's.
        parts, split = {**parts, **two}, 2 if two["implementation"].estimate.point is not None else 0
        noop_flags = _flags(NOOP, taxes, changed).estimate
        if split and noop_flags.point is None and parts["flags"].estimate.point is not None:
            # The no-op connector's whole tax already includes them. Without that, flags are all that is
            # known.
            parts["flags"] = Part(noop_flags)
    return Decomposition(
        config=config,
        metric=metric,
        settings=tuple(changed.get(config) or ()),
        parts=split,
        total=taxes[config].row(confidence),
        **{name: parts[name].row(confidence) for name in PARTS},
    )


def _with_subject(owner: str, part: Part, config: str) -> Part:
    """Set the owner as the subject of another configuration's unavailable tax."""
    estimate = part.estimate
    if owner == config or estimate.reason is None:
        return part
    return replace(part, estimate=unavailable(estimate.reason, estimate.n, estimate.subject or owner))


def _in_three(config: str, taxes: Taxes, changed: Changes, noop: Part) -> dict[str, Part]:
    flags = _flags(config, taxes, changed)
    framework = noop.less(_flags(NOOP, taxes, changed), of_other="flags")
    rest = taxes[config].less(flags, of_other="flags")
    return {
        "flags": flags,
        "framework": framework,
        "implementation": rest.less(framework, of_other="framework"),
    }


def _flags(config: str, taxes: Taxes, changed: Changes) -> Part:
    if MATCHED + config in taxes:
        return taxes[MATCHED + config]
    settings = changed.get(config)
    if settings is None:
        return Part(unavailable("settings_unknown", subject=config))
    if settings:
        return Part(unavailable("settings_not_measured", subject=config))
    return NO_FLAGS


Split = Literal["ttft_p90", "step_p50_us"]
METRICS: tuple[Split, ...] = ("ttft_p90", "step_p50_us")


def two_parts(chosen: list[Tax], confidence: float) -> list[TwoParts]:
    """Return ``two_parts`` of ``aggregate.json``, where connector and no-op connector have a number.

    Args:
        chosen: the main taxes.
    """
    tax_at = {(t.config, t.metric): t for t in chosen if t.reference == "ref_safe"}
    return [
        _two_parts(split, main, tax_at[NOOP, metric], confidence)
        for (config, metric), main in tax_at.items()
        for split in METRICS
        if metric == split and _is_split(config)
        if (NOOP, metric) in tax_at
        and main.estimate.point is not None
        and tax_at[NOOP, metric].estimate.point is not None
    ]


def _two_parts(metric: Split, whole: Tax, noop: Tax, confidence: float) -> TwoParts:
    """Subtract the no-op connector's tax from another, if both are of one launch or both over blocks."""
    total, framework = (Part(tax.number, tax.n_blocks) for tax in (whole, noop))
    rest = total.less(Part(noop.like(whole), noop.n_blocks), of_other=NOOP)
    return TwoParts(
        config=whole.config,
        metric=metric,
        unit=whole.unit,
        total=total.row(confidence),
        framework=framework.row(confidence),
        rest=rest.row(confidence),
    )
