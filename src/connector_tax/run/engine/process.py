"""Runs an engine: launches it, watches it, and ends it without leftovers."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import httpx
import psutil

from connector_tax.base import direct
from connector_tax.base.artifacts.layout import LOGS
from connector_tax.base.config import EngineConfig
from connector_tax.base.documents.cell import IdleUse, Spinning
from connector_tax.base.errors import EngineError
from connector_tax.base.files import printable, socket_folder, write_bytes
from connector_tax.base.records.connector import ConnectorSpec
from connector_tax.base.secrets import masked
from connector_tax.run.engine.command import (
    api_key,
    engine_environment,
)
from connector_tax.run.engine.container import contained, grace_s, image_of
from connector_tax.run.engine.gpus import Cards, Gpu, cards_of, memory_used_mib
from connector_tax.run.engine.launch import STEP_LOG, Launch
from connector_tax.run.engine.ports import api_port, intruder, listens, taken_side_port
from connector_tax.run.engine.root_cause import MOST_CHARACTERS, error_in, root_cause, since_ready
from connector_tax.run.engine.store import own_store
from connector_tax.run.engine.supervised import (
    Inside,
    Supervisor,
    clean_logs,
    end_leftovers,
    new_mark,
    start_supervised,
    stop_supervised,
)
from connector_tax.run.engine.supervisor import HANDED, KILL_WAIT_S
from connector_tax.run.engine.virtual_gpu import VARIABLE as VIRTUAL_GPU_VARIABLE
from connector_tax.run.engine.virtual_gpu import remove_copy, write_gpu

# The engine's processes by role: API server, engine cores, workers.


def processes_below(root: int) -> dict[str, psutil.Process]:
    """Return the descendants of ``root`` by role; a second one of a role gets its pid appended.

    Raises:
        psutil.NoSuchProcess: ``root`` is gone.
    """
    by_role: dict[str, psutil.Process] = {}
    for process in psutil.Process(root).children(recursive=True):
        try:
            role = _role(process)
        except psutil.Error:
            continue  # ended since it was listed
        by_role[role if role not in by_role else f"{role}#{process.pid}"] = process
    return by_role


def _role(process: psutil.Process) -> str:
    """Return ``api_server``, ``engine_core``, ``worker``, ...: vLLM sets its processes' titles."""
    title = " ".join(process.cmdline()) or process.name()
    for word, role in (
        ("EngineCore", "engine_core"),
        ("Worker", "worker"),
        ("resource_tracker", "resource_tracker"),
    ):
        if word in title:
            return role
    # vLLM gives the title `APIServer` to each of several; a single one keeps its command.
    if any(word in title for word in ("vllm_serve", "APIServer", "connector_tax.run.emulator")):
        return "api_server"
    return process.name()


# Wait until each card has as much free memory as before the launch.

RELEASE_POLL_S = 0.5

MemoryBefore = dict[Gpu, int]


def memory_before(gpus: tuple[Gpu, ...]) -> MemoryBefore:
    """Return the MiB in use on each card now, without cards that do not report it."""
    used_mib = {gpu: memory_used_mib(gpu) for gpu in gpus}
    return {gpu: mib for gpu, mib in used_mib.items() if mib is not None}


def wait_released(before: MemoryBefore, *, tolerance_mib: int, timeout_s: float) -> None:
    """Wait until each card's memory in use is within ``tolerance_mib`` of ``before``.

    Raises:
        EngineError: memory is still held after ``timeout_s``, so the next launch would get less.
    """
    deadline = time.monotonic() + timeout_s
    for gpu, before_mib in before.items():
        while True:
            used_mib = memory_used_mib(gpu)
            if used_mib is None or used_mib <= before_mib + tolerance_mib:
                break
            if time.monotonic() > deadline:
                raise EngineError(
                    f"{gpu}: {used_mib} MiB in use {timeout_s:g} s after the engine ended, {before_mib} MiB"
                    " before it started. See nvidia-smi for who holds it; end that process, then start"
                    " again."
                )
            time.sleep(RELEASE_POLL_S)


POLL_S = 0.1
LOG_TAIL_BYTES = 400_000
# Time for the supervisor to notice that an engine died which answered with an error or not at all.
DEATH_WAIT_S = 2.0


