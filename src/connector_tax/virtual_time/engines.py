"""Engines in virtual time: starts them, commands them over Unix sockets, takes turns, ends them."""

import hashlib
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from connector_tax.base.artifacts.layout import VIRTUAL_GPU
from connector_tax.base.config.secrets import with_references
from connector_tax.base.documents.identity import GpuDocument, GpuFile
from connector_tax.base.errors import EngineError
from connector_tax.base.files import socket_folder, write_json
from connector_tax.base.locks import cache_folder
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.connector import SidePort
from connector_tax.base.secrets import masked
from connector_tax.run.engine.launch import instrument
from connector_tax.run.engine.ports import api_port
from connector_tax.run.engine.root_cause import root_cause
from connector_tax.run.engine.supervised import Supervisor, start_supervised, stop_supervised
from connector_tax.run.engine.virtual_gpu import VARIABLE

START_TIMEOUT_S = 300.0
# For one slice, which takes about 10 ms of CPU, on a host of any load.
ANSWER_TIMEOUT_S = 180.0
POLL_S = 0.2
GRACE_S = 1.0
# The recorder's thread must not write while steps are timed, so the engine flushes after each cell.
NEVER_S = 1e6
LOG = "engine.log"


class EngineFailed(EngineError):
    """Engines did not start, or died.

    Attributes:
        reasons: (engine, its reason) of each.
    """

    def __init__(self, *reasons: tuple["EngineSpec", str]) -> None:
        super().__init__(masked("; ".join(f"{spec.label}: {reason}" for spec, reason in reasons)))
        self.reasons = reasons


class Stopped(Exception):
    """The deadline has passed, or the caller asked to stop."""


# Called between slices and while engines start; raises ``Stopped``.
Check = Callable[[], None]


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """One engine of a comparison.

    Attributes:
        python: an interpreter that has vLLM.
        model: a folder with ``config.json``; weights are not needed.
        virtual_gpu: step times of the virtual device.
        args: engine arguments, as in a campaign.
        side_ports: ports that the connector listens on; each engine gets free ones.
    """

    label: str
    python: str
    model: Path
    virtual_gpu: GpuDocument
    kv_transfer_config: Foreign | None = None
    args: Foreign = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    side_ports: tuple[SidePort, ...] = ()


class Importer:
    """A process that imports vLLM once and forks engines, since the import is most of a start."""

    def __init__(self, folder: Path, supervisor: Supervisor, listener: socket.socket) -> None:
        self._folder, self._supervisor, self._listener = folder, supervisor, listener
        self._control: socket.socket | None = None

    def fork(self, request: Foreign, check: Check) -> None:
        """Fork an engine from this process.

        Raises:
            EngineError: the interpreter cannot import vLLM, or this vLLM cannot be driven.
            Stopped: by ``check``.
        """
        if self._control is None:
            self._control = self.accept(self._listener, check)
        with suppress(BrokenPipeError):  # the process died; ``look`` reports why
            self._control.sendall(json.dumps(request).encode() + b"\n")

    def accept(self, listener: socket.socket, check: Check) -> socket.socket:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        listener.settimeout(POLL_S)
        while True:
            with suppress(TimeoutError):
                channel = listener.accept()[0]
                channel.settimeout(POLL_S)
                return channel
            check()
            self.look("the interpreter", deadline_s)

    def look(self, label: str, deadline_s: float) -> None:
        """Check that the process runs and that the deadline has not passed.

        Raises:
            EngineError: the process and so every engine has ended, or the deadline has passed.
        """
        if (code := self._supervisor.poll()) is not None:
            raise EngineError(f"{label}: {_death_message(self._folder / LOG, code)}")
        if time.monotonic() > deadline_s:
            raise EngineError(
                f"{label}: the engine in virtual time did not answer in time. The host may be overloaded."
            )


