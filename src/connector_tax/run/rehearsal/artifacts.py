"""A simulated run to the very files that a measured one leaves, so that the analysis cannot tell."""

import json
from collections.abc import Iterator

import msgspec
from msgspec import UNSET

from connector_tax.base.artifacts.cells import open_cell, publish_cell, read_cell
from connector_tax.base.artifacts.layout import CampaignFolder, RunFolder
from connector_tax.base.artifacts.receipts import write_receipt
from connector_tax.base.config import CampaignConfig
from connector_tax.base.documents.cell import About, CellDocument, ClockPair, CpuUse, RunConfig, SummaryFile
from connector_tax.base.documents.health import Health
from connector_tax.base.documents.identity import CodeVersion, EngineIdentity
from connector_tax.base.documents.preflight import Decision, PreflightStatus
from connector_tax.base.documents.settings import EngineDiff, Settings
from connector_tax.base.files import append_lines, write_json, write_text
from connector_tax.base.plan import launch_spec, spec_hash
from connector_tax.base.plan.guess import batched_tokens
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.host import Sample
from connector_tax.base.statistics.cell import summarise_cell
from connector_tax.base.steptime.writer import header_line
from connector_tax.base.vllm_model.costs import ConnectorCosts, EngineCosts
from connector_tax.base.vllm_model.model import idle_request_s
from connector_tax.run.emulator.steprows import Modelled
from connector_tax.run.rehearsal.cell import SimulatedCell

IDENTITY = EngineIdentity(
    kind="emulator",
    versions={"emulator": True, "virtual_time": True},
    packages=(),
    gpu=(),
    host={"virtual": True},
)
CODE = CodeVersion(connector_tax="rehearsal", loadgen_sha256="virtual-time")


def write_preflight(
    folder: CampaignFolder, config: CampaignConfig, plain: tuple[EngineCosts, ConnectorCosts]
) -> None:
    """Every configuration is included: the model runs anywhere. Prompts of plain take what the model says.

    Args:
        plain: the costs of plain.
    """
    costs = plain[0]
    batched = batched_tokens(config)
    lengths = sorted(
        {*config.phase_b_input_tokens, config.phase_a_shape.input_tokens}
        | {shape.input_tokens for shape in config.phase_b_prime.shapes}
    )
    prompt_s = {
        str(n): idle_request_s(*plain, prompt=n, max_tokens=1, max_num_batched_tokens=batched)
        for n in lengths
    }
    included = Decision("include", launch=UNSET, prompt_s=UNSET, token_s=UNSET)
    plain_too = Decision("include", launch=UNSET, prompt_s=prompt_s, token_s=UNSET)
    status = PreflightStatus(
        step_timing_available=True,
        engine=IDENTITY.versions,
        configs={c.id: plain_too if c.id == "plain" else included for c in config.connectors},
    )
    write_json(folder.preflight_status, status)
    diff = EngineDiff(
        campaign=config.campaign,
        plain=_settings(costs, batched),
        configs={c.id: {} for c in config.connectors},  # no connector of the model changes a setting
    )
    write_json(folder.engine_diff, diff)
    for connector in config.connectors:
        write_text(folder.preflight / f"verify_{connector.id}.log", "virtual time: nothing was launched\n")


def _settings(costs: EngineCosts, batched: int) -> Settings:
    """What an engine of these costs would say that it resolved, by vLLM's names."""
    return {
        "scheduler_config.max_num_seqs": costs.max_num_seqs,
        "scheduler_config.max_num_batched_tokens": batched,
        "cache_config.num_gpu_blocks": costs.kv_blocks,
        "cache_config.block_size": costs.block_size,
    }


def write_not_needed(run: RunFolder, campaign: str, reason: str) -> None:
    write_receipt(run, campaign=campaign, status="not_needed", reason=reason)


def write_run(
    run: RunFolder,
    config: CampaignConfig,
    costs: tuple[EngineCosts, ConnectorCosts],
    cells: Iterator[tuple[CellSpec, SimulatedCell]],
) -> None:
    """Write cells as they come, then the files beside them and the receipt."""
    about = About(
        campaign=config.campaign,
        connector=run.connector_id,
        phase=run.phase,
        launch=launch_spec(config, run.connector_id),
        engine=IDENTITY,
        code=CODE,
    )
    done = []
    for spec, cell in cells:
        _write_cell(run, config, costs, spec, cell, about)
        done.append(spec)
    write_json(run.config, RunConfig(**msgspec.structs.asdict(about), cells=tuple(done)))
    write_text(run.launch_sh, "#!/usr/bin/env bash\n# Rehearsed in virtual time; nothing was launched.\n")
    write_text(run.stdout, "rehearsed in virtual time\n")
    write_text(run.stderr, "")
    write_text(run.env, "# identity\n" + json.dumps(msgspec.to_builtins(IDENTITY), indent=2) + "\n")
    documents = [read_cell(run.cell(s.cell_id)) for s in done]
    write_json(run.summary, SummaryFile(cells={d.cell_id: d.summary for d in documents if d.summary}))
    write_receipt(
        run,
        campaign=config.campaign,
        status="measured",
        cell_ids=[s.cell_id for s in done],
        step_timing_available=True,
        engine=IDENTITY,
    )


def _write_cell(
    run: RunFolder,
    config: CampaignConfig,
    costs: tuple[EngineCosts, ConnectorCosts],
    spec: CellSpec,
    cell: SimulatedCell,
    about: About,
) -> None:
    folder = run.cell(spec.cell_id)
    temporary = open_cell(folder)
    append_lines(temporary.metrics, _metrics_lines(cell))
    append_lines(
        temporary.engine_step, _step_lines(cell, costs, config.connector(run.connector_id).kv_transfer_config)
    )
    publish_cell(
        folder,
        cell.requests,
        CellDocument(
            **msgspec.structs.asdict(
                msgspec.structs.replace(about, attempt=1, spec_hash=spec_hash(config, run.connector_id, spec))
            ),
            cell_id=spec.cell_id,
            spec=spec,
            window=cell.window,
            clock=ClockPair(monotonic_ns=cell.window.t0_ns, utc_ns=cell.window.t0_ns),
            health=Health(virtual=True, client_limited=False),
            verdict="valid",
            reasons=(),
            flags=cell.window.flags,
            prefix_cache_hits_delta=0.0,
            cpu=CpuUse(loaded_s={}, elapsed_s=0.0, idle_share={}, spinning=(), rss_mib={}),
            summary=summarise_cell(spec, cell.window, cell.requests),
        ),
    )


def _metrics_lines(cell: SimulatedCell) -> Iterator[str]:
    for t_ns, running, waiting in cell.samples:
        values = {"num_requests_running": running, "num_requests_waiting": waiting, "prefix_cache_hits": 0.0}
        yield Sample(t_ns=t_ns, ok=True, values=values).line


def _step_lines(
    cell: SimulatedCell, costs: tuple[EngineCosts, ConnectorCosts], kv_transfer_config: Foreign | None
) -> Iterator[str]:
    engine, connector = costs
    for process in ("scheduler", "worker") if kv_transfer_config else ("scheduler",):
        yield header_line(
            process=process, pid=1, monotonic_ns=0, utc_ns=0, engine_version="embedded-engine"
        ).rstrip("\n")
    modelled = Modelled(1, engine, (connector,) if kv_transfer_config else ())
    previous_t_ns = None
    for index, (t_ns, step) in enumerate(cell.steps):
        for row in modelled.rows(index, t_ns, previous_t_ns, step):
            yield row.line.rstrip("\n")
        previous_t_ns = t_ns
