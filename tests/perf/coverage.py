"""How often 95 % intervals hold the truth: 400 campaigns of cells with 200 requests, from queues whose truth is known.

    .venv/bin/python tests/perf/coverage.py [--campaigns 400]

A campaign is plain's cell, plain's once more, and a connector's, whose service takes 10 % longer. Queues: one server with Poisson arrivals and
exponential service; the same with arrivals in bursts (gamma gaps, shape 0.3) and lognormal service; the virtual engine of
rehearsals, at a low and at a high rate. Beside the intervals of the analysis stand those of resampling single requests. Last,
how often plain has a tax against itself.
"""

import argparse
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from held import holds
from numpy.typing import NDArray

from connector_tax.config import load_campaign
from connector_tax.config.checked import PROJECT_ROOT
from connector_tax.enginemodel.costs import ConnectorCosts, EngineCosts, load_costs
from connector_tax.enginemodel.model import EngineModel
from connector_tax.intervals.bootstrap import Estimate, block_length, estimate_percentiles, pooled_length
from connector_tax.plan import cells_of
from connector_tax.rehearsal.cell import simulate_cell
from connector_tax.stats.taxes import relative
from connector_tax.summary.cell import in_window, latencies_ms

Floats = NDArray[np.float64]
N, WARM, DRAWS = 200, 200, 1000
SLOWER = 1.1
QS = (50.0, 90.0)
Source = Callable[[int, float], Floats]


@dataclass(frozen=True)
class Queue:
    """One server, first come first served: time in the system of each request."""

    load: float
    bursty: bool

    def __call__(self, seed: int, slower: float, n: int = N) -> Floats:
        rng = np.random.default_rng(seed)
        total = WARM + n
        gaps = rng.gamma(0.3, 1 / 0.3, total) if self.bursty else rng.exponential(1.0, total)
        mean = self.load * slower
        service = (
            rng.lognormal(np.log(mean) - 0.1116, 0.4724, total)
            if self.bursty
            else rng.exponential(mean, total)
        )
        waits = np.empty(total)
        wait = 0.0
        for k in range(total):
            waits[k] = wait
            wait = max(0.0, wait + service[k] - gaps[k])
        return (waits + service)[WARM:]


@dataclass(frozen=True)
class Virtual:
    """TTFT of the virtual engine, Poisson arrivals; a connector makes every step longer."""

    rate_per_s: float

    def __call__(self, seed: int, slower: float, n: int = N) -> Floats:
        config = load_campaign(PROJECT_ROOT / "config" / "config.yaml")
        engine, _ = load_costs(PROJECT_ROOT / "config" / "engine_model.yaml", None)
        cell = replace(
            cells_of(config, "plain", "a")[0],
            arrival="poisson",
            rate_per_s=self.rate_per_s,
            duration_s=1.0,
            min_completed=n,
            max_cell_s=1e9,
            seed=seed,
        )
        quiet: EngineCosts = replace(engine, launch_cv=0.0)
        model = EngineModel(quiet, ConnectorCosts(step_factor=slower), max_num_batched_tokens=8192, seed=seed)
        found = simulate_cell(cell, model, 0)
        return np.asarray(latencies_ms(in_window(found.requests, found.window))["ttft_ms"])[:n]


SOURCES: dict[str, Source] = {
    "M/M/1, load 0.3": Queue(0.3, False),
    "M/M/1, load 0.5": Queue(0.5, False),
    "M/M/1, load 0.7": Queue(0.7, False),
    "bursts, load 0.3": Queue(0.3, True),
    "bursts, load 0.5": Queue(0.5, True),
    "virtual engine, 1 req/s": Virtual(1.0),
    "virtual engine, 2 req/s": Virtual(2.0),
}


def alone(values: Floats, rng: np.random.Generator) -> dict[float, Estimate]:
    """Single requests resampled, as if none waited for another."""
    drawn = values[rng.integers(0, values.size, (DRAWS, values.size))]
    return {q: Estimate(float(np.percentile(values, q)), np.percentile(drawn, q, axis=1), N) for q in QS}


def one_campaign(name: str, seed: int) -> dict[tuple[str, float], tuple[Estimate, Estimate, Estimate]]:
    """(method, percentile) -> plain's level, the connector's tax, and plain's against itself."""
    plain, own = SOURCES[name](3 * seed, 1.0), SOURCES[name](3 * seed + 1, SLOWER)
    again = SOURCES[name](3 * seed + 2, 1.0)
    rng = np.random.default_rng(seed)
    found = {}
    for method in ("blocks", "single"):
        if method == "blocks":
            cells = (plain, own, again)
            lengths = [block_length([v]) for v in cells]
            a, b, c = (
                estimate_percentiles(v, QS, DRAWS, rng, length=pooled_length(length, lengths, N))
                for v, length in zip(cells, lengths, strict=True)
            )
        else:
            a, b, c = (alone(v, rng) for v in (plain, own, again))
        for q in QS:
            found[method, q] = a[q], relative(b[q], a[q]), relative(c[q], a[q])
    return found


def truth(name: str, slower: float) -> dict[float, float]:
    """From 100,000 requests in 50 runs of their own."""
    source = SOURCES[name]
    together = np.concatenate([source(10**6 + k, slower, 2000) for k in range(50)])  # type: ignore[call-arg]
    return {q: float(np.percentile(together, q)) for q in QS}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--campaigns", type=int, default=400)
    args = parser.parse_args()
    heads = ("p50", "p90", "tax p50", "tax p90", "A/A p50", "A/A p90")
    print(f"{'share of intervals that hold the truth':<28} {' '.join(f'{h:>13}' for h in heads)}")
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        for name in SOURCES:
            base, slow = pool.map(truth, (name, name), (1.0, SLOWER))
            n = args.campaigns
            campaigns = list(pool.map(one_campaign, [name] * n, range(n), chunksize=10))
            cells = []
            for what in (0, 1, 2):
                for q in QS:
                    value = (base[q], slow[q] / base[q] - 1, 0.0)[what]
                    held = [
                        sum(holds(c[method, q][what], value) for c in campaigns) / n
                        for method in ("blocks", "single")
                    ]
                    cells.append(f"{held[0]:6.1%} {held[1]:6.1%}")
            print(f"{name:<28} {' '.join(cells)}", flush=True)
    print(
        "first number: the analysis; second: single requests resampled; A/A: held zero, the rest are false taxes"
    )


if __name__ == "__main__":
    main()
