"""How engines are launched: command, environment and launch.sh of every connector on every kind of engine.

A launch goes through the product and its scripts to the program that it would become, whose place a stand-in has that writes down what
it was given. Of plain everything is kept, of a connector what differs from plain, word by word.
"""

import difflib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from . import adapters

# Whatever stands first in the command: the engine's interpreter, the container's runtime, or what sets its cores.
PROGRAMS = ("python", "podman", "taskset")
STAND_IN = """#!/bin/sh
printf '%s\\0' "${0##*/}" "$@" > "${0%/*}/argv"
env -0 > "${0%/*}/environ"
"""
# Set by shells on their way; nobody's settings.
# And where the sockets of this launch lie, which is another place each time.
OF_SHELLS = frozenset({"PWD", "OLDPWD", "SHLVL", "_", "VLLM_RPC_BASE_PATH"})
SECRETS = {"GOLDEN_KEY": "k9-of-the-golden-set", "GOLDEN_TOKEN": "hf_" + "goldenset" * 4}
MODEL = "Qwen3-Coder-30B-A3B-Instruct.json"
# No number of five digits that a port may have.
ARGS = {
    "tensor_parallel_size": 1,
    "max_model_len": 20000,
    "gpu_memory_utilization": 0.85,
    "enable_prefix_caching": True,
    "async_scheduling": False,
    "revision": None,
}
ENV = {"HF_HUB_OFFLINE": "1", "LMCACHE_TRACK_USAGE": "false", "OMP_NUM_THREADS": "1"}
ENGINES: dict[str, dict[str, Any]] = {
    "vllm": {
        "kind": "vllm",
        "args": {**ARGS, "api_key": "${GOLDEN_KEY}"},
        "env": {**ENV, "HF_TOKEN": "${GOLDEN_TOKEN}"},
        "extra_args": ["--max-num-seqs", "64", "--additional-config={\"a b\": 'c'}"],
    },
    "two_cards": {"kind": "vllm", "args": {**ARGS, "tensor_parallel_size": 2}, "env": ENV, "gpu": 2},
    "container": {
        "kind": "vllm",
        "args": ARGS,
        "env": {**ENV, "HF_TOKEN": "${GOLDEN_TOKEN}"},
        "container": {"image": "registry/vllm:v1", "runtime": "podman"},
        "gpu": 1,
    },
    "virtual_gpu": {
        "kind": "virtual_gpu",
        "args": {"max_model_len": 8192},
        "env": ENV,
        "virtual_gpu": {"gpu": "h200"},
    },
    "embedded": {
        "kind": "emulator",
        "args": {"max_model_len": 4096, "max_num_batched_tokens": 512, "enable_chunked_prefill": True},
        "env": {"CONNECTOR_TAX_STEP_FLUSH_S": "0.1"},
        "model_file": "config/engine_model_demo.yaml",
    },
}
CPUS = {"vllm": (0, 2), "container": (1, 3)}


def placeholders(folder: Path) -> Callable[[str], str]:
    """What of a text is this machine's or this run's -> its name."""
    named = [
        (str(folder / "bin" / "python"), "<PYTHON>"),
        (str(folder / "run"), "<RUN>"),
        (str(folder), "<TMP>"),
        (str(adapters.PROJECT_ROOT), "<PROJECT>"),
        (f"connector-tax-stores-{os.getuid()}", "connector-tax-stores-<UID>"),
    ]
    patterns = [
        (r"\b(connector_tax)(\.\w+)+", r"\1.<MODULE>"),
        (r"--shm-size=\d+", "--shm-size=<N>"),
        (r"--ulimit=(\w+)=[-:\d]+", r"--ulimit=\1=<N>"),
        (r"(connector-tax-(?:store|container|gpu|steps))\.\w{6}\b", r"\1.<NEW>"),
        (r"by-hand-\d+", "by-hand-<PID>"),
    ]

    def replaced(text: str) -> str:
        for found, name in named:
            text = text.replace(found, name)
        for pattern, name in patterns:
            text = re.sub(pattern, name, text)
        return text

    return replaced


