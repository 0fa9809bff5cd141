"""Virtual time: what advances it, what does not, and what a wait for another thread is charged."""

import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import virtual_time.clock
from virtual_gpu.clock import Clock
from virtual_time.clock import VirtualTime, charge_waits, thread_cpu_ns

MS = 1_000_000


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """CPU time of the engine's thread, which the test spends."""
    spent = [5 * MS]
    monkeypatch.setattr(virtual_time.clock, "cpu_ns", lambda: spent[0])
    return spent


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualTime]:
    """A source whose waits are charged, on the real CPU clock."""
    monkeypatch.setattr(threading.Condition, "wait", threading.Condition.wait)
    monkeypatch.setattr(time, "sleep", time.sleep)
    source = VirtualTime()
    charge_waits(source)
    source.resume()
    yield source
    source.pause()


def burn(ms: float) -> None:
    until_ns = time.thread_time_ns() + round(ms * MS)
    while time.thread_time_ns() < until_ns:
        pass


def test_time_is_what_the_engines_thread_spends_and_stands_still_for_the_driver(cpu: list[int]) -> None:
    source = VirtualTime()
    begun = source.now_ns()
    cpu[0] += 7 * MS
    assert source.now_ns() == begun  # until the first resume
    source.resume()
    cpu[0] += 2 * MS
    source.pause()
    cpu[0] += 90 * MS
    source.resume()
    cpu[0] += 1 * MS
    assert source.now_ns() - begun == 3 * MS
    assert source.jumped_ns == 0


def test_waiting_for_the_device_is_a_jump_to_when_it_is_done(
    cpu: list[int], tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = VirtualTime()
    monkeypatch.setattr("virtual_gpu.clock.source", source)
    clock = Clock(tmp_path / "clock.jsonl")
    source.resume()
    begun = source.now_ns()
    step = clock.launch(8 * MS)
    cpu[0] += 3 * MS  # hidden behind the device
    clock.wait(step)
    assert (source.now_ns() - begun, source.jumped_ns) == (8 * MS, 5 * MS)
    late = clock.launch(1 * MS)
    cpu[0] += 3 * MS
    clock.wait(late)
    assert (source.now_ns() - begun, source.jumped_ns) == (11 * MS, 5 * MS)
    source.busy(250.0)
    assert source.now_ns() - begun == 11.25 * MS


def test_a_wait_for_another_thread_is_charged_what_that_thread_works_and_not_how_long_it_sleeps(
    waits: VirtualTime,
) -> None:
    def work() -> None:
        time.sleep(0.05)
        burn(20)

    with ThreadPoolExecutor(1) as pool:
        begun, spent = waits.now_ns(), waits.spent_ns()
        pool.submit(work).result()
        took, charged = waits.now_ns() - begun, waits.spent_ns() - spent
    assert 20 * MS <= took < 30 * MS
    assert charged == pytest.approx(took, abs=1 * MS)
    assert waits.waits >= 1


def test_a_sleep_and_a_wait_that_times_out_take_as_long_as_they_were_asked_to(waits: VirtualTime) -> None:
    for idle in (lambda: time.sleep(0.03), lambda: threading.Event().wait(0.03)):
        begun, spent = waits.now_ns(), waits.spent_ns()
        idle()
        took, charged = waits.now_ns() - begun, waits.spent_ns() - spent
        assert 30 * MS <= took < 40 * MS
        assert charged == pytest.approx(took, abs=1 * MS)
    assert waits.waits == 0


def test_a_sleep_of_another_thread_and_one_while_time_stands_still_are_charged_to_nobody(
    waits: VirtualTime,
) -> None:
    begun = waits.now_ns()
    thread = threading.Thread(target=time.sleep, args=(0.03,))
    thread.start()
    thread.join()
    waits.pause()
    time.sleep(0.03)
    waits.resume()
    assert waits.now_ns() - begun < 10 * MS


def test_off_its_core_the_engines_thread_is_charged_nothing_and_that_is_noted(waits: VirtualTime) -> None:
    begun = waits.now_ns()
    subprocess.run(["sleep", "0.05"], check=True)
    waits.pause()
    assert waits.wall_ns - waits.ran_ns >= 40 * MS
    assert waits.now_ns() - begun < 40 * MS
    waits.resume()


def test_a_result_that_is_there_is_no_wait(waits: VirtualTime) -> None:
    done: Future[int] = Future()
    done.set_result(1)
    done.result()
    assert waits.waits == 0


@pytest.mark.parametrize("charges", [False, True])
def test_what_other_threads_do_beside_the_engines_is_noted_and_charged_only_when_asked(charges: bool) -> None:
    source = VirtualTime()
    source.settle()
    source.charges_others = charges
    thread = threading.Thread(target=lambda: (burn(15), stay.wait()))
    stay = threading.Event()
    begun, before_ns = source.now_ns(), source.others_ns
    thread.start()
    while thread_cpu_ns(thread.native_id or 0) < 15 * MS:
        time.sleep(0.001)
    source.settle()
    stay.set()
    thread.join()
    noted_ns = source.others_ns - before_ns
    assert noted_ns >= 15 * MS
    assert source.now_ns() - begun == (noted_ns if charges else 0)


def test_another_threads_sleep_in_virtual_time_ends_when_the_engine_waits_for_it(waits: VirtualTime) -> None:
    """As a copy that a connector's thread waits for, and the engine's thread for that."""
    begun = waits.now_ns()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(waits.sleep_until, begun + 400 * MS).result()
    assert 400 * MS <= waits.now_ns() - begun < 430 * MS
    assert waits.jumped_ns >= 390 * MS


def test_a_thread_that_has_ended_has_no_cpu_time() -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    native_id = thread.native_id
    thread.join()
    assert native_id is not None
    while Path(f"/proc/self/task/{native_id}").exists():  # the kernel's part of it ends later
        time.sleep(0.001)
    assert thread_cpu_ns(native_id) == 0
