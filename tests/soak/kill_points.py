"""``python tests/soak/kill_points.py --points 300 --seed 1``: kill -9 at random moments of a small campaign, resume, look.

``--engine virtual_gpu`` does the same to real vLLM and NIXL on the virtual GPU, with ENGINE_PYTHON and MODEL_FOLDER in the environment as
``make demo-vllm`` sets them: ``--engine virtual_gpu --points 50``.

A point is a kill: of Snakemake, a job, the shell around it, a supervisor, the engine, a worker of the load generator, the sampler,
Snakemake's whole group, or everything at once. The role is drawn first, then the process, so that the rare ones are hit as often. A start has
one point, and further ones where it goes on. When it has ended, no process of the campaign is left, the engine's packages and the
checkout's code are as before, and every cell that was finished is there byte for byte, in the very file that it was, but for the cells of a run
whose engine died in each of them: such a run starts from nothing. So is every receipt, but for those that Snakemake removed to have them made anew,
which have to come back byte for byte. A campaign is started again and again, with
points in each start, until it is complete; then it must hold each cell of the undisturbed campaign, and analyse and report without a problem
of a cell that was not hit. Where each of plain's cells of Phase A was hit and is invalid, there are no reference rates, and it ends there.

Not run by CI: a point takes some seconds. A point that fails is one line, with the seed and number that draw it again:
``--seed S --campaign N`` runs that campaign alone. Moments are drawn, but the host decides what is under way then.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "emulated"))
from checkout import ROOT, Project
from families import family

from connector_tax.run.measure.failure import DIED

# Time for what was orphaned to notice and to end in order.
SETTLE_S = 30.0
# Of an undisturbed campaign: what it takes without figures, report and manifest.
MEASURING_SHARE = 0.6
# Points in one start: one that ends it is its last.
MOST_IN_A_START = 4
# What a start goes on after. The engine goes down once in a start, lest its configuration fail.
SURVIVED = ("worker", "sampler", "engine", "supervisor")
# A campaign that was hit so often is let through: its next start is undisturbed.
MOST_POINTS = 12
ROLES = (
    ("snakemake", "snakemake"),
    ("connector_tax.run.engine.supervisor", "supervisor"),
    ("connector_tax.run.emulator", "engine"),
    ("vllm", "engine"),
    ("connector_tax.run.sampler", "sampler"),
    ("connector_tax.run.loadgen", "worker"),
    ("scripts/preflight.py", "preflight"),
    ("scripts/measure.py", "job"),
    ("scripts/", "reader"),
    ("bash", "shell"),
)
# More than one process at a time.
GROUP, EVERYTHING = "snakemake's group", "everything"


class Failure(Exception):
    """A point that did not hold; the text says what."""


def small(config: dict[str, Any]) -> None:
    """Two configurations, three short cells each in two phases: as little as has every stage."""
    config["connectors"] = ["plain", "noop_connector"]
    config["phase_a"]["rates_per_s"] = [20, 40]
    config["phase_b"] = {"input_tokens": [64], "output_tokens": [8]}
    config["phase_b_prime"] = {}
    config["accuracy"] = {"prompts": 1}
    config["engine"]["stop_grace_s"] = 1
    config["cell"].update(warmup_s=0.1, duration_s=0.3, min_completed=6, max_cell_s=1.5, drain_timeout_s=1.5)
    config["analysis"]["bootstrap_draws"] = 200


def small_on_vllm(config: dict[str, Any]) -> None:
    """The same on the virtual GPU: as short as has step records, with a connector whose threads outlive careless ends."""
    small(config)
    virtual = yaml.safe_load((ROOT / "config" / "virtual-gpu.yaml").read_text())
    config["engine"] = virtual["engine"] | {"stop_grace_s": 2}
    config["connectors"] = ["plain", "nixl_virtual"]
    config["cell"].update(duration_s=1.0, max_cell_s=4, drain_timeout_s=4)


@dataclass(frozen=True)
class Engine:
    """What points are drawn for.

    Attributes:
        start_s: what ends a start that does not end: no start of this campaign takes a quarter of it.
        launch_s: what a launch takes, from its engine's start on.
    """

    small: Callable[[dict[str, Any]], None]
    python: str
    start_s: float
    launch_s: float


def engine_of(kind: str) -> Engine:
    if kind == "emulator":
        return Engine(small, sys.executable, start_s=240, launch_s=3)
    missing = [name for name in ("ENGINE_PYTHON", "MODEL_FOLDER") if name not in os.environ]
    if missing:
        raise SystemExit(
            f"--engine {kind}: {' and '.join(missing)} not set. make demo-vllm shows how they are made."
        )
    return Engine(small_on_vllm, os.environ["ENGINE_PYTHON"], start_s=1200, launch_s=30)


def role_of(process: psutil.Process) -> str:
    words = process.cmdline()
    # A supervisor's words hold those of what it launches. vLLM's processes give themselves names of one word.
    line = " ".join(words[:3])
    return next((role for word, role in ROLES if word in line or word in line.lower()), process.name())


def family_of(project: Project) -> list[psutil.Process]:
    """By the environment that they inherited, and by their log: vLLM's processes write their names over their environment."""
    found = family(Path(project.environment["CONNECTOR_TAX_CACHE"]))
    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):  # it has ended, or is another user's
            log = Path(f"/proc/{process.pid}/fd/2").readlink()
            if log.is_relative_to(project.results) and process not in found:
                found.append(process)
    return found


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def code_of(project: Project) -> dict[str, str]:
    """Of the checkout: what an engine of the campaign runs."""
    return {
        str(p.relative_to(project.root)): digest(p)
        for part in ("src", "launch", "patches", "workflow", "scripts", "config")
        for p in sorted((project.root / part).rglob("*"))
        if p.is_file() and "__pycache__" not in p.parts
    }


