"""What the virtual GPU does on real vLLM releases, one interpreter for each; prints the rows that docs/releases.md sums up.

    export MODEL_FOLDER=...   # of the model's shape, see scripts/make_model_folder.py
    .venv/bin/python tests/perf/releases.py ENGINE_PYTHON [ENGINE_PYTHON ...] [--duration-s 6] [--modes async sync] [--trials]

For each release, once with asynchronous and once with synchronous scheduling: preflight, then a launch and an even load for every
configuration of config/virtual-gpu.yaml that it includes. Preflight launches nothing by itself, but with ``--trials``. A release takes
some five minutes, on a busy host more. Whether things run is asked, not what they cost: hook times are printed so that a hook that
was not heard is seen.
Exit status 1: something was skipped or not answered, or left no records.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from connector_tax.base.artifacts.layout import DEVICE_CLOCK, CampaignFolder
from connector_tax.base.config import CampaignConfig, load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.documents.identity import Settings, differences
from connector_tax.base.errors import ConnectorTaxError
from connector_tax.base.files import read_json, write_json
from connector_tax.base.plan import campaign_document, cells_of
from connector_tax.base.records.target import target_of
from connector_tax.base.steptime.share import cut, cut_clock
from connector_tax.read.ingest.steps import KIND_NAMES, StepTable, read_steps
from connector_tax.run.engine.process import LaunchRequest, running_engine
from connector_tax.run.engine.settings import resolved_settings
from connector_tax.run.loadgen.cell import measure_cell
from connector_tax.run.measure.preflight import run_preflight

MODES = {"async": "virtual-gpu.yaml", "sync": "virtual-gpu-sync.yaml"}
RATE_PER_S, INPUT_TOKENS, OUTPUT_TOKENS = 8.0, 1024, 64
# A host that does other work as well starts an engine late.
READY_TIMEOUT_S = 900
HEADER = (
    "| release | scheduling | configuration | answered | steps: decode only, mixed, prefill only | in the clock's log "
    "| step p50 (clock), ms | hooks a step, us | other settings than plain's |\n" + "|---" * 9 + "|"
)
# Of plain: whether vLLM decided as on CUDA.
TOLD = (
    "scheduler_config.async_scheduling",
    "cache_config.block_size",
    "cache_config.num_gpu_blocks",
    "compilation_config.cudagraph_mode",
)


@dataclass(frozen=True)
class Served:
    """One launch under its load.

    Attributes:
        device_ms: what each step of the window took by the clock's log, shape (n,).
    """

    asked: int
    answered: int
    table: StepTable
    device_ms: NDArray[np.float64]
    settings: Settings

    @property
    def ok(self) -> bool:
        """All answered, all hooks heard, and a step in one log is a step in the other, but for those at the window's ends."""
        same = abs(self.table.n - self.device_ms.size) <= 2
        return 0 < self.asked == self.answered and not self.table.hooks_missing and self.table.n > 0 and same

    def hooks(self) -> dict[str, float]:
        """Hook -> median microseconds a step, of those that were called at all; NaN where no worker was heard."""
        found = self.table.hooks
        return {
            name: float(np.nanmedian(found.us[:, k])) if np.isfinite(found.us[:, k]).any() else np.nan
            for k, name in enumerate(found.names)
            if np.nansum(found.calls[:, k]) > 0
        }


def served(config: CampaignConfig, connector_id: str, folder: Path, duration_s: float) -> Served:
    connector = config.connector(connector_id)
    cell = replace(
        cells_of(config, "plain", "a")[0],
        rate_per_s=RATE_PER_S,
        input_tokens=INPUT_TOKENS,
        output_tokens=OUTPUT_TOKENS,
        duration_s=duration_s,
    )
    step_log = folder / "steps" / "engine_step.jsonl"
    with running_engine(LaunchRequest(config.engine, connector, folder, step_log)) as engine:
        engine.wait_ready()
        outcome = measure_cell(cell, target_of(engine.base_url, engine.model))
        time.sleep(1.5)  # both logs are written every half second
        logs = sorted(step_log.parent.glob("engine_step.*.jsonl"))
        settings = resolved_settings(step_log, engine.log_text())
    window = outcome.window
    cut(logs, window.t0_ns, window.drained_ns, folder / "cell.jsonl")
    table = read_steps(folder / "cell.jsonl", window, connector=connector.kv_transfer_config is not None)
    good = sum(r.status == "ok" and r.completion_tokens == OUTPUT_TOKENS for r in outcome.requests)
    device_ms = device_times_ms(folder, window.window_start_ns, window.t_stop_ns)
    return Served(len(outcome.requests), good, table, device_ms, settings)


