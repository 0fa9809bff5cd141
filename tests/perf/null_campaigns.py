"""How often a connector that costs nothing is given a tax: 200 whole campaigns in virtual time, from plan to aggregate.

    .venv/bin/python tests/perf/null_campaigns.py [--campaigns 200] [--all]

Plain and a no-op connector whose every cost is zero, so that the two differ by chance alone: the jitter of steps and, where
it is there, what launches differ by. Each campaign has seeds of its own for schedules and engine, is written to disk as a
rehearsal writes it, and is read and analysed as any other. Its step records are left out, which take most of the time and
on which no latency depends.

Without differences between launches one launch each is asked, as the headline does; with the shipped differences also
five blocks of launches. ``--all``: those blocks with Poisson arrivals, too.
"""

import argparse
import multiprocessing
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from connector_tax.artifacts.layout import CampaignFolder
from connector_tax.config import CampaignConfig, parse_campaign
from connector_tax.config.checked import PROJECT_ROOT
from connector_tax.enginemodel.costs import NO_CONNECTOR, load_costs
from connector_tax.enginemodel.model import EngineModel
from connector_tax.files import write_json
from connector_tax.ingest import read_campaign
from connector_tax.plan import campaign_document, cells_of, run_order
from connector_tax.records.cell import CellSpec, Phase
from connector_tax.records.rates import ReferenceRates
from connector_tax.rehearsal.artifacts import write_not_needed, write_preflight, write_run
from connector_tax.rehearsal.campaign import DATE, GAP_NS
from connector_tax.rehearsal.cell import SimulatedCell, simulate_cell
from connector_tax.seeds import derive_seed
from connector_tax.stats.aggregate import aggregate
from connector_tax.stats.reference import select_reference_rates

METRICS = ("ttft_p90", "tpot_p90")
MODEL = PROJECT_ROOT / "config" / "engine_model.yaml"


class Design(NamedTuple):
    """One kind of campaign; ``repeats`` blocks of launches, and whether launches differ."""

    arrival: str
    launches_differ: bool
    repeats: int
    draws: int


DESIGNS = {
    "launches equal, one each, fixed": Design("fixed", False, 0, 1000),
    "launches equal, one each, Poisson": Design("poisson", False, 0, 1000),
    "launches differ, fixed": Design("fixed", True, 5, 200),
    "launches differ, Poisson": Design("poisson", True, 5, 200),
}


def configured(design: Design, seed: int) -> CampaignConfig:
    """The shipped campaign, cut down to two configurations, two rates and one short shape."""
    value = yaml.safe_load((PROJECT_ROOT / "config" / "config.yaml").read_text())
    value |= {"campaign": "null", "seed": seed, "connectors": ["plain", "noop_connector"]}
    value |= {"repeats": design.repeats}
    value["engine"] |= {"kind": "emulator", "model_file": "config/engine_model.yaml"}
    del value["engine"]["python"]
    value["phase_a"]["rates_per_s"] = [1.5, 2]
    value["phase_b"] = {"input_tokens": [512], "output_tokens": [16]}
    value["phase_b_prime"] = {"configs": ["plain"], "shapes": [[512, 16]]}
    value["cell"]["arrival"] = design.arrival
    value["analysis"]["bootstrap_draws"] = design.draws
    return parse_campaign(value, where="null campaign")


