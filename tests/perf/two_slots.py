"""Two engines side by side: how much sooner a campaign is done, whether they have anything in common, and whether its taxes are the same.

    .venv/bin/python tests/perf/two_slots.py [--blocks 3] [--requests 60] [--control] [--keep FOLDER]

The demo's eight configurations on the embedded engine, once with one slot and once with two, in a checkout of their own; plain is launched
twice in each block. Wall time is that of the whole command: preflight, every phase, analysis, figures and report. Every third of a second
everything that the jobs at work hold is looked at: listening ports, Unix sockets, files open for writing.

Taxes are differences of logs of TTFT p90 and TPOT p90 to plain's, one of each block of launches: Phases A and B measure the same load as the
blocks of repeats, so there are two more. What decides: two campaigns' taxes differ by no more than plain's two launches of a block do, by
the standard deviation of those pairs over both campaigns, Student's t and all comparisons taken together (Bonferroni). Printed beside and deciding
nothing are Welch's test of each change over blocks, since connectors' launches may spread by more than plain's, and by how much plain
became slower: a neighbour that starts takes a core for a second, and on two cores nobody has one of his own.

``--control`` measures the campaign with one slot once more at the end and compares it with both others by the same criterion. What two campaigns
with one slot differ by is what the criterion cannot lay on the second slot. The control decides nothing either.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "emulated"))
from checkout import Project
from side_by_side import Watch, cells_of, collisions, overlapping, watching

# The load that every phase of the campaign has.
CELL = "r20_256x16"
METRICS = {"TTFT p90": "ttft_ms", "TPOT p90": "tpot_ms"}
BAR = 0.6


def configured(project: Project, name: str, blocks: int, requests: int) -> None:
    def change(config: dict[str, Any]) -> None:
        demo = yaml.safe_load((project.root / "config" / "demo.yaml").read_text())
        config["campaign"] = name
        config["connectors"] = demo["connectors"]
        config["engine"]["gpus"] = [0, 1]
        config["phase_a"]["rates_per_s"] = [10, 20]
        config["phase_b"] = {"input_tokens": [256], "output_tokens": [16]}
        config["phase_b_prime"] = {}
        config["cell"].update(warmup_s=0.3, duration_s=3.0, min_completed=requests, max_cell_s=8)
        config |= {"repeats": blocks, "repeat_requests": requests}

    project.configure(change)
    (project.root / "config" / "test.yaml").rename(project.root / "config" / f"{name}.yaml")


def measure(project: Project, name: str, slots: int) -> tuple[float, float, Watch]:
    """Seconds of the whole command, of them from the end of preflight to the last receipt, and what was seen."""
    command = [sys.executable, "-m", "snakemake", "--cores", str(slots), "--resources", f"gpu={slots}"]
    begun, began_s = time.monotonic(), time.time()
    with open(project.root / "snakemake.log", "ab") as log, watching(project.root) as watch:
        subprocess.run(
            [*command, "--configfile", f"config/{name}.yaml"],
            cwd=project.root,
            env=project.environment,
            stdout=log,
            stderr=log,
            check=True,
        )
    wall_s = time.monotonic() - begun
    results = project.root / "results" / name
    ended = max(p.stat().st_mtime for p in results.glob("*/phase_*/receipt.json"))
    tried = (results / "preflight" / "preflight_status.json").stat().st_mtime
    print(
        f"{name}: {wall_s:.1f} s in all; preflight until {tried - began_s:.1f} s, last receipt at {ended - began_s:.1f} s"
    )
    return wall_s, ended - tried, watch


def logs(results: Path, blocks: int) -> dict[tuple[str, str], np.ndarray]:
    """(configuration, metric) -> of each block the log of its percentile."""
    found: dict[tuple[str, str], list[float]] = {}
    for phase in ("a", "b", *(f"r{k}" for k in range(1, blocks + 1))):
        for file in results.glob(f"*/phase_{phase}/summary.json"):
            cell = json.loads(file.read_text())["cells"][CELL]
            for metric, key in METRICS.items():
                found.setdefault((file.parents[1].name[11:], metric), []).append(math.log(cell[key]["p90"]))
    return {key: np.array(values) for key, values in found.items()}


def percent(log: float) -> str:
    return f"{math.expm1(log):+.2%}"


def compare(first: Path, second: Path, blocks: int) -> bool:
    """Prints how the taxes of two campaigns differ; whether all are within the band."""
    print(f"{first.name} (first) and {second.name} (second):")
    one, two = logs(first, blocks), logs(second, blocks)
    configs = sorted({c for c, _ in one} - {"plain", "plain_again"})
    many, apart = len(configs) * len(METRICS), []
    for metric in METRICS:
        again, plain = ("plain_again", metric), ("plain", metric)
        n = len(one[plain])
        both = [of[again] - of[plain] for of in (one, two)]
        spread = math.sqrt(sum(float(np.sum((p - p.mean()) ** 2)) for p in both) / (2 * (n - 1)))
        band = float(stats.t.ppf(1 - 0.025 / many, 2 * (n - 1))) * spread * math.sqrt(2 / n)
        print(f"{metric}, {n} blocks of each; taxes may differ by ±{band:.2%}")
        for name, pairs in zip(("first", "second"), both, strict=True):
            print(
                f"    plain against itself, {name}: mean {pairs.mean():+.2%}, standard deviation {pairs.std(ddof=1):.2%}"
            )
        slower = stats.ttest_ind([*two[plain], *two[again]], [*one[plain], *one[again]], equal_var=False)
        low, high = slower.confidence_interval()
        print(
            f"    plain of the second, against the first's: {percent((low + high) / 2)} [{percent(low)}, {percent(high)}] (95 %)"
        )
        for config in configs:
            taxes = [of[config, metric] - of[plain] for of in (one, two)]
            change = stats.ttest_ind(taxes[1], taxes[0], equal_var=False)
            low, high = change.confidence_interval(1 - 0.05 / many)
            differ = float(taxes[1].mean() - taxes[0].mean())
            words = "within" if abs(differ) <= band else "OUTSIDE"
            apart += [config] if words == "OUTSIDE" else []
            print(
                f"    {config:<24} {percent(taxes[0].mean()):>8} {percent(taxes[1].mean()):>8}  {words}; "
                f"by Welch's test {percent((low + high) / 2)} [{percent(low)}, {percent(high)}], p {change.pvalue:.3f}"
            )
    print(f"taxes: {many - len(apart)} of {many} agree within A/A noise")
    return not apart


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--control", action="store_true", help="one slot once more, against both")
    parser.add_argument("--keep", type=Path, help="a folder that is made for the campaigns, and left there")
    args = parser.parse_args()
    if args.blocks < 2:
        parser.error("--blocks: one pair of launches has no spread; give 2 or more")
    with tempfile.TemporaryDirectory(prefix="two-slots-") as temporary:
        project = Project(args.keep or Path(temporary) / "checkout")
        seconds, measuring, watches = {}, {}, {}
        control = (("one_again", 1),) if args.control else ()
        for name, slots in (("one", 1), ("two", 2), *control):
            configured(project, name, args.blocks, args.requests)
            seconds[name], measuring[name], watches[name] = measure(project, name, slots)
        results = project.root / "results"
        cells = cells_of(results / "two")
        ratio = seconds["two"] / seconds["one"]
        seen, clashes = watches["two"], collisions(cells)
        verdicts = [
            json.loads(p.read_text())["verdict"] for p in results.glob("*/*/phase_*/cells/*/cell.json")
        ]
        print(
            f"wall time: {ratio:.2f} of one slot's in all, {measuring['two'] / measuring['one']:.2f} from preflight's end to the last receipt (bar: {BAR})"
        )
        print(
            f"side by side: {overlapping(cells)} pairs of cells of two runs at the same time on slots "
            f"{sorted({c.slot for c in cells})}, {len(clashes)} with a slot or a port in common"
        )
        print(
            f"{seen.looks} looks with more than one job, at most {seen.most}; held by two at the same time: "
            f"{', '.join(sorted(seen.shared)) or 'nothing'}"
        )
        print(f"cells: {verdicts.count('valid')} of {len(verdicts)} valid")
        agree = compare(results / "one", results / "two", args.blocks)
        if args.control:
            compare(results / "one", results / "one_again", args.blocks)
            compare(results / "one_again", results / "two", args.blocks)
    failed = ratio > BAR or clashes or seen.shared or seen.most != 2 or not overlapping(cells) or not agree
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
