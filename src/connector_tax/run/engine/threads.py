"""Threads of a running engine, looked at and rearranged from outside: by thread id, through /proc and the scheduler's system calls.

vLLM is told nothing of it. A thread in the class SCHED_IDLE runs only while a core is otherwise free; one that has a core of its own shares it
with no other thread of the engine or of the client.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psutil

from connector_tax.base.siblings import siblings
from connector_tax.run.engine.process import RunningEngine
from connector_tax.run.engine.supervisor import descendants
from connector_tax.run.engine.usage import thread_name

# A thread that ran so many times as long as any of that name in plain's engine is none of those.
RAN_LONGER = 2.0


@dataclass(frozen=True, slots=True)
class Alike:
    """Threads of one name in one process, the main thread apart.

    Attributes:
        longest_s: CPU seconds of the one that ran most.
    """

    number: int
    longest_s: float


# (role of the process, the thread's name) -> what there is of it.
Census = dict[tuple[str, str], Alike]


@dataclass(frozen=True, slots=True)
class Thread:
    """
    Attributes:
        process: its role, such as ``engine_core``.
        name: as the kernel names it.
        cpu_s: user plus system time since it started.
    """

    process: str
    name: str
    pid: int
    tid: int
    cpu_s: float

    @property
    def is_main(self) -> bool:
        return self.tid == self.pid


def threads_of(engine: RunningEngine) -> tuple[Thread, ...]:
    """Every thread of the engine's processes; none of an engine that is gone."""
    found = []
    if engine.supervisor.poll() is None:
        for role, process in engine.processes().items():
            # A process may end between the listing and the question; it then has no threads.
            with suppress(psutil.Error):
                found += [
                    Thread(
                        role, thread_name(process.pid, t.id), process.pid, t.id, t.user_time + t.system_time
                    )
                    for t in process.threads()
                ]
    return tuple(found)


def census(threads: Sequence[Thread]) -> Census:
    found: dict[tuple[str, str], list[float]] = {}
    for thread in threads:
        if not thread.is_main:
            found.setdefault((thread.process, thread.name), []).append(thread.cpu_s)
    return {key: Alike(len(cpu_s), max(cpu_s)) for key, cpu_s in found.items()}


def helpers(threads: Sequence[Thread], plain: Census) -> tuple[Thread, ...]:
    """Those that plain's engine has not, told by name and number; a main thread is none.

    Native threads and Python's have their process's name where nobody gave them one, so vLLM's own are among those of that name. Where plain
    has some and this engine more, those are taken, as many as there are more, that ran much longer than any of plain's: one that hardly runs
    is in nobody's way.
    """
    found: list[Thread] = []
    for key, own in census(threads).items():
        known = plain.get(key, Alike(0, 0.0))
        alike = [t for t in threads if (t.process, t.name) == key and not t.is_main]
        if known.number:
            alike = [t for t in alike if t.cpu_s > RAN_LONGER * known.longest_s]
        found += sorted(alike, key=lambda t: -t.cpu_s)[: max(0, own.number - known.number)]
    return tuple(found)


def only_on_free_cores(threads: Sequence[Thread]) -> tuple[Thread, ...]:
    """Put ``threads`` into SCHED_IDLE; returns those that it was done to.

    There is no way back: without privileges a thread may enter that class and not leave it.

    Raises:
        PermissionError: the threads are somebody else's.
    """
    done = []
    for thread in threads:
        with suppress(ProcessLookupError):  # it ended since it was listed
            os.sched_setscheduler(thread.tid, os.SCHED_IDLE, os.sched_param(0))
            done.append(thread)
    return tuple(done)


def kept(threads: Sequence[Thread]) -> dict[Thread, frozenset[int]]:
    """Those that may not use every CPU that some thread among them may, with the CPUs of each."""
    cpus = _cpus_of(threads)
    return {thread: own for thread, own in cpus.items() if own != frozenset().union(*cpus.values())}


@contextmanager
def on_all_cpus(threads: Sequence[Thread]) -> Iterator[None]:
    """Each of ``threads`` on every CPU that some thread among them may use."""
    narrow = {thread.tid: cpus for thread, cpus in kept(threads).items()}
    try:
        _pin(dict.fromkeys(narrow, frozenset().union(*_cpus_of(threads).values())))
        yield
    finally:
        _pin(narrow)


def _cpus_of(threads: Sequence[Thread]) -> dict[Thread, frozenset[int]]:
    found = {}
    for thread in threads:
        with suppress(ProcessLookupError):
            found[thread] = frozenset(os.sched_getaffinity(thread.tid))
    return found


@contextmanager
def alone_on_a_core(thread: Thread) -> Iterator[frozenset[int]]:
    """``thread`` on a core, and every other thread of this process and of what it started elsewhere; yields the core's CPUs.

    A hyper-thread is taken for a core where there is one physical core alone.

    Raises:
        ValueError: there is one CPU.
    """
    before = _affinities()
    before.setdefault(thread.tid, frozenset(os.sched_getaffinity(thread.tid)))
    widest = frozenset[int]().union(*before.values())
    # The last: interrupts go to the first by default.
    cpu = max(before[thread.tid])
    core = widest & siblings(cpu)
    core = core if core < widest else frozenset({cpu})
    if core == widest:
        raise ValueError(f"engine and client may run on CPU {cpu} alone, and a second one is needed")
    # Threads that are kept to that core must go as well.
    after = {tid: core if tid == thread.tid else cpus - core or widest - core for tid, cpus in before.items()}
    try:
        _pin(after)
        yield core
    finally:
        # Threads that began meanwhile took over where their makers were.
        _pin({tid: before.get(tid, widest) for tid in {*_affinities(), *before}})


def _affinities() -> dict[int, frozenset[int]]:
    """Thread id -> CPUs, of this process and all that it started."""
    found = {}
    for pid in (os.getpid(), *descendants(os.getpid())):
        with suppress(OSError):  # it ended since it was listed
            for name in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - names are all that is wanted
                with suppress(OSError):
                    found[int(name)] = frozenset(os.sched_getaffinity(int(name)))
    return found


def _pin(cpus: dict[int, frozenset[int]]) -> None:
    for tid, wanted in cpus.items():
        with suppress(ProcessLookupError):
            os.sched_setaffinity(tid, wanted)
