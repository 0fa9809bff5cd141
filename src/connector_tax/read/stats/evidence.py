"""Taxes to what the hypotheses are decided on."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from connector_tax.base.documents.aggregate import Answer, FailedBlock, Hypothesis, Problem
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.cell import Shape
from connector_tax.base.statistics.bootstrap import Estimate, unavailable
from connector_tax.base.statistics.outcomes import NOT_TESTABLE
from connector_tax.read.stats.hypotheses import judge_hypotheses
from connector_tax.read.stats.main_taxes import main_at
from connector_tax.read.stats.taxes import Tax
from connector_tax.read.stats.trends import trends_of
from connector_tax.read.stats.verdicts import Evidence


def evidence_of(
    taxes: list[Tax],
    chosen: list[Tax],
    absent: dict[str, Problem],
    config: Foreign,
    confidence: float,
    failed: Sequence[FailedBlock] = (),
) -> Evidence:
    """The chosen taxes at ref_safe, and trends over Phase B's shapes.

    A TPOT tax of a shape at which a side did not keep up is no tax of its output length, and never averaged; of TTFT such a
    shape counts where an input length would have no number without it, and the verdict says so.

    Args:
        config: of ``campaign.json``.
        failed: who has no tax at a rate and Phase A's shape; it enters no mean either.
    """
    own = config.get("phase_a_shape")
    shapes = [
        _as_it_stands(t, failed, None if own is None else Shape(**own))
        for t in taxes
        if t.reference == "ref_safe" and t.phase == "b"
    ]
    ttft = [t for t in shapes if t.metric == "ttft_p90"]
    tpot = [t for t in shapes if t.metric == "tpot_p90"]
    headline = main_at(chosen, "ref_safe", "ttft_p90")
    return Evidence(
        headline={config: main.number for config, main in headline.items()},
        by_input=trends_of(ttft, "input_tokens", queueing_allowed=True),
        by_output=trends_of(tpot, "output_tokens", queueing_allowed=False),
        absent={config: why.code for config, why in absent.items()},
        stacks=_stacks(config),
        confidence=confidence,
        members=frozenset(c["id"] for c in config["connectors"]),
        n_blocks={config: main.n_blocks for config, main in headline.items()},
    )


def _as_it_stands(tax: Tax, failed: Sequence[FailedBlock], own: Shape | None) -> Tax:
    """Without its number where a launch at that rate and shape failed."""
    if tax.spec.shape != own or tax.estimate.point is None:
        return tax
    place = tax.metric, tax.rate_per_s
    for f in failed:
        if (f.metric, f.rate_per_s) == place and f.config in (tax.config, "plain"):
            subject = "" if f.config == tax.config else f.config
            return replace(tax, estimate=unavailable(f.reason, tax.estimate.n, subject))
    return tax


# Those that are asked of taxes over blocks.
OF_BLOCKS = ("H1", "H2", "H3", "H4")


def hypotheses_of(
    verdicts: list[Hypothesis], evidence: Evidence, at_equal_speed: Mapping[str, Estimate]
) -> list[Hypothesis]:
    """``hypotheses`` of ``aggregate.json``: each verdict, and beside it what taxes at equal speed of the host answer.

    The latter never replaces the verdict; see ``host_speed.py``.

    Args:
        evidence: what the verdicts were judged on.
        at_equal_speed: configuration -> that tax of TTFT p90 at ``ref_safe``.
    """
    held = replace(evidence, headline=at_equal_speed)
    beside = {
        (v.id, v.subject): msgspec.convert(v, Answer, from_attributes=True)
        for v in (judge_hypotheses(held) if at_equal_speed else ())
        if v.id in OF_BLOCKS and v.outcome != NOT_TESTABLE
    }
    return [msgspec.structs.replace(v, at_equal_host_speed=beside.get((v.id, v.subject))) for v in verdicts]


def _stacks(config: Foreign) -> dict[str, tuple[str, ...]]:
    """MultiConnector configurations whose children were measured by themselves, too."""
    by_kv = {str(c["kv_transfer_config"]): c["id"] for c in config["connectors"] if c["kv_transfer_config"]}
    found = {}
    for connector in config["connectors"]:
        extra = (connector["kv_transfer_config"] or {}).get("kv_connector_extra_config")
        children = extra.get("connectors") if isinstance(extra, dict) else None
        if not isinstance(children, list):
            continue
        parts = [by_kv.get(str(child)) for child in children]
        if parts and all(parts):
            found[connector["id"]] = tuple(p for p in parts if p)
    return found
