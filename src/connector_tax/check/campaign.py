"""The check's small campaign on a virtual GPU: its launches, cells and taxes are those of the pipeline."""

import os
from dataclasses import replace as replace_load
from pathlib import Path

from msgspec.structs import asdict, replace

from connector_tax.base.capacity import DEFAULTS, Costs, Limits, busy_s
from connector_tax.base.config import CampaignConfig, EngineConfig, parse_campaign
from connector_tax.base.errors import ConfigError
from connector_tax.base.plan.start import begin_campaign
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.connector import ConnectorEntry, ConnectorSpec
from connector_tax.base.records.host import StepCosts
from connector_tax.check.request import CheckRequest, longest_model_len
from connector_tax.run.engine.virtual_gpu import gpu_document, step_costs
from connector_tax.virtual_time import EngineSpec, Load

# What engine and client get done on a core beside each other; more would measure the host.
TOKENS_PER_CORE_S = 700.0
# Of what the device holds by its clock, or of what the host holds where that is less.
LOAD_SHARE = 0.3
# Of what an engine holds, at most, whose clock stands still for the host.
VIRTUAL_LOAD_SHARE = 0.6
# For the real launch of another check on this host: two at once would be each other's neighbours.
WAIT_S = 600
# Plain vLLM as a configuration of its own: its tax is what plain differs from itself by.
AGAIN = "again"
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "HF_HUB_OFFLINE": "1",
    # Each cell waits for its last records.
    "CONNECTOR_TAX_STEP_FLUSH_S": "0.2",
}


def write_campaign(request: CheckRequest, root: Path, name: str, *, duration_s: float) -> CampaignConfig:
    """Write ``campaign.json`` of plain, the connector and plain again at one load into a new folder below
    ``root``.

    Raises:
        ConfigError: the request is none that can be measured, or another check has begun in ``root``.
    """
    known = {
        "plain": ConnectorEntry(label="plain vLLM", kv_transfer_config=None),
        request.connector_id: request.entry,
        AGAIN: ConnectorEntry(label="plain vLLM, again", kv_transfer_config=None),
    }
    config = parse_campaign(_mapping(request, name, duration_s), "check", known)
    costs = step_costs(config.engine)
    assert costs is not None, "the engine's kind is virtual_gpu"
    rate_per_s = rate_for(request, costs, len(os.sched_getaffinity(0)))
    config = replace(config, phase_a_rates_per_s=(rate_per_s,))
    try:
        (root / name).mkdir(parents=True)
    except FileExistsError:
        raise ConfigError(f"--to {root}: another check has begun there. Give a new folder.") from None
    begin_campaign(config, root)
    return config


def engine_spec(engine: EngineConfig, connector: ConnectorSpec) -> EngineSpec:
    """Return the campaign's engine with a connector, as virtual time takes it."""
    document = gpu_document(engine)
    assert document is not None and engine.python is not None, "the engine's kind is virtual_gpu"
    return EngineSpec(
        label=connector.label,
        python=engine.python,
        model=Path(engine.model),
        virtual_gpu=document,
        kv_transfer_config=connector.kv_transfer_config,
        args=engine.args,
        env={**engine.env, **connector.env},
        side_ports=connector.side_ports,
    )


def rate_for(request: CheckRequest, costs: StepCosts, cores: int) -> float:
    """Return the load per second; what a request costs the device beyond the steps' own base says how many it
    holds."""
    prompt, answer = request.input_tokens, request.output_tokens
    request_us = (
        prompt * costs.per_prefill_token_us
        + answer * costs.per_decode_seq_us
        + answer * (prompt + answer / 2) * costs.per_context_token_us
    )
    holds = 1e6 / request_us if request_us > 0 else float("inf")
    return float(f"{LOAD_SHARE * min(holds, TOKENS_PER_CORE_S * cores / answer):.2g}")


def virtual_load(config: CampaignConfig, load: Load) -> Load:
    """Return ``load`` in the campaign's shape, at no more than its engine holds: in overload a latency says
    how long one waited."""
    costs, shape, args = step_costs(config.engine), config.phase_a_shape, config.engine.args
    assert costs is not None, "the engine's kind is virtual_gpu"
    limits = Limits.of(
        {name: args.get(name.partition(".")[2]) for name in DEFAULTS}, config.cell.inflight_cap
    )
    request_s = sum(busy_s(Costs(**asdict(costs), per_prompt_us=0.0), limits, shape))
    rate_per_s = min(load.rate_per_s, float(f"{VIRTUAL_LOAD_SHARE / request_s:.2g}"))
    return replace_load(
        load, rate_per_s=rate_per_s, input_tokens=shape.input_tokens, output_tokens=shape.output_tokens
    )


def _mapping(request: CheckRequest, name: str, duration_s: float) -> Foreign:
    args = {
        "max_model_len": longest_model_len(request.model),
        "max_num_batched_tokens": 8192,
        "enable_prefix_caching": True,
        **request.args,
    }
    return {
        "campaign": name,
        "connectors": ["plain", request.connector_id, AGAIN],
        "engine": {
            "kind": "virtual_gpu",
            "virtual_gpu": {
                "gpu": request.gpu,
                "operating_point": {
                    "decode_seqs": 8,
                    "context_tokens": request.input_tokens,
                    "prefill_tokens": request.input_tokens,
                },
            },
            "python": request.engine_python,
            "model": str(request.model),
            "served_model_name": "m",
            "args": args,
            "env": {**ENVIRONMENT, **request.env},
            "ready_timeout_s": 600,
            "stop_grace_s": 5,
            "wait_for_card_s": WAIT_S,
        },
        "phase_a": {
            "rates_per_s": [1],
            "input_tokens": request.input_tokens,
            "output_tokens": request.output_tokens,
        },
        "cell": {
            "arrival": "fixed",
            "warmup_s": 1.0,
            "duration_s": duration_s,
            "min_completed": 10,
            "max_cell_s": 4 * duration_s + 20,
            "drain_timeout_s": 20,
        },
        "accuracy": {"prompts": 0},
    }
