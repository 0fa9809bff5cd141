"""Measures the cost of the engine's recorder: Phase A's shape with and without it, in succession in one
launch.
"""

from collections.abc import Mapping

from connector_tax.base.documents.aggregate import AnyLatencyMetric, ObserverEffect, Quantity
from connector_tax.base.statistics.bootstrap import Estimate, unavailable
from connector_tax.read.stats.cells import CellEstimates, Estimates
from connector_tax.read.stats.taxes import LATENCIES, relative


def observer_effect(
    estimates: Estimates, confidence: float, no_tax: Mapping[str, str]
) -> list[ObserverEffect]:
    """Return ``observer_effect`` of ``aggregate.json``, a row per configuration and latency.

    ``effect``: recorded / unrecorded - 1; ``tax`` and ``tax_unrecorded``: against plain, measured alike.

    Args:
        no_tax: configuration -> why its latencies are no tax.
    """
    pairs = {}
    for (config, phase, _), off in estimates.items():
        if off.cell.spec.recorded is False:
            launch = (e for k, e in estimates.items() if k[:2] == (config, phase))
            if (on := next((e for e in launch if _same_load(e, off)), None)) is not None:
                pairs[config] = on, off
    plain = pairs.get("plain", (None, None))
    return [
        ObserverEffect(
            config=config,
            metric=metric,
            rate_per_s=on.cell.spec.rate_per_s,
            effect=_relative(metric, on, off).quantity(confidence),
            tax=_tax(metric, on, plain[0], no_tax, confidence),
            tax_unrecorded=_tax(metric, off, plain[1], no_tax, confidence),
        )
        for config, (on, off) in pairs.items()
        # Medians beside the tails of taxes: the recorder costs each step the same, which medians show best.
        for metric in LATENCIES
    ]


def _same_load(on: CellEstimates, off: CellEstimates) -> bool:
    on_spec, off_spec = on.cell.spec, off.cell.spec
    same = (on_spec.rate_per_s, on_spec.shape, on_spec.sessions) == (
        off_spec.rate_per_s,
        off_spec.shape,
        off_spec.sessions,
    )
    return same and on_spec.recorded is not False


def _tax(
    metric: AnyLatencyMetric,
    own: CellEstimates,
    plain: CellEstimates | None,
    no_tax: Mapping[str, str],
    confidence: float,
) -> Quantity | None:
    """Return the tax; None for plain, and without plain's cell."""
    if plain is None or own.cell.config == "plain":
        return None
    effect = _relative(metric, own, plain)
    why = no_tax.get(own.cell.config)
    return (effect if why is None else unavailable(why, effect.n)).quantity(confidence)


def _relative(metric: AnyLatencyMetric, own: CellEstimates, base: CellEstimates) -> Estimate:
    name, q = LATENCIES[metric]
    return relative(own.latency(name, q), base.latency(name, q))
