"""The check's small campaign on a virtual GPU: writes it, launches it once, or measures it in real time."""

import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace as replace_load
from pathlib import Path

from msgspec import UNSET
from msgspec.structs import asdict, replace

from connector_tax.base.artifacts.cells import read_cell
from connector_tax.base.artifacts.layout import CampaignFolder, RunFolder
from connector_tax.base.artifacts.receipts import read_receipt
from connector_tax.base.capacity import DEFAULTS, Costs, Limits, busy_s
from connector_tax.base.config import CampaignConfig, EngineConfig, parse_campaign
from connector_tax.base.connector_off import said_in
from connector_tax.base.documents.identity import Settings, differences
from connector_tax.base.errors import ConfigError
from connector_tax.base.plan import read_campaign_file
from connector_tax.base.plan.start import begin_campaign
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.connector import ConnectorEntry, ConnectorSpec
from connector_tax.base.records.host import StepCosts
from connector_tax.check.document import Launched, RealTime, Switched
from connector_tax.check.request import CheckRequest, longest_model_len
from connector_tax.read.analysis import analyse
from connector_tax.read.figures.words import problem_text
from connector_tax.read.stats.taxes import LATENCY_METRICS
from connector_tax.run.engine.virtual_gpu import gpu_document, step_costs
from connector_tax.run.measure.preflight import run_preflight
from connector_tax.run.measure.run import measure_run
from connector_tax.virtual_time import EngineSpec, Load

# Throughput of engine and client together on one core; above it the host would be measured.
TOKENS_PER_CORE_S = 700.0
# Share of what the device holds by its clock, or of what the host holds if that is less.
LOAD_SHARE = 0.3
# Largest share of what an engine holds in virtual time.
VIRTUAL_LOAD_SHARE = 0.6
# Wait for another check's real launch on this host: two at once would disturb each other.
WAIT_S = 600
# Plain vLLM as another configuration: its tax is the difference between two launches of plain.
AGAIN = "again"
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "HF_HUB_OFFLINE": "1",
    # Each cell waits for its last records.
    "CONNECTOR_TAX_STEP_FLUSH_S": "0.2",
}


def write_campaign(request: CheckRequest, root: Path, name: str, *, duration_s: float) -> CampaignConfig:
    """Write ``campaign.json`` for plain, the connector and plain again at one rate, in a new folder.

    Raises:
        ConfigError: the request cannot be measured, or another check has begun in ``root``.
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
    """Return the campaign's engine with a connector, in the form that virtual time takes."""
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
    """Return the rate per second, from what a request costs the device beyond the base cost of steps."""
    prompt, answer = request.input_tokens, request.output_tokens
    request_us = (
        prompt * costs.per_prefill_token_us
        + answer * costs.per_decode_seq_us
        + answer * (prompt + answer / 2) * costs.per_context_token_us
    )
    max_rate_per_s = 1e6 / request_us if request_us > 0 else float("inf")
    return float(f"{LOAD_SHARE * min(max_rate_per_s, TOKENS_PER_CORE_S * cores / answer):.2g}")


def virtual_load(config: CampaignConfig, load: Load) -> Load:
    """Return ``load`` in the campaign's shape, at a rate that its engine holds.

    In overload a latency would only measure waiting.
    """
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


# vLLM's log line when it creates a connector; one per connector of a stack.
_CREATED = re.compile(r"[Cc]reating (?:v1 )?connector with name: (\w+)")
# Setting -> words of log lines about it, in releases 0.27 to 0.32.
WORDS = {
    "scheduler_config.disable_hybrid_kv_cache_manager": r"hybrid",
    "scheduler_config.async_scheduling": r"async\w* scheduling",
    "async_scheduling": r"async\w* scheduling",
    "compilation_config.cudagraph_mode": r"cuda ?graph|piecewise",
    "model_config.enforce_eager": r"eager",
    "cache_config.enable_prefix_caching": r"prefix caching",
    "cache_config.block_size": r"block[_ ]size",
    "scheduler_config.enable_chunked_prefill": r"chunked prefill",
}
# Time, process and place at the start of a vLLM log line, which differ between launches.
_PREFIX = re.compile(r"^(\(\w+[^)]*\)\s*)?(DEBUG|INFO|WARNING|ERROR)\s+\d\d-\d\d [\d:.]+\s+\[[^\]]*\]\s*")
MOST_CHARS = 300


