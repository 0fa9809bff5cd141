"""How often intervals of a part of a cell hold the truth, and those of small cells: 200 launches of the virtual engine.

    .venv/bin/python tests/perf/small_subsets.py [--campaigns 200] [--confidence 0.95]

Durations of the steps of one kind, in a cell of 200 requests and in its first 40; TPOT of a few answers, drawn at random from a cell of
200 of which all others have one token and so no TPOT; TTFT of cells of so few requests. Each is estimated by what the analysis
calls. The truth is the percentile of all launches' observations together; launches are alike.

Counted are the intervals that there are; ``none`` is in how many launches the observations were too few for one, ``point`` in how many
both ends are the same.
"""

import argparse
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import lru_cache, partial
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from connector_tax.base.config import load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.plan import cells_of
from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.host import EngineCosts
from connector_tax.base.seeds import stream
from connector_tax.base.statistics.bootstrap import (
    Estimate,
    block_length,
    estimate_percentiles,
    step_block_length,
    unavailable,
)
from connector_tax.base.statistics.cell import in_window, latencies_ms
from connector_tax.base.statistics.resampling import CommonArrivals
from connector_tax.base.vllm_model.costs import NO_CONNECTOR, load_costs
from connector_tax.base.vllm_model.model import EngineModel, StepResult
from connector_tax.read.ingest.steps import KIND_NAMES
from connector_tax.read.stats.cells import STEP_DRAWS, no_kinds
from connector_tax.run.rehearsal.cell import simulate_cell

Floats = NDArray[np.float64]
DRAWS = 1000
QS = (50.0, 90.0)
LOADS = ((1.0, "fixed"), (2.0, "fixed"), (2.0, "poisson"))
REQUESTS, FEWER = 200, 40
FEW = (6, 12, 25, 50)
SMALL = (6, 10, 20, 40)


class Part(NamedTuple):
    """What of a cell is estimated.

    Attributes:
        seqs: arrivals, for the latencies of requests; empty for steps.
        cell_length: of the blocks of the whole cell; None for steps, whose blocks come from themselves.
        withheld: why the analysis gives them no interval; None where it does.
    """

    values: Floats
    seqs: NDArray[np.int64]
    cell_length: int | None
    withheld: str | None = None


@lru_cache
def shipped() -> tuple[CellSpec, EngineCosts]:
    """A cell of Phase A and the engine's costs, launches alike."""
    config = load_campaign(PROJECT_ROOT / "config" / "config.yaml")
    engine, _ = load_costs(PROJECT_ROOT / "config" / "engine_model.yaml", None)
    return cells_of(config, "plain", "a")[0], msgspec.structs.replace(engine, launch_cv=0.0)


def simulated(load: tuple[float, str], launch: int) -> dict[str, Part]:
    """Everything that is estimated of one launch."""
    spec, costs = shipped()
    rate_per_s, arrival = load
    spec = replace(spec, arrival=arrival, rate_per_s=rate_per_s, duration_s=1.0, min_completed=REQUESTS)
    spec = replace(spec, max_cell_s=1e9, stop_half_width=None, max_completed=None, seed=launch)
    model = EngineModel(costs, NO_CONNECTOR, max_num_batched_tokens=8192, seed=launch)
    cell = simulate_cell(spec, model, 0)
    chosen = in_window(cell.requests, cell.window)[:REQUESTS]
    seqs = np.array([r.seq for r in chosen])
    ttft, tpot = (np.asarray(latencies_ms(chosen)[name]) for name in ("ttft_ms", "tpot_ms"))
    parts = {}
    for n in (REQUESTS, FEWER):
        until_ns = chosen[n - 1].t_sched_ns
        steps = [s for at_ns, s in cell.steps if cell.window.window_start_ns <= at_ns < until_ns]
        why = no_kinds(arrival, n)
        parts |= {
            f"{name}, {n} requests": part._replace(withheld=why) for name, part in by_kind(steps).items()
        }
    length = block_length([ttft, tpot])
    for k in FEW:
        rows = np.sort(stream(launch, "answers of more than one token").choice(REQUESTS, k, replace=False))
        parts[f"TPOT of {k} answers in {REQUESTS}"] = Part(tpot[rows], seqs[rows], length)
    for n in SMALL:
        parts[f"TTFT of a cell of {n}"] = Part(ttft[:n], seqs[:n], block_length([ttft[:n], tpot[:n]]))
    return parts


