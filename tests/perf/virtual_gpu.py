"""How quiet real vLLM is on the virtual GPU, and whether a cost that was put in is found again. Run it on a quiet machine.

    export ENGINE_PYTHON=... MODEL_FOLDER=...
    .venv/bin/python tests/perf/virtual_gpu.py pairs [--pairs 5] [--duration-s 12] [--sync]
    .venv/bin/python tests/perf/virtual_gpu.py truth [--blocks 3] [--duration-s 12] [--sync] [--burn-us 200 1000]

``pairs`` launches plain vLLM twice a pair and prints by how much TPOT p50 and TTFT p90 differ. ``truth`` launches connectors that burn a
known time in one hook (launch/plugins/burning_connector.py) and prints what the step records say of that hook, by how much what
the host adds to a step grew, and what docs/virtual-gpu.md predicts for it from the slack. A launch takes 15 s. TTFT p90 of
a launch depends on where in a step its requests happen to arrive: 100 of them, 12 s, differ by some 1 to 2 % for that reason alone.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
from scipy import stats

from connector_tax.base.artifacts.layout import DEVICE_CLOCK
from connector_tax.base.config import CampaignConfig, load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.plan import cells_of
from connector_tax.base.records.connector import ConnectorSpec
from connector_tax.base.records.target import target_of
from connector_tax.base.statistics.cell import in_window, latencies_ms
from connector_tax.base.steptime.share import clock_health, cut, cut_clock
from connector_tax.read.ingest.steps import DECODE_ONLY, read_steps
from connector_tax.run.engine.process import LaunchRequest, running_engine
from connector_tax.run.loadgen.cell import measure_cell

# Where a step spends them: the scheduler's side, the worker's before the step is launched, and after it was.
PLACES = {
    "scheduler": "build_connector_meta",
    "before the launch": "bind_connector_metadata",
    "after the launch": "get_finished",
}
RATE_PER_S, INPUT_TOKENS, OUTPUT_TOKENS = 8.0, 1024, 64


@dataclass(frozen=True)
class Launch:
    """One launch: latencies in milliseconds; medians over steps in microseconds.

    Attributes:
        exposed_us: from one result to the next, less the device's own time: what the host adds to a step.
        hooks_us: of decode-only steps, all hooks together.
    """

    tpot_p50_ms: float
    ttft_p90_ms: float
    exposed_us: float
    hooks_us: float
    slack_p50_us: float
    late_share: float


def burning(plain: ConnectorSpec, hook: str, burn_us: float) -> ConnectorSpec:
    return msgspec.structs.replace(
        plain,
        id=f"burning_{hook}",
        kv_transfer_config={
            "kv_connector": "BurningConnector",
            "kv_connector_module_path": "burning_connector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {"burn_us": {hook: burn_us}},
        },
    )


def launch(
    config: CampaignConfig, connector: ConnectorSpec, folder: Path, seed: int, duration_s: float
) -> Launch:
    cell = cells_of(config, "plain", "a")[0]
    cell = replace(
        cell,
        seed=seed,
        rate_per_s=RATE_PER_S,
        input_tokens=INPUT_TOKENS,
        output_tokens=OUTPUT_TOKENS,
        duration_s=duration_s,
    )
    step_log = folder / "steps" / "engine_step.jsonl"
    with running_engine(LaunchRequest(config.engine, connector, folder, step_log)) as engine:
        engine.wait_ready()
        outcome = measure_cell(cell, target_of(engine.base_url, engine.model))
        time.sleep(1.0)
    window = outcome.window
    cut(
        sorted(step_log.parent.glob("engine_step.*.jsonl")),
        window.t0_ns,
        window.drained_ns,
        folder / "cell.jsonl",
    )
    cut_clock(folder / DEVICE_CLOCK, window.t0_ns, window.drained_ns, folder / "clock.jsonl")
    clock = clock_health(folder / "clock.jsonl", window.window_start_ns, window.t_stop_ns)
    if clock is None:
        raise SystemExit(f"{folder}: the clock left no record")
    table = read_steps(folder / "cell.jsonl", window)
    decode = table.kind == DECODE_ONLY
    latencies = latencies_ms(in_window(outcome.requests, window))
    tpot = np.array([v for v in latencies["tpot_ms"] if v is not None])
    ttft = np.array([v for v in latencies["ttft_ms"] if v is not None])
    return Launch(
        tpot_p50_ms=float(np.median(tpot)),
        ttft_p90_ms=float(np.percentile(ttft, 90)),
        exposed_us=exposed_us(folder / "clock.jsonl"),
        hooks_us=float(np.nanmedian(table.connector_total_us[decode])),
        slack_p50_us=clock.slack_us["p50"],
        late_share=clock.late_share,
    )


def exposed_us(clock: Path) -> float:
    rows = np.array([json.loads(line) for line in clock.read_text().splitlines()], dtype=np.int64)
    launched, due, done = rows[:, 0], rows[:, 1], rows[:, 3]
    device = due[1:] - np.maximum(launched[1:], due[:-1])
    return float(np.median(np.diff(done) - device)) / 1e3


def predicted_us(place: str, burn_us: float, slack_us: float, sync: bool) -> float:
    """What of a burn a step shows; docs/virtual-gpu.md has the formula."""
    return burn_us if sync and place != "after the launch" else max(0.0, burn_us - slack_us)


def pairs(config: CampaignConfig, root: Path, count: int, duration_s: float) -> None:
    plain = config.connector("plain")
    differences = {"TPOT p50": [], "TTFT p90": []}  # type: dict[str, list[float]]
    for k in range(count):
        one, other = (launch(config, plain, root / f"{k}{half}", k, duration_s) for half in "ab")
        differences["TPOT p50"].append(other.tpot_p50_ms / one.tpot_p50_ms - 1)
        differences["TTFT p90"].append(other.ttft_p90_ms / one.ttft_p90_ms - 1)
        print(
            f"pair {k + 1}: TPOT p50 {one.tpot_p50_ms:.3f} {other.tpot_p50_ms:.3f} ms ({differences['TPOT p50'][-1]:+.2%}), "
            f"TTFT p90 {one.ttft_p90_ms:.2f} {other.ttft_p90_ms:.2f} ms ({differences['TTFT p90'][-1]:+.2%}), "
            f"clock late {one.late_share:.2%} {other.late_share:.2%}",
            flush=True,
        )
    for name, found in differences.items():
        print(
            f"{name}: largest difference {max(map(abs, found)):.2%}, median {statistics.median(map(abs, found)):.2%}"
        )


def truth(
    config: CampaignConfig, root: Path, burns_us: list[float], sync: bool, duration_s: float, blocks: int
) -> None:
    """Every block launches a connector that burns nothing and every burn, in an order of its own; a difference is one of a block."""
    plain = config.connector("plain")
    order = random.Random(1)
    burns = [(place, burn_us) for place in PLACES for burn_us in burns_us]
    found: dict[tuple[str, float], list[tuple[Launch, Launch]]] = {burn: [] for burn in burns}
    bases = []
    for block in range(blocks):
        order.shuffle(burns)
        launches = {}
        for place, burn_us in [("scheduler", 0.0), *burns]:
            folder = root / f"{block}{PLACES[place]}{burn_us:g}"
            spec = burning(plain, PLACES[place], burn_us)
            launches[place, burn_us] = launch(config, spec, folder, block, duration_s)
        base = launches.pop(("scheduler", 0.0))
        bases.append(base)
        print(
            f"block {block + 1}, no burn: exposed {base.exposed_us:.0f} us a step, hooks {base.hooks_us:.0f} us, "
            f"slack {base.slack_p50_us:.0f} us, TPOT p50 {base.tpot_p50_ms:.3f} ms",
            flush=True,
        )
        for burn, one in launches.items():
            found[burn].append((base, one))
            print(f"  {burn[0]}, {burn[1]:g} us: {asdict(one)}", flush=True)
    slack_us = statistics.median(base.slack_p50_us for base in bases)
    print(f"{'us, over ' + str(blocks) + ' blocks':26} {'hooks':>24} {'exposed':>27} predicted")
    for place in PLACES:
        for burn_us in burns_us:
            pairs = found[place, burn_us]
            hooks = _over_blocks([one.hooks_us - base.hooks_us for base, one in pairs])
            exposed = _over_blocks([one.exposed_us - base.exposed_us for base, one in pairs])
            expected = predicted_us(place, burn_us, slack_us, sync)
            print(f"{place:18} {burn_us:7.0f} {hooks:>24} {exposed:>27} {expected:+9.1f}", flush=True)


def _over_blocks(values: list[float]) -> str:
    """The mean with its 95 % interval by Student's t."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return f"{mean:+.1f}"
    half = stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return f"{mean:+.1f} [{mean - half:+.1f}, {mean + half:+.1f}]"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("pairs", "truth"))
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--burn-us", type=float, nargs="+", default=[50.0, 200.0, 1000.0])
    parser.add_argument("--blocks", type=int, default=3, help="of truth")
    parser.add_argument("--duration-s", type=float, default=12.0)
    parser.add_argument("--sync", action="store_true", help="synchronous scheduling")
    args = parser.parse_args()
    config = load_campaign(
        PROJECT_ROOT / "config" / ("virtual-gpu-sync.yaml" if args.sync else "virtual-gpu.yaml")
    )
    with tempfile.TemporaryDirectory() as name:
        if args.what == "pairs":
            pairs(config, Path(name), args.pairs, args.duration_s)
        else:
            truth(config, Path(name), args.burn_us, args.sync, args.duration_s, args.blocks)


if __name__ == "__main__":
    main()
