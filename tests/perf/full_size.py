"""What analysing a full-size campaign takes: 8 configurations x 16 cells x 2000 requests, 10 million step records.

    .venv/bin/python tests/perf/full_size.py [--records N] [--hooks K] [--keep FOLDER]

Writes the campaign (3 GB) into a temporary folder, then runs scripts/analyze.py twice, from the JSONL and from the
step tables that the first run left, and scripts/plot_connector_tax.py. Prints wall and CPU seconds and peak memory of each:
of its largest process, and of all its processes together (resident sets, so what they share counts more than once).
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import psutil
from scipy.signal import lfilter

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "patches"))
import _step_profile as patch
from builders import Campaign, campaign_config
from invented_server import Behaviour

from connector_tax.base.records.cell import CellWindow
from connector_tax.base.steptime.share import SCHEDULER, WORKER

ROOT = Path(__file__).parents[2]
CONFIG = campaign_config(
    "config.yaml",
    phase_b_prime={"configs": [], "shapes": []},
    cell={
        "duration_s": 60,
        "min_completed": 2000,
        "max_cell_s": 10_000,
        "stop_half_width": None,
        "max_completed": None,
    },
)
CELLS = 16
HEADER = '{{"kind":"header","schema":2,"process":"{0}","pid":7,"hooks":[{1}],"async_scheduling":false}}'


def step_lines(
    hooks: int, window: CellWindow, behaviour: Behaviour, rng: np.random.Generator, n: int
) -> Iterator[str]:
    """The very lines of the patch, as a cell keeps them: steps back to back, one in twenty with a prompt, one in a hundred empty."""
    hooks = hooks if behaviour.hooks_us else 0
    for process, names in (("scheduler", patch.SCHEDULER_HOOKS), ("worker", patch.WORKER_HOOKS)):
        if hooks or process == "scheduler":
            yield HEADER.format(process, ",".join(f'"{name}"' for name in names[:hooks]))
    t_ns = np.linspace(window.t0_ns, window.t_stop_ns, n, endpoint=False).astype(np.int64).tolist()
    # Neighbours are alike, as steps of one batch are.
    noise = np.exp(lfilter([0.3], [1, -0.9], rng.normal(0, behaviour.noise, n)))
    duration_us = (behaviour.step_us * noise).tolist()
    ours = rng.integers(200, 9000, (2, n, 2 * hooks))
    ours[:, :, 1::2] = 1
    own, theirs = ours.tolist()
    for k in range(n):
        step_us, mixed = duration_us[k], k % 20 == 0
        times = (40.0, t_ns[k] + int(step_us * 1000), 20.0, step_us, "null" if k == 0 else f"{step_us:.3f}")
        counts = (4, 0, 512 if mixed else 0, 0 if k % 100 == 1 else 4)
        cpu = f',"hooks_cpu_ns":{own[k][::2]}' if hooks and k % 16 == 0 else ""
        row = (7, k, t_ns[k], *times, step_us - 60, own[k][0] / 1e3 if hooks else 0.0, *counts, own[k], cpu)
        yield SCHEDULER % row
        if hooks:
            spent = theirs[k]
            row = (7, k, t_ns[k] + 50_000, step_us, spent[0] / 1e3, spent[2] / 1e3, spent, "")
            yield WORKER % row


class Steps:
    """``step_lines`` with so many hooks; other than a lambda it reaches another process."""

    def __init__(self, hooks: int) -> None:
        self.hooks = hooks

    def __call__(
        self, window: CellWindow, behaviour: Behaviour, rng: np.random.Generator, n: int
    ) -> Iterator[str]:
        return step_lines(self.hooks, window, behaviour, rng, n)


def write_configuration(root: Path, connector: str, records: int, hooks: int) -> None:
    """16 cells; every configuration but plain has two records per step."""
    taxed = Behaviour(capacity_per_s=20.0).taxed(0.1)
    campaign = Campaign(
        root,
        CONFIG,
        behaviours={c: taxed for c in CONFIG.connector_ids if c != "plain"}
        | {"plain": Behaviour(capacity_per_s=20.0)},
        max_steps=records // (CELLS * (2 * len(CONFIG.connector_ids) - 1)),
        step_lines=Steps(hooks),
    )
    campaign.measure(connector, "a")
    campaign.measure(connector, "b", rates=(8.0, 16.0))


def measured(name: str, *command: str) -> None:
    """Run a script of the project and print what it took."""
    start = time.monotonic()
    process = psutil.Popen([sys.executable, *command], stdout=subprocess.DEVNULL)
    together = 0
    while (ended := os.wait4(process.pid, os.WNOHANG))[0] == 0:
        resident = 0
        for member in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                resident += member.memory_info().rss
        together = max(together, resident)
        time.sleep(0.1)
    _, status, usage = ended
    wall_s = time.monotonic() - start
    if status != 0:
        raise SystemExit(f"{' '.join(command)} ended with status {os.waitstatus_to_exitcode(status)}")
    print(
        f"{name:32} {wall_s:8.1f} {usage.ru_utime + usage.ru_stime:8.1f} "
        f"{usage.ru_maxrss / 1024:12.0f} {together / 2**20:12.0f}",
        flush=True,
    )


def measure(root: Path, records: int, hooks: int) -> None:
    start = time.monotonic()
    if not (root / "campaign.json").exists():
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
            jobs = [pool.submit(write_configuration, root, c, records, hooks) for c in CONFIG.connector_ids]
            for job in jobs:
                job.result()
    size = sum(p.stat().st_size for p in root.rglob("engine_step_*.jsonl"))
    print(f"{size / 1e9:.2f} GB of step records, written in {time.monotonic() - start:.0f} s")
    print(f"{'':32} {'wall s':>8} {'CPU s':>8} {'largest MiB':>12} {'together MiB':>12}")
    measured("analysis, from the JSONL", "scripts/analyze.py", "--root", str(root))
    measured("analysis, from the step tables", "scripts/analyze.py", "--root", str(root))
    measured("figures", "scripts/plot_connector_tax.py", "--root", str(root))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--hooks", type=int, default=3, help="hooks of a connector on each side")
    parser.add_argument("--keep", type=Path, help="write the campaign here, or use the one that lies here")
    args = parser.parse_args()
    os.chdir(ROOT)
    if args.keep is not None:
        measure(args.keep.resolve(), args.records, args.hooks)
        return
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), args.records, args.hooks)


if __name__ == "__main__":
    main()
