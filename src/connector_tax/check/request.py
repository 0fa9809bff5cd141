"""The request of a check: a connector (by id or as vLLM's JSON), GPU, model and interpreter; and a quick test
whether that interpreter loads the connector, before anything is launched.
"""

import argparse
import copy
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from connector_tax.base.config import CampaignConfig
from connector_tax.base.config.checked import PROJECT_ROOT, checked
from connector_tax.base.config.load import KvTransferConfig, read_connectors
from connector_tax.base.config.secrets import refuse_inline
from connector_tax.base.errors import ConfigError, EngineError
from connector_tax.base.files import parse_json, printable, read_json, sha256_of
from connector_tax.base.locks import cache_folder
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.connector import ConnectorEntry, ConnectorSpec
from connector_tax.check.document import Check, Fault
from connector_tax.run.engine.command import engine_environment, no_program
from connector_tax.run.engine.gpus import cards_of

VARIABLE = "ENGINE_PYTHON"


def add_engine_python(parser: argparse.ArgumentParser) -> None:
    """Add --engine-python, as an option, so that help does not depend on the environment."""
    parser.add_argument(
        "--engine-python",
        metavar="PYTHON",
        help=f"an interpreter that has vLLM; default ${VARIABLE}",
    )


def engine_python_of(args: argparse.Namespace) -> str:
    """Return the engine's interpreter.

    Raises:
        ConfigError: neither the argument nor the variable gives one, or it cannot be run.
    """
    if command := args.engine_python or os.environ.get(VARIABLE):
        python = shutil.which(command) or command
        if fault := no_program(python):
            raise ConfigError(f"--engine-python {python}: {fault}")
        return python
    raise ConfigError(
        "no interpreter that has vLLM is given. Either --engine-python /path/to/venv/bin/python, or export"
        f" {VARIABLE}=/path/to/venv/bin/python; scripts/make_engine_env.sh makes one without a GPU."
    )


CONNECTORS = PROJECT_ROOT / "config" / "connectors.yaml"
MODELS = PROJECT_ROOT / "config" / "models"
# ``max_model_len`` of a model that supports more, or does not say how much.
MOST_MODEL_LEN = 32768
# The id of a connector that is given as JSON.
GIVEN = "checked"
METRICS = ("ttft_p50", "ttft_p90", "tpot_p50", "tpot_p90")
# CPU time of a step over plain's: judged only on request, since a device hides it.
STEP = "step"


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """The parameters of a check.

    Attributes:
        connector_id, entry: as in ``config/connectors.yaml``.
        notes: changes to it, since there is no GPU memory.
        model: a folder with ``config.json`` and a tokenizer.
        both: also synchronous scheduling, if the engine resolves to asynchronous scheduling.
        real_time: a campaign of three configurations instead of virtual time.
        limit: of a tax, or with a baseline of its growth, as a ratio; None: none is too large.
        metrics: those whose taxes decide.
        baseline: an earlier check to compare today's taxes with.
    """

    connector_id: str
    entry: ConnectorEntry
    notes: tuple[str, ...]
    engine_python: str
    gpu: str
    model_name: str
    model: Path
    input_tokens: int = 256
    output_tokens: int = 16
    args: Foreign = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    both: bool = False
    real_time: bool = False
    limit: float | None = None
    metrics: tuple[str, ...] = METRICS
    baseline: Check | None = None

    @property
    def kv_transfer_config(self) -> Foreign:
        assert self.entry.kv_transfer_config is not None, "plain is not checked"
        return self.entry.kv_transfer_config


def entry_by_id(connector_id: str) -> tuple[ConnectorEntry, tuple[str, ...]]:
    """Return the connector's entry, and the changes made to it.

    Raises:
        ConfigError: there is none, or it is plain vLLM.
    """
    known = read_connectors(CONNECTORS, str(CONNECTORS))
    if connector_id not in known:
        raise ConfigError(
            f"--connector {connector_id}: not in config/connectors.yaml. Known: {', '.join(known)}. Or give"
            " --kv-transfer-config JSON."
        )
    if known[connector_id].kv_transfer_config is None:
        raise ConfigError(f"--connector {connector_id}: is vLLM without a connector; give one that has one.")
    return _for_the_host(known[connector_id])


