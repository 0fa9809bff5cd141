"""What is put into a campaign on the embedded engine: the taxes of its cost model, to be set beside those that were measured."""

import hashlib
import os
from functools import partial

from connector_tax.base.config import CampaignConfig
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.documents.rates import PutInFile, PutInMetric, PutInTax, ReferenceRatesFile
from connector_tax.base.errors import ConfigError
from connector_tax.base.parallel import each_in
from connector_tax.base.plan import cells_of
from connector_tax.base.plan.guess import batched_tokens
from connector_tax.base.records.cell import CellSpec
from connector_tax.base.statistics.cell import in_window, latencies_ms
from connector_tax.base.statistics.percentiles import percentile
from connector_tax.base.vllm_model.costs import ConnectorCosts, EngineCosts, load_costs
from connector_tax.base.vllm_model.model import EngineModel
from connector_tax.run.engine.command import cost_model
from connector_tax.run.rehearsal.cell import simulate_cell

# The tax that the model itself says is there: many launches, all their requests together.


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


LAUNCHES = 100
METRICS: dict[PutInMetric, str] = {"ttft_p90": "ttft_ms", "tpot_p90": "tpot_ms"}
# Of one configuration at one rate, by latency; empty where a percentile falls on requests that did not finish.
Percentiles = dict[str, float]


def taxes_put_in(config: CampaignConfig, rates: ReferenceRatesFile, launches: int = LAUNCHES) -> PutInFile:
    """The taxes of TTFT p90 and TPOT p90 at Phase A's shape and the reference rates.

    Every launch has the campaign's arrivals, and jitter of its own.

    Raises:
        ConfigError: the campaign is not of the embedded engine, or its cost model cannot be read, or was edited since.
    """
    if config.engine.kind != "emulator" or config.engine.model_file is None:
        raise ConfigError(
            f"campaign {config.campaign}: engine.kind is {config.engine.kind}. Only the embedded engine (emulator) has a model of its taxes."
        )
    path = cost_model(config.engine)
    at = dict.fromkeys((rates.ref_safe_per_s, rates.ref_load_per_s))
    specs = [spec for spec in cells_of(config, "plain", "a") if spec.rate_per_s in at]
    places = [(connector, spec) for spec in specs for connector in config.connector_ids]
    with each_in(os.cpu_count() or 1) as each:
        at_places = each(partial(_percentiles, config, launches), places)
        found = {(c, spec.rate_per_s): of for (c, spec), of in zip(places, at_places, strict=True)}
    return PutInFile(
        campaign=config.campaign,
        launches=launches,
        model_file=config.engine.model_file,
        model_sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        taxes=tuple(
            PutInTax(
                config=connector,
                metric=metric,
                rate_per_s=spec.rate_per_s,
                input_tokens=spec.input_tokens,
                output_tokens=spec.output_tokens,
                tax=_tax(found[connector, spec.rate_per_s], found["plain", spec.rate_per_s], name),
            )
            for connector, spec in places
            if connector != "plain"
            for metric, name in METRICS.items()
        ),
    )


def _tax(own: Percentiles, plain: Percentiles, name: str) -> float | None:
    return own[name] / plain[name] - 1 if name in own and name in plain else None


def _percentiles(config: CampaignConfig, launches: int, place: tuple[str, CellSpec]) -> Percentiles:
    connector, spec = place
    costs = load_costs(
        PROJECT_ROOT / str(config.engine.model_file), config.connector(connector).kv_transfer_config
    )
    try:
        return true_percentiles_ms(
            spec, *costs, max_num_batched_tokens=batched_tokens(config), launches=launches
        )
    except ValueError:
        return {}
