"""One launch of an engine: its command, its environment, and ``launch.sh`` for the same server by hand.

All three come from one list of words. In ``launch.sh`` every value that belongs to a machine or a launch, and
every secret, is a variable: config and script both refer to secrets by ``${NAME}``.
"""

import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from connector_tax.base.config import EngineConfig
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.config.secrets import with_references
from connector_tax.base.records.connector import STORE, ConnectorSpec
from connector_tax.base.secrets import MASKED, REFERENCE, is_secret, masked
from connector_tax.run.engine.command import (
    EMULATOR,
    SHAPING,
    LookUp,
    engine_arguments,
    engine_python,
    given_environment,
    model_inside,
)
from connector_tax.run.engine.container import (
    PACKAGE,
    PATCHES,
    PLUGINS,
    Contained,
    launch_words,
    python_path,
)
from connector_tax.run.engine.gpus import VISIBLE
from connector_tax.run.engine.store import folder_in
from connector_tax.run.engine.virtual_gpu import VARIABLE as VIRTUAL_GPU

STEP_LOG = "AGENTIC_STEP_LOG_PATH"
# Variables that launch.sh sets itself, and those that it gets from its surroundings.
_SCRIPT_NAMES = ("ENGINE_PYTHON", "MODEL", "HOST", "PORT")
_KNOWN = {
    *_SCRIPT_NAMES,
    "HOME",
    *(f"CONNECTOR_TAX_{name}" for name in ("PROJECT", "STORE", "FOLDER", "NAME")),
}
# Inherited variables that launch.sh also sets; those of the second pattern belong to a machine.
_SHAPING = re.compile(SHAPING.pattern + r"|LD_\w+|CONNECTOR_TAX_(ENGINE_\w+|FAULT|STEP_FLUSH_S)", re.ASCII)
_OF_A_MACHINE = re.compile(
    r"CUDA_DEVICE_ORDER|CUDA_VISIBLE_DEVICES|CUDA_HOME|HF_HOME|\w+_(CACHE|CACHE_ROOT|LIBRARY_PATH)"
)
_HEAD = """\
#!/usr/bin/env bash
# The engine of this run. Run it by hand to get the same server, also from a copy in another clone:
#
#   ENGINE_PYTHON=/path/to/python MODEL=/path/to/model PORT=8000 bash launch.sh
#
# NAME=${NAME:-...} belongs to a machine: a value in the environment goes before the one that the run had.
# Everything else is as it was. Secrets are not in here: a variable that held one has to be set.
set -euo pipefail
fail() { echo "error: launch.sh: $1" >&2; exit 2; }
ask() { [ -n "${!1:-}" ] || fail "the run had a secret here, which is not kept: set $1"; }

# The project: the nearest folder above this script that has launch/common.sh, else the current folder.
if [ -z "${CONNECTOR_TAX_PROJECT:-}" ]; then
  CONNECTOR_TAX_PROJECT=$(cd "$(dirname "${BASH_SOURCE[0]:-$0}")" && pwd)
  until [ -f "$CONNECTOR_TAX_PROJECT/launch/common.sh" ] || [ "$CONNECTOR_TAX_PROJECT" = / ]; do
    CONNECTOR_TAX_PROJECT=$(dirname "$CONNECTOR_TAX_PROJECT")
  done
  [ "$CONNECTOR_TAX_PROJECT" != / ] || CONNECTOR_TAX_PROJECT=$PWD
fi
[ -f "$CONNECTOR_TAX_PROJECT/launch/common.sh" ] ||
  fail "no launch/common.sh above this script or in $CONNECTOR_TAX_PROJECT. Set CONNECTOR_TAX_PROJECT to a clone of connector-tax."
"""
_MODEL_THERE = """\
case "$MODEL" in
  /*) [ -e "$MODEL" ] || fail "MODEL: $MODEL: no such folder here. Set it to the model that the run had, a folder or a hub id." ;;
esac
"""
_STORE = """\
# The connector's store, which was empty when the run began: by default a new temporary folder.
CONNECTOR_TAX_STORE=${CONNECTOR_TAX_STORE-$(mktemp -d -t connector-tax-store.XXXXXX)}
echo "store: $CONNECTOR_TAX_STORE" >&2"""
_FOLDER = """\
# What the container writes: step records, by default in a new temporary folder, and what the engine caches, in a home folder of its own.
CONNECTOR_TAX_FOLDER=${CONNECTOR_TAX_FOLDER-$(mktemp -d -t connector-tax-container.XXXXXX)}
CONNECTOR_TAX_GPU_FOLDER=$CONNECTOR_TAX_FOLDER
CONNECTOR_TAX_NAME=by-hand-$$
AGENTIC_STEP_LOG_PATH=$CONNECTOR_TAX_FOLDER/steps
mkdir -p """
_USER = ' --user="$(id -u):$(id -g)" $(printf " --group-add=%s" $(id -G))'
_NO_VLLM = (
    "ENGINE_PYTHON: $ENGINE_PYTHON: no such program here. Set it to an interpreter that has vLLM; env.txt"
    " beside this script names its version."
)
_NO_PACKAGES = (
    "ENGINE_PYTHON: $ENGINE_PYTHON: no such program here. Set it to an interpreter that has the packages of"
    " requirements.lock (make env)."
)
_VIRTUAL_GPU = """\
# The virtual GPU, and the folder of its clock's log: by default a new temporary one. Cards of this machine are not used.
export CUDA_VISIBLE_DEVICES=
CONNECTOR_TAX_GPU_FOLDER=${CONNECTOR_TAX_GPU_FOLDER-$(mktemp -d -t connector-tax-gpu.XXXXXX)}
export CONNECTOR_TAX_VIRTUAL_GPU=$CONNECTOR_TAX_GPU_FOLDER/virtual_gpu.json
sed "s|@FOLDER@|$CONNECTOR_TAX_GPU_FOLDER|" > "$CONNECTOR_TAX_VIRTUAL_GPU" <<'VIRTUAL_GPU'
DOCUMENT
VIRTUAL_GPU
echo "virtual GPU: $CONNECTOR_TAX_GPU_FOLDER" >&2"""
_STEPS = """\
# Step records, which vLLM and the embedded engine write: by default in a new temporary folder.
export AGENTIC_STEP_LOG_PATH=${AGENTIC_STEP_LOG_PATH-$(mktemp -d -t connector-tax-steps.XXXXXX)/steps}
mkdir -p "$(dirname "$AGENTIC_STEP_LOG_PATH")"
echo "step records: $AGENTIC_STEP_LOG_PATH" >&2"""


