"""How often 95 % intervals hold the truth, and how wide they are: 400 campaigns of cells with 200 requests.

    .venv/bin/python tests/perf/coverage.py [--campaigns 400] [--schedules common|own] [--only NAME ...]

A campaign is plain's cell, plain's once more, and a connector's, whose service takes 10 % longer. With common schedules, as
campaigns have them, all three get the same arrivals and differ in what the server takes; with schedules of their own they
share nothing. Queues: one server with exponential service and Poisson or regular arrivals; the same with arrivals in bursts
(gamma gaps, shape 0.3) and lognormal service, or of a rate that rises and falls; the virtual engine of rehearsals, at a low and at a high rate. The truth is the
percentile of all campaigns' requests together. Campaigns with a cell that ended as overloaded are left out and counted.

Three ways to resample: ``paired``, as the analysis does it, blocks of the same arrivals in every cell; ``blocks``, each cell's
by itself; ``single``, requests one by one. Sources with a shape have step records and a delivery of 2 ms with a deviation of 0.1;
a second line says the same of TTFT with phases averaged out, resampled in pairs, and its width against that of ``paired``.
"""

import argparse
import math
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import NamedTuple

import msgspec
import numpy as np
from held import holds
from numpy.typing import NDArray

from connector_tax.base.config import load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.plan import cells_of
from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.host import EngineCosts
from connector_tax.base.seeds import derive_seed, stream
from connector_tax.base.statistics.bootstrap import (
    Draw,
    Estimate,
    block_length,
    estimate_percentiles,
    pooled_length,
)
from connector_tax.base.statistics.cell import in_window, latencies_ms
from connector_tax.base.statistics.resampling import CommonArrivals, draw_starts
from connector_tax.base.steptime.columns import HookLists, Rows
from connector_tax.base.units import NS_PER_MS
from connector_tax.base.vllm_model.costs import ConnectorCosts, load_costs
from connector_tax.base.vllm_model.model import EngineModel
from connector_tax.read.stats import phases
from connector_tax.read.stats.taxes import relative
from connector_tax.run.rehearsal.cell import SimulatedCell, simulate_cell

Floats = NDArray[np.float64]
N, WARM, DRAWS = 200, 200, 1000
SLOWER = 1.1
QS = (50.0, 90.0)
METHODS = ("paired", "blocks", "single")
AVERAGED = "phases averaged out"
DELIVERY_MS, DELIVERY_SD_MS = 2.0, 0.1
FACTORS = (1.0, SLOWER, 1.0)


class Requests(NamedTuple):
    """A window: arrival index and latency of each request; ``averaged``, where there are step records."""

    seqs: NDArray[np.int64]
    values: Floats
    averaged: phases.Averaged | str | None = None


Source = Callable[[int, int, float], Requests]


@dataclass(frozen=True, slots=True)
class Queue:
    """One server, first come first served: time in the system of each request.

    Attributes:
        arrivals: ``poisson``, ``fixed``, ``bursts`` or ``waves``, one a second; service is lognormal behind bursts, else exponential.
    """

    load: float
    arrivals: str

    def __call__(self, schedule: int, server: int, slower: float) -> Requests:
        come, serve = stream(schedule, "gaps"), stream(server, "service")
        n, mean = WARM + N, self.load * slower
        gaps = {
            "fixed": lambda: np.ones(n),
            "poisson": lambda: come.exponential(1.0, n),
            "bursts": lambda: come.gamma(0.3, 1 / 0.3, n),
            "waves": lambda: come.exponential(1.0, n) * _waves(come, n),
        }[self.arrivals]()
        lognormal = self.arrivals == "bursts"
        service = (
            serve.lognormal(np.log(mean) - 0.1116, 0.4724, n) if lognormal else serve.exponential(mean, n)
        )
        # Lindley's recursion: what is left of all work so far since the server was last idle.
        work = np.concatenate([[0.0], np.cumsum(service[:-1] - gaps[:-1])])
        waits = work - np.minimum.accumulate(work)
        return Requests(np.arange(WARM, n), (waits + service)[WARM:])


def _waves(rng: np.random.Generator, n: int) -> Floats:
    """Poisson arrivals of a rate that halves and doubles: gaps are longer or shorter for 25 requests on average."""
    changes = np.cumsum(rng.random(n) < 1 / 25)
    return np.where((changes + rng.integers(2)) % 2 == 0, 0.6, 1.4)