class Engine:
    """One running engine.

    Attributes:
        facts: its resolved settings, once it is ready.
        cpu_s: CPU time of its process up to its last cell.
    """

    def __init__(self, spec: EngineSpec, folder: Path, importer: Importer, channel: socket.socket) -> None:
        self.spec, self.folder = spec, folder
        self.facts: Foreign = {}
        self.cpu_s = 0.0
        self._importer, self._channel, self._read = importer, channel, b""

    def pause(self) -> None:
        """Stop all its threads: spinning ones would take a core from the engine whose turn it is."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # the process died; ``hear`` reports why
            os.kill(self.facts["pid"], number)

    def tell(self, message: Foreign | None) -> None:
        """Send a cell, or None for the next slice of the current one."""
        with suppress(BrokenPipeError):  # the process died; ``hear`` reports why
            self._channel.sendall(json.dumps(message).encode() + b"\n")

    def hear(self, check: Check, timeout_s: float = ANSWER_TIMEOUT_S) -> Foreign:
        """Return the engine's next answer.

        Raises:
            EngineError: it has died, with its root cause, or it does not answer.
            Stopped: by ``check``.
        """
        deadline_s = time.monotonic() + timeout_s
        while b"\n" not in self._read:
            try:
                received = self._channel.recv(1 << 20)
            except TimeoutError:
                check()
                self._importer.look(self.spec.label, deadline_s)
                continue
            except ConnectionResetError:
                received = b""
            if not received:
                raise EngineFailed((self.spec, _death_message(self.folder / LOG, None)))
            self._read += received
        line, _, self._read = self._read.partition(b"\n")
        answer: Foreign = json.loads(line)
        if "error" in answer:
            raise EngineFailed((self.spec, str(answer["error"])))
        self.cpu_s = answer.get("process_cpu_ns", 0) / 1e9
        return answer


def _death_message(log: Path, code: int | None) -> str:
    text = log.read_text(errors="replace") if log.exists() else ""
    return f"the engine in virtual time ended: {root_cause(text, exit_code=code)}"


class Engines:
    """The engines of one start. They end with the ``with`` block, and with this process however it ends.

    Imports begin at once, so those of the next start run while this one measures. Engines of one interpreter
    and environment are forked from one import and share its hash seed and addresses; each start has its own.
    """

    def __init__(self, specs: Sequence[EngineSpec], scheduling: str, start: int, check: Check) -> None:
        self._specs, self._scheduling, self._start, self._check = specs, scheduling, start, check
        self._stack = ExitStack()
        self._importers: dict[tuple[str, tuple[tuple[str, str], ...]], Importer] = {}
        self._n = 0

    def __enter__(self) -> "Engines":
        with self._stack as stack:  # closed if a later step raises
            self._folder = Path(stack.enter_context(socket_folder()))
            for spec in self._specs:
                self._importer(spec)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        self.end()

    def end(self) -> None:
        self._stack.close()

    def started(self) -> list[Engine]:
        """Return one engine per spec, all started at the same time.

        Raises:
            EngineFailed: engines cannot start, or resolve to the other scheduling mode.
            Stopped: by ``check``.
        """
        running = []
        for index, spec in enumerate(self._specs):
            listener = self._stack.enter_context(socket.socket(socket.AF_UNIX))
            folder = self._fork(spec, index, len(self._specs), listener)
            channel = self._stack.enter_context(self._importer(spec).accept(listener, self._check))
            running.append(Engine(spec, folder, self._importer(spec), channel))
        failed: list[tuple[EngineSpec, str]] = []
        for engine in running:
            try:
                engine.facts = engine.hear(self._check, START_TIMEOUT_S)["ready"]
                engine.pause()
            except EngineFailed as failure:
                failed += failure.reasons
                continue
            resolved = "async" if engine.facts["async_scheduling"] else "sync"
            if resolved != self._scheduling:
                reason = (
                    f"the engine resolves to {resolved} scheduling, and {self._scheduling} was asked for. Ask"
                    f" for {resolved}."
                )
                failed.append((engine.spec, reason))
        if failed:
            raise EngineFailed(*failed)
        return running

    def _fork(self, spec: EngineSpec, index: int, n_engines: int, listener: socket.socket) -> Path:
        folder = self._new_folder()
        (folder / "steps").mkdir()
        document = msgspec.structs.asdict(spec.virtual_gpu)
        write_json(folder / VIRTUAL_GPU, GpuFile(**document, clock_log=str(folder / "clock.jsonl")))
        listener.bind(str(folder / "socket"))
        listener.listen(1)
        # VLLM_PORT too: two engines that search for a free port themselves would find the same one.
        wanted_ports = ("VLLM_PORT", *(p.env for p in spec.side_ports if p.listens))
        ports = {env: str(api_port(0, index, n_engines)) for env in wanted_ports if env not in spec.env}
        engine_settings = {
            "model": str(spec.model),
            "kv_transfer_config": with_references(spec.kv_transfer_config, spec.label),
            # Engines choose asynchronous scheduling by themselves where they can.
            "args": {
                **with_references(spec.args, spec.label),
                **({"async_scheduling": False} if self._scheduling == "sync" else {}),
            },
        }
        environment = {
            **ports,
            "AGENTIC_STEP_LOG_PATH": str(folder / "steps" / "steps.jsonl"),
            VARIABLE: str(folder / VIRTUAL_GPU),
        }
        request = {
            "socket": str(folder / "socket"),
            "log": str(folder / LOG),
            "environment": environment,
            "wanted": engine_settings,
        }
        self._importer(spec).fork(request, self._check)
        return folder

    def _new_folder(self) -> Path:
        self._n += 1
        folder = self._folder / str(self._n)
        folder.mkdir()
        return folder

    def _importer(self, spec: EngineSpec) -> Importer:
        key = (spec.python, tuple(sorted(spec.env.items())))
        if key not in self._importers:
            self._importers[key] = self._stack.enter_context(_importer(spec, self._start, self._new_folder()))
        return self._importers[key]


@contextmanager
def _importer(spec: EngineSpec, start: int, folder: Path) -> Iterator[Importer]:
    environment = {
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "HF_HUB_OFFLINE": "1",
        # One folder per interpreter: releases overwrite each other's model information there, and an engine
        # without it imports vLLM a second time.
        "VLLM_CACHE_ROOT": str(
            cache_folder() / "vllm" / hashlib.sha256(spec.python.encode()).hexdigest()[:12]
        ),
        **os.environ,
        # vLLM leaves a file per engine in TMPDIR.
        "TMPDIR": str(folder),
        **with_references(dict(spec.env), spec.label),
        "PYTHONHASHSEED": str(start),
        "VLLM_HOST_IP": "127.0.0.1",
        "AGENTIC_STEP_LOG_PATH": str(folder / "steps.jsonl"),
        "CONNECTOR_TAX_STEP_FLUSH_S": str(NEVER_S),
        VARIABLE: str(folder / VIRTUAL_GPU),
    }
    environment |= instrument(environment)
    document = msgspec.structs.asdict(spec.virtual_gpu)
    write_json(folder / VIRTUAL_GPU, GpuFile(**document, clock_log=str(folder / "clock.jsonl")))
    with socket.socket(socket.AF_UNIX) as listener, open(folder / LOG, "wb") as log:
        listener.bind(str(folder / "socket"))
        listener.listen(1)
        supervisor = start_supervised(
            [spec.python, "-m", "virtual_time.engine", str(folder / "socket")],
            folder=folder,
            environment=environment,
            grace_s=GRACE_S,
            stdout=log,
            stderr=log,
        )
        try:
            yield Importer(folder, supervisor, listener)
        finally:
            stop_supervised(supervisor, folder, grace_s=GRACE_S)


def interleaved(running: Sequence[Engine], cell: Foreign, check: Check) -> list[Foreign]:
    """Run one cell on every engine, slice by slice in turn, and return the cells' results.

    Each round begins with the next engine (ABBA, or ABC BCA CAB). An engine that follows itself has warm
    caches, so each must do so equally often.

    Raises:
        EngineError: see ``Engine.hear``.
        Stopped: by ``check``.
    """
    results: dict[Engine, Foreign] = {}
    message: Any = cell
    order = list(running)
    while len(results) < len(running):
        for engine in order:
            if engine in results:
                continue
            check()
            engine.resume()
            engine.tell(message)
            answer = engine.hear(check)
            engine.pause()
            if "more" not in answer:
                results[engine] = answer
        message = None
        order.append(order.pop(0))
    return [results[engine] for engine in running]
