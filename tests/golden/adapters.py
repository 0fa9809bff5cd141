"""What the golden set asks of the product: the one file of it, beside ``one_answer.py``, that names its modules.

Where a module moves, an import changes here. Where an entry point changes, its function here changes, and no value in ``data/``.
"""

import contextlib
import io
import os
import re
import runpy
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgspec

from connector_tax.base.config import parse_campaign
from connector_tax.base.config.checked import PROJECT_ROOT, read_yaml
from connector_tax.base.entrypoint import run_entrypoint
from connector_tax.base.errors import ConfigError
from connector_tax.base.plan import cells_of as campaign_cells
from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.target import Target, target_of
from connector_tax.cli import command, main
from connector_tax.load.plan import cells_of, contents_of, load_of
from connector_tax.load.server import measure_words
from connector_tax.run.engine import gpus, process
from connector_tax.run.engine.container import Image
from connector_tax.run.engine.gpus import Gpu
from connector_tax.run.engine.process import LaunchRequest, running_engine
from connector_tax.run.engine.supervised import VARIABLE as MARK_VARIABLE
from connector_tax.run.loadgen.cell import BenchmarkSession, collect_outputs
from connector_tax.run.loadgen.coordinator import worker_pool
from connector_tax.run.loadgen.issuer import SampleEvent, SampleIssuer, SessionEvent
from connector_tax.run.loadgen.messages import Job, Observe
from connector_tax.run.loadgen.worker import _what_to_send
from connector_tax.run.measure.checks import prime_cache
from connector_tax.run.workload.schedulers import Scheduler, Share

CAMPAIGN = Path(__file__).parent / "campaign.yaml"
__all__ = ["CAMPAIGN", "PROJECT_ROOT", "CellSpec", "ConfigError", "Scheduler", "Target", "target_of"]

# --- The load


def load_cells(options: list[str], out: Path, *, tokens_per_word: float | None = None) -> list[CellSpec]:
    """The cells of ``connector-tax load``.

    Args:
        tokens_per_word: what was measured where words are sent; a template then has nine tokens more.
    """
    given = [*options, "--base-url", "http://127.0.0.1:8000", "--model", "m", "--out", str(out)]
    load = load_of(command("load").parser().parse_args(given))
    form = load.spec.asked
    if tokens_per_word is not None:
        form = msgspec.structs.replace(form, tokens_per_word=tokens_per_word, template_tokens=9.0)
    return [cell.spec for cell in cells_of(load, contents_of(load), form)]


def campaign_cell() -> CellSpec:
    """Phase A's first cell of the golden campaign."""
    return campaign_cells(parse_campaign(read_yaml(CAMPAIGN), "golden"), "plain", "a")[0]


def work_of(spec: CellSpec, target: Target, share: tuple[int, int] = (0, 1)) -> tuple[Scheduler, Any]:
    """What a worker sends of a cell and when: its scheduler and its workload."""
    job = Job(spec.to_json(), target, share_index=share[0], share_of=share[1], stop_at_ns=0)
    return _what_to_send(CellSpec.from_json(job.spec), Share(*share), job)


def ask_accuracy(base_url: str) -> list[Any]:
    """The accuracy pass of a launch."""
    return collect_outputs(
        base_url,
        "m",
        seed=7,
        prompts=3,
        input_tokens=32,
        output_tokens=8,
        token_ids=(100, 30000),
        headers={"Authorization": "Bearer k"},
    )


def prime(base_url: str, cached_tokens: int) -> None:
    """Fill the prefix cache of an engine that takes 4,096 tokens and counts none of them."""
    arguments = SimpleNamespace(engine=SimpleNamespace(args={"max_model_len": 4096}))
    engine: Any = SimpleNamespace(
        base_url=base_url, model="m", headers={"Authorization": "Bearer k"}, request=arguments
    )
    spec = replace(campaign_cell(), cached_tokens=cached_tokens)
    assert prime_cache(spec, engine, dict).failed is None


def ask_words(base_url: str, options: list[str], out: Path) -> tuple[float, float]:
    """Ask a server how many tokens it makes of a word, and adds to a prompt."""
    (spec,) = load_cells(options, out)
    form = measure_words(target_of(base_url, "m"), spec.asked, 7)
    return form.tokens_per_word, form.template_tokens


def run_session(spec: CellSpec, base_url: str, log: Path) -> None:
    """One cell over one worker process, with its events in ``log``."""
    with worker_pool(1) as pool:
        session = BenchmarkSession.start(spec, target_of(base_url, "m"), pool, observe=Observe(event_log=log))
        assert session.wait_for_test_end(60.0)
        session.result()


def load_generator_names() -> dict[str, list[str]]:
    """What the load-generator specification names: methods and load patterns."""

    def public(of: type) -> list[str]:
        return sorted(name for name in vars(of) if not name.startswith("_"))

    return {
        "BenchmarkSession": public(BenchmarkSession),
        "SampleIssuer": public(SampleIssuer),
        "events": sorted([*SessionEvent, *SampleEvent]),
        "load patterns": sorted(Scheduler.patterns),
    }