@dataclass(frozen=True, slots=True)
class Virtual:
    """TTFT of the virtual engine; a connector makes every step longer.

    Attributes:
        shape: prompt and output tokens, with step records; None is Phase A's, without.
    """

    rate_per_s: float
    arrival: str
    shape: tuple[int, int] | None = None

    def __call__(self, schedule: int, server: int, slower: float) -> Requests:
        spec, costs = _shipped()
        tokens = self.shape or (spec.input_tokens, spec.output_tokens)
        cell = replace(
            spec,
            input_tokens=tokens[0],
            output_tokens=tokens[1],
            arrival=self.arrival,
            rate_per_s=self.rate_per_s,
            duration_s=1.0,
            min_completed=N,
            max_cell_s=1e9,
            seed=schedule,
        )
        connector = ConnectorCosts(step_factor=slower)
        model = EngineModel(costs, connector, max_num_batched_tokens=8192, seed=server)
        found = simulate_cell(cell, model, 0)
        if self.shape is not None:
            return _delivered(cell, found, server)
        chosen = in_window(found.requests, found.window)[:N]
        return Requests(np.array([r.seq for r in chosen]), np.asarray(latencies_ms(chosen)["ttft_ms"]))


def _delivered(cell: CellSpec, found: SimulatedCell, server: int) -> Requests:
    """Requests that were sent a while before the engine had them."""
    delivery_ms = stream(server, "delivery").normal(DELIVERY_MS, DELIVERY_SD_MS, len(found.requests))
    sent_ns = [r.t_sched_ns - int(ms * NS_PER_MS) for r, ms in zip(found.requests, delivery_ms, strict=True)]
    requests = [
        replace(r, t_sched_ns=ns, t_send_ns=ns) for r, ns in zip(found.requests, sent_ns, strict=True)
    ]
    chosen = in_window(requests, found.window)[:N]
    seqs = np.array([r.seq for r in chosen])
    t_ns, results = zip(*found.steps, strict=True)
    ints = {
        "t_ns": t_ns,
        "t_update_ns": [t + r.duration_ns for t, r in found.steps],
        "step_id": range(len(t_ns)),
        "prefill_tokens": [r.prefill_tokens for r in results],
        "decode_tokens": [r.decode_tokens for r in results],
    }
    none = HookLists(np.empty(0, dtype=np.int64), np.zeros(len(t_ns), dtype=np.int64))
    rows = Rows({k: np.array(v) for k, v in ints.items()}, {"update_us": np.zeros(len(t_ns))}, none, none)
    sent = phases.sent(cell, found.window, requests)
    assert sent is not None, "arrivals are Poisson's"
    sent = replace(sent, counts=np.isin([r.seq for r in requests], seqs))
    return Requests(seqs, np.asarray(latencies_ms(chosen)["ttft_ms"]), phases.averaged(sent, rows))


@lru_cache
def _shipped() -> tuple[CellSpec, EngineCosts]:
    """A cell of Phase A and the engine's costs, launches alike."""
    config = load_campaign(PROJECT_ROOT / "config" / "config.yaml")
    engine, _ = load_costs(PROJECT_ROOT / "config" / "engine_model.yaml", None)
    return cells_of(config, "plain", "a")[0], msgspec.structs.replace(engine, launch_cv=0.0)


SOURCES: dict[str, Source] = {
    "M/M/1, load 0.3": Queue(0.3, "poisson"),
    "M/M/1, load 0.5": Queue(0.5, "poisson"),
    "M/M/1, load 0.7": Queue(0.7, "poisson"),
    "bursts, load 0.3": Queue(0.3, "bursts"),
    "bursts, load 0.5": Queue(0.5, "bursts"),
    "waves, load 0.3": Queue(0.3, "waves"),
    "waves, load 0.5": Queue(0.5, "waves"),
    "D/M/1, load 0.5": Queue(0.5, "fixed"),
    "D/M/1, load 0.7": Queue(0.7, "fixed"),
    "virtual, 1 req/s, Poisson": Virtual(1.0, "poisson"),
    "virtual, 2 req/s, Poisson": Virtual(2.0, "poisson"),
    "virtual, 1 req/s, fixed": Virtual(1.0, "fixed"),
    "virtual, 2 req/s, fixed": Virtual(2.0, "fixed"),
    "virtual, 32 + 64 tokens, 10 req/s": Virtual(10.0, "poisson", (32, 64)),
    "virtual, 256 + 16 tokens, 12 req/s": Virtual(12.0, "poisson", (256, 16)),
    "virtual, 512 + 64 tokens, 7 req/s": Virtual(7.0, "poisson", (512, 64)),
    "virtual, 2048 + 64 tokens, 3 req/s": Virtual(3.0, "poisson", (2048, 64)),
}


def simulate(name: str, common: bool, campaign: int) -> list[Requests]:
    """Plain's cell, the connector's, and plain's again."""
    return [
        SOURCES[name](
            derive_seed(campaign, "schedule", *(() if common else (k,))),
            derive_seed(campaign, "server", k),
            slower,
        )
        for k, slower in enumerate(FACTORS)
    ]


def kept_up(cells: list[Requests]) -> bool:
    """Whether every request finished; an overloaded cell ends early and has no percentile, so no interval either."""
    return all(bool(np.isfinite(cell.values).all()) for cell in cells)


def alone(values: Floats, rng: np.random.Generator) -> dict[float, Estimate]:
    """Single requests resampled, as if none waited for another."""
    drawn = values[rng.integers(0, values.size, (DRAWS, values.size))]
    points, replicates = np.percentile(values, QS), np.percentile(drawn, QS, axis=1)
    return {q: Estimate(float(points[k]), replicates[k], N) for k, q in enumerate(QS)}