def entry_of_json(text: str) -> tuple[ConnectorEntry, tuple[str, ...]]:
    """Return an entry for vLLM's own ``--kv-transfer-config``, and the changes made to it.

    Known connectors of its classes supply ports and packages.

    Raises:
        ConfigError: it, or a connector stacked in it, is no JSON object with ``kv_connector`` and
            ``kv_role``.
    """
    config = _json("--kv-transfer-config", text, KvTransferConfig)
    names = _names(config)
    known = [
        entry
        for entry in read_connectors(CONNECTORS, str(CONNECTORS)).values()
        if entry.kv_transfer_config is not None and _names(entry.kv_transfer_config) <= names
    ]
    ports = {port.env: port for entry in known for port in entry.side_ports}
    return _for_the_host(
        ConnectorEntry(
            label=config["kv_connector"],
            kv_transfer_config=config,
            side_ports=tuple(p for p in ports.values() if p.listens),
            modules=tuple({m.module: m for entry in known for m in entry.modules}.values()),
        )
    )


def _names(config: Foreign) -> set[str]:
    """Return the classes of a connector and of those stacked in it."""
    return {connector["kv_connector"] for connector in connectors_in(config)}


def connectors_in(config: Foreign) -> list[Foreign]:
    """Return the connector and, for a stack, each child, recursively."""
    children = (config.get("kv_connector_extra_config") or {}).get("connectors", ())
    return [config, *(connector for child in children for connector in connectors_in(child))]


def _for_the_host(entry: ConnectorEntry) -> tuple[ConnectorEntry, tuple[str, ...]]:
    """Replace GPU memory and GPU by the host's; the virtual GPU has nothing else."""
    config = copy.deepcopy(entry.kv_transfer_config) or {}
    notes: list[str] = []
    for member in connectors_in(config):
        device = member.get("kv_buffer_device")
        if device not in (None, "cpu"):
            notes.append(
                f"{member['kv_connector']}: kv_buffer_device {device} was made cpu: there is no GPU's memory"
            )
            member["kv_buffer_device"] = "cpu"
    cores = len(os.sched_getaffinity(0))
    if entry.min_cores > cores:
        notes.append(
            f"it asks for {entry.min_cores} cores and this host has {cores}: latencies hold what that costs"
        )
    return replace(entry, kv_transfer_config=config, min_cores=0, verify="serve"), tuple(notes)