def installed(python: str) -> dict[str, tuple[int, int]]:
    """Size and time of each file of the engine's interpreter's packages."""
    found = {}
    asked = [python, "-c", "import json, sys; print(json.dumps(sys.path))"]
    paths = json.loads(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)
    for folder in {Path(p) for p in paths if p.endswith("site-packages")}:
        for here, folders, files in os.walk(folder):
            folders[:] = [f for f in folders if f != "__pycache__"]
            for name in files:
                state = (Path(here) / name).lstat()
                found[f"{here}/{name}"] = (state.st_size, state.st_mtime_ns)
    return found


@dataclass(frozen=True)
class Cell:
    """A finished one, by the file that it is."""

    inode: int
    files: dict[str, str]
    verdict: str
    died: bool

    @classmethod
    def of(cls, file: Path) -> "Cell":
        document = json.loads(file.read_text())
        files = {p.name: digest(p) for p in sorted(file.parent.iterdir())}
        died = any(reason.startswith(DIED) for reason in document["reasons"])
        return cls(file.stat().st_ino, files, f"{document['verdict']} {document['reasons']}", died)


@dataclass(frozen=True)
class Finished:
    """What must not change any more: of each finished cell the files, and of each receipt its bytes."""

    cells: dict[str, Cell]
    receipts: dict[str, str]

    @classmethod
    def of(cls, project: Project) -> "Finished":
        cells = {
            str(file.parent.relative_to(project.results)): Cell.of(file)
            for file in project.results.glob("*/phase_*/cells/[!.]*/cell.json")
        }
        receipts = {
            str(p.relative_to(project.results)): digest(p)
            for p in project.results.glob("*/phase_*/receipt.json")
        }
        return cls(cells, receipts)

    def survived_none(self, run: str) -> bool:
        """Whether the engine died in each cell that ``run`` has: the next start of it removes them, since it failed or was about to."""
        there = [cell.died for name, cell in self.cells.items() if name.startswith(f"{run}/cells/")]
        return bool(there) and all(there)

    def check_kept(self, later: "Finished", *, done: bool) -> dict[str, str]:
        """Receipts that are gone for now: Snakemake removes what a job makes before it starts that job again, which happens where it was
        killed in the instant of the job's end. The job makes the receipt anew, of the cells that are there.

        Args:
            done: the campaign is complete, so that nothing may be gone.
        """
        for name, cell in self.cells.items():
            if self.survived_none(name.split("/cells/")[0]):
                continue
            if name not in later.cells:
                raise Failure(f"finished cell {name} is lost: it was {cell.verdict}")
            if later.cells[name].inode != cell.inode:
                told = f"it was {cell.verdict}, and is {later.cells[name].verdict}"
                raise Failure(f"finished cell {name} was measured again: {told}")
            if later.cells[name].files != cell.files:
                raise Failure(f"finished cell {name} was changed")
        gone = {name: content for name, content in self.receipts.items() if name not in later.receipts}
        if done and gone:
            raise Failure(f"receipts are lost: {sorted(gone)}")
        changed = [n for n, c in self.receipts.items() if later.receipts.get(n, c) != c]
        if changed := [n for n in changed if not self.survived_none(n.removesuffix("/receipt.json"))]:
            raise Failure(f"receipts are changed: {changed}")
        return gone


