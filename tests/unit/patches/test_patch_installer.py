"""The patch on a stand-in vLLM tree: byte-exact, idempotent, never half done for long."""

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

from connector_tax.steptime import cut

sys.path.insert(0, str(Path(__file__).parents[2]))
from stand_in_vllm import FACTORY, SCHEDULER, stand_in

PATCHES = Path(__file__).parents[3] / "patches"


def load_patcher() -> ModuleType:
    found = importlib.util.spec_from_file_location("patcher", PATCHES / "scheduler_step_timing.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


patcher = load_patcher()


@pytest.fixture
def vllm(tmp_path: Path) -> Path:
    root = stand_in(tmp_path / "site-packages" / "vllm")
    (root / SCHEDULER).chmod(0o640)
    return root


def tree(root: Path) -> dict[str, str]:
    return {
        str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(root.rglob("*"))
        if p.is_file() and "__pycache__" not in p.parts
    }


def test_revert_gives_back_every_byte(vllm: Path) -> None:
    before = tree(vllm)
    assert patcher.run("apply", vllm=vllm)["step_timing_available"]
    assert tree(vllm) != before
    assert patcher.run("revert", vllm=vllm)["state"] == "unpatched"
    assert tree(vllm) == before


def test_twice_is_once(vllm: Path) -> None:
    """Applying again changes nothing, and neither does reverting again."""
    before = tree(vllm)
    patcher.run("apply", vllm=vllm)
    once = tree(vllm)
    assert patcher.run("apply", vllm=vllm)["state"] == "patched"
    assert tree(vllm) == once
    patcher.run("revert", vllm=vllm)
    patcher.run("revert", vllm=vllm)
    assert tree(vllm) == before


def test_the_mode_of_a_file_is_kept(vllm: Path) -> None:
    patcher.run("apply", vllm=vllm)
    assert (vllm / SCHEDULER).stat().st_mode & 0o777 == 0o640


def test_the_report_names_both_checksums(vllm: Path) -> None:
    before = hashlib.sha256((vllm / SCHEDULER).read_bytes()).hexdigest()
    report = patcher.run("apply", vllm=vllm)
    entry = next(f for f in report["files"] if f["path"] == SCHEDULER)
    assert entry["sha256_before"] == before
    assert entry["sha256_after"] == hashlib.sha256((vllm / SCHEDULER).read_bytes()).hexdigest()


@pytest.mark.parametrize("patched", [SCHEDULER, FACTORY])
def test_a_half_patched_install_is_completed_and_undone(vllm: Path, patched: str) -> None:
    """A kill between the two files leaves one patched; the next apply or revert finishes the job."""
    before = tree(vllm)
    patcher.run("apply", vllm=vllm)
    whole = tree(vllm)
    content = (vllm / patched).read_bytes()
    patcher.run("revert", vllm=vllm)
    (vllm / patched).write_bytes(content)
    assert patcher.run("status", vllm=vllm)["state"] == "half"
    patcher.run("apply", vllm=vllm)
    assert tree(vllm) == whole
    patcher.run("revert", vllm=vllm)
    (vllm / patched).write_bytes(content)
    patcher.run("revert", vllm=vllm)
    assert tree(vllm) == before


def test_an_older_copy_of_the_patch_is_replaced(vllm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tree(vllm)
    patcher.run("apply", vllm=vllm)
    monkeypatch.setattr(patcher, "BLOCK", patcher.BLOCK + "# newer\n")
    patcher.run("apply", vllm=vllm)
    assert (vllm / SCHEDULER).read_text().endswith("# newer\n")
    assert (vllm / SCHEDULER).read_text().count("CONNECTOR_TAX_PATCH begin") == 1
    patcher.run("revert", vllm=vllm)
    assert tree(vllm) == before


def test_leftovers_of_a_killed_write_are_swept(vllm: Path) -> None:
    before = tree(vllm)
    (vllm / "v1/core/sched/.connector_tax_abc").write_text("half a file")
    patcher.run("revert", vllm=vllm)
    assert tree(vllm) == before


def test_another_vllm_is_refused_and_left_alone(vllm: Path) -> None:
    (vllm / SCHEDULER).write_text("class Scheduler:\n    def schedule(self): ...\n")
    before = tree(vllm)
    report = patcher.run("apply", vllm=vllm)
    assert not report["step_timing_available"]
    assert "has no 'def update_from_output('" in report["reason"]
    assert tree(vllm) == before


def test_a_file_edited_after_patching_is_not_overwritten(vllm: Path) -> None:
    """Someone's change must not vanish with our block."""
    patcher.run("apply", vllm=vllm)
    edited = b"# mine\n" + (vllm / SCHEDULER).read_bytes()
    (vllm / SCHEDULER).write_bytes(edited)
    report = patcher.run("revert", vllm=vllm)
    assert "was edited after it was patched" in report["reason"]
    assert (vllm / SCHEDULER).read_bytes() == edited


def test_files_that_cannot_be_written_are_a_reason(vllm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(patcher.tempfile, "mkstemp", refuse)
    report = patcher.run("apply", vllm=vllm)
    assert not report["step_timing_available"]
    assert "cannot be written (Permission denied)" in report["reason"]


def test_a_file_that_cannot_be_written_leaves_nothing_half_done(
    vllm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second file is on a read-only mount: the first is given back, and the state says so."""
    before = tree(vllm)
    real = patcher.write_if_changed

    def refuse_the_factory(path: Path, content: bytes) -> None:
        if path.name == "factory.py" and path.read_bytes() != content:
            raise patcher.DoesNotFit(f"{path} cannot be written (Read-only file system)")
        real(path, content)

    monkeypatch.setattr(patcher, "write_if_changed", refuse_the_factory)
    report = patcher.run("apply", vllm=vllm)
    assert not report["step_timing_available"]
    assert "Read-only file system" in report["reason"]
    assert report["state"] == "unpatched"
    assert tree(vllm) == before


def test_a_revert_that_fails_says_what_state_it_leaves(vllm: Path) -> None:
    patcher.run("apply", vllm=vllm)
    (vllm / SCHEDULER).write_bytes(b"# mine\n" + (vllm / SCHEDULER).read_bytes())
    report = patcher.run("revert", vllm=vllm)
    assert report["state"] == "patched"
    assert not report["step_timing_available"]


def test_an_interpreter_without_vllm_is_a_reason() -> None:
    report = patcher.run("apply", engine_python=sys.executable)
    assert report["reason"].endswith("has no vllm")


def test_two_at_once_take_turns(vllm: Path) -> None:
    before = tree(vllm)
    actions = ["apply", "revert"] * 6
    threads = [threading.Thread(target=patcher.run, args=(a,), kwargs={"vllm": vllm}) for a in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert patcher.run("status", vllm=vllm)["state"] in ("patched", "unpatched")
    patcher.run("revert", vllm=vllm)
    assert tree(vllm) == before


FAKE_ENGINE = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

class Meta: pass
class Role: name = "SCHEDULER"
class WorkerRole: name = "WORKER"
class Output:
    num_scheduled_tokens = {"a": 4, "b": 1}; total_num_scheduled_tokens = 5; scheduled_new_reqs = [1]
class Request:
    def __init__(self, computed, prompt): self.num_computed_tokens = computed; self.num_prompt_tokens = prompt

scheduler_side = KVConnectorFactory.create_connector(None, Role)
worker_side = KVConnectorFactory.create_connector(None, WorkerRole)
s = Scheduler(); s.connector = scheduler_side; s.requests = {"a": Request(4, 8), "b": Request(21, 20)}
for _ in range(3):
    out = s.schedule()
    worker_side.bind_connector_metadata(out.meta)
    worker_side.start_load_kv(); worker_side.get_transfer_results()
    worker_side.clear_connector_metadata()
    s.update_from_output(out, None)
"""
FAKE_SCHEDULER = """
class Scheduler:
    def schedule(self):
        import __main__
        out = __main__.Output()
        out.meta = self.connector.build_connector_meta(out)
        return out
    def update_from_output(self, scheduler_output, model_runner_output): ...
    def get_request_counts(self): return 2, 1
"""
FAKE_FACTORY = """
import time
class Connector:
    def build_connector_meta(self, out):
        import __main__
        return __main__.Meta()
    def bind_connector_metadata(self, meta): ...
    def clear_connector_metadata(self): ...
    def start_load_kv(self): time.sleep(0.002)
    def get_finished(self): time.sleep(0.004)
    def get_transfer_results(self): self.get_finished()
class KVConnectorFactory:
    @classmethod
    def create_connector(cls, config, role): return Connector()
"""


def test_records_of_scheduler_and_worker_join_and_nothing_counts_twice(vllm: Path, tmp_path: Path) -> None:
    """get_transfer_results calls get_finished in newer releases; the inner call is not counted again."""
    for package in [vllm, *(p.parent for p in vllm.rglob("*.py"))]:
        for folder in [package, *package.relative_to(vllm).parents]:
            (vllm / folder / "__init__.py").touch()
    (vllm / SCHEDULER).write_text(
        FAKE_SCHEDULER + "# def schedule( def update_from_output( def get_request_counts(\n"
    )
    (vllm / FACTORY).write_text(FAKE_FACTORY)
    assert patcher.run("apply", vllm=vllm)["step_timing_available"]
    script = tmp_path / "engine.py"
    script.write_text(FAKE_ENGINE)
    log = tmp_path / "step.jsonl"
    subprocess.run(
        [sys.executable, str(script), str(vllm.parent)],
        env={**os.environ, "AGENTIC_STEP_LOG_PATH": str(log)},
        check=True,
    )
    cut(sorted(tmp_path.glob("step.*.jsonl")), 0, 2**63, tmp_path / "cell.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "cell.jsonl").read_text().splitlines()]
    headers = [r for r in rows if r["kind"] == "header"]
    steps = [r for r in rows if r["kind"] == "step"]
    workers = [r for r in rows if r["kind"] == "worker_step"]
    assert {h["process"] for h in headers} == {"scheduler", "worker"}
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


def test_nothing_is_wrapped_without_a_log_path(vllm: Path, tmp_path: Path) -> None:
    emitter = PATCHES / "_step_profile.py"
    code = (
        f"import importlib.util as u; s = u.spec_from_file_location('p', {str(emitter)!r});"
        "m = u.module_from_spec(s); s.loader.exec_module(m)\n"
        "class A:\n    def schedule(self): ...\n    def update_from_output(self): ...\n"
        "before = A.schedule; m.install_scheduler(A); assert A.schedule is before\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "AGENTIC_STEP_LOG_PATH"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


ENDLESS_STEPS = """
import builtins, importlib.util as u, sys, time
s = u.spec_from_file_location("p", sys.argv[1]); m = u.module_from_spec(s); s.loader.exec_module(m)
class Output: num_scheduled_tokens = {"a": 1}; total_num_scheduled_tokens = 1; scheduled_new_reqs = []
class Scheduler:
    def schedule(self): return Output()
    def update_from_output(self, output, result): return 1
    def get_request_counts(self): return 1, 0
real = open
def open_then_full(path, *args, **kwargs):
    file = real(path, *args, **kwargs)
    def write(text):
        if "header" not in text or sys.argv[2] == "0": raise OSError(28, "No space left on device")
    file_like = type("F", (), {"write": staticmethod(write), "flush": staticmethod(lambda: None)})()
    return file_like if "x.scheduler" in str(path) else file
builtins.open = open_then_full
m.install_scheduler(Scheduler)
scheduler = Scheduler()
for _ in range(200):
    assert scheduler.update_from_output(scheduler.schedule(), None) == 1
    time.sleep(0.001)
assert len(m.scheduler_side.recorder.rows) == 0, "rows pile up"
"""


@pytest.mark.parametrize("lines_written", ["0", "1"])
def test_a_full_disk_ends_the_recording_and_not_the_engine(tmp_path: Path, lines_written: str) -> None:
    environment = {
        **os.environ,
        "AGENTIC_STEP_LOG_PATH": str(tmp_path / "x.jsonl"),
        "CONNECTOR_TAX_STEP_FLUSH_S": "0.02",
    }
    command = [sys.executable, "-c", ENDLESS_STEPS, str(PATCHES / "_step_profile.py"), lines_written]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("no step records") == 1
    assert "No space left on device" in done.stderr


def test_a_folder_that_is_not_there_does_not_end_the_engine(tmp_path: Path) -> None:
    environment = {**os.environ, "AGENTIC_STEP_LOG_PATH": str(tmp_path / "missing" / "y.jsonl")}
    command = [sys.executable, "-c", ENDLESS_STEPS, str(PATCHES / "_step_profile.py"), "1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "No such file or directory" in done.stderr
