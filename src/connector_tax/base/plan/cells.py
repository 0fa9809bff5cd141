"""Config to cells: what one (configuration, phase) measures, and the hash that identifies each cell.

A cell's seed depends on phase, rate and shape, not on the connector: every configuration gets the same
schedule and the same prompts.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import asdict

from connector_tax.base.config import CampaignConfig, SessionFile
from connector_tax.base.documents.campaign import CampaignDocument
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import hash_of, read_document
from connector_tax.base.records.cell import CellSpec, Phase, Shape, is_repeat
from connector_tax.base.records.connector import PLAIN_AGAIN, LaunchSpec
from connector_tax.base.records.rates import ReferenceRates
from connector_tax.base.secrets import know_references
from connector_tax.base.seeds import derive_seed, stream

# The order of configurations in a phase: a seeded random permutation.
#
# Slow drift of the machine (temperature, clocks) then affects random configurations, not always the last
# ones.


def run_order(config: CampaignConfig, phase: Phase) -> tuple[str, ...]:
    ids = config.members(phase)
    return tuple(ids[i] for i in stream(config.seed, "order", phase).permutation(len(ids)))


def cells_of(
    config: CampaignConfig, connector_id: str, phase: Phase, rates: ReferenceRates | None = None
) -> tuple[CellSpec, ...]:
    """Return the cells of one run in the order of their measurement.

    Phase A rises from the lowest rate, so that an overload cannot leak into a lower rate. Phase D rises from
    the emptiest cache, which only fills. The other phases need ``rates``. A configuration outside Phase B'
    has no cells there, and plain's second launch has Phase A's shape only.
    """
    if phase == "a":
        return tuple(_cell(config, phase, r, config.phase_a_shape) for r in config.phase_a_rates_per_s)
    if phase == "d":
        return _cache_levels(config)
    assert rates is not None, f"phase {phase} runs at the reference rates"
    if phase == "b":
        return _shape_sweep(config, rates, connector_id)
    if phase == "c":
        return tuple(_conversations(config, rates.ref_safe_per_s, file) for file in config.phase_c.sessions)
    if is_repeat(phase):
        at = dict.fromkeys((rates.ref_safe_per_s, rates.ref_load_per_s))
        return tuple(_block_cell(config, phase, rate) for rate in at)
    if connector_id not in config.phase_b_prime.configs:
        return ()
    loads = ((rates.load_per_s(shape), shape) for shape in config.phase_b_prime.shapes)
    return tuple(_cell(config, phase, rate, shape) for rate, shape in loads if rate is not None)


def until_overload(
    config: CampaignConfig, cells: Sequence[CellSpec], overloaded: Callable[[CellSpec], bool]
) -> tuple[CellSpec, ...]:
    """Return Phase A's cells up to the rate at which a configuration's sweep ends; all without overload.

    Args:
        cells: those of one configuration, by rising rate.
        overloaded: whether a cell was measured and ended with a growing queue.
    """
    in_a_row = 0
    for k, cell in enumerate(cells):
        in_a_row = in_a_row + 1 if overloaded(cell) else 0
        if in_a_row == config.phase_a_stop_after_overloaded:
            return tuple(cells[: k + 1])
    return tuple(cells)


def _shape_sweep(config: CampaignConfig, rates: ReferenceRates, connector_id: str) -> tuple[CellSpec, ...]:
    """Return all prompt lengths x output lengths, and Phase A's shape without the recorder, if set."""
    shapes = [Shape(i, o) for i, o in product(config.phase_b_input_tokens, config.phase_b_output_tokens)]
    if connector_id == PLAIN_AGAIN:
        shapes = [shape for shape in shapes if shape == config.phase_a_shape]
    cells = [_cell(config, "b", rates.safe_per_s(shape), shape) for shape in shapes]
    if not config.observer_effect or connector_id == PLAIN_AGAIN:
        return tuple(cells)
    # Adjacent, so that the pair differs in little but the recorder. With other prompts, because the prefix
    # cache would hold the same ones.
    twin = _cell(config, "b", rates.safe_per_s(config.phase_a_shape), config.phase_a_shape)
    unrecorded = replace(twin, recorded=False)
    unrecorded = replace(unrecorded, seed=derive_seed(config.seed, "cell", "b", unrecorded.cell_id))
    return (twin, unrecorded, *(cell for cell in cells if cell.shape != config.phase_a_shape))


def _block_cell(config: CampaignConfig, phase: Phase, rate_per_s: float) -> CellSpec:
    """Return a cell of a fixed number of requests: more launches, not longer cells, show launch variance."""
    cell = _cell(config, phase, rate_per_s, config.phase_a_shape)
    n = config.repeat_requests
    if n is None:
        return cell
    return replace(cell, duration_s=n / rate_per_s, min_completed=n, stop_half_width=None, max_completed=None)


def _cell(config: CampaignConfig, phase: Phase, rate_per_s: float, shape: Shape) -> CellSpec:
    name = f"r{rate_per_s:g}_{shape}"
    return CellSpec(
        phase=phase,
        rate_per_s=float(rate_per_s),
        input_tokens=shape.input_tokens,
        output_tokens=shape.output_tokens,
        seed=derive_seed(config.seed, "cell", phase, name),
        **asdict(config.cell),
    )


