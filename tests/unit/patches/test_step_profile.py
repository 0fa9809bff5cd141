"""The recorder inside the engine: nested hooks count once, children by name, and the switch takes everything away."""

import importlib.util
import json
import os
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from families import within

from connector_tax.base.steptime.share import cut

PROFILE = Path(__file__).parents[3] / "patches" / "_step_profile.py"
MS = 1_000_000


class Child:
    def __init__(self, clock: "Clock", ms: int) -> None:
        self._clock, self._ms = clock, ms

    def get_finished(self) -> str:
        self._clock.ms += self._ms
        return "finished"


class Multi:
    """Asks its children inside its own hook, as vLLM's MultiConnector does."""

    def __init__(self, clock: "Clock") -> None:
        self._clock = clock
        self._connectors = [Child(clock, 3), Child(clock, 5)]

    def get_transfer_results(self) -> None:
        self._clock.ms += 1
        self.get_finished()

    def get_finished(self) -> None:
        self._clock.ms += 2
        for child in self._connectors:
            assert child.get_finished() == "finished"


class Clock:
    ms = 0

    def __call__(self) -> int:
        return self.ms * MS


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def profile(clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("profile_under_test", PROFILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "now_ns", clock)
    monkeypatch.setenv("AGENTIC_STEP_LOG_PATH", str(tmp_path / "step.jsonl"))
    monkeypatch.setenv("CONNECTOR_TAX_STEP_FLUSH_S", "0.01")
    return module


def test_a_hook_inside_a_hook_counts_once_and_under_its_own_name(profile: ModuleType, clock: Clock) -> None:
    """1 ms of its own, 2 ms of get_finished, 3 and 5 ms of the children: 11 ms in all."""
    meter, connector = profile.Meter(), Multi(clock)
    meter.wrap(connector, ["get_transfer_results", "get_finished"])
    assert meter.names == [
        *("get_transfer_results", "get_finished", "0:Child/get_finished", "1:Child/get_finished"),
    ]
    connector.get_transfer_results()
    taken = meter.take()
    assert taken[1:] == (1 * MS, 1, 2 * MS, 1, 3 * MS, 1, 5 * MS, 1)
    assert sum(taken[1::2]) == 11 * MS == clock()
    assert meter.take()[1:] == (0,) * 8


def test_a_hook_that_raises_is_counted_and_raises(profile: ModuleType, clock: Clock) -> None:
    def fail() -> None:
        clock.ms += 4
        raise KeyError("x")

    connector = SimpleNamespace(get_finished=fail)
    meter = profile.Meter()
    meter.wrap(connector, ["get_finished"])
    with pytest.raises(KeyError):
        connector.get_finished()
    assert meter.take()[1:] == (4 * MS, 1)


def test_cpu_time_is_a_hooks_own_and_measured_all_the_way_or_not_at_all(
    profile: ModuleType, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of every millisecond on a core: 1, 2, 3 and 5 ms of wall time."""
    monkeypatch.setattr(profile, "cpu_ns", lambda: clock() // 2)
    meter, connector = profile.Meter(), Multi(clock)
    meter.wrap(connector, ["get_transfer_results", "get_finished"])
    meter.measure_cpu()
    connector.get_transfer_results()
    assert meter.take_cpu() == (MS // 2, MS, 3 * MS // 2, 5 * MS // 2)
    assert meter.take()[1:] == (1 * MS, 1, 2 * MS, 1, 3 * MS, 1, 5 * MS, 1), "wall time is what it is without"
    assert meter.take_cpu() is None
    connector.get_finished()
    meter.measure_cpu()
    connector.get_finished()
    assert meter.take_cpu() is None, "the first call's is not known"


def test_one_step_in_sixteen_on_average_tells_the_cpu_time_of_its_hooks(
    profile: ModuleType, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under asynchronous scheduling: step k + 1 is scheduled before what k gave comes back."""
    monkeypatch.setattr(profile, "cpu_ns", lambda: clock() // 4)
    monkeypatch.setattr(profile, "draw", lambda: 0.5)  # the next with CPU time is 16 steps on

    class Connector:
        def build_connector_meta(self) -> SimpleNamespace:
            clock.ms += 8
            return SimpleNamespace()

        def take_events(self) -> None:
            clock.ms += 4

        def bind_connector_metadata(self, metadata: object) -> None: ...

        def get_finished(self) -> None:
            clock.ms += 12

        def clear_connector_metadata(self) -> None: ...

    own, workers = Connector(), Connector()

    Scheduler = scheduler_of(own, clock)
    profile.install_scheduler(Scheduler)
    profile.wrap_scheduler_side(own)
    profile.wrap_worker_side(workers)
    scheduler = Scheduler()
    waiting = scheduler.schedule()
    for _ in range(48):
        workers.bind_connector_metadata(SimpleNamespace())
        workers.get_finished()
        workers.clear_connector_metadata()
        waiting, before = scheduler.schedule(), waiting
        scheduler.update_from_output(before, None)
    for process, of_step, own_us in (("scheduler", 3, [2000, 1000]), ("worker", 3, [0, 3000, 0])):
        (log,) = tmp_path.glob(f"step.{process}.*.jsonl")
        assert within(30, lambda log=log: len(rows(log)) == 49)  # type: ignore[misc]
        header, *found = rows(log)
        told = [row for row in found if "hooks_cpu_ns" in row]
        assert len(told) == of_step
        by_name = dict(zip(header["hooks"], told[-1]["hooks_cpu_ns"], strict=True))
        assert [by_name[n] / 1e3 for n in header["hooks"]] == own_us


class Base:
    """vLLM's KVConnectorMetadata, which has no slots."""


class Slots(Base):
    __slots__ = ("blocks",)


@dataclass(frozen=True)
class Frozen(Base):
    blocks: int = 0


@pytest.mark.parametrize("meta", [Slots, Frozen])
def test_metadata_carry_their_step_to_a_worker_whatever_their_class(
    profile: ModuleType, meta: type[Base]
) -> None:
    connector = SimpleNamespace(build_connector_meta=meta)
    profile.wrap_scheduler_side(connector)
    for step in (1, 2):
        profile.Steps.step_id = step
        arrived = pickle.loads(pickle.dumps(connector.build_connector_meta()))
        assert getattr(arrived, profile.STEP_ATTRIBUTE) == step


@pytest.mark.parametrize("period", [2, 16])
def test_what_happens_in_every_so_many_steps_is_met_as_often_with_cpu_time(
    profile: ModuleType, period: int
) -> None:
    """A block of 16 tokens fills in every 16th step of one request; a stride of 16 would meet that always or never."""
    step, met = 1, [0] * period
    for _ in range(4000):
        step = profile.next_cpu_step(step)
        met[step % period] += 1
    assert step / 4000 == pytest.approx(16, rel=0.05)
    assert min(met) > 0.75 * 4000 / period
    assert max(met) < 1.25 * 4000 / period


@pytest.mark.parametrize("ahead", [False, True])
def test_a_step_in_which_a_request_begins_tells_its_cpu_time_as_others_do(
    profile: ModuleType, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: bool
) -> None:
    """``on_new_request`` is called before the step is scheduled."""
    monkeypatch.setattr(profile, "cpu_ns", lambda: clock() // 4)

    class Connector:
        def on_new_request(self) -> None:
            clock.ms += 4

        def build_connector_meta(self) -> SimpleNamespace:
            clock.ms += 8
            return SimpleNamespace()

        def take_events(self) -> None:
            clock.ms += 4

    own = Connector()

    Scheduler = scheduler_of(own, clock)
    profile.install_scheduler(Scheduler)
    profile.wrap_scheduler_side(own)
    scheduler = Scheduler()
    waiting = scheduler.schedule()
    for _ in range(400):
        own.on_new_request()
        if ahead:
            waiting, before = scheduler.schedule(), waiting
            scheduler.update_from_output(before, None)
        else:
            scheduler.update_from_output(waiting, None)
            own.on_new_request()
            waiting = scheduler.schedule()
    (log,) = tmp_path.glob("step.scheduler.*.jsonl")
    assert within(30, lambda: len(rows(log)) == 401)
    found = rows(log)[1:]
    told = [row for row in found if "hooks_cpu_ns" in row][1:]
    assert len(told) > 15
    for row in told:
        wall, cpu = row["hooks"][::2], row["hooks_cpu_ns"]
        assert [w / 4 for w in wall] == cpu, (
            "all of what the step's hooks took, and nothing of another step's"
        )


def scheduler_of(connector: Any, clock: Clock) -> type:
    """One that asks ``connector`` in both halves of a step."""

    class Scheduler(scheduler_class(clock)):  # type: ignore[misc]
        def schedule(self) -> SimpleNamespace:
            connector.build_connector_meta()
            return super().schedule()  # type: ignore[no-any-return]

        def update_from_output(self, output: object, result: object) -> None:
            connector.take_events()

    return Scheduler


def scheduler_class(clock: Clock) -> type:
    class Scheduler:
        requests: dict[str, object] = {}  # noqa: RUF012 - as vLLM's

        def schedule(self) -> SimpleNamespace:
            clock.ms += 1
            return SimpleNamespace(
                num_scheduled_tokens={"a": 1}, total_num_scheduled_tokens=1, scheduled_new_reqs=()
            )

        def update_from_output(self, output: object, result: object) -> None:
            clock.ms += 2

        def get_request_counts(self) -> tuple[int, int]:
            return 1, 0

    return Scheduler


def rows(log: Path) -> list[dict[str, Any]]:
    """Header and rows as a cell keeps them."""
    cut([log], 0, 2**63, log.with_suffix(".cell"))
    found = [json.loads(line) for line in log.with_suffix(".cell").read_text().splitlines()]
    log.with_suffix(".cell").unlink()
    return found


def test_the_switch_takes_the_wrappers_away_and_puts_them_back(
    profile: ModuleType, clock: Clock, tmp_path: Path
) -> None:
    cls = scheduler_class(clock)
    bare = cls.schedule  # type: ignore[attr-defined]
    profile.install_scheduler(cls)
    wrapped = cls.schedule  # type: ignore[attr-defined]
    scheduler = cls()

    def step() -> None:
        scheduler.update_from_output(scheduler.schedule(), None)

    step()
    off = tmp_path / "step.jsonl.off"
    off.touch()
    assert within(30, lambda: cls.schedule is bare)  # type: ignore[attr-defined]
    step()
    off.unlink()
    assert within(30, lambda: cls.schedule is wrapped)  # type: ignore[attr-defined]
    step()
    (log,) = tmp_path.glob("step.scheduler.*.jsonl")
    assert within(30, lambda: len(rows(log)) == 3)
    header, first, last = rows(log)
    assert (header["kind"], header["schema"], header["hooks"]) == ("header", 2, [])
    assert [first["step_id"], last["step_id"]] == [1, 2], "the step in between left no row"
    assert (first["schedule_us"], first["update_us"], first["step_duration_us"]) == (1000, 2000, 3000)
    assert (last["decode_tokens"], last["hooks"]) == (1, [])


def test_what_an_instance_had_of_its_own_comes_back(profile: ModuleType) -> None:
    """A connector that sets a hook on itself gets that back, one that inherits its hook loses the wrapper."""
    own = SimpleNamespace(take_events=len)
    inherits = Child(Clock(), 0)
    meter = profile.Meter()
    meter.wrap(own, ["take_events"])
    meter.wrap(inherits, ["get_finished"])
    profile.put(meter.wrapped, inherits, "get_finished", lambda: "on top of the wrapper")
    profile.switch(meter.wrapped, False)
    assert own.take_events is len
    assert "get_finished" not in inherits.__dict__
    profile.switch(meter.wrapped, True)
    assert own.take_events is not len
    assert inherits.get_finished() == "on top of the wrapper"


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
    command = [sys.executable, "-c", ENDLESS_STEPS, str(PROFILE), lines_written]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("no step records") == 1
    assert "No space left on device" in done.stderr


def test_a_folder_that_is_not_there_does_not_end_the_engine(tmp_path: Path) -> None:
    environment = {**os.environ, "AGENTIC_STEP_LOG_PATH": str(tmp_path / "missing" / "y.jsonl")}
    command = [sys.executable, "-c", ENDLESS_STEPS, str(PROFILE), "1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "No such file or directory" in done.stderr
