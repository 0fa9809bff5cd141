"""Launches in which requests failed, so that a tax of the other launches would flatter: who has none for it, and why."""

from collections.abc import Iterable

from connector_tax.base.documents.aggregate import FailedBlock
from connector_tax.base.documents.rates import Reference
from connector_tax.base.records.cell import is_repeat, phase_word
from connector_tax.read.ingest import Problem
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


def _named(phases: Iterable[str]) -> str:
    """``phase A and blocks R1, R2``."""
    kinds = {
        "phase": [phase_word(p) for p in phases if not is_repeat(p)],
        "block": [phase_word(p) for p in phases if is_repeat(p)],
    }
    return " and ".join(
        f"{w}{'s' if len(own) > 1 else ''} {', '.join(own)}" for w, own in kinds.items() if own
    )


def problems_of(failed: list[FailedBlock]) -> list[Problem]:
    """One per configuration, rate and latency."""
    return [
        Problem(
            "repeats",
            f"at {f.reference}, {f.rate_per_s:g} req/s and Phase A's shape, {_who(f.config)} tax of {f.metric}: "
            f"requests failed or waited behind a queue in {_named(f.blocks)}",
        )
        for f in failed
    ]


def _who(config: str) -> str:
    return "no connector has a" if config == PLAIN else f"{config} has no"