def by_kind(steps: list[StepResult]) -> dict[str, Part]:
    durations: dict[str, list[float]] = {name: [] for name in KIND_NAMES}
    for step in steps:
        if step.prefill_tokens + step.decode_tokens:
            kind = (
                "decode_only"
                if not step.prefill_tokens
                else "mixed"
                if step.decode_tokens
                else "prefill_only"
            )
            durations[kind].append(step.duration_ns / 1000)
    none = np.empty(0, dtype=np.int64)
    return {name: Part(np.asarray(v), none, None) for name, v in durations.items() if v}


def estimated(part: Part, confidence: float, launch: int) -> dict[float, Estimate]:
    """As ``read.stats.cells`` makes them."""
    rng = stream(launch, "small subsets")
    if part.withheld is not None:
        return dict.fromkeys(QS, unavailable(part.withheld, part.values.size))
    if part.cell_length is None:
        return estimate_percentiles(
            part.values,
            QS,
            STEP_DRAWS,
            rng,
            length=step_block_length(part.values.size),
            confidence=confidence,
        )
    axis = (int(part.seqs[0]), int(part.seqs[-1]) + 1)
    draw = CommonArrivals(launch, (), axis, part.seqs)
    return estimate_percentiles(
        part.values, QS, DRAWS, rng, length=part.cell_length, draw=draw, confidence=confidence
    )


def outcome(
    confidence: float, truths: dict[str, dict[float, float]], found: tuple[int, dict[str, Part]]
) -> dict[tuple[str, float], str]:
    """(part, percentile) -> ``held``, ``missed``, ``point`` or ``none``."""
    launch, parts = found
    outcomes = {}
    for name, part in parts.items():
        for q, estimate in estimated(part, confidence, launch).items():
            low, high = estimate.interval(confidence)
            if low is None or high is None:
                word = "none"
            else:
                word = "point" if low == high else "held" if low <= truths[name][q] <= high else "missed"
            outcomes[name, q] = word
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--campaigns", type=int, default=200)
    parser.add_argument("--confidence", type=float, default=0.95)
    args = parser.parse_args()
    print(
        f"{args.campaigns} launches; intervals of {args.confidence:.0%}: held, of those that there are (median n)"
    )
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        for load in LOADS:
            parts = list(pool.map(partial(simulated, load), range(args.campaigns), chunksize=5))
            report(load, parts, args.confidence, pool)


def report(
    load: tuple[float, str], parts: list[dict[str, Part]], confidence: float, pool: ProcessPoolExecutor
) -> None:
    names = list(dict.fromkeys(name for p in parts for name in p))
    truths = {}
    for name in names:
        together = np.concatenate([p[name].values for p in parts if name in p])
        truths[name] = {q: float(np.percentile(together, q)) for q in QS}
    found = list(pool.map(partial(outcome, confidence, truths), enumerate(parts), chunksize=5))
    for name in names:
        n = np.median([p[name].values.size for p in parts if name in p])
        row = f"{load[0]:g} req/s, {load[1]:<8} {name:<32} n {n:5.0f}"
        for q in QS:
            words = [o[name, q] for o in found if (name, q) in o]
            there = [w for w in words if w != "none"]
            share = f"{sum(w == 'held' for w in there) / len(there):6.1%}" if there else "     –"
            row += f"   p{q:g} {share} of {len(there):3d}, point {sum(w == 'point' for w in words)}, none {len(words) - len(there)}"
        print(row, flush=True)


if __name__ == "__main__":
    main()