def device_times_ms(folder: Path, start_ns: int, end_ns: int) -> NDArray[np.float64]:
    share = folder / "clock.jsonl"
    if not cut_clock(folder / DEVICE_CLOCK, start_ns, end_ns, share):
        return np.array([])
    rows = np.array([json.loads(line) for line in share.read_text().splitlines()], dtype=np.int64)
    launched, due = rows[:, 0], rows[:, 1]
    return (due - np.maximum(launched, np.concatenate([launched[:1], due[:-1]]))) / 1e6


def decisions(config: CampaignConfig, root: Path, *, trials: bool) -> dict[str, Any]:
    """What preflight says of each configuration of a campaign in ``root``.

    Raises:
        ConnectorTaxError: it cannot be measured at all.
    """
    folder = CampaignFolder(root)
    document = campaign_document(config, date="2000-01-01", created_utc="2000-01-01T00:00:00Z")
    root.mkdir(parents=True)
    write_json(folder.campaign_file, document)
    run_preflight(folder.campaign_file, launch="all" if trials else "none")
    status: dict[str, Any] = read_json(folder.preflight_status)
    return status


def rows(python: str, mode: str, root: Path, options: argparse.Namespace) -> bool:
    """Print one release's rows for one mode; whether everything ran."""
    os.environ["ENGINE_PYTHON"] = python
    config = load_campaign(PROJECT_ROOT / "config" / MODES[mode])
    config = msgspec.structs.replace(
        config, engine=msgspec.structs.replace(config.engine, ready_timeout_s=READY_TIMEOUT_S)
    )
    try:
        status = decisions(config, root / "campaign", trials=options.trials)
    except ConnectorTaxError as error:
        print(f"{python}, {mode}: {error}", flush=True)
        return False
    release, well = status["engine"]["vllm"], status["step_timing_available"] and not status["hooks_unheard"]
    plain: Settings = {}
    hooks: dict[str, dict[str, float]] = {}
    for connector_id, decision in status["configs"].items():
        if options.configurations and connector_id not in options.configurations:
            continue
        start = f"| {release} | {mode} | {connector_id} |"
        if decision["decision"] != "include":
            print(f"{start} skipped: {decision['reason']} |", flush=True)
            well = False
            continue
        try:
            found = served(config, connector_id, root / connector_id, options.duration_s)
        except ConnectorTaxError as error:
            print(f"{start} not served: {str(error).splitlines()[0]} |", flush=True)
            well = False
            continue
        well &= found.ok
        plain = plain or found.settings
        hooks[connector_id] = found.hooks()
        print(f"{start} {words(found, plain)} |", flush=True)
    for connector_id, medians in hooks.items():
        heard = ", ".join(f"{name} {us:.0f}" for name, us in medians.items())
        print(
            f"<!-- {release} {mode} {connector_id}: hooks called, us a step: {heard or 'none'} -->",
            flush=True,
        )
    return well


def words(found: Served, plain: Settings) -> str:
    kinds = ", ".join(str(int((found.table.kind == k).sum())) for k in range(len(KIND_NAMES)))
    median_ms = (
        f"{np.median(found.table.step_duration_us) / 1e3:.2f} ({np.median(found.device_ms):.2f})"
        if found.table.n and found.device_ms.size
        else "no records"
    )
    total = found.table.connector_total_us
    hooks = (
        f"{np.nanmedian(total):.0f}"
        if np.isfinite(total).any()
        else ", ".join(found.table.hooks_missing) or "no records"
    )
    told = (
        [f"{name.split('.')[-1]} {found.settings.get(name)}" for name in TOLD]
        if found.settings is plain
        else [f"{name.split('.')[-1]} {d['own']}" for name, d in differences(plain, found.settings).items()]
    )
    cells = [f"{found.answered} of {found.asked}", kinds, str(found.device_ms.size), median_ms, hooks]
    return " | ".join([*cells, ", ".join(told) or "none"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pythons", nargs="+", help="of an environment with vLLM each")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--configurations", nargs="+", help="only these; all by default")
    parser.add_argument("--trials", action="store_true", help="preflight launches each configuration, too")
    parser.add_argument("--duration-s", type=float, default=6.0)
    args = parser.parse_args()
    print(HEADER)
    well = True
    with tempfile.TemporaryDirectory() as name:
        for k, python in enumerate(args.pythons):
            for mode in args.modes:
                well &= rows(python, mode, Path(name) / f"{k}{mode}", args)
    if not well:
        sys.exit(1)


if __name__ == "__main__":
    main()
