"""Step timing comes into an engine's processes in memory: nothing on disk changes, and nobody can take it out of another's engine."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stand_in_vllm import FACTORY, SCHEDULER, stand_in, tree

from connector_tax.base.steptime.share import cut

PATCHES = Path(__file__).parents[3] / "patches"
# What vllm_serve.py does, and then an engine with both sides of a connector in one process.
ENGINE = """
import os, sys, time
import scheduler_step_timing
scheduler_step_timing.install()
{before}
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

class Meta: pass
class Role: name = "SCHEDULER"
class WorkerRole: name = "WORKER"
class Output:
    num_scheduled_tokens = {{"a": 4, "b": 1}}; total_num_scheduled_tokens = 5; scheduled_new_reqs = [1]
class Request:
    def __init__(self, computed, prompt): self.num_computed_tokens = computed; self.num_prompt_tokens = prompt

s = Scheduler(); s.connector = None; s.requests = {{"a": Request(4, 8), "b": Request(21, 20)}}
{steps}
"""
THREE_STEPS = """
scheduler_side = KVConnectorFactory.create_connector(None, Role)
worker_side = KVConnectorFactory.create_connector(None, WorkerRole)
s.connector = scheduler_side
for _ in range(3):
    out = s.schedule()
    worker_side.bind_connector_metadata(out.meta)
    worker_side.start_load_kv(); worker_side.get_transfer_results()
    worker_side.clear_connector_metadata()
    s.update_from_output(out, None)
