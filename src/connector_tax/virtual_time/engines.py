"""Engines in virtual time: started, told what to do over a Unix socket, taking turns, and ended with whoever started them."""

import json
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from connector_tax.base.artifacts.layout import VIRTUAL_GPU
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.documents.identity import GpuDocument, GpuFile
from connector_tax.base.errors import EngineError
from connector_tax.base.files import write_json
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.connector import SidePort
from connector_tax.run.engine.ports import api_port
from connector_tax.run.engine.root_cause import root_cause
from connector_tax.run.engine.supervised import Supervisor, start_supervised, stop_supervised
from connector_tax.run.engine.virtual_gpu import VARIABLE

START_TIMEOUT_S = 180.0
# Of one slice: some 50 ms of CPU, on however busy a host.
ANSWER_TIMEOUT_S = 60.0
POLL_S = 0.2
GRACE_S = 1.0
# The recorder's own thread would write while steps are timed; the engine writes after each cell.
NEVER_S = 1e6
_PLUGINS = PROJECT_ROOT / "launch" / "plugins"
_PATHS = (_PLUGINS / "virtual_gpu" / "entry", _PLUGINS, PROJECT_ROOT / "patches")


class EngineFailed(EngineError):
    """An engine did not start, or died; says why.

    Attributes:
        spec: whose engine it was.
    """

    def __init__(self, spec: "EngineSpec", reason: str) -> None:
        super().__init__(f"{spec.label}: {reason}")
        self.spec = spec


class Stopped(Exception):
    """The deadline has come, or the caller wants no more."""


# Called between slices and while engines start; raises ``Stopped``.
Check = Callable[[], None]


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """One engine of a comparison.

    Attributes:
        python: the interpreter that has vLLM.
        model: a folder with ``config.json``; weights are not needed.
        virtual_gpu: what the device's clock goes by.
        args: engine arguments as in a campaign.
        side_ports: those that the connector listens on; each engine is given free ones.
    """

    label: str
    python: str
    model: Path
    virtual_gpu: GpuDocument
    kv_transfer_config: Foreign | None = None
    args: Foreign = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    side_ports: tuple[SidePort, ...] = ()


class Engine:
    """One running engine.

    Attributes:
        facts: what it resolved, once it is ready.
        cpu_s: of its process, as of its last cell.
    """

    def __init__(self, spec: EngineSpec, folder: Path, supervisor: Supervisor, listener: socket.socket) -> None:
        self.spec, self.folder = spec, folder
        self.facts: Foreign = {}
        self.cpu_s = 0.0
        self._supervisor, self._listener = supervisor, listener
        self._channel: socket.socket | None = None
        self._read = b""

    def await_ready(self, scheduling: str, check: Check) -> None:
        """
        Raises:
            EngineError: it does not start, or resolves to another way of scheduling.
            Stopped: as ``check``.
        """
        deadline_s = time.monotonic() + START_TIMEOUT_S
        self._listener.settimeout(POLL_S)
        while self._channel is None:
            with suppress(TimeoutError):
                self._channel, _ = self._listener.accept()
            self._look(deadline_s, check)
        wanted = {
            "model": str(self.spec.model),
            "kv_transfer_config": self.spec.kv_transfer_config,
            # Asynchronous scheduling is what an engine resolves to by itself where it can.
            "args": {**self.spec.args, **({"async_scheduling": False} if scheduling == "sync" else {})},
        }
        self.tell(wanted)
        self.facts = self._hear(deadline_s, check)["ready"]
        found = "async" if self.facts["async_scheduling"] else "sync"
        if found != scheduling:
            raise EngineFailed(
                self.spec, f"the engine resolves to {found} scheduling, and {scheduling} was asked for. Ask for {found}."
            )

    def tell(self, what: Foreign | None) -> None:
        """A cell, or None for its next slice."""
        assert self._channel is not None
        with suppress(BrokenPipeError):  # it has died, and the answer will say of what
            self._channel.sendall(json.dumps(what).encode() + b"\n")

    def hear(self, check: Check) -> Foreign:
        """
        Raises:
            EngineError: it has died, or does not answer; with its root cause.
            Stopped: as ``check``.
        """
        return self._hear(time.monotonic() + ANSWER_TIMEOUT_S, check)

    def _hear(self, deadline_s: float, check: Check) -> Foreign:
        assert self._channel is not None
        self._channel.settimeout(POLL_S)
        while b"\n" not in self._read:
            try:
                part = self._channel.recv(1 << 20)
            except TimeoutError:
                self._look(deadline_s, check)
                continue
            except ConnectionResetError:
                part = b""
            if not part:
                self._supervisor.wait(ANSWER_TIMEOUT_S)
                self._look(deadline_s, check)
            self._read += part
        line, _, self._read = self._read.partition(b"\n")
        answer: Foreign = json.loads(line)
        if "error" in answer:
            raise EngineFailed(self.spec, str(answer["error"]))
        self.cpu_s = answer.get("process_cpu_ns", 0) / 1e9
        return answer

    def _look(self, deadline_s: float, check: Check) -> None:
        check()
        code = self._supervisor.poll()
        if code is None and time.monotonic() < deadline_s:
            return
        log = (self.folder / "engine.log").read_text(errors="replace")
        what = "did not answer in time" if code is None else "ended"
        raise EngineFailed(self.spec, f"the engine in virtual time {what}: {root_cause(log, exit_code=code)}")


