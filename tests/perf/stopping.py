"""Cells that end when they know enough, against cells of a length fixed beforehand, in rehearsed campaigns.

    .venv/bin/python tests/perf/stopping.py [--campaigns 100] [--half-width 0.03]

A campaign is Phase A of config/config.yaml for plain and for a connector whose steps take 10 % longer, at the rates that the
virtual engine sustains. How noisy an engine is nobody knows beforehand, so a campaign's steps jitter by 1, 3 or 10 %. Every cell is simulated once, to 800 requests in its window, and each plan takes as much of it as it
would have measured: a fixed one the same number of completed requests in every cell; the adaptive one looks at 50, 100, 200 ...
and ends a cell once p90 of TTFT and of TPOT are known to +-half-width. Printed for each: the engine's time, the share of cells
that are as tight as asked, and how often intervals hold the truth, which is p90 of all campaigns of the same jitter together.
The last plan is the adaptive one with intervals as if nobody had looked before.
"""

import argparse
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from held import holds
from numpy.typing import NDArray

from connector_tax.base.config import load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.plan import cells_of
from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.seeds import derive_seed, stream
from connector_tax.base.statistics.bootstrap import Estimate, estimate_jointly
from connector_tax.base.statistics.cell import latencies_ms
from connector_tax.base.statistics.interim import interim_factor
from connector_tax.base.vllm_model.costs import ConnectorCosts, load_costs
from connector_tax.base.vllm_model.model import EngineModel
from connector_tax.read.stats.taxes import relative
from connector_tax.run.rehearsal.cell import SimulatedCell, simulate_cell
from connector_tax.run.workload.stopping import StoppingRule

FIRST, LAST = 50, 800
FIXED = (50, 100, 200, 400, 800)
RATES = (0.5, 1.0, 2.0)
JITTERS = (0.01, 0.03, 0.1)
SLOWER = {"plain": 1.0, "connector": 1.1}
CELLS = [(who, rate) for who in SLOWER for rate in RATES]
METRICS = ("ttft_ms", "tpot_ms")
DRAWS = 400
ADAPTIVE, UNCORRECTED = "adaptive", "adaptive, one look's interval"
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Kept:
    """What one plan measures of one cell."""

    spent_s: float
    n: int
    estimates: dict[str, Estimate]


Campaign = dict[tuple[str, tuple[str, float]], Kept]


def one_campaign(
    campaign: int, arrival: str, half_width: float
) -> tuple[Campaign, dict[tuple[str, float], list[Floats]]]:
    """(plan, cell) -> what it measured, and all latencies of each cell."""
    kept: Campaign = {}
    everything = {}
    for cell in CELLS:
        found, spec = simulate(cell, campaign, arrival, half_width)
        ends = [r for r in sorted(found.requests, key=lambda r: r.t_end_ns or 0) if r.status == "ok"]
        start_ns = found.window.window_start_ns
        rng = stream(campaign, "stopping", *map(str, cell))
        everything[cell] = [columns(found, found.window.t_stop_ns)[m] for m in METRICS]
        for plan, stop_ns, factor in plans(spec, ends, start_ns):
            own = columns(found, stop_ns)
            estimates = estimate_jointly(own, (90.0,), DRAWS, rng, factor=factor)
            kept[plan, cell] = Kept(
                (stop_ns - found.window.t0_ns) / 1e9,
                own["ttft_ms"].size,
                {m: estimates[m, 90.0] for m in METRICS},
            )
    return kept, everything


def simulate(
    cell: tuple[str, float], campaign: int, arrival: str, half_width: float
) -> tuple[SimulatedCell, CellSpec]:
    who, rate = cell
    config = load_campaign(PROJECT_ROOT / "config" / "config.yaml")
    engine, _ = load_costs(PROJECT_ROOT / "config" / "engine_model.yaml", None)
    spec = replace(
        cells_of(config, "plain", "a")[0],
        arrival=arrival,
        rate_per_s=rate,
        # The floor in seconds would hide what a plan asks for.
        duration_s=1.0,
        min_completed=LAST,
        max_cell_s=1e9,
        seed=derive_seed(campaign, "stopping", who, rate),
    )
    model = EngineModel(
        msgspec.structs.replace(engine, launch_cv=0.0, jitter_cv=JITTERS[campaign % len(JITTERS)]),
        ConnectorCosts(step_factor=SLOWER[who]),
        max_num_batched_tokens=8192,
        seed=spec.seed,
    )
    ruled = replace(spec, min_completed=FIRST, max_completed=LAST, stop_half_width=half_width)
    return simulate_cell(spec, model, 0), ruled


