"""How finely virtual time resolves, and whether a cost that was put in is found again. Also for a busy machine: that is what it must stand.

    export ENGINE_PYTHON=... MODEL_FOLDER=...
    .venv/bin/python tests/perf/virtual_time.py aa [--repeats 20] [--scheduling sync]
    .venv/bin/python tests/perf/virtual_time.py burns [--us 20 60 200] [--scheduling sync]
    .venv/bin/python tests/perf/virtual_time.py connector --id nixl_virtual [--scheduling sync]
    .venv/bin/python tests/perf/virtual_time.py slices [--steps 20 40 100]

``aa`` compares plain with plain whose device takes 1 us a step more: without the nudge both would see the same phases of all arrivals, and
agree for no reason. ``burns`` compares a connector that burns CPU time in one hook with one that moves virtual time on instead, and with
one that does neither. ``slices`` runs one configuration on four engines, and prints how far its cells and its processes differ.
"""

import argparse
import dataclasses
import os
import time
from pathlib import Path

import msgspec
import numpy as np
import yaml

from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.documents.identity import GpuDocument
from connector_tax.base.records.connector import SidePort
from connector_tax.base.records.host import HostCosts, StepCosts
from connector_tax.virtual_time import (
    EngineSpec,
    Interval,
    Load,
    VirtualTime,
    cells,
    compare,
    measure_many,
)
from connector_tax.virtual_time.engines import Engines
from connector_tax.virtual_time.estimate import METRICS, engine_us

# An H200 with Qwen3-Coder-30B-A3B.
DEVICE = GpuDocument(
    name="NVIDIA H200",
    compute_capability=(9, 0),
    memory_bytes=150754820096,
    kv_cache_bytes=71394289254,
    host_link_bytes_per_s=53000000000,
    step=StepCosts(5540.152, 9.796477, 523.955055, 0.0256),
    host=HostCosts(),
)
HOOKS = {
    "scheduler": "build_connector_meta",
    "before the launch": "bind_connector_metadata",
    "after the launch": "wait_for_save",
}
# Half-widths that are aimed at, as ratios.
AIMS = {"tpot_p50": 0.003, "ttft_p90": 0.01}


def spec(label: str, kv_transfer_config: dict | None = None, **rest: object) -> EngineSpec:
    return EngineSpec(
        label,
        os.environ["ENGINE_PYTHON"],
        Path(os.environ["MODEL_FOLDER"]).expanduser(),
        DEVICE,
        kv_transfer_config,
        {"max_model_len": 200000, "max_num_batched_tokens": 8192, "enable_prefix_caching": True},
        **rest,
    )


def nudged(of: EngineSpec, us: float) -> EngineSpec:
    step = msgspec.structs.replace(DEVICE.step, base_us=DEVICE.step.base_us + us)
    return dataclasses.replace(of, label="nudged", virtual_gpu=msgspec.structs.replace(DEVICE, step=step))


def burning(label: str, hook: str, us: float, how: str) -> EngineSpec:
    config = {
        "kv_connector": "ExactBurns",
        "kv_connector_module_path": "exact_burns",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"hook": hook, "us": us, "how": how},
    }
    return spec(label, config, env={"PYTHONPATH": str(PROJECT_ROOT / "tests" / "vllm" / "plugins")})


def told(x: Interval, times: float = 100.0) -> str:
    ends = "" if x.low is None else f" [{times * x.low:+.3f}, {times * x.high:+.3f}]"
    return f"{times * x.point:+.3f}{ends}"


def half_width(x: Interval) -> float:
    return (x.high - x.low) / 2