@contextmanager
def engines(specs: Sequence[EngineSpec], scheduling: str, start: int, check: Check) -> Iterator[list[Engine]]:
    """Start one engine of each at the same time; they end with the body, and with this process.

    Args:
        start: among the starts of a comparison, from 0; engines of one start share their hash seed.

    Raises:
        EngineError: as ``Engine.await_ready``.
        Stopped: as ``check``.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="connector-tax-")))
        running = [
            stack.enter_context(_engine(spec, folder / str(place), start, place, len(specs)))
            for place, spec in enumerate(specs)
        ]
        for engine in running:
            engine.await_ready(scheduling, check)
        yield running


@contextmanager
def _engine(spec: EngineSpec, folder: Path, start: int, place: int, of: int) -> Iterator[Engine]:
    (folder / "steps").mkdir(parents=True)
    document = msgspec.structs.asdict(spec.virtual_gpu)
    write_json(folder / VIRTUAL_GPU, GpuFile(**document, clock_log=str(folder / "clock.jsonl")))
    given = {**os.environ, **spec.env}
    paths = [*map(str, _PATHS), *filter(None, [given.get("PYTHONPATH")])]
    environment = {
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "HF_HUB_OFFLINE": "1",
        **{p.env: str(api_port(0, place, of)) for p in spec.side_ports if p.listens},
        **given,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONHASHSEED": str(start),
        "CUDA_VISIBLE_DEVICES": "",
        "VLLM_HOST_IP": "127.0.0.1",
        "AGENTIC_STEP_LOG_PATH": str(folder / "steps" / "steps.jsonl"),
        "CONNECTOR_TAX_STEP_FLUSH_S": str(NEVER_S),
        VARIABLE: str(folder / VIRTUAL_GPU),
    }
    if environment.get("VLLM_PLUGINS"):
        environment["VLLM_PLUGINS"] += ",virtual_gpu"
    with socket.socket(socket.AF_UNIX) as listener, open(folder / "engine.log", "wb") as log:
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
        engine = Engine(spec, folder, supervisor, listener)
        try:
            yield engine
        finally:
            stop_supervised(supervisor, folder, grace_s=GRACE_S)


def interleaved(running: Sequence[Engine], cell: Foreign, check: Check) -> list[Foreign]:
    """One cell on each engine, a slice of each in turn and then in turn backwards (ABBA); the cells' results.

    Raises:
        EngineError: as ``Engine.hear``.
        Stopped: as ``check``.
    """
    found: dict[Engine, Foreign] = {}
    told: Any = cell
    order = list(running)
    while len(found) < len(running):
        for engine in order:
            if engine in found:
                continue
            check()
            engine.tell(told)
            answer = engine.hear(check)
            if "more" not in answer:
                found[engine] = answer
        told = None
        order.reverse()
    return [found[engine] for engine in running]