def launch_once(folder: CampaignFolder, connector_id: str) -> tuple[Launched, str]:
    """Launch and measure once; return what was found, and the engine's log.

    Raises:
        EngineError: the host failed, not the connector.
    """
    run_preflight(folder.campaign_file, launch="none")
    deaths = measure_run(folder.campaign_file, connector_id, "a")
    run = folder.run(read_campaign_file(folder.campaign_file).date, connector_id, "a")
    receipt = read_receipt(run)
    log = _log(run)
    off_evidence = said_in(log.splitlines())
    failure = deaths[0].cause if deaths else receipt.reason if receipt.status != "measured" else None
    cells = [read_cell(cell) for cell in run.finished_cells()]
    if not cells:
        return Launched(failure or "no cell was measured"), log
    (cell,) = cells
    statuses = cell.summary.statuses if cell.summary else {}
    launched = Launched(
        failure=failure,
        answered=statuses.get("ok", 0),
        sent=sum(statuses.values()),
        settings={} if cell.engine.settings is UNSET else cell.engine.settings or {},
        created=tuple(dict.fromkeys(_CREATED.findall(log))),
        off=None if off_evidence is None else off_evidence[1],
        spinning=tuple(cell.cpu.spinning or ()),
        stand_ins=tuple(cell.health.stand_ins or ()),
        versions=cell.engine.versions,
    )
    return launched, log


def _log(run: RunFolder) -> str:
    texts = []
    for path in (run.stdout, run.stderr):
        with suppress(FileNotFoundError):
            texts.append(path.read_text(encoding="utf-8", errors="replace"))
    return "\n".join(texts)


def switched(plain: Settings, own: Settings, log: str) -> tuple[Switched, ...]:
    """Return every setting that differs from plain's, with the lines of the connector's log about it."""
    lines = [_PREFIX.sub("", line).strip() for line in log.splitlines() if _PREFIX.match(line)]
    # A dump of the whole configuration names every setting and explains none.
    short_lines = [line for line in dict.fromkeys(lines) if len(line) <= MOST_CHARS]
    return tuple(
        Switched(name, change["plain"], change["own"], tuple(_lines_about(name, short_lines)))
        for name, change in differences(plain, own).items()
    )


def _lines_about(setting: str, lines: list[str]) -> list[str]:
    words = WORDS.get(setting, re.escape(setting.rpartition(".")[2]).replace("_", "[_ ]"))
    return [line for line in lines if re.search(words, line, re.IGNORECASE)]


def measure_real_time(
    folder: CampaignFolder, config: CampaignConfig, own_id: str, say: Callable[[str], None]
) -> RealTime:
    """Measure and analyse all three configurations.

    Raises:
        EngineError: plain vLLM cannot be measured.
    """
    run_preflight(folder.campaign_file, launch="none")
    date = read_campaign_file(folder.campaign_file).date
    for connector in config.connectors:
        say(f"real time: {connector.label}")
        deaths = measure_run(folder.campaign_file, connector.id, "a")
        receipt = read_receipt(folder.run(date, connector.id, "a"))
        if connector.id == own_id and (deaths or receipt.status != "measured"):
            return RealTime((), (), deaths[0].cause if deaths else receipt.reason)
    aggregate = analyse(folder.root)
    taxes = {(t.config, t.metric): t for t in aggregate.main_taxes if t.metric in LATENCY_METRICS}
    left_out = (
        f"{c.config}: {'; '.join(map(problem_text, c.reasons))}" for c in aggregate.cells if not c.usable
    )
    return RealTime(tuple(taxes.values()), tuple(left_out), None)