"""
ONE_STEP = "s.update_from_output(s.schedule(), None)"


@pytest.fixture
def vllm(tmp_path: Path) -> Path:
    return stand_in(tmp_path / "site-packages" / "vllm")


def environment(vllm: Path, log: Path | None) -> dict[str, str]:
    """Of an engine: the overlay and the stand-in on its import path."""
    own = {k: v for k, v in os.environ.items() if k != "AGENTIC_STEP_LOG_PATH"}
    own |= {"PYTHONPATH": f"{PATCHES}:{vllm.parent}", "PYTHONDONTWRITEBYTECODE": "1"}
    return own if log is None else own | {"AGENTIC_STEP_LOG_PATH": str(log)}


def engine(vllm: Path, log: Path | None, steps: str, before: str = "") -> "subprocess.CompletedProcess[str]":
    code = ENGINE.format(steps=steps, before=before)
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment(vllm, log), capture_output=True, text=True, check=False)


def rows_of(log: Path) -> list[dict[str, Any]]:
    cell = log.with_name("cell.jsonl")
    cell.unlink(missing_ok=True)
    cut(sorted(log.parent.glob(f"{log.stem}.*.jsonl")), 0, 2**63, cell)
    return [json.loads(line) for line in cell.read_text().splitlines()]


def test_records_of_scheduler_and_worker_join_and_nothing_counts_twice(vllm: Path, tmp_path: Path) -> None:
    """get_transfer_results calls get_finished in newer releases; the inner call is not counted again."""
    before = tree(vllm)
    done = engine(vllm, tmp_path / "step.jsonl", THREE_STEPS)
    assert done.returncode == 0, done.stderr
    assert tree(vllm) == before, "a file of vLLM changed"
    rows = rows_of(tmp_path / "step.jsonl")
    steps = [r for r in rows if r["kind"] == "step"]
    workers = [r for r in rows if r["kind"] == "worker_step"]
    assert {r["process"] for r in rows if r["kind"] == "header"} == {"scheduler", "worker"}
    assert [s["step_id"] for s in steps] == [1, 2, 3] == [w["step_id"] for w in workers]
    assert all((s["prefill_tokens"], s["decode_tokens"]) == (4, 1) for s in steps)
    assert all((s["num_running"], s["num_waiting"]) == (2, 1) for s in steps)
    for step, worker in zip(steps, workers, strict=True):
        # No upper bounds of their own: a busy machine sleeps longer than it was told to. Counted twice,
        # get_finished alone would not fit into the step.
        assert worker["start_load_kv_us"] >= 2000
        assert worker["get_finished_us"] >= 4000
        hooks = step["build_meta_us"] + worker["start_load_kv_us"] + worker["get_finished_us"]
        assert hooks <= step["step_duration_us"]
    assert steps[0]["step_interval_us"] is None
    assert steps[1]["step_interval_us"] > 6000


@pytest.mark.parametrize("start", ["spawn", "fork"])
def test_processes_that_the_engine_starts_are_recorded(vllm: Path, tmp_path: Path, start: str) -> None:
    """vLLM's scheduler runs in a child of the server. A spawned one imports the main module again."""
    main = tmp_path / "main.py"
    main.write_text(
        "import scheduler_step_timing\nscheduler_step_timing.install()\n"
        "class Output:\n    num_scheduled_tokens = {'b': 1}; total_num_scheduled_tokens = 1; scheduled_new_reqs = []\n"
        "def child():\n    import __main__; __main__.Output = Output\n"
        "    from vllm.v1.core.sched.scheduler import Scheduler\n"
        f"    s = Scheduler(); s.connector = None; s.requests = {{}}; {ONE_STEP}\n"
        # A forked child of multiprocessing ends without atexit: what it wrote until then counts.
        "    import pathlib, os, time\n"
        "    while not any('[[' in p.read_text() for p in pathlib.Path(os.environ['AGENTIC_STEP_LOG_PATH']).parent.glob('step.*')): time.sleep(0.01)\n"
        "if __name__ == '__main__':\n    import multiprocessing as m\n"
        f"    p = m.get_context({start!r}).Process(target=child); p.start(); p.join(); raise SystemExit(p.exitcode)\n"
    )
    log = tmp_path / "step.jsonl"
    done = subprocess.run(
        [sys.executable, str(main)], env=environment(vllm, log), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert [r["step_id"] for r in rows_of(log) if r["kind"] == "step"] == [1]


def test_byte_code_that_python_does_not_check_is_wrapped_as_well(vllm: Path, tmp_path: Path) -> None:
    """An installation compiled with unchecked hashes never looks at a changed source file."""
    compiled = "import compileall, py_compile; compileall.compile_dir({!r}, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)"
    subprocess.run([sys.executable, "-c", compiled.format(str(vllm))], check=True)
    (vllm / SCHEDULER).write_text("raise ImportError('the source was read')")
    assert engine(vllm, tmp_path / "step.jsonl", ONE_STEP).returncode == 0
    assert [r["step_id"] for r in rows_of(tmp_path / "step.jsonl") if r["kind"] == "step"] == [1]


def test_a_module_that_another_finder_finds_is_wrapped_too(vllm: Path, tmp_path: Path) -> None:
    """An editable installation is found by a finder of its own."""
    hidden = vllm.rename(vllm.with_name("checkout"))
    finder = f"""
import importlib.machinery, importlib.util
class Editable:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "vllm":
            return importlib.util.spec_from_file_location(name, {str(hidden / "__init__.py")!r}, submodule_search_locations=[{str(hidden)!r}])
sys.meta_path.append(Editable)
"""
    done = engine(vllm, tmp_path / "step.jsonl", ONE_STEP, finder)
    assert done.returncode == 0, done.stderr
    assert "step timing wraps vllm.v1.core.sched.scheduler.Scheduler" in done.stderr
    assert [r["step_id"] for r in rows_of(tmp_path / "step.jsonl") if r["kind"] == "step"] == [1]


NOBODY_IN = """
import importlib.machinery
class Loader:
    __slots__ = ("inner",)
    def create_module(self, spec): return None
    def exec_module(self, module): self.inner.exec_module(module)
class Finder:
    def find_spec(self, name, path=None, target=None):
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if name.endswith("scheduler"):
            loader = Loader()
            loader.inner, spec.loader = spec.loader, loader
        return spec
sys.meta_path.insert(1, Finder())
"""


def test_an_engine_starts_whose_modules_come_from_a_loader_that_cannot_be_followed(
    vllm: Path, tmp_path: Path
) -> None:
    done = engine(vllm, tmp_path / "step.jsonl", ONE_STEP, NOBODY_IN)
    assert done.returncode == 0, done.stderr
    assert (
        "no step records: vllm.v1.core.sched.scheduler comes from a loader that cannot be followed"
        in done.stderr
    )


def test_nothing_is_wrapped_without_a_log_path(vllm: Path, tmp_path: Path) -> None:
    said = engine(vllm, None, ONE_STEP + "\nassert not hasattr(s.schedule, '__wrapped__')")
    assert (said.returncode, said.stderr) == (0, "")


def test_a_release_that_does_not_fit_serves_and_says_so(vllm: Path, tmp_path: Path) -> None:
    """Whatever a new release renames, its engine must not end because of us."""
    text = (vllm / SCHEDULER).read_text().replace("get_request_counts", "counts")
    (vllm / SCHEDULER).write_text(text)
    done = engine(vllm, tmp_path / "step.jsonl", ONE_STEP)
    assert done.returncode == 0, done.stderr
    assert "no step records: vllm.v1.core.sched.scheduler.Scheduler has no get_request_counts" in done.stderr
    assert list(tmp_path.glob("step.*")) == []


# Steps until its standard input ends; then says how many there were.
MEASURING = """
import select
s.update_from_output(s.schedule(), None)
n = 1
print("ready", flush=True)
while not select.select([0], [], [], 0.0005)[0]:
    s.update_from_output(s.schedule(), None)
    n += 1
print(n, flush=True)
"""


class Measurer:
    """An engine that records until it is told to stop, or killed."""

    def __init__(self, vllm: Path, log: Path) -> None:
        self.log = log
        own = environment(vllm, log) | {"CONNECTOR_TAX_STEP_FLUSH_S": "0.01"}
        command = [sys.executable, "-S", "-c", ENGINE.format(steps=MEASURING, before="")]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=own,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def stop(self) -> int:
        """How many steps it made."""
        out, _ = self.process.communicate()
        return int(out)


@pytest.fixture(scope="module")
def in_process() -> Iterator[Any]:
    """The patcher as a module: as a program a hundred orders of it would take a minute."""
    sys.path.insert(0, str(PATCHES))
    import scheduler_step_timing

    yield scheduler_step_timing
    sys.path.remove(str(PATCHES))


def test_what_a_second_campaign_does_never_reaches_the_first(
    vllm: Path, tmp_path: Path, in_process: Any
) -> None:
    """Started, refused, killed and reverted in a dozen random orders beside one that measures: each of its steps is on record, and at
    the end vLLM is byte for byte what it was, with the edit that somebody made before."""
    with open(vllm / FACTORY, "a") as factory:
        factory.write("\n# an edit of the owner's\n")
    before = tree(vllm)
    for order in range(12):
        chance = random.Random(order)
        first = Measurer(vllm, tmp_path / f"first{order}.jsonl")
        second: Measurer | None = None
        for _ in range(4):
            action = chance.choice(("start", "kill", "check", "revert", "wait"))
            if action == "start" and second is None:
                second = Measurer(vllm, tmp_path / f"second{order}.jsonl")
            elif action == "kill" and second is not None:
                second.kill()
                second = None
            elif action in ("check", "revert"):
                report = in_process.run(action == "revert", vllm=vllm)
                assert (report["state"], report["step_timing_available"]) == ("unpatched", True)
            else:
                time.sleep(0.002)
        if second is not None:
            second.kill()
        made = first.stop()
        recorded = [r["step_id"] for r in rows_of(first.log) if r["kind"] == "step"]
        assert recorded == list(range(1, made + 1))
        assert tree(vllm) == before