def aa(asked: argparse.Namespace) -> None:
    plain = spec("plain")
    inside = dict.fromkeys(AIMS, 0)
    for repeat in range(asked.repeats):
        load = dataclasses.replace(asked.load, seed=repeat)
        pair = [plain, nudged(plain, 1.0)]
        found = compare(*measure_many(pair, load, scheduling=asked.scheduling, starts=asked.starts))
        line = []
        for metric, aim in AIMS.items():
            ratio = found.tax(metric).ratio.charged
            inside[metric] += abs(ratio.point) <= aim and half_width(ratio) <= aim
            line.append(f"{metric} {told(ratio)} % (half-width {half_width(ratio):.3%})")
        print(
            f"{repeat:3} {'; '.join(line)}; {found.wall_s:.0f} s, CPU {found.cpu_s:.0f} s, load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
    print("; ".join(f"{m}: {n} of {asked.repeats} within {AIMS[m]:.1%}" for m, n in inside.items()))


def burns(asked: argparse.Namespace) -> None:
    print("us of TPOT p50 over the same connector without a burn")
    for place, hook in HOOKS.items():
        for us in asked.us:
            specs = [
                burning("none", hook, 0, "jump"),
                burning("cpu", hook, us, "cpu"),
                burning("jump", hook, us, "jump"),
            ]
            none, cpu, jump = measure_many(
                specs, asked.load, scheduling=asked.scheduling, starts=asked.starts
            )
            burnt, truth = (compare(none, x).tax("tpot_p50").difference_us.charged for x in (cpu, jump))
            print(
                f"{place:18} {us:5.0f} us: burnt {told(burnt, 1)}, as a jump {told(truth, 1)}; {none.wall_s:.0f} s",
                flush=True,
            )


def connector(asked: argparse.Namespace) -> None:
    entry = yaml.safe_load((PROJECT_ROOT / "config" / "connectors.yaml").read_text())[asked.id]
    ports = tuple(msgspec.convert(p, SidePort) for p in entry.get("side_ports", ()))
    one = spec(asked.id, entry["kv_transfer_config"], side_ports=ports)
    pair = [spec("plain"), one]
    show(compare(*measure_many(pair, asked.load, scheduling=asked.scheduling, starts=asked.starts)))


def show(found: VirtualTime) -> None:
    for t in found.taxes:
        print(
            f"{t.metric:13} {t.plain_ms:8.3f} ms; {told(t.ratio.charged)} %, with other threads {told(t.ratio.with_others)} %"
        )
    for side, us in found.engine_us_per_step.items():
        rest = f"others {found.others_us_per_step[side]:.1f}, waits {found.waits_per_step[side]:.2f}"
        print(f"{side:10} engine's thread {told(us, 1)} us a step, {rest}")
    print(
        f"step {told(found.step_us.charged, 1)} us, with other threads {told(found.step_us.with_others, 1)}; null hook {found.null_hook_us:.2f} us"
    )
    print(
        f"reference work {told(found.work_ratio)} %, wide {told(found.wide_work_ratio)} %; {found.wall_s:.0f} s, CPU {found.cpu_s:.0f} s"
    )
    for h in found.hooks:
        seen = "" if h.in_virtual_time else "; not in virtual time"
        print(
            f"  {h.side}/{h.hook}: {h.calls_per_step:.2f} calls, {told(h.cpu_us_per_step, 1)} us, wall {h.wall_us_per_step:.1f}{seen}"
        )


def slices(asked: argparse.Namespace) -> None:
    for steps in asked.steps:
        cells.SLICE_STEPS = steps
        with (
            Engines(asked.scheduling, lambda: None) as all_engines,
            all_engines.started([spec("plain")] * 4) as running,
        ):
            cells._cells(running, asked.load, 200, "w", lambda: None)
            begun_s = time.monotonic()
            found = [
                cells._cells(running, asked.load, 800, f"c{k}", lambda: None) for k in range(asked.repeats)
            ]
            print(f"slices of {steps}: {time.monotonic() - begun_s:.0f} s, load {os.getloadavg()[0]:.1f}")
        for name, of in (("engine's thread", engine_us), *METRICS.items()):
            logs = np.log([[of(c) for c in row] for row in found])
            logs -= logs.mean(axis=1, keepdims=True)
            own = logs.mean(axis=0)
            of_cells = ((logs - own) ** 2).sum() / ((len(found) - 1) * 3)
            of_processes = max(0.0, (own**2).sum() / 3 - of_cells / len(found))
            print(
                f"  {name:15} sd of processes {of_processes**0.5:.3%}, of cells of 800 requests {of_cells**0.5:.3%}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = {"aa": aa, "burns": burns, "connector": connector, "slices": slices}
    parser.add_argument("what", choices=kinds)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--starts", type=int, default=6)
    parser.add_argument("--requests", type=int, default=Load().requests)
    parser.add_argument("--scheduling", choices=("sync", "async"), default="sync")
    parser.add_argument("--us", type=float, nargs="+", default=[20.0, 60.0, 200.0])
    parser.add_argument("--steps", type=int, nargs="+", default=[20, 40, 100])
    parser.add_argument("--id", default="noop_connector")
    asked = parser.parse_args()
    asked.load = Load(requests=asked.requests)
    kinds[asked.what](asked)


if __name__ == "__main__":
    main()