@dataclass
class Campaign:
    """One campaign with points in it.

    Attributes:
        whole: with figures, report and manifest; else it ends with the analysis, which is half as long.
        hit: cells under way when something was killed; one of them may be invalid, all others must be valid.
        gone: receipts that were there and have to be there again, the very same, when the campaign is complete.
    """

    project: Project
    engine: Engine
    rng: random.Random
    length_s: float
    cells: int
    whole: bool = True
    hit: set[str] = field(default_factory=set)
    gone: dict[str, str] = field(default_factory=dict)
    done: bool = False

    def start(self) -> "subprocess.Popen[bytes]":
        return self.project.start(*(() if self.whole else ("phase_b", "analysis")))

    def points(self, code: dict[str, str], packages: dict[str, tuple[int, int]]) -> list[str]:
        """One start; what was killed in it, in turn: nothing where the campaign ended before."""
        before = self.finished()
        left_s = max(3.0, self.length_s * (1 - len(before.cells) / self.cells))
        # Half of the points are at any moment, half in a launch: most of a small campaign is Snakemake getting ready.
        in_launch = self.rng.random() < 0.5
        at_s = self.rng.uniform(0, self.engine.launch_s if in_launch else left_s)
        running = self.start()
        roles: list[str] = []
        try:
            if in_launch:
                self.wait_for_launch(running, self.rng.randrange(2))
            running.wait(at_s)
        except subprocess.TimeoutExpired:
            roles.append(self.kill(running))
        at_kill = self.names()
        while roles and roles[-1] in SURVIVED and len(roles) < MOST_IN_A_START:
            try:
                running.wait(self.rng.uniform(0.5, self.engine.launch_s))
                break
            except subprocess.TimeoutExpired:
                at_kill = self.names()
                roles.append(self.kill(running, spared=("engine", "supervisor")))
        killed = ", ".join(roles)
        self.wait(running)
        self.settle(killed)
        later = Finished.of(self.project)
        self.done = running.returncode == 0
        self.gone = before.check_kept(later, done=self.done)
        if lost := at_kill - later.cells.keys():
            raise Failure(f"{killed}: cells that were finished when it was killed are lost: {sorted(lost)}")
        self.check_untouched(code, packages)
        if self.done:
            self.check_complete()
        return roles

    def wait_for_launch(self, running: "subprocess.Popen[bytes]", passed_over: int) -> None:
        """Until an engine has been started, after some others; or the start ends."""
        seen: set[Path] = set()
        while running.poll() is None:
            seen |= set(self.project.results.rglob("engine.pid.json"))
            if len(seen) > passed_over:
                return
            time.sleep(0.05)

    def finished(self) -> Finished:
        """What has to be kept, with receipts that Snakemake removed to have them made anew."""
        now = Finished.of(self.project)
        return Finished(now.cells, self.gone | now.receipts)

    def lost_its_baseline(self) -> bool:
        """Whether each cell of plain's Phase A was hit and is invalid: there are no rates then until a person removes them, as the message says."""
        verdicts = {
            f"{file.parents[2].parent.name}/phase_a/cells/{file.parent.name}": json.loads(file.read_text())[
                "verdict"
            ]
            for file in self.project.results.glob("*_plain/phase_a/cells/[!.]*/cell.json")
        }
        return bool(verdicts) and verdicts.keys() <= self.hit and set(verdicts.values()) == {"invalid"}

    def names(self) -> set[str]:
        return set(self.project.cells())

    def kill(self, running: "subprocess.Popen[bytes]", spared: tuple[str, ...] = ()) -> str:
        """SIGKILL to one process or several; what it was."""
        there: dict[str, list[psutil.Process]] = {}
        for process in family_of(self.project):
            try:
                there.setdefault(role_of(process), []).append(process)
            except psutil.Error:
                continue
        role = self.rng.choice(sorted(there.keys() - set(spared)) * 4 + [GROUP, EVERYTHING] * len(there))
        under_way = self.project.results.glob("*/phase_*/cells/.*.partial")
        self.hit |= {
            f"{p.parent.relative_to(self.project.results)}/{p.name[1:].removesuffix('.partial')}"
            for p in under_way
        }
        if role == GROUP:
            os.killpg(running.pid, signal.SIGKILL)
        elif role == EVERYTHING:
            _kill_at_once(self.project)
        else:
            _kill(self.rng.choice(there[role]))
        return role

    def wait(self, running: "subprocess.Popen[bytes]") -> None:
        try:
            running.wait(self.engine.start_s)
        except subprocess.TimeoutExpired:
            raise Failure(f"the start did not end within {self.engine.start_s:g} s") from None

    def settle(self, killed: str | None) -> None:
        deadline = time.monotonic() + SETTLE_S
        # Twice: a process that has just begun another program has no environment yet, by which it is known.
        for _ in range(2):
            while left := family_of(self.project):
                if time.monotonic() > deadline:
                    told = ", ".join(f"{p.pid} {' '.join(p.cmdline())[:100]}" for p in left)
                    raise Failure(f"{killed}: left running: {told}")
                time.sleep(0.05)
            time.sleep(0.05)

    def check_untouched(self, code: dict[str, str], packages: dict[str, tuple[int, int]]) -> None:
        for what, was, now in (
            ("the checkout", code, code_of(self.project)),
            ("the engine's packages", packages, installed(self.engine.python)),
        ):
            if was != now:
                changed = sorted(k for k in {*was, *now} if was.get(k) != now.get(k))
                raise Failure(f"{what} changed: {', '.join(changed[:5])}")

    def check_complete(self) -> None:
        """Every cell of the undisturbed campaign, valid unless it was hit; analysis and report made of them."""
        results = self.project.results
        receipts = {
            "/".join(p.parts[-3:-1]): json.loads(p.read_text())
            for p in results.glob("*/phase_*/receipt.json")
        }
        hit_runs = {h.split("/cells/")[0] for h in self.hit}
        for run, receipt in receipts.items():
            if receipt["status"] == "failed" and run not in hit_runs:
                raise Failure(f"{run} failed without having been hit: {receipt['reason']}")
            for cell in receipt["cells"]:
                name = f"{run}/cells/{cell['cell_id']}"
                if cell["verdict"] != "valid" and name not in self.hit:
                    raise Failure(f"cell {name} was not hit and is {cell['verdict']}: {cell['reasons']}")
        lost = [r for r, receipt in receipts.items() if receipt["status"] == "failed"]
        if len(self.names()) != self.cells and not lost:
            raise Failure(f"{len(self.names())} cells in place of {self.cells}")
        aggregate = json.loads((results / "aggregate.json").read_text())
        for problem in aggregate["problems"]:
            if not any(problem["subject"].startswith(run) for run in hit_runs):
                raise Failure(f"the analysis has a problem with what was not hit: {problem}")
        if self.whole and not (results / "report.html").is_file():
            raise Failure("no report")
        if torn := [p for p in results.rglob(".*") if p.name.endswith((".tmp", ".retired"))]:
            raise Failure(
                f"half-written files are left: {', '.join(str(p.relative_to(results)) for p in torn)}"
            )


