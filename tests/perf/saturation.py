"""How often the detected saturation rate is the true one: 200 campaigns of Phase A in virtual time.

    .venv/bin/python tests/perf/saturation.py [--campaigns 200] [--arrivals fixed] [--requests 200]

Every campaign is an engine of its own speed (log-uniform, so that its capacity lies anywhere between two rates of
config/config.yaml) under that config's rates, shape and cells, with fixed and with Poisson arrivals; with --requests, under cells of
so many requests and no stopping rule. Its true capacity is found
without any criterion: a closed loop keeps as many requests in flight as the client may have, and completions are counted. The
true saturation rate is the lowest rate of the grid of which that capacity is below 95 %. Beside it: the lowest rate above the
capacity, and engines whose capacity is no closer than 5 % to any rate, for which the two are the same.

Then engines that keep up and take three times the warm-up for a request: how often one of them is flagged.
"""

import argparse
import multiprocessing
import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from connector_tax.base.config import load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.plan import cells_of
from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.host import EngineCosts
from connector_tax.base.statistics.cell import effective_throughput_per_s, in_window
from connector_tax.base.units import NS_PER_S
from connector_tax.base.vllm_model.costs import NO_CONNECTOR, load_costs
from connector_tax.base.vllm_model.model import EngineModel
from connector_tax.read.ingest import CellData
from connector_tax.read.ingest.samples import Samples
from connector_tax.read.stats.reference import MIN_THROUGHPUT_RATIO, Saturation, judge_saturation, rate_point
from connector_tax.run.rehearsal.cell import SimulatedCell, simulate_cell

# Half as fast again as the fastest of these is still below the highest rate, half as slow above the lowest.
SLOWEST, FASTEST = 4.0, 1 / 8
COUNTED = 400
ARRIVALS = ("fixed", "poisson")
CRITERIA = ("throughput", "waiting", "ttft_growth")


@dataclass(frozen=True)
class Outcome:
    """One campaign: what is true and what was found; rates and capacity per second.

    Attributes:
        behind_sent: the lowest rate at which completions were below 95 % of the requests that chance put into the window.
    """

    arrival: str
    capacity: float
    true_rate: float | None
    found: Saturation
    behind_sent: float | None

    @property
    def rates(self) -> list[float]:
        return list(self.found.criteria)

    @property
    def exact_rate(self) -> float | None:
        return min((r for r in self.rates if self.capacity < r), default=None)

    @property
    def near(self) -> bool:
        """Whether the capacity is within 5 % of a rate: a queue that grows so slowly is hardly seen in one cell."""
        return any(0.95 <= self.capacity / r <= 1.05 for r in self.rates)

    def first(self, criterion: str) -> float | None:
        """The lowest rate at which this one fired."""
        return min((r for r, fired in self.found.criteria.items() if fired[criterion]), default=None)


def engine(slower: float) -> EngineCosts:
    """The shipped engine with every part of a step so many times as long."""
    costs, _ = load_costs(PROJECT_ROOT / "config" / "engine_model.yaml", None)
    return msgspec.structs.replace(
        costs,
        base_us=costs.base_us * slower,
        per_prefill_token_us=costs.per_prefill_token_us * slower,
        per_decode_seq_us=costs.per_decode_seq_us * slower,
        per_context_token_us=costs.per_context_token_us * slower,
    )


def launched(costs: EngineCosts, seed: int) -> EngineModel:
    """The same seed is the same launch: it draws the same launch factor."""
    return EngineModel(costs, NO_CONNECTOR, max_num_batched_tokens=8192, seed=seed)


def capacity_per_s(model: EngineModel, spec: CellSpec) -> float:
    """Completions per second with ``inflight_cap`` requests always there, once as many have gone through."""
    for k in range(spec.inflight_cap):
        model.add(k, spec.input_tokens, spec.output_tokens)
    added, done, now_ns, since_ns = spec.inflight_cap, 0, 0, 0
    while done < spec.inflight_cap + COUNTED:
        step = model.step()
        now_ns += step.duration_ns
        for _ in step.finished:
            model.add(added, spec.input_tokens, spec.output_tokens)
            added, done = added + 1, done + 1
        if done <= spec.inflight_cap:
            first, since_ns = done, now_ns
    return (done - first) / ((now_ns - since_ns) / NS_PER_S)


def read(cell: SimulatedCell, spec: CellSpec) -> CellData:
    """As the analysis has it, without the way over the disk."""
    window = cell.window
    waiting = [w for t, _, w in cell.samples if window.window_start_ns <= t < window.t_stop_ns]
    samples = Samples(float(np.median(waiting)) if waiting else None, None, len(waiting), 0)
    return CellData("plain", "a", spec.cell_id, spec, window, {}, cell.requests, samples, None)


def sweep(specs: list[CellSpec], model: EngineModel) -> tuple[Saturation, float | None]:
    """Phase A against one launch; also ``Outcome.behind_sent``."""
    points, now_ns, behind = [], 0, []
    for spec in specs:
        cell = simulate_cell(spec, model, now_ns)
        now_ns = cell.window.drained_ns + NS_PER_S
        points.append(rate_point(read(cell, spec)))
        done_per_s = effective_throughput_per_s(cell.requests, cell.window)
        sent = len(in_window(cell.requests, cell.window))
        if done_per_s * cell.window.window_s < MIN_THROUGHPUT_RATIO * sent:
            behind.append(spec.rate_per_s)
    return judge_saturation(points), min(behind, default=None)


