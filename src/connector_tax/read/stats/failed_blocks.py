"""Launches in which requests failed, so that a tax of the other launches would flatter: who has none for it, and why."""

from collections.abc import Iterable

from connector_tax.base.documents.aggregate import FailedBlock
from connector_tax.base.documents.rates import Reference
from connector_tax.read.stats.cells import Estimates
from connector_tax.read.stats.launches import (
    FAILED,
    OVERLOADED,
    blocks_that_failed,
    launches_at,
    plain_failed,
)
from connector_tax.read.stats.taxes import LATENCY_METRICS

PLAIN = "plain"


def failed_blocks(
    estimates: Estimates,
    rates: Iterable[tuple[Reference, float]],
    no_ttft: frozenset[str] = frozenset(),
    no_tax: frozenset[str] = frozenset(),
) -> list[FailedBlock]:
    """Plain first; ``plain`` for either of its launches. Blocks are in the order in which they were measured.

    Args:
        rates: (reference, its rate), each rate once.
        no_ttft: configurations whose TTFT is no tax.
        no_tax: those of which no latency is one.
    """
    found = []
    for reference, rate in rates:
        for metric in LATENCY_METRICS:
            launches = launches_at(estimates, rate, metric)
            of_plain = {PLAIN: lost} if (lost := plain_failed(launches)) else {}
            for config, own in (of_plain | blocks_that_failed(launches)).items():
                if config not in no_tax and not (metric.startswith("ttft") and config in no_ttft):
                    found.append(
                        FailedBlock(
                            reference=reference,
                            rate_per_s=rate,
                            metric=metric,
                            config=config,
                            blocks=tuple(dict.fromkeys(x.block for x in own)),
                            reason=FAILED if any(x.why_none == FAILED for x in own) else OVERLOADED,
                        )
                    )
    return found