# What an error says -> its class. Words may change, and then change here.
ERRORS = {
    r"^HTTP \d+: ": "the page of an error",
    r"^not HTTP": "not HTTP",
    r"goes on in another protocol": "another protocol",
    r"^connection lost in the middle": "the connection ended",
    r"without \[DONE\]$": "no [DONE]",
    r"^the answer is compressed": "compressed",
    r"^no usage": "no usage",
    r"and none of them in the stream$": "no token in the stream",
    r"token ids for \d+ tokens": "another number of token ids",
    r"^token_ids that are none": "token ids that are none",
    r"^not a completion": "not a completion",
    r"^the server broke off": "the server's own error",
    r"^not an event stream": "not a stream",
    r"^an answer without choices": "no choices",
}


def error_class(error: str | None) -> str | None:
    if error is None:
        return None
    return next((name for pattern, name in ERRORS.items() if re.search(pattern, error)), "of no known class")


# --- Launches

MARK = "c0ffee5eed"
DIGEST = "sha256:" + "ab" * 32
_CARDS = tuple(Gpu(k, f"GPU-{k}{k}{k}{k}", "NVIDIA H20", 97_871, f"GPU-{k}{k}{k}{k}") for k in range(4))

Run = Callable[[list[str], dict[str, str]], None]


def campaign_of(engine: dict[str, Any]) -> tuple[Any, list[str]]:
    """A campaign on that engine of every connector that there is, and those that the config refuses there."""
    files = ("connectors.yaml", "test_connectors.yaml")
    ids = [i for name in files for i in read_yaml(PROJECT_ROOT / "config" / name)]
    mapping = {**read_yaml(CAMPAIGN), "engine": engine}

    def parsed(connectors: list[str]) -> Any:
        try:
            return parse_campaign({**mapping, "connectors": connectors}, "golden")
        except ConfigError:
            return None

    if (campaign := parsed(ids)) is not None:
        return campaign, []
    refused = [i for i in ids if parsed(list(dict.fromkeys(["plain", i]))) is None]
    return parsed([i for i in ids if i not in refused]), refused


def launch(campaign: Any, connector: str, folder: Path, cpus: tuple[int, ...], python: Path, run: Run) -> int:
    """Launch as a measurement does, on a host with four cards, with ``run`` in the supervisor's place; returns the engine's port.

    Args:
        python: stands in for the embedded engine's interpreter, which is this one.
    """

    def started(command: list[str], *, environment: dict[str, str], mark: str, **_: Any) -> Any:
        run(command, {**environment, MARK_VARIABLE: mark})
        return SimpleNamespace(poll=lambda: 0, wait=lambda *_: 0, pid=0)

    image = Image("podman", "5.4", "registry/vllm:v1", DIGEST, "0:0")
    request = LaunchRequest(
        campaign.engine, campaign.connector(connector), folder, step_log=folder / "steps" / "steps", cpus=cpus
    )
    with contextlib.ExitStack() as patches:
        for module, name, stand_in in (
            (process, "start_supervised", started),
            (process, "stop_supervised", lambda *_, **__: None),
            (process, "taken_side_port", lambda *_: None),
            (process, "new_mark", lambda: MARK),
            (process, "image_of", lambda container: image),
            (gpus, "host_gpus", lambda: (_CARDS, None)),
            (tempfile, "tempdir", str(folder.parent)),
            (sys, "executable", str(python)),
        ):
            patches.enter_context(mock.patch.object(module, name, stand_in))
        with running_engine(request) as engine:
            return engine.port


# --- Commands


def exit_of(argv: list[str]) -> str:
    """The exit code of ``connector-tax`` or of a script of ``scripts/``, and where it spoke: ``2 stderr``."""
    script = PROJECT_ROOT / "scripts" / argv[0]

    def do() -> None:
        if argv[0] == "connector-tax":
            main(argv[1:])
        else:
            with mock.patch.object(sys, "argv", [str(script), *argv[1:]]):
                runpy.run_path(str(script), run_name="__main__")

    return _exit_of(do)


def door_exit(raised: BaseException) -> str:
    """The exit code of a command that raises this."""

    def work() -> None:
        raise raised

    return _exit_of(lambda: run_entrypoint(work))


def _exit_of(do: Callable[[], None]) -> str:
    out, err = io.StringIO(), io.StringIO()
    code: Any = 0
    with _as_a_process_has_it(), mock.patch.object(sys, "stdout", out), mock.patch.object(sys, "stderr", err):
        try:
            do()
        except SystemExit as ended:
            code = ended.code or 0
    said = [name for name, text in (("stdout", out), ("stderr", err)) if text.getvalue()]
    said += ["with a traceback"] if "Traceback" in err.getvalue() else []
    return " ".join([str(code), *said])


@contextlib.contextmanager
def _as_a_process_has_it() -> Iterator[None]:
    """Give back handlers of signals and variables, which a command changes for the rest of its process."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = {s: signal.getsignal(s) for s in signals}
    with mock.patch.dict(os.environ):
        for name in ("ENGINE_PYTHON", "MODEL_FOLDER", "OPENAI_API_KEY"):
            os.environ.pop(name, None)
        try:
            yield
        finally:
            for signum, handler in handlers.items():
                signal.signal(signum, handler)
