"""A tax in three parts: flags that the connector switches, vLLM's connector framework, the connector's own code.

flags = matched plain against plain; framework = the no-op connector's tax less its own flags; implementation = the rest,
so that the three add up to the tax. A connector that changes no setting has no flags part.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from connector_tax.intervals.bootstrap import Estimate, unavailable
from connector_tax.stats.cells import CellEstimates
from connector_tax.stats.taxes import LATENCY_METRICS, difference, relative

NOOP = "noop_connector"
MATCHED = "plain_matched_"


def decompose(
    cells: dict[str, CellEstimates],
    engine_diff: dict[str, Any],
    confidence: float,
    no_ttft: Mapping[str, str] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """Rows of ``decomposition`` in ``aggregate.json``, one per connector and latency.

    Args:
        cells: configuration -> its Phase A cell at ref_safe.
        engine_diff: configuration -> settings changed against plain; None where they were not seen.
        no_ttft: configuration -> why its TTFT is no tax.
    """
    plain = cells.get("plain")
    if plain is None:
        return []
    rows = []
    for config, own in cells.items():
        if config in ("plain", NOOP) or config.startswith(MATCHED):
            continue
        for metric in LATENCY_METRICS:
            total = _tax(metric, own, plain)
            if metric == "ttft_p90" and config in no_ttft:
                total = unavailable(no_ttft[config], total.n)
            flags = _flags(config, metric, cells, engine_diff)
            noop = cells.get(NOOP)
            framework = (
                difference(
                    _tax(metric, noop, plain), _flags(NOOP, metric, cells, engine_diff), of_second="its flags"
                )
                if noop is not None
                else unavailable(f"{NOOP} has no usable cell here")
            )
            implementation = difference(
                difference(total, flags, of_second="flags"), framework, of_second="framework"
            )
            parts = {"total": total, "flags": flags, "framework": framework, "implementation": implementation}
            rows.append(
                {
                    "config": config,
                    "metric": metric,
                    "settings": sorted(engine_diff.get(config) or {}),
                    **{name: part.to_json(confidence) for name, part in parts.items()},
                }
            )
    return rows


def _tax(metric: str, own: CellEstimates, plain: CellEstimates) -> Estimate:
    name, q = LATENCY_METRICS[metric]
    return relative(own.latency(name, q), plain.latency(name, q))


def _flags(
    config: str, metric: str, cells: dict[str, CellEstimates], engine_diff: dict[str, Any]
) -> Estimate:
    matched = cells.get(MATCHED + config)
    if matched is not None:
        return _tax(metric, matched, cells["plain"])
    changed = engine_diff.get(config)
    if changed == {}:
        draws = cells["plain"].latency(*LATENCY_METRICS[metric]).replicates.size
        return Estimate(0.0, np.zeros(draws), cells["plain"].latency(*LATENCY_METRICS[metric]).n)
    if changed is None:
        return unavailable("its engine settings are not known")
    return unavailable(f"it changes engine settings, and {MATCHED}{config} was not measured")
