"""The true tax of a connector under the cost model."""

from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.host import EngineCosts
from connector_tax.base.vllm_model.costs import NO_CONNECTOR, ConnectorCosts
from connector_tax.run.rehearsal.cell import true_percentiles_ms


def true_tax(
    spec: CellSpec,
    costs: EngineCosts,
    connector: ConnectorCosts,
    *,
    max_num_batched_tokens: int,
    launches: int = 40,
) -> dict[str, float]:
    """Return ``{"ttft_p90": ..., "tpot_p90": ...}`` of ``connector`` over no connector, under the model."""
    own, plain = (
        true_percentiles_ms(spec, costs, c, max_num_batched_tokens=max_num_batched_tokens, launches=launches)
        for c in (connector, NO_CONNECTOR)
    )
    return {name: own[f"{name[:4]}_ms"] / plain[f"{name[:4]}_ms"] - 1 for name in ("ttft_p90", "tpot_p90")}