class Rehearsed:
    """A campaign folder in the making; one clock for all launches, since they follow one another."""

    def __init__(self, root: Path, config: CampaignConfig, seed: int, *, launches_differ: bool) -> None:
        self.folder, self.config, self.seed = CampaignFolder(root), config, seed
        costs, _ = load_costs(MODEL, None)
        self.costs = costs if launches_differ else replace(costs, launch_cv=0.0)
        self.now_ns = 0
        document = campaign_document(config, date=DATE, created_utc=f"{DATE}T00:00:00Z")
        write_json(self.folder.campaign_file, document)
        write_preflight(self.folder, config)

    def run(self, connector: str, phase: Phase, rates: dict[str, Any]) -> None:
        run = self.folder.run(DATE, connector, phase)
        cells = cells_of(self.config, connector, phase, ReferenceRates.of_document(rates) if rates else None)
        if not cells or (phase == "b_prime" and not rates["b_prime_needed"]):
            write_not_needed(run, self.config.campaign, "no cells in this phase")
            return
        # The seed that a rehearsal takes; the connector's costs are those of none.
        seed = derive_seed(self.seed, "engine", connector, phase)
        model = EngineModel(self.costs, NO_CONNECTOR, max_num_batched_tokens=8192, seed=seed)
        write_run(run, self.config, (self.costs, NO_CONNECTOR), self._simulated(cells, model))

    def _simulated(
        self, cells: tuple[CellSpec, ...], model: EngineModel
    ) -> Iterator[tuple[CellSpec, SimulatedCell]]:
        for spec in cells:
            cell = simulate_cell(spec, model, self.now_ns)
            self.now_ns = cell.window.drained_ns + GAP_NS
            yield spec, replace(cell, steps=[])


def analysed(root: Path, design: Design, seed: int) -> dict[str, Any]:
    config = configured(design, seed)
    campaign = Rehearsed(root, config, seed, launches_differ=design.launches_differ)
    rates: dict[str, Any] = {}
    for phase in config.phases:
        for connector in run_order(config, phase):
            campaign.run(connector, phase, rates)
        if phase == "a":
            rates = select_reference_rates(read_campaign(root, phases=("a",), steps=False))
            write_json(campaign.folder.reference_rates, rates)
    value = aggregate(read_campaign(root, steps=False))
    assert value["problems"] == [], value["problems"]
    return value


def one_campaign(design: Design, seed: int) -> tuple[float, dict[str, dict[str, str]]]:
    """ref_safe, and for one launch and over blocks the verdict on each tax at it."""
    with tempfile.TemporaryDirectory() as folder:
        value = analysed(Path(folder), design, seed)
    one = {
        t["metric"]: t["verdict"] for t in value["taxes"] if t["headline"] and t["reference"] == "ref_safe"
    }
    over = {e["metric"]: e["taxes"][0]["verdict"] for e in value["repeats"] if e["reference"] == "ref_safe"}
    return value["reference_rates"]["ref_safe_per_s"], {"one launch": one} | (
        {"five blocks": over} if over else {}
    )


def false_taxes(verdicts: list[dict[str, str]]) -> str:
    """Counts of intervals that exclude zero: of each tax, and of campaigns with any."""
    known = {"tax", "gain", "no_tax_found"}
    assert all(v[m] in known for v in verdicts for m in METRICS), "a tax without an interval says nothing"
    excluded = [{m: v[m] != "no_tax_found" for m in METRICS} for v in verdicts]
    counts = [*(sum(e[m] for e in excluded) for m in METRICS), sum(any(e.values()) for e in excluded)]
    return " ".join(f"{k:5d} ({k / len(verdicts):5.1%})" for k in counts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--campaigns", type=int, default=200)
    parser.add_argument("--all", action="store_true")
    args = parser.parse_args()
    n = args.campaigns
    heads = " ".join(f"{h:>13}" for h in ("TTFT p90", "TPOT p90", "any of them"))
    print(f"{'false taxes at ref_safe, of ' + str(n) + ' campaigns':<50} {heads}")
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        for name, design in list(DESIGNS.items())[: None if args.all else -1]:
            found = list(pool.map(partial(one_campaign, design), range(n), chunksize=5))
            for what in found[0][1]:
                print(f"{name + ': ' + what:<50} {false_taxes([v[what] for _, v in found])}", flush=True)
            safe = sorted({rate for rate, _ in found})
            shares = ", ".join(f"{r:g} in {sum(rate == r for rate, _ in found)}" for r in safe)
            print(f"    ref_safe (req/s): {shares}; {design.draws} resamples", flush=True)


if __name__ == "__main__":
    main()