def changes(before: list[str], after: list[str], join: Callable[[list[str]], str] = shlex.join) -> list[str]:
    """Where ``after`` differs: ``- before + after``, with the word behind which that stands; positions would move with every other change."""
    found = []
    for tag, i, j, k, m in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            pieces = [
                f"{sign} {join(words)}" for sign, words in (("-", before[i:j]), ("+", after[k:m])) if words
            ]
            found.append(f"behind {before[i - 1] if i else 'nothing'}: {' '.join(pieces)}")
    return found


class Host:
    """A folder with a model, stand-ins for programs, and nothing of the user's around it."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder, self.bin = folder, folder / "bin"
        self.cpus = CPUS.get(kind, ())
        self.bin.mkdir()
        for name in PROGRAMS:
            program = self.bin / name
            program.write_text(STAND_IN)
            program.chmod(0o755)
        (folder / "home").mkdir()
        (folder / "model").mkdir()
        shutil.copy(adapters.PROJECT_ROOT / "config" / "models" / MODEL, folder / "model" / "config.json")
        self.environment = {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder),
            **SECRETS,
        }
        self.engine = {"model": str(folder / "model"), "served_model_name": "m", **ENGINES[kind]}
        if self.engine["kind"] != "emulator" and "container" not in self.engine:
            self.engine["python"] = str(self.bin / "python")

        # By launch.sh, in the place of a secret.
        self.asked_for = {
            name: secret
            for name, secret, there in (
                ("VLLM_API_KEY", SECRETS["GOLDEN_KEY"], "api_key" in self.engine["args"]),
                ("HF_TOKEN", SECRETS["GOLDEN_TOKEN"], "HF_TOKEN" in self.engine["env"]),
            )
            if there
        }

    def run(self, command: list[str], environment: dict[str, str]) -> None:
        done = subprocess.run(
            command, env=environment, cwd=adapters.PROJECT_ROOT, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr

    def seen(self, named: Callable[[str], str]) -> dict[str, list[str]]:
        """What the stand-in was given last: what stands before the engine's module, its arguments, and variables in order of name."""
        argv = [named(word) for word in (self.bin / "argv").read_text().split("\0")[:-1]]
        module = max(k for k, word in enumerate(argv) if word == "-m") + 1
        variables = (self.bin / "environ").read_text().split("\0")[:-1]
        kept = (v for v in sorted(variables) if v.partition("=")[0] not in OF_SHELLS)
        return {
            "before": argv[: module + 1],
            "arguments": argv[module + 1 :],
            "environment": [
                named(variable) for variable in kept if variable.partition("=")[0] not in self.environment
            ],
        }


def launched(host: Host, campaign: Any, connector: str) -> dict[str, Any]:
    port = adapters.launch(campaign, connector, host.folder / "run", host.cpus, host.bin / "python", host.run)
    replaced = placeholders(host.folder)

    def named(text: str) -> str:
        return re.sub(rf"\b{port}\b", "<PORT>", replaced(text))

    found: dict[str, Any] = host.seen(named)
    script = host.folder / "run" / "launch.sh"
    found["launch.sh"] = named(script.read_text()).splitlines()
    host.run(["bash", str(script)], {**host.environment, **host.asked_for})
    again = host.seen(named)
    found["by hand"] = {part: changes(found[part], again[part]) for part in again}
    return found


def told(found: dict[str, Any], plain: dict[str, Any]) -> dict[str, Any]:
    """What of a connector's launch differs from plain's."""
    own = {part: changes(plain[part], found[part]) for part in ("before", "arguments", "environment")}
    before, after = ("\n".join(launch["launch.sh"]).split() for launch in (plain, found))
    by_hand = {} if found["by hand"] == plain["by hand"] else {"by hand": found["by hand"]}
    return {**own, "launch.sh": changes(before, after, " ".join), **by_hand}


def build(kind: str, folder: Path) -> dict[str, Any]:
    # Resolved, since scripts find their own folder so.
    host = Host(folder.resolve(), kind)
    with mock.patch.dict(os.environ, host.environment, clear=True):
        campaign, refused = adapters.campaign_of(host.engine)
        plain = launched(host, campaign, "plain")
        others = [connector for connector in campaign.connector_ids if connector != "plain"]
        found = {connector: told(launched(host, campaign, connector), plain) for connector in others}
    return {"plain": plain, **found, "refused": refused}


BUILDS = {f"launches_{kind}": partial(build, kind) for kind in ENGINES}
