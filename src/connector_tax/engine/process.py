"""A running engine: launched through ``launch/``, watched, and ended without leftovers."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import psutil

from connector_tax.artifacts.supervisor import record_supervisor
from connector_tax.config import EngineConfig
from connector_tax.engine.command import (
    api_key,
    engine_arguments,
    engine_environment,
    given_environment,
    launch_script,
)
from connector_tax.engine.gpus import Cards, cards_of
from connector_tax.engine.leftovers import end_leftovers
from connector_tax.engine.logs import LOGS, clean_logs, launch_secrets
from connector_tax.engine.ports import api_port, taken_side_port
from connector_tax.engine.release import memory_before, wait_released
from connector_tax.engine.root_cause import last_error, root_cause
from connector_tax.engine.store import own_store
from connector_tax.errors import EngineError
from connector_tax.records.connector import ConnectorSpec
from connector_tax.redaction import published_text

POLL_S = 0.1
LOG_TAIL_BYTES = 400_000


class LaunchError(EngineError):
    """An engine that did not become ready; carries the root cause."""


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """What to launch and where its traces go.

    Attributes:
        folder: gets ``launch.sh``, ``vllm_stdout.log`` and ``vllm_stderr.log``.
        step_log: AGENTIC_STEP_LOG_PATH; None leaves step timing off.
        fault: for tests of the embedded engine, see ``emulator/faults.py``.
        cpus: logical CPUs that the engine stays on; empty for any.
        cards: what it runs on, where the caller has looked them up already; None: looked up at the launch.
    """

    engine: EngineConfig
    connector: ConnectorSpec
    folder: Path
    step_log: Path | None = None
    fault: str | None = None
    cpus: tuple[int, ...] = ()
    cards: Cards | None = None


@dataclass(frozen=True, slots=True)
class RunningEngine:
    """A handle on the engine's supervisor; every answer is asked of the running processes."""

    request: LaunchRequest
    port: int
    supervisor: "subprocess.Popen[bytes]"

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def model(self) -> str:
        return self.request.engine.served_model_name

    @property
    def headers(self) -> dict[str, str]:
        """What each request of ours carries: the key that the engine asks for, if it asks for one."""
        key = api_key(self.request.engine, self.request.connector)
        return {} if key is None else {"Authorization": f"Bearer {key}"}

    @property
    def step_flush_s(self) -> float:
        """How often the engine writes its step records out."""
        return float(self.request.engine.env.get("CONNECTOR_TAX_STEP_FLUSH_S", "0.5"))

    def death(self, within_s: float = 0.0) -> str | None:
        """The root cause from its log if it is dead now, or within ``within_s``; None while it lives."""
        with suppress(subprocess.TimeoutExpired):
            self.supervisor.wait(within_s)
        code = self.supervisor.poll()
        return None if code is None else root_cause(self.log_text(), exit_code=code)

    def trouble(self, within_s: float = 0.0) -> str | None:
        """Its root cause if it is dead now, or within ``within_s``; else the last error in its log; None without one."""
        return self.death(within_s) or last_error(self.log_text())

    def log_text(self) -> str:
        """The end of both logs without secrets, standard error last."""
        return self.without_secrets("\n".join(_tail(self.request.folder / n) for n in LOGS))

    def without_secrets(self, text: str) -> str:
        """What the engine wrote or answered, as it may be stored."""
        return published_text(text, launch_secrets(self.request.engine, self.request.connector))

    def wait_ready(self) -> None:
        """Until ``/v1/models`` names the model.

        Raises:
            LaunchError: it died (with the root cause) or was not ready in time.
        """
        timeout_s = self.request.engine.ready_timeout_s
        deadline = time.monotonic() + timeout_s
        with httpx.Client(base_url=self.base_url, timeout=5.0, headers=self.headers) as client:
            while time.monotonic() < deadline:
                death = self.death()
                if death is not None:
                    raise LaunchError(
                        f"{self.request.connector.id}: the engine died while starting: {death}\n"
                        f"Its log: {self.request.folder / 'vllm_stderr.log'}"
                    )
                if self._serves_model(client):
                    return
                time.sleep(POLL_S)
        raise LaunchError(
            f"{self.request.connector.id}: not ready after {timeout_s:g} s; the log ends with: "
            f"{_last_line(self.log_text())}\nRaise engine.ready_timeout_s if it only needs longer."
        )

    def _serves_model(self, client: httpx.Client) -> bool:
        try:
            answer = client.get("/v1/models")
        except httpx.TransportError:
            return False
        if answer.status_code != 200:
            return False
        return any(m.get("id") == self.model for m in answer.json().get("data", []))

    def processes(self) -> dict[str, psutil.Process]:
        """The engine's processes by role, without the supervisor and the launching shell."""
        found: dict[str, psutil.Process] = {}
        for process in psutil.Process(self.supervisor.pid).children(recursive=True):
            try:
                role = _role(process)
            except psutil.Error:
                continue  # ended between the listing and the question
            found[role if role not in found else f"{role}#{process.pid}"] = process
        return found


