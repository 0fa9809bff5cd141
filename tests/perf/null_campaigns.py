"""How often the published plan finds a tax where there is none, and one of 10 % where there is: 200 whole campaigns in virtual time.

    .venv/bin/python tests/perf/null_campaigns.py [--campaigns 200] [--repeats 3 --repeat-requests 50]

config/config.yaml with plain and three connectors on the engine model of config/engine_model.yaml, whose launches differ by 1 %:
one whose every cost is zero, one whose true tax of TTFT p90 is 10 %, one whose true tax of TPOT p90 is. Each campaign has seeds of
its own for schedules and engine, is written to disk as a rehearsal writes it, and is read and analysed as any other. What the
headline does not depend on is left out: step records, Phase B's other shapes, and rates above the first overloaded one.

The truth is the mean of log ratios over many launches of either side, which is what the mean over blocks estimates.
"""

import argparse
import multiprocessing
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scipy import optimize

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import CampaignConfig, parse_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.documents.aggregate import Aggregate, BlockTax
from connector_tax.base.files import write_json
from connector_tax.base.plan import campaign_document, cells_of, run_order, until_overload
from connector_tax.base.records.cell import CellSpec, Phase
from connector_tax.base.records.rates import ReferenceRates
from connector_tax.base.seeds import derive_seed
from connector_tax.base.statistics.cell import in_window, latencies_ms
from connector_tax.base.statistics.percentiles import percentile
from connector_tax.base.vllm_model.costs import NO_CONNECTOR, ConnectorCosts, load_costs
from connector_tax.base.vllm_model.model import EngineModel
from connector_tax.read.ingest import read_campaign
from connector_tax.read.stats.aggregate import aggregate
from connector_tax.read.stats.reference import select_reference_rates
from connector_tax.run.rehearsal.campaign import DATE, GAP_NS, write_not_needed, write_preflight, write_run
from connector_tax.run.rehearsal.cell import SimulatedCell, simulate_cell

METRICS = {"ttft_p90": "ttft_ms", "tpot_p90": "tpot_ms"}
COSTS, _ = load_costs(PROJECT_ROOT / "config" / "engine_model.yaml", None)
TRUE_TAX = 0.1
# Stand-ins: their costs are set here.
FREE, TAXED_TTFT, TAXED_TPOT = "noop_connector", "mooncake_both", "nixl_both"
# Launches of either side behind a truth and behind each step of the search for it. They are the same launches, slower by the
# connector, so that what launches differ by hardly enters the ratio.
LAUNCHES, LAUNCHES_OF_SEARCH = 200, 40
# The steepest search: TPOT p90 near capacity moves several times as much as a step.
LARGEST_FACTOR = 1.12
REF_SAFE_PER_S = 2.0


@dataclass(frozen=True)
class Design:
    """The connectors' costs, and what of the published plan is changed."""

    costs: dict[str, ConnectorCosts]
    changes: dict[str, int]


def configured(seed: int, changes: dict[str, int]) -> CampaignConfig:
    """The published campaign with changes, without what the headline does not depend on."""
    value = yaml.safe_load((PROJECT_ROOT / "config" / "config.yaml").read_text())
    value |= {"campaign": "null", "seed": seed, "connectors": ["plain", FREE, TAXED_TTFT, TAXED_TPOT]}
    value["engine"] |= {"kind": "emulator", "model_file": "config/engine_model.yaml"}
    del value["engine"]["python"]
    value["phase_a"]["rates_per_s"] = [r for r in value["phase_a"]["rates_per_s"] if r <= 2 * REF_SAFE_PER_S]
    shape = value["phase_a"]
    value["phase_b"] = {"input_tokens": [shape["input_tokens"]], "output_tokens": [shape["output_tokens"]]}
    value["phase_b_prime"] = {"configs": ["plain"], "shapes": []}
    value["analysis"]["bootstrap_draws"] = 200
    value |= changes
    return parse_campaign(value, where="null campaign")


class Rehearsed:
    """A campaign folder in the making; one clock for all launches, since they follow one another."""

    def __init__(self, root: Path, config: CampaignConfig, seed: int, design: Design) -> None:
        self.folder, self.config, self.seed, self.design = CampaignFolder(root), config, seed, design
        self.now_ns = 0
        document = campaign_document(config, date=DATE, created_utc=f"{DATE}T00:00:00Z")
        write_json(self.folder.campaign_file, document)
        write_preflight(self.folder, config, (COSTS, NO_CONNECTOR))

    def run(self, connector: str, phase: Phase, rates: ReferenceRates | None) -> None:
        run = self.folder.run(DATE, connector, phase)
        cells = cells_of(self.config, connector, phase, rates)
        if not cells:
            write_not_needed(run, self.config.campaign, "no cells in this phase")
            return
        own = self.design.costs.get(connector, NO_CONNECTOR)
        # The seed that a rehearsal takes.
        seed = derive_seed(self.seed, "engine", connector, phase)
        model = EngineModel(COSTS, own, max_num_batched_tokens=8192, seed=seed)
        write_run(run, self.config, (COSTS, own), self._simulated(phase, cells, model))

    def _simulated(
        self, phase: Phase, cells: tuple[CellSpec, ...], model: EngineModel
    ) -> Iterator[tuple[CellSpec, SimulatedCell]]:
        overloaded: set[str] = set()
        for spec in cells:
            if phase == "a" and spec not in until_overload(
                self.config, cells, lambda c: c.cell_id in overloaded
            ):
                continue
            cell = simulate_cell(spec, model, self.now_ns)
            self.now_ns = cell.window.drained_ns + GAP_NS
            if cell.window.overloaded:
                overloaded.add(spec.cell_id)
            yield spec, replace(cell, steps=[])


