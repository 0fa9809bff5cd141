"""What vLLM's connector framework costs on real vLLM: the no-op connector against plain, in interleaved blocks.

    ENGINE_PYTHON=... TINY_MODEL=... .venv/bin/python tests/perf/framework_tax.py [--blocks 10]
    ENGINE_PYTHON=... MODEL_FOLDER=... .venv/bin/python tests/perf/framework_tax.py --config config/virtual-gpu-sync.yaml --rate 8

Every block launches both afresh, in random order, and loads each with the same requests; a block's difference is one
observation, so launches differ as they do. Prints the mean over blocks with its 95 % interval (Student's t): decode step and
its parts, and TPOT. Run it on a quiet machine; ten blocks take about a quarter of an hour.
"""

import argparse
import random
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
from connector_tax.base.steptime.share import cut
from connector_tax.read.ingest.steps import DECODE_ONLY, read_steps
from connector_tax.run.engine.process import LaunchRequest, running_engine
from connector_tax.run.loadgen.cell import measure_cell

PARTS = ("step", "schedule", "update", "between", "hooks")


def launch(
    config: CampaignConfig,
    connector_id: str,
    folder: Path,
    seed: int,
    rate_per_s: float | None,
    duration_s: float,
) -> dict[str, float]:
    """Medians of one launch: microseconds of a decode-only step and its parts, TPOT in microseconds."""
    cell = replace(cells_of(config, "plain", "a")[0], seed=seed, duration_s=duration_s)
    cell = replace(cell, rate_per_s=rate_per_s or cell.rate_per_s, max_cell_s=duration_s + 60)
    step_log = folder / "steps" / "engine_step.jsonl"
    with running_engine(
        LaunchRequest(config.engine, config.connector(connector_id), folder, step_log)
    ) as engine:
        engine.wait_ready()
        outcome = measure_cell(cell, target_of(engine.base_url, engine.model))
        time.sleep(1.0)
    window = outcome.window
    own = folder / "cell.jsonl"
    # The clock of a virtual GPU lies beside the records.
    records = [f for f in sorted(step_log.parent.glob("*.jsonl")) if f.name != DEVICE_CLOCK.name]
    cut(records, window.t0_ns, window.drained_ns, own)
    table = read_steps(own, window)
    rows = table.kind == DECODE_ONLY
    columns = {
        "step": table.step_duration_us,
        "schedule": table.schedule_us,
        "update": table.update_us,
        "between": table.round_trip_us,
        "hooks": table.connector_total_us,
    }
    found = {name: float(np.nanmedian(values[rows])) for name, values in columns.items()}
    tpot_ms = latencies_ms(in_window(outcome.requests, window))["tpot_ms"]
    return {**found, "tpot": statistics.median(tpot_ms) * 1000}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", type=Path, default=PROJECT_ROOT / "config" / "vllm-cpu.yaml")
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--rate", type=float, help="requests per second; the campaign's lowest by default")
    parser.add_argument("--duration", type=float, default=12.0, help="seconds of window per launch")
    args = parser.parse_args()
    config = load_campaign(args.config)
    order = random.Random(1)
    blocks: list[dict[str, dict[str, float]]] = []
    with tempfile.TemporaryDirectory() as name:
        for k in range(args.blocks):
            ids = ["plain", "noop_connector"]
            order.shuffle(ids)
            blocks.append(
                {i: launch(config, i, Path(name) / f"{k}_{i}", k, args.rate, args.duration) for i in ids}
            )
            plain, noop = blocks[-1]["plain"], blocks[-1]["noop_connector"]
            print(
                f"block {k + 1}: step {plain['step']:7.0f} {noop['step']:7.0f}  TPOT {plain['tpot']:7.0f} {noop['tpot']:7.0f}",
                flush=True,
            )
    print(f"{'us, no-op less plain':22} {'plain':>9} {'mean':>9} {'95 % interval':>20} {'share':>8}")
    for part in (*PARTS, "tpot"):
        differences = [b["noop_connector"][part] - b["plain"][part] for b in blocks]
        base = statistics.mean(b["plain"][part] for b in blocks)
        mean = statistics.mean(differences)
        half = stats.t.ppf(0.975, len(blocks) - 1) * statistics.stdev(differences) / len(blocks) ** 0.5
        share = f"{mean / base:+.1%}" if base else ""
        print(
            f"{part:22} {base:9.1f} {mean:+9.1f} {f'[{mean - half:+.1f}, {mean + half:+.1f}]':>20} {share:>8}"
        )


if __name__ == "__main__":
    main()
