"""The published experiment's two parts of a tax: the no-op connector's, and what a connector adds to it.

Of TTFT p90 and of the median step, at ref_safe; the settings that either switches are in them (``decomposition.py`` takes them out).
"""

from typing import Literal

from connector_tax.base.documents.aggregate import TaxPart, TwoParts
from connector_tax.base.records.connector import MATCHED
from connector_tax.base.statistics.bootstrap import unavailable
from connector_tax.read.stats.taxes import Tax, difference

NOOP = "noop_connector"
Split = Literal["ttft_p90", "step_p50_us"]
METRICS: tuple[Split, ...] = ("ttft_p90", "step_p50_us")


def two_parts(chosen: list[Tax], confidence: float) -> list[TwoParts]:
    """Rows of ``two_parts`` in ``aggregate.json``; those without a number of the connector or the no-op connector are left out.

    Args:
        chosen: the main taxes.
    """
    at = {(t.config, t.metric): t for t in chosen if t.reference == "ref_safe"}
    return [
        _row(split, main, at[NOOP, metric], confidence)
        for (config, metric), main in at.items()
        for split in METRICS
        if metric == split and config != NOOP and not config.startswith(MATCHED)
        if (NOOP, metric) in at
        and main.estimate.point is not None
        and at[NOOP, metric].estimate.point is not None
    ]


def _row(metric: Split, whole: Tax, noop: Tax, confidence: float) -> TwoParts:
    """What blocks of launches found and what one launch did is no difference of a connector's."""
    rest = (
        difference(whole.number, noop.number, of_second=NOOP)
        if (whole.n_blocks == 1) == (noop.n_blocks == 1)
        else unavailable("unlike_launches", whole.n, NOOP)
    )
    n_blocks = min(whole.n_blocks, noop.n_blocks) if rest.point is not None else None
    return TwoParts(
        config=whole.config,
        metric=metric,
        unit=whole.unit,
        total=_standing(whole, confidence),
        framework=_standing(noop, confidence),
        rest=rest.tax_part(confidence, n_blocks),
    )


def _standing(main: Tax, confidence: float) -> TaxPart:
    """As it stands in ``main_taxes``."""
    return main.number.tax_part(confidence, main.n_blocks)