def analysed(root: Path, design: Design, seed: int) -> Aggregate:
    config = configured(seed, design.changes)
    campaign = Rehearsed(root, config, seed, design)
    rates: ReferenceRates | None = None
    for phase in config.phases:
        for connector in run_order(config, phase):
            campaign.run(connector, phase, rates)
        if phase == "a":
            document = select_reference_rates(read_campaign(root, phases=("a",), steps=False))
            write_json(campaign.folder.reference_rates, document)
            rates = document.rates
    value = aggregate(read_campaign(root, steps=False))
    assert not value.problems, value.problems
    return value


def one_campaign(design: Design, seed: int) -> tuple[float, dict[tuple[str, str], BlockTax]]:
    """ref_safe, and (connector, metric) -> its tax over blocks."""
    with tempfile.TemporaryDirectory() as folder:
        value = analysed(Path(folder), design, seed)
    taxes = {
        (tax.config, entry.metric): tax
        for entry in value.repeats
        if entry.reference == "ref_safe"
        for tax in entry.taxes
    }
    assert value.reference_rates is not None
    return value.reference_rates.ref_safe_per_s, taxes


def mean_log_p90(specs: tuple[CellSpec, ...], connector: ConnectorCosts, launches: int) -> Any:
    """Of TTFT and TPOT over launches of each cell; shape (2,)."""
    rows = []
    for k in range(launches):
        spec = specs[k % len(specs)]
        model = EngineModel(COSTS, connector, max_num_batched_tokens=8192, seed=10**6 + k)
        cell = simulate_cell(spec, model, 0)
        found = latencies_ms(in_window(cell.requests, cell.window))
        rows.append([np.log(percentile(found[name], 90) or np.nan) for name in METRICS.values()])
    return np.mean(rows, axis=0)


def true_taxes(factor: float, launches: int = LAUNCHES) -> dict[str, float]:
    """Of a connector that makes a step so many times as long, over the cells of the plan's blocks, with common random numbers."""
    config = configured(0, {})
    rates = ReferenceRates(REF_SAFE_PER_S, REF_SAFE_PER_S)
    headline = [c for c in cells_of(config, "plain", "a") if c.rate_per_s == REF_SAFE_PER_S]
    blocks = [
        c for p in config.phases if p not in ("a", "b_prime") for c in cells_of(config, "plain", p, rates)
    ]
    specs = (*headline, *blocks)
    own, plain = (mean_log_p90(specs, ConnectorCosts(step_factor=f), launches) for f in (factor, 1.0))
    return dict(zip(METRICS, np.expm1(own - plain).tolist(), strict=True))


def factor_for(metric: str) -> float:
    """The step factor whose true tax of ``metric`` is ``TRUE_TAX``."""
    return float(
        optimize.brentq(
            lambda f: true_taxes(f, LAUNCHES_OF_SEARCH)[metric] - TRUE_TAX,
            1.005,
            LARGEST_FACTOR,
            xtol=1e-3,
            rtol=1e-3,
        )
    )


def share(found: list[bool]) -> str:
    return f"{sum(found):4d} of {len(found)} ({sum(found) / len(found):5.1%})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--campaigns", type=int, default=200)
    parser.add_argument("--repeats", type=int, help="instead of the published number of blocks after Phase B")
    parser.add_argument(
        "--repeat-requests", type=int, help="instead of the published number for each of their cells"
    )
    args = parser.parse_args()
    n = args.campaigns
    changes = {k: v for k in ("repeats", "repeat_requests") if (v := getattr(args, k)) is not None}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), context) as pool:
        factors = dict(zip((TAXED_TTFT, TAXED_TPOT), pool.map(factor_for, METRICS), strict=True))
        truths = dict(zip(factors, pool.map(true_taxes, factors.values()), strict=True))
        design = Design({c: ConnectorCosts(step_factor=f) for c, f in factors.items()}, changes)
        found = list(pool.map(partial(one_campaign, design), range(n), chunksize=2))
    safe = sorted({rate for rate, _ in found})
    print(
        f"{n} campaigns of config/config.yaml{f' with {changes}' if changes else ''}, launches differ by {COSTS.launch_cv:.0%}; ref_safe (req/s): "
        + ", ".join(f"{r:g} in {sum(rate == r for rate, _ in found)}" for r in safe)
    )
    blocks = sorted({tax.n for _, taxes in found for tax in taxes.values()})
    print(f"blocks behind a tax: {', '.join(map(str, blocks))}")
    wrong = {m: [taxes[FREE, m].verdict != "no_tax_found" for _, taxes in found] for m in METRICS}
    for metric, verdicts in wrong.items():
        print(f"no cost:            a tax or gain of {metric}: {share(verdicts)}")
    print(
        f"no cost:            of either:             {share([any(p) for p in zip(*wrong.values(), strict=True)])}"
    )
    for connector, truth in truths.items():
        for metric, value in truth.items():
            taxes = [t[connector, metric] for _, t in found]
            held = [t.low <= value <= t.high for t in taxes]
            widths = np.median([np.log1p(t.high) - np.log1p(t.low) for t in taxes]) / 2
            print(
                f"step x {factors[connector]:.4f}: true tax of {metric} {value:6.2%}: held {share(held)}, "
                f"found {share([t['verdict'] == 'tax' for t in taxes])}, median half-width {widths:.1%}"
            )


if __name__ == "__main__":
    main()