class LaunchError(EngineError):
    """An engine did not become ready; carries the root cause."""


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """What to launch, and where its logs and records go.

    Attributes:
        folder: gets ``launch.sh``, ``vllm_stdout.log``, ``vllm_stderr.log``, and a virtual
            GPU's ``virtual_gpu.json``.
        step_log: AGENTIC_STEP_LOG_PATH; None turns step timing off.
        fault: for tests of the embedded engine, see ``run/emulator/faults.py``.
        cpus: logical CPUs that the engine stays on; empty for any.
        cards: what it runs on; None: looked up at the launch.
        place: index among the ``of`` engines that the campaign may run side by side.
    """

    engine: EngineConfig
    connector: ConnectorSpec
    folder: Path
    step_log: Path | None = None
    fault: str | None = None
    cpus: tuple[int, ...] = ()
    cards: Cards | None = None
    place: int = 0
    of: int = 1


@dataclass(frozen=True, slots=True)
class RunningEngine:
    """A handle on the engine's supervisor; every property queries the running processes.

    Attributes:
        oom_kills: the kernel's count at launch; None where it keeps none.
        inside: the first process of the engine's container, if it has one.
    """

    request: LaunchRequest
    port: int
    supervisor: Supervisor
    oom_kills: int | None = None
    inside: Inside | None = None

    @property
    def root(self) -> int:
        """Return the parent of all engine processes: the container's first process, else the supervisor."""
        inside = self.inside.pid if self.inside is not None else None
        return self.supervisor.pid if inside is None else inside

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def model(self) -> str:
        return self.request.engine.served_model_name

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of our requests: the API key, if the engine requires one."""
        key = api_key(self.request.engine, self.request.connector)
        return {} if key is None else {"Authorization": f"Bearer {key}"}

    @property
    def step_flush_s(self) -> float:
        return float(self.request.engine.env.get("CONNECTOR_TAX_STEP_FLUSH_S", "0.5"))

    def death(self, within_s: float = 0.0) -> str | None:
        """Return the root cause from the log if the engine dies within ``within_s``; None while it lives."""
        with suppress(subprocess.TimeoutExpired):
            self.supervisor.wait(within_s)
        code = self.supervisor.poll()
        if code is None:
            return None
        cause = root_cause(self._since_ready(), exit_code=code)
        if "SIGKILL" in cause and self.oom_kills is not None and (oom_kills() or 0) > self.oom_kills:
            return f"{cause}; meanwhile the kernel killed a process of this host for want of memory"
        return cause

    def death_behind_silence(self) -> str | None:
        """Return the root cause if an engine that gave an error or no answer is dead; None if it lives.

        A dying engine's supervisor first ends the remaining processes; a living one answers
        ``/health``. Processes and port prove nothing: an API server may take long to end, and an engine
        core may have inherited the socket.
        """
        death = self.death(within_s=DEATH_WAIT_S)
        deadline_s = time.monotonic() + grace_s(self.request.engine) + KILL_WAIT_S
        while death is None and time.monotonic() < deadline_s and not self._is_healthy():
            death = self.death(within_s=POLL_S)
        return death

    def _is_healthy(self) -> bool:
        try:
            return direct.get(f"{self.base_url}/health", timeout_s=DEATH_WAIT_S).status_code == 200
        except httpx.HTTPError:
            return False

    def trouble(self) -> str | None:
        return self.death() or error_in(self._since_ready())

    def log_text(self) -> str:
        """Return the end of both logs, masked, standard error last."""
        return masked("\n".join(_tail(self.request.folder / n) for n in LOGS))

    def job_failures(self) -> str:
        return f"its log ends with: {_last_log_line(self.log_text())}"

    def _since_ready(self) -> str:
        """Like ``log_text``, without what a ready engine logged while it started."""
        return masked("\n".join(since_ready(_tail(self.request.folder / n)) for n in LOGS))

    def wait_ready(self) -> None:
        """Wait until ``/v1/models`` names the model and only this engine can have answered.

        Raises:
            LaunchError: the engine died (with the root cause), was not ready in time, or shares its port.
        """
        timeout_s = self.request.engine.ready_timeout_s
        deadline = time.monotonic() + timeout_s
        with direct.Client(base_url=self.base_url, timeout_s=5.0, headers=self.headers) as client:
            while time.monotonic() < deadline:
                death = self.death()
                if death is not None:
                    raise LaunchError(
                        f"{self.request.connector.id}: the engine died while starting: {death}\n"
                        f"Its log: {self.request.folder / 'vllm_stderr.log'}"
                    )
                if self._serves_model(client):
                    self.check_port()
                    if listens(self.port, self.root):
                        return
                time.sleep(POLL_S)
        raise LaunchError(
            f"{self.request.connector.id}: not ready after {timeout_s:g} s; {self.job_failures()}\nRaise"
            " engine.ready_timeout_s if it only needs longer."
        )

    def _serves_model(self, client: direct.Client) -> bool:
        try:
            return self.model in (direct.served_models(client.get("/v1/models")) or ())
        except httpx.HTTPError:
            return False

    def check_port(self) -> None:
        """Refuse a port that another process answers too, or that the network can reach.

        vLLM binds with SO_REUSEPORT, so a second engine on the port causes no error and
        takes every other connection.

        Raises:
            LaunchError: another process listens there, or the engine listens beyond 127.0.0.1.
        """
        fault = intruder(self.port, self.root)
        if fault is not None and self.death() is None:  # leftovers of a dead engine are not intruders
            raise LaunchError(f"{self.request.connector.id}: {fault}")

    def processes(self) -> dict[str, psutil.Process]:
        """Return the engine's processes by role, without the supervisor and a container's helpers."""
        return processes_below(self.root)


@contextmanager
def running_engine(request: LaunchRequest) -> Iterator[RunningEngine]:
    """Run an engine with an empty store folder and a folder for vLLM's sockets; both are removed afterwards.

    Raises:
        ArtifactError: the store's folder cannot be made or emptied.
        EngineError: a port is in use, or a card's memory was not released.
    """
    with (
        own_store(request.connector) as connector,
        socket_folder() as sockets,
        _running_engine(replace(request, connector=connector), request.connector, sockets) as engine,
    ):
        yield engine


@contextmanager
def _running_engine(
    request: LaunchRequest, configured: ConnectorSpec, sockets: str
) -> Iterator[RunningEngine]:
    """Launch the engine, yield it, and end it with all its descendants, whatever the body does.

    The body calls ``wait_ready`` itself. Afterwards, also after an error, this waits for the cards' memory.

    Raises:
        EngineError: a port of the API or the connector is in use, or a card's memory was not released.
    """
    request.folder.mkdir(parents=True, exist_ok=True)
    if request.step_log is not None:
        request.step_log.parent.mkdir(parents=True, exist_ok=True)
    end_leftovers(request.folder, grace_s=request.engine.stop_grace_s)
    clean_logs(request.folder)
    port = api_port(request.engine.port, request.place, request.of)
    cards = request.cards or cards_of(request.engine)
    environment = engine_environment(request.engine, request.connector, cards)
    port_fault = taken_side_port(request.engine, request.connector, environment)
    if port_fault is not None:
        raise EngineError(port_fault)
    used_before_mib = memory_before(cards.gpus)
    oom_kills_before = oom_kills()
    mark = new_mark()
    supervisor = _spawn(request, configured, port, environment, cards, mark, sockets)
    inside = Inside(mark) if request.engine.container is not None else None

    def release() -> None:
        tolerance_mib, timeout_s = request.engine.release_tolerance_mib, request.engine.release_timeout_s
        wait_released(used_before_mib, tolerance_mib=tolerance_mib, timeout_s=timeout_s)

    try:
        yield RunningEngine(request, port, supervisor, oom_kills_before, inside)
    except Exception as error:
        try:
            _end(request, supervisor)
            release()
        except EngineError as unreleased:
            # Report both: the first is the reason, the second what must be cleared away.
            raise EngineError(f"{error}\nAnd afterwards: {unreleased}") from error
        raise
    except BaseException:
        _end(request, supervisor)  # told to end: do not wait for the card
        raise
    _end(request, supervisor)
    release()


def _end(request: LaunchRequest, supervisor: Supervisor) -> None:
    try:
        stop_supervised(supervisor, request.folder, grace_s=grace_s(request.engine))
    finally:  # also if something does not end, since no later launch may come to clean up
        remove_copy(request.folder)
        clean_logs(request.folder)


def _spawn(
    request: LaunchRequest,
    configured: ConnectorSpec,
    port: int,
    environment: dict[str, str],
    cards: Cards,
    mark: str,
    sockets: str,
) -> Supervisor:
    # The surrounding shell's values are no setting of this launch.
    for name in (STEP_LOG, HANDED, VIRTUAL_GPU_VARIABLE):
        environment.pop(name, None)
    if request.step_log is not None:
        environment[STEP_LOG] = str(request.step_log.absolute())
    gpu = write_gpu(request.engine, request.folder)
    if gpu is not None:
        environment[VIRTUAL_GPU_VARIABLE] = str(gpu)
    if request.fault is not None:
        environment["CONNECTOR_TAX_FAULT"] = request.fault
    steps = (request.folder / "steps").absolute()
    box = None
    if request.engine.container is not None:
        steps.mkdir(exist_ok=True)
        box = contained(
            request.engine,
            request.connector,
            image_of(request.engine.container),
            environment,
            mark=mark,
            cards=cards,
            cpus=request.cpus,
            writes=tuple(
                {steps, *([] if request.step_log is None else [request.step_log.parent.absolute()])}
            ),
        )
    # A container's first process sets its own CPU affinity.
    cpus = request.cpus if box is None else ()
    launch = Launch(
        request.engine,
        request.connector,
        environment,
        port,
        cpus=cpus,
        contained=box,
        steps=steps,
    )
    write_bytes(request.folder / "launch.sh", os.fsencode(launch.script(configured)))
    out_log, err_log = (request.folder / name for name in LOGS)
    with open(out_log, "ab") as out, open(err_log, "ab") as err:
        return start_supervised(
            launch.command(),
            folder=request.folder,
            environment={"VLLM_RPC_BASE_PATH": sockets, **launch.variables()},
            grace_s=grace_s(request.engine),
            stdout=out,
            stderr=err,
            cards=cards.names,
            mark=mark,
            container=None if box is None else box.image.runtime,
        )


def oom_kills() -> int | None:
    """Return the kernel's out-of-memory kills since boot; None if it does not count them."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)


