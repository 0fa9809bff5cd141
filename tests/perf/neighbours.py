"""What engines side by side do to each other: plain against itself alone, and beside a neighbour under load, on one host.

    .venv/bin/python tests/perf/neighbours.py [--configfile config/demo.yaml] [--blocks 6] [--rate 20 --neighbour-rate 60]

The engine of the config file has the first of two places, with its share of the cores, and is launched twice in each block. The neighbour is the same
engine in the second place, loaded without a pause by ``connector-tax load`` on its own cores. Campaigns are measured in the order
alone, beside, beside, alone, so that a drift of the host falls on both alike.

Two things are told apart: by how much a neighbour makes everything slower (of plain, so that it does not enter a ratio to plain
that is measured under the same neighbour), and whether plain against itself differs by more, which is what a tax has to stand out from.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from msgspec.structs import replace
from scipy import stats

from connector_tax.base.config import CampaignConfig, load_campaign
from connector_tax.run.engine.gpus import slots_of
from connector_tax.run.engine.process import LaunchRequest, running_engine
from connector_tax.run.loadgen.descriptors import discover, place
from connector_tax.run.measure.launch import share_of
from connector_tax.run.measure.locks import Waiting, first_free, holder_words

sys.path.insert(0, str(Path(__file__).parents[1] / "emulated"))
from checkout import Project

METRICS = {"TTFT": "ttft_ms", "TPOT": "tpot_ms"}
PERCENTILES = ("p50", "p90")
ROUNDS = ("alone", "beside", "beside", "alone")


def configured(project: Project, source: Path, name: str, args: argparse.Namespace) -> Path:
    config: dict[str, Any] = yaml.safe_load(source.read_text())
    rates = sorted(config["phase_a"]["rates_per_s"])
    shape = (config["phase_a"]["input_tokens"], config["phase_a"]["output_tokens"])
    config["campaign"] = name
    config["connectors"] = ["plain"]
    config["engine"] |= {"gpus": args.cards, "mix_cards": True, "wait_for_card_s": 60}
    config["phase_a"]["rates_per_s"] = [args.rate or rates[0]]
    config["phase_b"] = {"input_tokens": [shape[0]], "output_tokens": [shape[1]]}
    for key in ("phase_b_prime", "phase_c", "phase_d", "observer_effect"):
        config.pop(key, None)
    config["accuracy"] = {"prompts": 0}
    config |= {"repeats": args.blocks, "repeat_requests": args.requests}
    file = project.root / "config" / f"{name}.yaml"
    file.write_text(yaml.safe_dump(config))
    return file


@contextmanager
def neighbour(config: CampaignConfig, folder: Path, rate: float) -> Iterator[None]:
    """The config's engine in the second place, under load for as long as the body runs."""
    slot = slots_of(config.engine)[1]
    nodes = [s.cards.first.numa if s.cards.first else None for s in slots_of(config.engine)]
    cores = share_of(discover(), 1, 2, nodes)
    engine_cpus = place(cores, config.cell.workers).engine
    cpus = {cpu for core in cores for cpu in core.cpus}
    who = holder_words(folder, "neighbour")
    request = LaunchRequest(
        slot.engine, config.connector("plain"), folder, cpus=engine_cpus, cards=slot.cards, place=1, of=2
    )
    with first_free([slot], who, Waiting(60, say=print)) as _, running_engine(request) as engine:
        engine.wait_ready()
        shape = config.phase_a_shape
        command = [
            sys.executable,
            "-m",
            "connector_tax",
            "load",
            "--base-url",
            engine.base_url,
            "--rate",
            str(rate),
        ]
        command += [
            "--shape",
            f"{shape.input_tokens}x{shape.output_tokens}",
            "--duration",
            "7200",
            "--max-seconds",
            "7200",
        ]
        # It finds its place among the cores that it may use.
        own = cpus if engine_cpus else os.sched_getaffinity(0)
        with open(folder / "load.log", "ab") as log:
            load = subprocess.Popen(
                [*command, "--out", str(folder / "load")],
                stdout=log,
                stderr=log,
                preexec_fn=lambda: os.sched_setaffinity(0, own),
            )
        try:
            yield
            if load.poll() is not None:
                sys.exit(f"the neighbour's load ended early: {(folder / 'load.log').read_text()[-2000:]}")
        finally:
            load.terminate()
            load.wait()