def estimates(
    method: str, cells: list[Requests], lengths: list[int], seed: int
) -> list[dict[float, Estimate]]:
    """Of each cell, as ``read.stats.cells`` makes them."""
    rng = stream(seed, method)
    if method == "single":
        return [alone(cell.values, rng) for cell in cells]
    axis = (min(int(c.seqs[0]) for c in cells), max(int(c.seqs[-1]) + 1 for c in cells))
    found = []
    for cell, length in zip(cells, lengths, strict=True):
        draw: Draw = draw_starts if method == "blocks" else CommonArrivals(seed, (), axis, cell.seqs)
        if method == AVERAGED:
            assert cell.averaged is not None
            whole = {"length": length, "factor": 1.0, "draw": draw, "confidence": 0.95}
            found.append(phases.estimate(cell.averaged, cell.seqs.size, QS, DRAWS, rng, **whole))
        else:
            found.append(estimate_percentiles(cell.values, QS, DRAWS, rng, length=length, draw=draw))
    return found


class Outcome(NamedTuple):
    """Whether an interval held the truth, and its width; of a tax on the log scale."""

    held: bool
    width: float


def analyse(
    truths: list[dict[float, float]], cells: list[Requests], seed: int
) -> dict[tuple[str, str], Outcome]:
    """(method, number) -> its interval."""
    own = [block_length([c.values]) for c in cells]
    lengths = [pooled_length(length, own, N) for length in own]
    base, slow = truths
    found = {}
    methods = [*METHODS, *[AVERAGED] * all(isinstance(c.averaged, phases.Averaged) for c in cells)]
    for method in methods:
        plain, connector, again = estimates(method, cells, lengths, seed)
        for q in QS:
            found[method, f"p{q:g}"] = Outcome(holds(plain[q], base[q]), math.nan)
            found[method, f"tax p{q:g}"] = _of_tax(relative(connector[q], plain[q]), slow[q] / base[q] - 1)
            found[method, f"A/A p{q:g}"] = _of_tax(relative(again[q], plain[q]), 0.0)
    return found


def _of_tax(tax: Estimate, truth: float) -> Outcome:
    low, high = tax.interval(0.95)
    assert low is not None and high is not None, "every request finished, so every interval has ends"
    return Outcome(holds(tax, truth), math.log1p(high) - math.log1p(low))


def truths_of(campaigns: list[list[Requests]]) -> list[dict[float, float]]:
    """Percentiles of all requests: of plain's cells, and of the connector's."""
    together = [np.concatenate([c[k].values for c in campaigns for k in ks]) for ks in ((0, 2), (1,))]
    return [{q: float(np.percentile(values, q)) for q in QS} for values in together]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--campaigns", type=int, default=400)
    parser.add_argument("--schedules", choices=("common", "own"), default="common")
    parser.add_argument("--only", nargs="*", choices=tuple(SOURCES), default=tuple(SOURCES))
    args = parser.parse_args()
    n = args.campaigns
    levels, taxes = [f"p{q:g}" for q in QS], [f"{what} p{q:g}" for what in ("tax", "A/A") for q in QS]
    print(
        f"{n} campaigns, schedules: {args.schedules}. Held by {', '.join(METHODS)}; width is paired / blocks"
    )
    print(f"{'':<28}" + "".join(f"{h:>20}" for h in (*levels, *taxes)) + "".join(f"{h:>9}" for h in taxes))
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        for name in args.only:
            made = pool.map(partial(simulate, name, args.schedules == "common"), range(n), chunksize=5)
            cells = [campaign for campaign in made if kept_up(campaign)]
            found = list(pool.map(partial(analyse, truths_of(cells)), cells, range(n), chunksize=5))
            row = f"{name:<28}"
            for what in (*levels, *taxes):
                held = [sum(f[m, what].held for f in found) / len(cells) for m in METHODS]
                row += f"{'':2}" + "".join(f"{h:6.1%}" for h in held)
            for what in taxes:
                widths = [float(np.mean([f[m, what].width for f in found])) for m in ("paired", "blocks")]
                row += f"{widths[0] / widths[1]:9.2f}"
            print(
                row + (f"  without {n - len(cells)} with an overloaded cell" if len(cells) < n else ""),
                flush=True,
            )
            if given := [f for f in found if (AVERAGED, "p90") in f]:
                row = f"  {AVERAGED:<26}"
                for what in (*levels, *taxes):
                    row += f"{sum(f[AVERAGED, what].held for f in given) / len(given):20.1%}"
                for what in taxes:
                    widths = [float(np.mean([f[m, what].width for f in given])) for m in (AVERAGED, "paired")]
                    row += f"{widths[0] / widths[1]:9.2f}"
                print(row + f"  in {len(given)} of {len(found)}", flush=True)


if __name__ == "__main__":
    main()