def specs_of(arrival: str, seed: int, requests: int | None) -> list[CellSpec]:
    """As shipped, or each of so many requests at least."""
    config = load_campaign(PROJECT_ROOT / "config" / "config.yaml")
    specs = [replace(s, arrival=arrival, seed=s.seed + seed) for s in cells_of(config, "plain", "a")]
    if requests is None:
        return specs
    longest = {"stop_half_width": None, "max_completed": None, "max_cell_s": 1e6}
    return [replace(s, min_completed=requests, **longest) for s in specs]


def one_campaign(arrival: str, seed: int, requests: int | None) -> Outcome:
    rng = np.random.default_rng(seed)
    costs = engine(SLOWEST * (FASTEST / SLOWEST) ** rng.random())
    specs = specs_of(arrival, seed, requests)
    capacity = capacity_per_s(launched(costs, seed), specs[0])
    beyond = [s.rate_per_s for s in specs if capacity / s.rate_per_s < MIN_THROUGHPUT_RATIO]
    return Outcome(arrival, capacity, min(beyond, default=None), *sweep(specs, launched(costs, seed)))


def one_healthy(arrival: str, seed: int, requests: int | None) -> Outcome:
    """30 s per request of 512 tokens, whatever else runs: far below the 256 requests at once that it takes."""
    rng = np.random.default_rng(seed)
    step_us = 30e6 / 512 * rng.uniform(0.9, 1.1)
    costs = msgspec.structs.replace(
        engine(1.0),
        base_us=step_us,
        per_prefill_token_us=0.5,
        per_decode_seq_us=20.0,
        per_context_token_us=0.0,
        kv_blocks=100_000,
    )
    specs = [replace(s, output_tokens=512) for s in specs_of(arrival, seed, requests) if s.rate_per_s <= 4]
    capacity = capacity_per_s(launched(costs, seed), specs[0])
    return Outcome(arrival, capacity, None, *sweep(specs, launched(costs, seed)))


def _share(outcomes: list[Outcome], rates: list[float | None]) -> str:
    right = sum(rate == o.true_rate for o, rate in zip(outcomes, rates, strict=True))
    return f"{right:4d} of {len(outcomes)} ({right / len(outcomes):6.1%})"


def show_campaigns(outcomes: list[Outcome]) -> None:
    print(f"{outcomes[0].arrival} arrivals: saturation rate as the true capacity says")
    print(f"  any criterion        {_share(outcomes, [o.found.saturation_rate_per_s for o in outcomes])}")
    far = [o for o in outcomes if not o.near]
    print(
        f"  any, capacity not within 5 % of a rate  {_share(far, [o.found.saturation_rate_per_s for o in far])}"
    )
    exact = [replace(o, true_rate=o.exact_rate) for o in outcomes]
    print(
        f"  any, lowest rate above the capacity     {_share(exact, [o.found.saturation_rate_per_s for o in exact])}"
    )
    for criterion in CRITERIA:
        print(f"  {criterion:<12} alone   {_share(outcomes, [o.first(criterion) for o in outcomes])}")
    if outcomes[0].arrival != "fixed":
        print(
            f"  throughput against what was sent, alone {_share(outcomes, [o.behind_sent for o in outcomes])}"
        )
    for o in outcomes:
        rate = o.found.saturation_rate_per_s
        if rate == o.true_rate:
            continue
        at = min(r for r in (rate, o.true_rate) if r is not None)
        numbers = {k: None if v is None else round(v, 3) for k, v in o.found.numbers[at].items()}
        print(
            f"    capacity {o.capacity:6.2f}/s, true {o.true_rate}, found {rate}; at {at:g}: capacity/rate "
            f"{o.capacity / at:.2f}, fired {', '.join(o.found.criteria[at].fired) or 'none'}, {numbers}"
        )


def show_healthy(outcomes: list[Outcome]) -> None:
    flagged = [o for o in outcomes if o.found.saturation_rate_per_s is not None]
    fired = Counter(
        (r, name) for o in flagged for r in o.found.criteria for name in o.found.criteria[r].fired
    )
    lowest = min(n["throughput_ratio"] or 0.0 for o in outcomes for n in o.found.numbers.values())
    growth = max(n["ttft_growth"] or 0.0 for o in outcomes for n in o.found.numbers.values())
    print(
        f"{outcomes[0].arrival} arrivals, E2E of 30 s, capacity {min(o.capacity for o in outcomes):.1f}/s or more, up to 4/s: "
        f"{len(flagged)} of {len(outcomes)} campaigns flagged; lowest throughput ratio {lowest:.3f}, highest TTFT growth {growth:.2f}"
    )
    for (rate, name), n in sorted(fired.items()):
        print(f"    {name} at {rate:g}: {n}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--campaigns", type=int, default=200)
    parser.add_argument("--arrivals", nargs="+", choices=ARRIVALS, default=ARRIVALS)
    parser.add_argument("--requests", type=int, help="of each cell, instead of the shipped stopping rule")
    args = parser.parse_args()
    n = args.campaigns
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        for show, one in ((show_campaigns, one_campaign), (show_healthy, one_healthy)):
            for arrival in args.arrivals:
                show(list(pool.map(one, [arrival] * n, range(n), [args.requests] * n, chunksize=5)))


if __name__ == "__main__":
    main()