def model_folder(name: str, engine_python: str) -> tuple[str, Path]:
    """Return (model name, a folder on which vLLM starts without weights), making the folder if needed.

    Args:
        name: of ``config/models/``, a ``config.json``, or a folder that has one and a tokenizer.

    Raises:
        ConfigError: there is no such model, or the folder could not be made.
    """
    path = Path(name).expanduser()
    if (path / "config.json").is_file():
        _model_config(path / "config.json")
        return path.resolve().name, path.resolve()
    shape = path if path.suffix == ".json" and path.is_file() else MODELS / f"{name}.json"
    if not shape.is_file():
        known = ", ".join(sorted(p.stem for p in MODELS.glob("*.json")))
        raise ConfigError(
            f"--model-config {name}: no such model. Known: {known}. Or give a config.json, or a folder that"
            " has one and a tokenizer."
        )
    _model_config(shape)
    label = shape.parent.name if shape.name == "config.json" else shape.stem
    folder = (
        cache_folder() / "model-folders" / f"{re.sub(r'[^A-Za-z0-9._-]', '_', label)}-{sha256_of(shape)[:12]}"
    )
    if not (folder / "config.json").is_file():
        command = [
            engine_python,
            str(PROJECT_ROOT / "scripts" / "make_model_folder.py"),
            str(shape),
            str(folder),
        ]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            last_line = (result.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise ConfigError(
                f"--model-config {name}: {engine_python} could not make the model's folder: {last_line}"
            )
    return label, folder


def _model_config(path: Path) -> Foreign:
    """Read a model's ``config.json``.

    Raises:
        ArtifactError: it is no JSON.
        ConfigError: it is no object.
    """
    value = read_json(path)
    if not isinstance(value, dict):
        raise ConfigError(
            f"--model-config {path}: wanted is a model's config.json, a JSON object, not"
            f" {json.dumps(value)[:80]}."
        )
    return value


def longest_model_len(model: Path) -> int:
    """Return ``max_model_len`` for the launches: the model's own, at most ``MOST_MODEL_LEN``."""
    max_positions = _model_config(model / "config.json").get("max_position_embeddings")
    return (
        min(int(max_positions), MOST_MODEL_LEN)
        if isinstance(max_positions, int) and max_positions > 0
        else MOST_MODEL_LEN
    )


def engine_args(text: str | None) -> Foreign:
    """Parse ``--engine-args``: a JSON object in the form of a campaign's ``run.engine.args``.

    Raises:
        ConfigError: it is none.
    """
    return {} if text is None else _json("--engine-args", text, Foreign)


def _json(option: str, text: str, kind: Any) -> Foreign:
    """Parse a JSON object and check it as a ``kind``."""
    try:
        value: Foreign = parse_json(text.encode())
    except ValueError as error:
        raise ConfigError(f"{option}: not JSON ({error}).") from error
    checked(value, kind, option)
    refuse_inline(value, option)
    return value


# First word of the answer of launch/plugins/connector_loads.py.
ANSWER = "connector-tax-loads:"
TIMEOUT_S = 120.0
PLUGINS = PROJECT_ROOT / "launch" / "plugins"


def early_fault(request: CheckRequest, config: CampaignConfig) -> Fault | None:
    """Return what is missing; None if nothing is. Raises as ``faults``."""
    connector = config.connector(request.connector_id)
    environment = engine_environment(config.engine, connector, cards_of(config.engine))
    return faults(request.engine_python, [connector], environment)[0]


def faults(
    python: str, connectors: Sequence[ConnectorSpec], environment: Mapping[str, str]
) -> list[Fault | None]:
    """Return for each connector what the engine's Python lacks; None if nothing.

    Raises:
        EngineError: it does not answer.
    """
    paths = [str(PLUGINS), *filter(None, [environment.get("PYTHONPATH")])]
    queries = [
        {
            "connectors": connectors_in(c.kv_transfer_config) if c.kv_transfer_config else [],
            "packages": [m.module for m in c.modules],
        }
        for c in connectors
    ]
    try:
        result = subprocess.run(
            [python, "-m", "connector_loads", json.dumps(queries)],
            env={**environment, "PYTHONPATH": os.pathsep.join(paths), "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise EngineError(
            f"--engine-python {python}: did not import vLLM and the connector within {TIMEOUT_S:g} s. Try it"
            " by hand."
        ) from error
    answers = [line for line in result.stdout.splitlines() if line.startswith(ANSWER)]
    if not answers:
        last_line = (result.stderr.strip().splitlines() or [f"exit code {result.returncode}"])[-1]
        return [Fault("broken", "vllm", said=printable(last_line, 300))] * len(connectors)
    answer = json.loads(answers[-1].removeprefix(ANSWER))
    pairs = zip(answer["faults"], connectors, strict=True)
    return [fault and _with_install(fault, c, answer["cuda"]) for fault, c in pairs]


def _with_install(fault: dict[str, str], connector: ConnectorSpec, cuda: str | None) -> Fault:
    installs = {m.module: m.install_for(cuda) for m in connector.modules}
    return Fault(**fault, install=installs.get(fault["subject"], f"pip install {fault['subject']}"))
