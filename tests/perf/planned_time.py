"""How long a campaign takes with one engine at a time and with two side by side: as ``rehearse`` says, and as measured.

    .venv/bin/python tests/perf/planned_time.py [--blocks 2] [--requests 60]

Four of the demo's configurations on the embedded engine, in a checkout of their own, three times: one engine at a time, two that take any
launch (``mix_cards``), and two whose phases stay where they are. Told apart are preflight, with the start of Snakemake, and everything from its end to the
last receipt. Analysis and report are in neither time. What is left between the two is what a plan cannot know: jobs that Snakemake
starts, and on two cores the neighbour's launch.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "emulated"))
from checkout import Project
from two_slots import configured

from connector_tax.base.config import load_campaign
from connector_tax.base.plan import wall_s
from connector_tax.run.rehearsal.campaign import measuring_s, preflight_s, rehearse

# Name -> engines at the same time, and whether a phase's launches may run side by side.
HOW = {"one": (1, True), "mixed": (2, True), "stays": (2, False)}
CONNECTORS = ["plain", "noop_connector", "mooncake_both", "nixl_both"]


def planned(file: Path, gpus: int) -> tuple[float, float]:
    """Seconds of preflight, and of all launches that are measured."""
    config = load_campaign(file)
    with tempfile.TemporaryDirectory(prefix="planned-") as folder:
        _, times = rehearse(config, Path(folder))
    return preflight_s(times), wall_s(config, measuring_s(times), gpus)


def measured(project: Project, name: str, file: Path, gpus: int) -> tuple[float, float, float]:
    """The same of a campaign that runs, and the whole command."""
    begun_s = time.time()
    with open(project.root / "snakemake.log", "ab") as log:
        subprocess.run(
            [sys.executable, "-m", "snakemake", "--cores", str(gpus), "--resources", f"gpu={gpus}",
             "--configfile", str(file)],
            cwd=project.root, env=project.environment, stdout=log, stderr=log, check=True,
        )  # fmt: skip
    whole_s = time.time() - begun_s
    results = project.root / "results" / name
    tried_s = (results / "preflight" / "preflight_status.json").stat().st_mtime
    ended_s = max(p.stat().st_mtime for p in results.glob("*/phase_*/receipt.json"))
    return tried_s - begun_s, ended_s - tried_s, whole_s


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--requests", type=int, default=60)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="planned-time-") as temporary:
        project = Project(Path(temporary) / "checkout")
        for name, (gpus, mix) in HOW.items():
            configured(project, name, args.blocks, args.requests)
            file = project.root / "config" / f"{name}.yaml"
            config = yaml.safe_load(file.read_text())
            config["connectors"] = CONNECTORS
            config["engine"]["mix_cards"] = mix
            file.write_text(yaml.safe_dump(config))
            plan, found = planned(file, gpus), measured(project, name, file, gpus)
            launches = len(list((project.root / "results" / name).glob("*/phase_*/receipt.json")))
            verdicts = [
                json.loads(p.read_text())["verdict"]
                for p in (project.root / "results" / name).glob("*/phase_*/cells/*/cell.json")
            ]
            print(
                f"{name}: preflight planned {plan[0]:.0f} s, measured {found[0]:.0f} s; {launches} launches planned {plan[1]:.0f} s, "
                f"measured {found[1]:.0f} s ({found[1] / plan[1]:.2f} of it); the whole command {found[2]:.0f} s; "
                f"{verdicts.count('valid')} of {len(verdicts)} cells valid",
                flush=True,
            )


if __name__ == "__main__":
    main()
