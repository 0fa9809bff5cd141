"""What recording steps and hooks costs a real vLLM (CPU) that serves: the recorder switched off and on within one launch.

    ENGINE_PYTHON=... TINY_MODEL=... .venv/bin/python tests/perf/observer_effect.py [--connector noop_connector]

One server, one even load; the recorder's wrappers are taken out and put back every few seconds, in the order on, off, off,
on. A request counts for a slice if all of it lies inside. Prints the mean over pairs of slices, on less off, of the median
TPOT, with its 95 % interval (Student's t).
"""

import argparse
import statistics
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic_ns

from framework_tax import patched
from scipy import stats

from connector_tax.config import load_campaign
from connector_tax.config.load import PROJECT_ROOT
from connector_tax.engine.process import LaunchRequest, running_engine
from connector_tax.loadgen.cell import measure_cell
from connector_tax.plan import cells_of

# The recorder looks for its switch every half second.
SETTLE_S = 0.8


def toggle(off: Path, slice_s: float, states: list[tuple[int, int, bool]], stop: threading.Event) -> None:
    """On, off, off, on, and so forth; notes (from, to, recorded) of each slice once it has settled."""
    for k in range(10_000):
        recorded = k % 4 in (0, 3)
        if recorded:
            with suppress(FileNotFoundError):
                off.unlink()
        else:
            off.touch()
        time.sleep(SETTLE_S)
        start_ns = monotonic_ns()
        if stop.wait(slice_s):
            return
        states.append((start_ns, monotonic_ns(), recorded))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--connector", default="noop_connector")
    parser.add_argument("--pairs", type=int, default=16, help="pairs of slices")
    parser.add_argument("--slice", type=float, default=4.0, help="seconds")
    args = parser.parse_args()
    config = load_campaign(PROJECT_ROOT / "config" / "vllm-cpu.yaml")
    duration_s = 2 * args.pairs * (args.slice + SETTLE_S)
    cell = replace(cells_of(config, "plain", "a")[1], duration_s=duration_s, max_cell_s=duration_s + 60)
    states: list[tuple[int, int, bool]] = []
    with tempfile.TemporaryDirectory() as name, patched(config):
        folder = Path(name) / "run"
        step_log = folder / "steps" / "engine_step.jsonl"
        request = LaunchRequest(config.engine, config.connector(args.connector), folder, step_log)
        with running_engine(request) as engine:
            engine.wait_ready()
            stop = threading.Event()
            off = step_log.with_name(step_log.name + ".off")
            thread = threading.Thread(target=toggle, args=(off, args.slice, states, stop))
            thread.start()
            outcome = measure_cell(cell, engine.base_url, engine.model)
            stop.set()
            thread.join()
    medians: list[tuple[bool, float]] = []
    for start_ns, end_ns, recorded in states:
        inside = [
            r.tpot_ns / 1e3
            for r in outcome.requests
            if r.tpot_ns is not None and r.t_sched_ns >= start_ns and (r.t_last_token_ns or 0) <= end_ns
        ]
        if len(inside) >= 5:
            medians.append((recorded, statistics.median(inside)))
    pairs = [(a, b) for a, b in zip(medians[::2], medians[1::2], strict=False) if a[0] != b[0]]
    differences = [(a[1] - b[1]) if a[0] else (b[1] - a[1]) for a, b in pairs]
    without = statistics.mean(m for recorded, m in medians if not recorded)
    mean = statistics.mean(differences)
    half = stats.t.ppf(0.975, len(differences) - 1) * statistics.stdev(differences) / len(differences) ** 0.5
    print(
        f"{args.connector}: TPOT p50 {without:.0f} us unrecorded; recorded {mean:+.1f} us "
        f"[{mean - half:+.1f}, {mean + half:+.1f}], {mean / without:+.2%}; {len(pairs)} pairs of {args.slice:g} s"
    )


if __name__ == "__main__":
    main()