def plans(spec: CellSpec, ends: list[RequestRecord], start_ns: int) -> Iterator[tuple[str, int, float]]:
    """(name, when it stops sending, how much wider its intervals are)."""
    in_window = [r for r in ends if r.t_sched_ns >= start_ns]
    for n in FIXED:
        yield f"fixed, {n} requests", in_window[n - 1].t_end_ns or 0, 1.0
    rule = StoppingRule(spec)
    for request in ends:
        rule.note(request)
        if rule.enough(start_ns):
            yield ADAPTIVE, request.t_end_ns or 0, interim_factor(spec, 0.95)
            yield UNCORRECTED, request.t_end_ns or 0, 1.0
            return


def columns(cell: SimulatedCell, stop_ns: int) -> dict[str, Floats]:
    chosen = [r for r in cell.requests if cell.window.window_start_ns <= r.t_sched_ns < stop_ns]
    return {k: np.asarray(v) for k, v in latencies_ms(chosen).items() if k in METRICS}


def half_width_of(kept: Kept) -> float:
    """The wider of the two metrics'."""
    ends = [kept.estimates[m].interval(0.95) for m in METRICS]
    return max(float(np.log(high / low) / 2) if low and high else np.inf for low, high in ends)


def held(
    campaign: Campaign, plan: str, true: dict[tuple[str, float], list[float]]
) -> tuple[list[bool], list[bool]]:
    """Of each level, and of each tax: whether the interval holds the truth."""
    levels, taxes = [], []
    for rate in RATES:
        for k, name in enumerate(METRICS):
            own, plain = (campaign[plan, (who, rate)].estimates[name] for who in ("connector", "plain"))
            truths = true["connector", rate][k], true["plain", rate][k]
            levels += [holds(own, truths[0]), holds(plain, truths[1])]
            taxes.append(holds(relative(own, plain), truths[0] / truths[1] - 1))
    return levels, taxes


def truth_of(campaigns: list[dict[tuple[str, float], list[Floats]]]) -> dict[tuple[str, float], list[float]]:
    """p90 of both metrics in each cell, all campaigns together."""
    return {
        cell: [float(np.percentile(np.concatenate([c[cell][k] for c in campaigns]), 90)) for k in range(2)]
        for cell in CELLS
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--campaigns", type=int, default=100)
    parser.add_argument("--arrival", default="fixed", choices=("fixed", "poisson"))
    parser.add_argument("--half-width", type=float, default=0.03)
    args = parser.parse_args()
    n = args.campaigns
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        found = list(pool.map(one_campaign, range(n), [args.arrival] * n, [args.half_width] * n))
    campaigns = [kept for kept, _ in found]
    truths = [truth_of([e for _, e in found[k :: len(JITTERS)]]) for k in range(len(JITTERS))]
    print(f"{n} campaigns, {args.arrival} arrivals at {RATES} req/s, half-width {args.half_width:.1%}")
    print(f"{'plan':<30} {'hours':>6} {'tight':>6} {'p90 held':>9} {'tax held':>9}  requests per cell")
    spent, share = {}, {}
    for plan in (*(f"fixed, {k} requests" for k in FIXED), ADAPTIVE, UNCORRECTED):
        kept = [held(c, plan, truths[k % len(JITTERS)]) for k, c in enumerate(campaigns)]
        spent[plan] = float(np.mean([sum(c[plan, k].spent_s for k in CELLS) for c in campaigns])) / 3600
        share[plan] = float(
            np.mean([half_width_of(c[plan, k]) <= args.half_width for c in campaigns for k in CELLS])
        )
        print(
            f"{plan:<30} {spent[plan]:6.2f} {share[plan]:6.1%}"
            f" {np.mean([k[0] for k in kept]):9.1%} {np.mean([k[1] for k in kept]):9.1%} "
            f" {[int(np.mean([c[plan, (who, rate)].n for c in campaigns for who in SLOWER])) for rate in RATES]}"
        )
    fixed = [f"fixed, {k} requests" for k in FIXED]
    equal = float(np.interp(share[ADAPTIVE], [share[p] for p in fixed], [spent[p] for p in fixed]))
    print(
        f"a fixed plan with as many tight cells would take {equal:.2f} h; adaptive / fixed = {spent[ADAPTIVE] / equal:.2f}"
    )


if __name__ == "__main__":
    main()