def _conversations(config: CampaignConfig, requests_per_s: float, file: SessionFile) -> CellSpec:
    """Return a cell of sessions whose turns add up to ``requests_per_s``."""
    rate_per_s = float(f"{requests_per_s / file.turns_per_session:.6g}")
    cell = _cell(config, "c", rate_per_s, Shape(0, 0))
    return replace(
        cell,
        seed=derive_seed(config.seed, "cell", "c", f"r{rate_per_s:g}_{file.path}"),
        warmup_s=config.phase_c.warmup_s,
        max_cell_s=cell.max_cell_s + config.phase_c.warmup_s,
        sessions=file.path,
        sessions_sha256=file.sha256,
        # Turns depend on one another, and an interim analysis would see the quick conversations only. So
        # the cell has a fixed length, the longest.
        min_completed=cell.max_completed or cell.min_completed,
        stop_half_width=None,
        max_completed=None,
    )


def _cache_levels(config: CampaignConfig) -> tuple[CellSpec, ...]:
    """Return every number of running requests at every level of the prefix cache.

    Every other level starts with the most requests, so that running requests and cached tokens do not grow
    together.
    """
    phase = config.phase_d
    return tuple(
        _closed_loop(config, tokens, running)
        for k, tokens in enumerate(phase.cached_tokens)
        for running in phase.running[:: -1 if k % 2 else 1]
    )


def _closed_loop(config: CampaignConfig, cached_tokens: int, running: int) -> CellSpec:
    """Return a cell with a constant number of requests in flight.

    They start one after the other, since requests that prefill together would also end together.
    """
    phase = config.phase_d
    cell = replace(
        _cell(config, "d", 0.0, phase.shape),
        arrival="concurrency",
        gamma_shape=None,
        concurrency=running,
        ramp_up_s=phase.warmup_s,
        cached_tokens=cached_tokens,
        warmup_s=phase.warmup_s,
        duration_s=phase.duration_s,
        min_completed=phase.min_completed,
        stop_half_width=None,
        max_completed=None,
    )
    return replace(cell, seed=derive_seed(config.seed, "cell", "d", cell.cell_id))


def launch_spec(config: CampaignConfig, connector_id: str) -> LaunchSpec:
    """Return everything about a launch that shapes a measurement; part of the hash of each of its cells.

    Time-outs, ports and the choice of a host's GPU do not change the numbers and are left out.
    """
    connector = config.connector(connector_id)
    engine = config.engine
    return LaunchSpec(
        kind=engine.kind,
        model=engine.model,
        served_model_name=engine.served_model_name,
        args=dict(sorted(engine.args.items())),
        extra_args=(*engine.extra_args, *connector.extra_args),
        env={**engine.env, **connector.env},
        model_file=engine.model_file,
        model_sha256=UNSET if engine.model_sha256 is None else engine.model_sha256,
        step_timing=engine.step_timing,
        pin_cpus=engine.pin_cpus,
        kv_transfer_config=connector.kv_transfer_config,
        virtual_gpu=UNSET if engine.virtual_gpu is None else engine.virtual_gpu,
    )


def launch_hash(config: CampaignConfig, connector_id: str, **beside: Any) -> str:
    """Return the hash of a launch and of what is measured with it."""
    return hash_of({"launch": msgspec.to_builtins(launch_spec(config, connector_id)), **beside})


def spec_hash(config: CampaignConfig, connector_id: str, cell: CellSpec) -> str:
    """Return a cell's identity: equal hashes mean that a repetition would measure the same thing."""
    return launch_hash(config, connector_id, cell=cell.to_json())


def outputs_hash(config: CampaignConfig, connector_id: str) -> str:
    """Return the identity of an accuracy pass, as ``spec_hash`` for a cell."""
    accuracy = {**asdict(config.accuracy), "seed": config.seed, "model": config.engine.model}
    return launch_hash(config, connector_id, accuracy=accuracy)


# ``campaign.json``: the resolved config, the date and the run order, for every entrypoint.


def campaign_document(config: CampaignConfig, *, date: str, created_utc: str) -> CampaignDocument:
    """Return the contents of ``results/<campaign>/campaign.json``.

    Args:
        date: ``YYYY-MM-DD`` of the first start; a resume keeps it, since it names folders.
    """
    return CampaignDocument(
        campaign=config.campaign,
        date=date,
        created_utc=created_utc,
        order={phase: run_order(config, phase) for phase in config.phases},
        config=config.to_json(),
    )


def read_campaign_file(path: Path) -> CampaignDocument:
    """Read ``campaign.json``; values that are used as file names are checked.

    Raises:
        ArtifactError: missing, not JSON, of an unknown version, or with an invalid name; names the key.
    """
    return read_document(path, CampaignDocument)


def document_hash(document: CampaignDocument) -> str:
    return hash_of(document.config)


def config_of(document: CampaignDocument) -> CampaignConfig:
    """Return the config that a ``campaign.json`` was made from, the inverse of ``campaign_document``.

    Raises:
        ArtifactError: another version wrote it, or it was edited.
    """
    try:
        config = msgspec.convert(document.config, CampaignConfig)
    except msgspec.ValidationError as error:
        what = str(error).replace("`$.", "`$.config.")
        raise ArtifactError(
            f"campaign.json: not what this version writes ({what}). Was it edited by hand? "
            "Remove it and start the campaign again to have it written anew; finished cells are kept."
        ) from error
    know_references(document.config)
    return config