def measure(project: Project, file: Path) -> None:
    command = [sys.executable, "-m", "snakemake", "repeats", "--cores", "1", "--configfile", str(file)]
    done = subprocess.run(command, cwd=project.root, env=project.environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr[-3000:])


def percentiles(results: Path) -> dict[tuple[str, str, str], dict[str, float]]:
    """(configuration, metric, percentile) -> phase of each block -> log of milliseconds."""
    found: dict[tuple[str, str, str], dict[str, float]] = {}
    for file in sorted(results.glob("*/phase_r*/summary.json")):
        (cell,) = json.loads(file.read_text())["cells"].values()
        for metric, key in METRICS.items():
            for name in PERCENTILES:
                values = found.setdefault((file.parents[1].name[11:], metric, name), {})
                values[file.parent.name] = math.log(cell[key][name])
    return found


def spread_words(differences: np.ndarray) -> str:
    """Standard deviation with its 95 % interval by chi-squared."""
    degrees = len(differences) - 1
    spread = float(np.std(differences, ddof=1))
    low, high = (spread * math.sqrt(degrees / stats.chi2.ppf(q, degrees)) for q in (0.975, 0.025))
    return f"{spread:.2%} [{low:.2%}, {high:.2%}]"


def compare(found: dict[str, list[dict[tuple[str, str, str], dict[str, float]]]]) -> None:
    for metric in METRICS:
        for name in PERCENTILES:
            level: dict[str, np.ndarray] = {}
            words = []
            for how in ("alone", "beside"):
                plain = [v for one in found[how] for v in one["plain", metric, name].values()]
                again = [
                    one["plain_again", metric, name][p]
                    for one in found[how]
                    for p in one["plain", metric, name]
                ]
                level[how] = np.array([*plain, *again])
                words.append(f"{how} {spread_words(np.subtract(again, plain))}")
            shift = stats.ttest_ind(level["beside"], level["alone"], equal_var=False)
            low, high = shift.confidence_interval()
            point = float(level["beside"].mean() - level["alone"].mean())
            print(
                f"{metric} {name}: beside a neighbour {math.expm1(point):+.2%} [{math.expm1(low):+.2%}, {math.expm1(high):+.2%}]; "
                f"plain against itself differs by (standard deviation) {', '.join(words)}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--configfile", type=Path, default=Path("config/demo.yaml"))
    parser.add_argument("--cards", type=int, nargs=2, default=[0, 1])
    parser.add_argument(
        "--blocks", type=int, default=6, help="of each of four campaigns; default %(default)s"
    )
    parser.add_argument("--requests", type=int, default=60, help="completed, of each launch")
    parser.add_argument("--rate", type=float, help="default: the lowest of Phase A")
    parser.add_argument("--neighbour-rate", type=float, help="default: the highest of Phase A")
    args = parser.parse_args()
    rates = yaml.safe_load(args.configfile.read_text())["phase_a"]["rates_per_s"]
    with tempfile.TemporaryDirectory(prefix="neighbours-") as temporary:
        project = Project(Path(temporary) / "checkout")
        # Its locks are the measured campaign's as well.
        os.environ["CONNECTOR_TAX_CACHE"] = project.environment["CONNECTOR_TAX_CACHE"]
        found: dict[str, list[Any]] = {"alone": [], "beside": []}
        for k, how in enumerate(ROUNDS):
            file = configured(project, args.configfile, f"round{k}", args)
            if how == "beside":
                folder = project.root / f"neighbour{k}"
                folder.mkdir()
                config = load_campaign(file)
                config = replace(config, engine=replace(config.engine, stop_grace_s=5.0))
                with neighbour(config, folder, args.neighbour_rate or max(rates)):
                    measure(project, file)
            else:
                measure(project, file)
            found[how].append(percentiles(project.root / "results" / f"round{k}"))
            print(f"round {k + 1} of {len(ROUNDS)}: {how}", flush=True)
        cores = len(discover())
        print(
            f"{cores} physical cores; 2 x {args.blocks} blocks of two launches alone and as many beside a neighbour at {args.neighbour_rate or max(rates):g} req/s"
        )
        compare(found)


if __name__ == "__main__":
    main()
