"""The published experiment's two parts of a tax: the no-op connector's, and what a connector adds to it.

Of TTFT p90 and of the median step, at ref_safe; the settings that either switches are in them (``decomposition.py`` takes them out).
"""

from typing import Any

from connector_tax.base.records.connector import MATCHED
from connector_tax.base.statistics.bootstrap import unavailable
from connector_tax.read.stats.main_taxes import MainTax, fewer, kind_of
from connector_tax.read.stats.taxes import difference

NOOP = "noop_connector"
METRICS = ("ttft_p90", "step_p50_us")


def two_parts(chosen: list[MainTax], confidence: float) -> list[dict[str, Any]]:
    """Rows of ``two_parts`` in ``aggregate.json``; those without a number of the connector or the no-op connector are left out.

    Args:
        chosen: the main taxes.
    """
    at = {(m.tax.config, m.tax.metric): m for m in chosen if m.tax.reference == "ref_safe"}
    return [
        _row(main, at[NOOP, metric], confidence)
        for (config, metric), main in at.items()
        if metric in METRICS and config != NOOP and not config.startswith(MATCHED)
        if (NOOP, metric) in at
        and main.estimate.point is not None
        and at[NOOP, metric].estimate.point is not None
    ]


def _row(whole: MainTax, noop: MainTax, confidence: float) -> dict[str, Any]:
    """What blocks of launches found and what one launch did is no difference of a connector's."""
    rest = (
        difference(whole.estimate, noop.estimate, of_second=NOOP)
        if (whole.blocks is None) == (noop.blocks is None)
        else unavailable(f"this tax is {whole.kind}, the no-op connector's {noop.kind}", whole.n)
    )
    of_rest = {"n": min(whole.n, noop.n), "kind": kind_of(fewer(whole.blocks, noop.blocks))}
    return {
        "config": whole.tax.config,
        "metric": whole.tax.metric,
        "unit": whole.to_json(confidence)["unit"],
        "total": _bounds(whole, confidence),
        "framework": _bounds(noop, confidence),
        # Over blocks, too, the requests behind it, as of the others; of one that cannot be had there is no kind.
        "rest": rest.to_json(confidence) | (of_rest if rest.point is not None else {"kind": None}),
    }


def _bounds(main: MainTax, confidence: float) -> dict[str, Any]:
    """As they stand in ``main_taxes``."""
    return main.estimate.to_json(confidence) | {"n": main.n, "kind": main.kind}