def _kill(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):  # it ended by itself meanwhile
        process.kill()


def _kill_at_once(project: Project) -> None:
    """As the end of a container does: all of them are stopped first, lest one start another meanwhile."""
    stopped: set[psutil.Process] = set()
    while new := set(family_of(project)) - stopped:
        for process in new:
            with suppress(psutil.NoSuchProcess):
                process.suspend()
        stopped |= new
    for process in stopped:
        _kill(process)


@dataclass
class Template:
    """A checkout, and states of its campaign that points begin from: before anything, and after preflight."""

    project: Project
    engine: Engine
    states: dict[str, Path]
    length_s: float
    cells: int

    @classmethod
    def made(cls, folder: Path, engine: Engine) -> "Template":
        """Also runs the campaign undisturbed, for its length and its cells."""
        project = Project(folder / "checkout")
        project.configure(engine.small)
        states = {name: folder / name for name in ("nothing", "preflight")}
        for name, target in (
            ("nothing", None),
            ("preflight", str(project.results / "preflight" / "preflight_status.json")),
        ):
            states[name].mkdir()
            if target is not None:
                made = project.snakemake(str(Path(target).relative_to(project.root)))
                if made.returncode:
                    raise SystemExit(
                        f"the preflight of an undisturbed campaign failed:\n{made.stderr[-3000:]}"
                    )
            for part in ("results", ".snakemake"):
                if (project.root / part).exists():
                    shutil.copytree(project.root / part, states[name] / part, symlinks=True)
        begun = time.monotonic()
        done = project.snakemake()
        if done.returncode:
            raise SystemExit(f"an undisturbed campaign failed:\n{done.stderr[-3000:]}")
        return cls(project, engine, states, time.monotonic() - begun, len(project.cells()))

    def campaign(self, rng: random.Random) -> Campaign:
        """One in four begins with preflight, the others after it; one in four is read to the end."""
        state = self.states["nothing" if rng.random() < 0.25 else "preflight"]
        for part in ("results", ".snakemake"):
            shutil.rmtree(self.project.root / part, ignore_errors=True)
            if (state / part).exists():
                shutil.copytree(state / part, self.project.root / part, symlinks=True)
        (self.project.root / "snakemake.log").unlink(missing_ok=True)
        whole = rng.random() < 0.25
        length_s = self.length_s if whole else MEASURING_SHARE * self.length_s
        return Campaign(self.project, self.engine, rng, length_s, self.cells, whole)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", choices=("emulator", "virtual_gpu"), default="emulator")
    parser.add_argument("--points", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--first", type=int, default=0, help="number of the first campaign, to go on with a seed"
    )
    parser.add_argument("--campaign", type=int, help="this one alone")
    parser.add_argument("--minutes", type=float, help="begin no campaign after so long")
    parser.add_argument("--keep", type=Path, help="folder for checkouts of campaigns that failed")
    args = parser.parse_args()
    engine = engine_of(args.engine)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kill-points-") as folder:
        template = Template.made(Path(folder), engine)
        print(f"undisturbed: {template.cells} cells in {template.length_s:.0f} s after preflight", flush=True)
        code, packages = code_of(template.project), installed(engine.python)
        points, failed, killed = 0, 0, Counter[str]()
        for number in _numbers(args.first, args.campaign):
            late = args.minutes is not None and time.monotonic() - begun > 60 * args.minutes
            if points >= args.points or late:
                break
            try:
                for role in _points(
                    template.campaign(random.Random(f"{args.seed} {number}")), code, packages
                ):
                    points += 1
                    killed[role] += 1
            except Failure as failure:
                points, failed = points + 1, failed + 1
                print(f"seed {args.seed} campaign {number}: {failure}", flush=True)
                if args.keep is not None:
                    shutil.copytree(template.project.root, args.keep / f"{args.seed}-{number}", symlinks=True)
                for process in family_of(template.project):
                    _kill(process)
    told = ", ".join(f"{role} {n}" for role, n in sorted(killed.items()))
    print(
        f"{points - failed} of {points} points held (seed {args.seed}, campaigns {args.first} to {number}, "
        f"{(time.monotonic() - begun) / 60:.0f} min): {told}"
    )
    return 1 if failed else 0


def _numbers(first: int, only: int | None) -> Iterator[int]:
    if only is not None:
        yield only
        return
    while True:
        yield first
        first += 1


def _points(campaign: Campaign, code: dict[str, str], packages: dict[str, tuple[int, int]]) -> Iterator[str]:
    """The points of one campaign until it is complete; a start in which nothing was killed is none."""
    for _ in range(MOST_POINTS):
        yield from campaign.points(code, packages)
        if campaign.done:
            return
    before = campaign.finished()
    running = campaign.start()
    campaign.wait(running)
    if running.returncode and campaign.lost_its_baseline():
        before.check_kept(Finished.of(campaign.project), done=False)
        return
    if running.returncode:
        raise Failure(f"an undisturbed start after {MOST_POINTS} points failed")
    before.check_kept(Finished.of(campaign.project), done=True)
    campaign.check_complete()


if __name__ == "__main__":
    sys.exit(main())
