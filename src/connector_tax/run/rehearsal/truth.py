"""The tax that the model itself says is there: many launches, all their requests together."""

from connector_tax.base.records.cell import CellSpec
from connector_tax.base.statistics.cell import in_window, latencies_ms
from connector_tax.base.statistics.percentiles import percentile
from connector_tax.base.vllm_model.costs import NO_CONNECTOR, ConnectorCosts, EngineCosts
from connector_tax.base.vllm_model.model import EngineModel
from connector_tax.run.rehearsal.cell import simulate_cell


def true_percentiles_ms(
    spec: CellSpec,
    costs: EngineCosts,
    connector: ConnectorCosts,
    *,
    max_num_batched_tokens: int,
    launches: int,
) -> dict[str, float]:
    """TTFT p90 and TPOT p90 over ``launches`` independent runs of one cell.

    Raises:
        ValueError: a percentile falls on unfinished requests; there is no finite truth then.
    """
    pooled: dict[str, list[float]] = {"ttft_ms": [], "tpot_ms": []}
    for seed in range(launches):
        model = EngineModel(
            costs, connector, max_num_batched_tokens=max_num_batched_tokens, seed=10_000 + seed
        )
        cell = simulate_cell(spec, model, 0)
        found = latencies_ms(in_window(cell.requests, cell.window))
        for name, values in pooled.items():
            values += found[name]
    out = {}
    for name, values in pooled.items():
        p90 = percentile(values, 90)
        if p90 is None:
            raise ValueError(f"{name} p90 has no finite truth at {spec.cell_id}")
        out[name] = p90
    return out


def true_tax(
    spec: CellSpec,
    costs: EngineCosts,
    connector: ConnectorCosts,
    *,
    max_num_batched_tokens: int,
    launches: int = 40,
) -> dict[str, float]:
    """``{"ttft_p90": ..., "tpot_p90": ...}`` of ``connector`` against no connector, under the model."""
    own, plain = (
        true_percentiles_ms(spec, costs, c, max_num_batched_tokens=max_num_batched_tokens, launches=launches)
        for c in (connector, NO_CONNECTOR)
    )
    return {name: own[f"{name[:4]}_ms"] / plain[f"{name[:4]}_ms"] - 1 for name in ("ttft_p90", "tpot_p90")}
