"""Taxes to what the hypotheses are decided on."""

from typing import Any

from connector_tax.stats.hypotheses import Evidence
from connector_tax.stats.main_taxes import MainTax, estimates_at
from connector_tax.stats.taxes import Tax
from connector_tax.stats.trends import trends_of


def evidence_of(
    taxes: list[Tax],
    chosen: list[MainTax],
    absent: dict[str, str],
    config: dict[str, Any],
    confidence: float,
) -> Evidence:
    """The chosen taxes at ref_safe, and trends over Phase B's shapes.

    A TPOT tax of a shape at which a side did not keep up is no tax of its output length, and never averaged; of TTFT such a
    shape counts where an input length would have no number without it, and the verdict says so.

    Args:
        config: of ``campaign.json``.
    """
    shapes = [t for t in taxes if t.reference == "ref_safe" and t.phase == "b"]
    ttft = [t for t in shapes if t.metric == "ttft_p90"]
    tpot = [t for t in shapes if t.metric == "tpot_p90"]
    return Evidence(
        headline=estimates_at(chosen, "ref_safe", "ttft_p90"),
        by_input=trends_of(ttft, "input_tokens", queueing_allowed=True),
        by_output=trends_of(tpot, "output_tokens", queueing_allowed=False),
        absent=absent,
        stacks=_stacks(config),
        confidence=confidence,
        members=frozenset(c["id"] for c in config["connectors"]),
        over_blocks=frozenset(
            m.tax.config
            for m in chosen
            if m.blocks is not None and (m.tax.reference, m.tax.metric) == ("ref_safe", "ttft_p90")
        ),
    )


def _stacks(config: dict[str, Any]) -> dict[str, tuple[str, ...]]:
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
