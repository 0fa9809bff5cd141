"""What recording steps and hooks costs real vLLM on the virtual GPU: launches without step timing against launches with it.

    export ENGINE_PYTHON=... MODEL_FOLDER=...
    .venv/bin/python tests/perf/virtual_gpu_observer.py [--pairs 4] [--duration-s 30] [--modes async sync] [--connector noop_connector]

Pairs alternate: off on, on off, off on, ... Off is a launch without AGENTIC_STEP_LOG_PATH, in which nothing of vLLM is wrapped. Prints by
how much TPOT p50 grew in each pair, and the mean with its 95 % t-interval. Run it on a quiet machine; a launch takes 15 s to start.
"""

import argparse
import os
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import stats

from connector_tax.base.artifacts.layout import DEVICE_CLOCK
from connector_tax.base.config import CampaignConfig, load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.plan import cells_of
from connector_tax.base.records.target import target_of
from connector_tax.base.statistics.cell import in_window, latencies_ms
from connector_tax.base.steptime.share import clock_health, cut_clock
from connector_tax.run.engine.process import LaunchRequest, running_engine
from connector_tax.run.loadgen.cell import measure_cell

MODES = {"async": "virtual-gpu.yaml", "sync": "virtual-gpu-sync.yaml"}
BAR = 0.005
RATE_PER_S, INPUT_TOKENS, OUTPUT_TOKENS = 8.0, 1024, 64


def tpot_p50_ms(
    config: CampaignConfig, connector_id: str, folder: Path, duration_s: float, *, recorded: bool
) -> tuple[float, float]:
    """(median time per output token, share of the device's time by which the clock ran late) of one launch."""
    cell = replace(
        cells_of(config, "plain", "a")[0],
        rate_per_s=RATE_PER_S,
        input_tokens=INPUT_TOKENS,
        output_tokens=OUTPUT_TOKENS,
        duration_s=duration_s,
        max_cell_s=duration_s + 60,
    )
    step_log = folder / "steps" / "engine_step.jsonl" if recorded else None
    with running_engine(
        LaunchRequest(config.engine, config.connector(connector_id), folder, step_log)
    ) as engine:
        engine.wait_ready()
        outcome = measure_cell(cell, target_of(engine.base_url, engine.model))
        time.sleep(1.0)
    if recorded != any((folder / "steps").glob("engine_step.*.jsonl")):
        raise SystemExit(f"{folder}: step records are {'missing' if recorded else 'there'}")
    window = outcome.window
    cut_clock(folder / DEVICE_CLOCK, window.t0_ns, window.drained_ns, folder / "clock.jsonl")
    clock = clock_health(folder / "clock.jsonl", window.window_start_ns, window.t_stop_ns)
    if clock is None:
        raise SystemExit(f"{folder}: the clock left no record")
    tpot_ms = latencies_ms(in_window(outcome.requests, window))["tpot_ms"]
    return float(np.median([v for v in tpot_ms if v is not None])), clock.late_share


def compare(mode: str, root: Path, args: argparse.Namespace) -> None:
    config = load_campaign(PROJECT_ROOT / "config" / MODES[mode])
    grown = []
    for pair in range(args.pairs):
        found = {}
        for recorded in (False, True) if pair % 2 == 0 else (True, False):
            folder = root / f"{mode}{pair}{recorded}"
            found[recorded] = tpot_p50_ms(config, args.connector, folder, args.duration_s, recorded=recorded)
        (off_ms, off_late), (on_ms, on_late) = found[False], found[True]
        grown.append(on_ms / off_ms - 1)
        print(
            f"{mode} pair {pair + 1}: TPOT p50 off {off_ms:.3f} ms, on {on_ms:.3f} ms ({grown[-1]:+.3%}), "
            f"clock late {off_late:.2%} {on_late:.2%}",
            flush=True,
        )
    mean = statistics.mean(grown)
    half = stats.t.ppf(0.975, args.pairs - 1) * statistics.stdev(grown) / args.pairs**0.5
    verdict = "below" if mean + half < BAR else "not shown to be below"
    print(
        f"{mode}: step timing of {args.connector} adds {mean:+.3%} [{mean - half:+.3%}, {mean + half:+.3%}] to TPOT p50, "
        f"{verdict} {BAR:.1%}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--duration-s", type=float, default=30.0)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument(
        "--connector", default="noop_connector", help="whose hooks are wrapped, beside the steps"
    )
    args = parser.parse_args()
    if args.pairs < 2:
        parser.error("--pairs: an interval needs two of them")
    began = time.strftime("%H:%M:%S", time.gmtime())
    with tempfile.TemporaryDirectory() as name:
        for mode in args.modes:
            compare(mode, Path(name), args)
    print(f"measured from {began} to {time.strftime('%H:%M:%S', time.gmtime())} UTC on {os.cpu_count()} CPUs")


if __name__ == "__main__":
    main()