def _tail(path: Path) -> str:
    if not path.exists():
        return ""
    with open(path, "rb") as handle:
        start = max(0, os.path.getsize(path) - LOG_TAIL_BYTES)
        handle.seek(start)
        if start:
            handle.readline()  # the rest of a cut line may be part of a secret
        return handle.read().decode(errors="replace")


def _last_log_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return printable(lines[-1], MOST_CHARACTERS) if lines else "nothing"


# The engine's use of this host: CPU seconds, memory, spinning threads.

# Share of a core without requests. A thread below it wakes often; a thread above it does not sleep.
SPINS_FROM = 0.3
T = TypeVar("T")


def cpu_seconds(engine: RunningEngine) -> dict[str, float]:
    return _per_process(engine, lambda process: float(process.cpu_times().user + process.cpu_times().system))


def rss_mib(engine: RunningEngine) -> dict[str, float]:
    return _per_process(engine, lambda process: process.memory_info().rss / 2**20)


def host_busy_seconds() -> float:
    """Return the CPU seconds since boot that this host spent working, without idle and stolen time."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq)


def idle_use(engine: RunningEngine, sample_s: float) -> IdleUse:
    """Return each process's CPU share without requests, over ``sample_s``, and the spinning threads."""
    cpu_before_s, threads_before, start_s = cpu_seconds(engine), _thread_seconds(engine), time.monotonic()
    time.sleep(sample_s)
    elapsed_s = time.monotonic() - start_s
    threads_after = _thread_seconds(engine)
    spinning = [
        Spinning(
            process=process, thread=thread, share=(seconds - threads_before[process, tid][1]) / elapsed_s
        )
        for (process, tid), (thread, seconds) in threads_after.items()
        if (process, tid) in threads_before
    ]
    return IdleUse(
        idle_share={
            role: (cpu_s - cpu_before_s[role]) / elapsed_s
            for role, cpu_s in cpu_seconds(engine).items()
            if role in cpu_before_s
        },
        spinning=tuple(spinner for spinner in spinning if spinner.share >= SPINS_FROM),
    )


def _thread_seconds(engine: RunningEngine) -> dict[tuple[str, int], tuple[str, float]]:
    """Return (process, thread id) -> (name, CPU seconds)."""
    by_role = _per_process(engine, lambda process: (process.pid, process.threads()))
    return {
        (role, thread.id): (thread_name(pid, thread.id), thread.user_time + thread.system_time)
        for role, (pid, threads) in by_role.items()
        for thread in threads
    }


def thread_name(pid: int, tid: int) -> str:
    try:
        return Path(f"/proc/{pid}/task/{tid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return str(tid)  # ended since it was listed


def _per_process(engine: RunningEngine, figure: Callable[[psutil.Process], T]) -> dict[str, T]:
    figures = {}
    if engine.supervisor.poll() is None:
        for role, process in engine.processes().items():
            # A process that ended since it was listed has no figure.
            with suppress(psutil.Error):
                figures[role] = figure(process)
    return figures
