"""What recording steps and hooks costs a real vLLM (CPU) that serves: the recorder switched off and on within one launch.

    ENGINE_PYTHON=... TINY_MODEL=... .venv/bin/python tests/perf/observer_effect.py [--connector noop_connector]

One server, one even load; the recorder's wrappers are taken out and put back every few seconds.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

from slices import Slices, paired

from connector_tax.base.config import load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.plan import cells_of
from connector_tax.base.records.target import target_of
from connector_tax.run.engine.process import LaunchRequest, running_engine
from connector_tax.run.loadgen.cell import measure_cell

# The recorder looks for its switch every half second.
SETTLE_S = 0.8


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--connector", default="noop_connector")
    parser.add_argument("--pairs", type=int, default=16, help="pairs of slices")
    parser.add_argument("--slice", type=float, default=4.0, help="seconds")
    parser.add_argument("--rate", type=float, default=8.0, help="requests per second")
    args = parser.parse_args()
    config = load_campaign(PROJECT_ROOT / "config" / "vllm-cpu.yaml")
    duration_s = 2 * args.pairs * (args.slice + SETTLE_S)
    cell = replace(
        cells_of(config, "plain", "a")[0],
        rate_per_s=args.rate,
        duration_s=duration_s,
        max_cell_s=duration_s + 60,
    )
    with tempfile.TemporaryDirectory() as name:
        step_log = Path(name) / "run" / "steps" / "engine_step.jsonl"
        request = LaunchRequest(config.engine, config.connector(args.connector), Path(name) / "run", step_log)
        with running_engine(request) as engine:
            engine.wait_ready()
            with Slices(step_log.with_name(step_log.name + ".off"), args.slice, SETTLE_S) as slices:
                outcome = measure_cell(cell, target_of(engine.base_url, engine.model))
    print(f"recording {args.connector}: {paired(outcome.requests, slices)} of {args.slice:g} s")


if __name__ == "__main__":
    main()