@contextmanager
def running_engine(request: LaunchRequest) -> Iterator[RunningEngine]:
    """As ``_running_engine``, with an empty store folder of its own that is removed afterwards.

    Raises:
        ArtifactError: that folder cannot be made or emptied.
        EngineError: the port is in use, or the GPU was not given back.
    """
    with (
        own_store(request.connector) as connector,
        _running_engine(replace(request, connector=connector)) as engine,
    ):
        yield engine


@contextmanager
def _running_engine(request: LaunchRequest) -> Iterator[RunningEngine]:
    """Launch, hand over, and end the engine with all its descendants, whatever the body does.

    The body calls ``wait_ready`` itself. After it, also where it failed, the cards are waited for.

    Raises:
        LaunchError: a port that the connector wants is in use.
        EngineError: the API's port is in use, or a card was not given back.
    """
    request.folder.mkdir(parents=True, exist_ok=True)
    if request.step_log is not None:
        request.step_log.parent.mkdir(parents=True, exist_ok=True)
    end_leftovers(request.folder, grace_s=request.engine.stop_grace_s)
    clean_logs(request.folder, launch_secrets(request.engine, request.connector))
    port = api_port(request.engine.port)
    cards = request.cards or cards_of(request.engine)
    environment = engine_environment(request.engine, request.connector, cards)
    taken = taken_side_port(request.engine, request.connector, environment)
    if taken is not None:
        raise LaunchError(taken)
    before = memory_before(cards.gpus)
    supervisor = _spawn(request, port, environment)

    def release() -> None:
        tolerance_mib, timeout_s = request.engine.release_tolerance_mib, request.engine.release_timeout_s
        wait_released(before, tolerance_mib=tolerance_mib, timeout_s=timeout_s)

    try:
        yield RunningEngine(request, port, supervisor)
    except Exception as error:
        _end(request, supervisor)
        try:
            release()
        except EngineError as unreleased:
            # Both are told: what went wrong first is the reason, and what is left is what must be cleared away.
            raise EngineError(f"{error}\nAnd afterwards: {unreleased}") from error
        raise
    except BaseException:
        _end(request, supervisor)  # told to end: nobody waits for the card
        raise
    _end(request, supervisor)
    release()


def _end(request: LaunchRequest, supervisor: "subprocess.Popen[bytes]") -> None:
    _stop(supervisor, request.engine.stop_grace_s)
    end_leftovers(request.folder, grace_s=0.0)
    clean_logs(request.folder, launch_secrets(request.engine, request.connector))


def _spawn(request: LaunchRequest, port: int, environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    command = [
        *(sys.executable, "-m", "connector_tax.engine.supervisor", str(request.engine.stop_grace_s)),
        *(
            "bash",
            str(launch_script(request.connector)),
            *engine_arguments(request.engine, request.connector),
        ),
    ]
    environment["PORT"] = str(port)
    environment["RECORD_PYTHON"] = sys.executable
    environment["RECORD_NEEDED"] = " ".join(given_environment(request.engine, request.connector))
    environment["LAUNCH_SH_OUT"] = str((request.folder / "launch.sh").absolute())
    if request.step_log is not None:
        environment["AGENTIC_STEP_LOG_PATH"] = str(request.step_log.absolute())
    if request.cpus:
        environment["ENGINE_CPUS"] = ",".join(map(str, request.cpus))
    if request.fault is not None:
        environment["CONNECTOR_TAX_FAULT"] = request.fault
    with (
        open(request.folder / LOGS[0], "ab") as out,
        open(request.folder / LOGS[1], "ab") as err,
    ):
        supervisor = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=out, stderr=err, env=environment, start_new_session=True
        )
    record_supervisor(request.folder, supervisor.pid)
    return supervisor


def _stop(supervisor: "subprocess.Popen[bytes]", grace_s: float) -> None:
    """Close the lifeline; the supervisor then ends everything and itself."""
    assert supervisor.stdin is not None
    supervisor.stdin.close()
    try:
        supervisor.wait(grace_s + 10)
    except subprocess.TimeoutExpired:
        supervisor.kill()
        supervisor.wait()


def _role(process: psutil.Process) -> str:
    """``api_server``, ``engine_core``, ``worker``, ...: vLLM names its processes by title."""
    title = " ".join(process.cmdline()) or process.name()
    for word, role in (
        ("EngineCore", "engine_core"),
        ("Worker", "worker"),
        ("resource_tracker", "resource_tracker"),
    ):
        if word in title:
            return role
    # `APIServer` is the title that vLLM gives each of several; a single one keeps its command.
    if any(word in title for word in ("vllm_serve", "APIServer", "connector_tax.emulator")):
        return "api_server"
    return process.name()


def _tail(path: Path) -> str:
    if not path.exists():
        return ""
    with open(path, "rb") as handle:
        handle.seek(max(0, os.path.getsize(path) - LOG_TAIL_BYTES))
        return handle.read().decode(errors="replace")


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "nothing"