def instrument(environment: Mapping[str, str], *, emulator: bool = False) -> dict[str, str]:
    """Return the variables that load this project's code into an engine and replace cards by a virtual GPU."""
    variables, folders = {}, [PLUGINS, PATCHES, *([PACKAGE.parent] if emulator else [])]
    if environment.get(VIRTUAL_GPU):
        folders.insert(0, PLUGINS / "virtual_gpu" / "entry")
        variables[VISIBLE] = ""
        if plugins := environment.get("VLLM_PLUGINS"):
            variables["VLLM_PLUGINS"] = f"{plugins},virtual_gpu"
    paths = [*map(str, folders), *filter(None, [environment.get("PYTHONPATH")])]
    return {**variables, "PYTHONPATH": os.pathsep.join(paths)}


@dataclass(frozen=True, slots=True)
class Launch:
    """An engine that is about to start.

    Attributes:
        connector: with its store's folder filled in.
        environment: the engine's, or for a container its client's; without ``instrument``.
        cpus: logical CPUs for a process of this host; empty for any.
        contained, steps: the container, if there is one, and the launch's folder that it writes into.
        look_up: resolves references in the config.
    """

    engine: EngineConfig
    connector: ConnectorSpec
    environment: Mapping[str, str]
    port: int
    host: str = "127.0.0.1"
    cpus: tuple[int, ...] = ()
    contained: Contained | None = None
    steps: Path | None = None
    look_up: LookUp = with_references

    def command(self) -> list[str]:
        """Return the program and its arguments.

        Raises:
            ConfigError: a referenced variable is not set, or ``engine_python`` raised it.
        """
        words = self._arguments(*self._script_values())
        if self.contained is None:
            return words
        # The client must not have the variables that the container gets through standard input, and the
        # supervisor must not have the container's PYTHONPATH.
        assignments = [f"{name}={value}" for name, value in self._instrument().items()]
        return [
            "env",
            *(word for name in self.contained.handed for word in ("-u", name)),
            *assignments,
            *words,
        ]

    def variables(self) -> dict[str, str]:
        return {**self.environment, **(self._instrument() if self.contained is None else {})}

    def script(self, configured: ConnectorSpec) -> str:
        """Return ``launch.sh``.

        Args:
            configured: the connector with ``${STORE}``.
        """
        unresolved = replace(self, connector=configured, look_up=lambda value, where: value)
        # Make relative model paths absolute, for a script that runs elsewhere.
        defaults = [os.path.abspath(p) if p.startswith(("./", "../")) else p for p in self._script_values()]  # noqa: PTH100
        defaults = [_portable(default) for default in defaults]
        run = " ".join(_word(_portable(word)) for word in unresolved._arguments(*self._script_values()))
        words = replace(unresolved, cpus=())._arguments(*(f"${{{name}}}" for name in _SCRIPT_NAMES))
        program, missing = '"$ENGINE_PYTHON"', _NO_VLLM if self.engine.is_vllm else _NO_PACKAGES
        if self.contained is not None:
            program = self.contained.image.runtime
            missing = f"no {program} here, the container runtime that the run had."
            # A container started by hand has no pipe on standard input that could end it.
            words = [self._of_another_launch(word) for word in words if word != "--interactive"]
        by_hand = list(map(_portable, words))
        command = " ".join(map(_word, by_hand))
        if program == "docker":  # docker: the caller's ids; podman: root inside is the caller
            command = re.sub(rf" --user={os.getuid()}:{os.getgid()}( --group-add=\d+)*", _USER, command)
        exports, secret_names = unresolved._exports()
        referenced = dict.fromkeys(
            name for text in (*defaults, *by_hand, *exports.values()) for name in REFERENCE.findall(text)
        )
        cpus = ",".join(map(str, self.cpus))
        document = self.environment.get(VIRTUAL_GPU)
        lines = [
            _HEAD,
            *(f"ask {name}" for name in referenced if name not in _KNOWN),
            *(f"{n}=${{{n}:-{_word(default)}}}" for n, default in zip(_SCRIPT_NAMES, defaults, strict=True)),
            cpus and f"ENGINE_CPUS=${{ENGINE_CPUS-{cpus}}}   # empty: any core",
            f'command -v {program} > /dev/null || fail "{missing}"',
            _MODEL_THERE,
            secret_names and f"# Not kept, since each was secret: {', '.join(secret_names)}.",
            "CONNECTOR_TAX_STORE" in referenced and _STORE,
            self.contained and f"{_FOLDER}{_word(_portable(str(self.contained.home)))}",
            # Before the exports, which may overwrite MODEL or PORT.
            f"set -- {command}",
            *(
                (
                    f"export {n}=${{{n}-{_word(text)}}}"
                    if _OF_A_MACHINE.fullmatch(n)
                    else f"export {n}={_word(text)}"
                )
                for n, text in exports.items()
            ),
            document and _VIRTUAL_GPU.replace("DOCUMENT", _relocatable(Path(document))),
            self.environment.get(STEP_LOG) and _STEPS,
            # A comment is one line.
            "\n# As it ran: " + run.replace("\n", "\\n"),
            'exec ${ENGINE_CPUS:+taskset --cpu-list "$ENGINE_CPUS"} "$@"\n' if cpus else 'exec "$@"\n',
        ]
        return "\n".join(line for line in lines if isinstance(line, str) and line)

    def _script_values(self) -> list[str]:
        """Return this launch's values of ``_SCRIPT_NAMES``."""
        model = (
            self.engine.model
            if self.contained is None or not self.engine.is_vllm
            else str(model_inside(self.engine))
        )
        return [engine_python(self.engine), model, self.host, str(self.port)]

    def _arguments(self, python: str, model: str, host: str, port: str) -> list[str]:
        prefix = ["taskset", "--cpu-list", ",".join(map(str, self.cpus))] if self.cpus else []
        prefix = prefix if self.contained is None else launch_words(self.contained)
        # launch/plugins/vllm_serve.py is the `vllm` command, also where that command fails.
        module = ["vllm_serve", "serve", model] if self.engine.is_vllm else [EMULATOR, "--model", model]
        # One word, before the others: vLLM takes the word after --name.key for its value.
        config = self.look_up(self.connector.kv_transfer_config, self.connector.id)
        connector = [f"--kv-transfer-config={json.dumps(config)}"] if config else []
        serving = ["--served-model-name", self.engine.served_model_name, "--host", host, "--port", port]
        arguments = engine_arguments(self.engine, self.connector, self.look_up)
        return [*prefix, python, "-m", *module, *connector, *serving, *arguments]

    def _of_another_launch(self, word: str) -> str:
        """Return a container's word with this launch's folders and name replaced by variables."""
        assert self.contained is not None
        word = word.replace(self.contained.mark, "${CONNECTOR_TAX_NAME}")
        folders = (self._script_values()[1], self.steps, folder_in(self.connector))
        for folder, variable in zip(
            folders, ("MODEL", "CONNECTOR_TAX_FOLDER", "CONNECTOR_TAX_STORE"), strict=True
        ):
            word = word.replace(
                f"source={folder},target={folder}", f"source=${{{variable}}},target=${{{variable}}}"
            )
        return word

    def _instrument(self) -> dict[str, str]:
        configured = given_environment(self.engine, self.connector, self.look_up)
        variables = {**self.environment, **configured}
        if self.contained is not None:
            variables["PYTHONPATH"] = python_path(self.contained.image, configured)
        return instrument(variables, emulator=not self.engine.is_vllm)

    def _exports(self) -> tuple[dict[str, str], list[str]]:
        """Return the variables that launch.sh sets, and the names of inherited ones that hold a secret."""
        configured = given_environment(self.engine, self.connector, self.look_up)
        container_values = self.contained.values if self.contained is not None else {}
        shaping = {
            name: value
            for name, value in sorted({**self.environment, **configured, **self._instrument()}.items())
            if name not in container_values
            and (name in {*configured, "PYTHONPATH"} or (value and _SHAPING.fullmatch(name)))
        }
        never_secret = {*configured, "PYTHONPATH"}
        secret_names = [
            n for n, v in shaping.items() if n not in never_secret and (is_secret(n, v) or masked(v) != v)
        ]
        return {n: _portable(v) for n, v in shaping.items() if n not in secret_names}, secret_names


def _portable(text: str) -> str:
    """Return ``text`` with variables for the store, secrets, this project's folder and the home folder."""
    text = masked(text).replace(STORE, "${CONNECTOR_TAX_STORE}").replace(MASKED, "${SECRET}")
    text = text.replace(f"{PROJECT_ROOT}/", "${CONNECTOR_TAX_PROJECT}/")
    home = os.environ.get("HOME", "").rstrip("/")
    return text.replace(f"{home}/", "${HOME}/") if home else text


def _word(text: str) -> str:
    """Return ``text`` as one bash word whose references stay variables."""
    pieces = REFERENCE.split(text)
    return "".join(f'"${p}"' if k % 2 else p and shlex.quote(p) for k, p in enumerate(pieces)) or "''"


def _relocatable(document: Path) -> str:
    """Return a virtual GPU's document with a placeholder for the folder of its clock log."""
    fields = json.loads(document.read_text())
    return json.dumps({**fields, "clock_log": "@FOLDER@/device_clock.jsonl"}, indent=2)
