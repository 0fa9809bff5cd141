"""Secrets in every place where a person can put one, and everything that a campaign leaves or prints searched for them."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.files import read_json
from connector_tax.base.secrets import MASKED

pytestmark = pytest.mark.emulated
# What the config refers to. Most of the variables' names say nothing; the keys that refer to them, or the values' formats, do.
REFERRED = {
    "P01": "planted-api-key-01",
    "P02": "planted-hf-token-02",
    "P03": "planted-json-03",
    "P04": "planted-flag-04",
    "P05": "planted-equals-05",
    "P06": "planted-bearer-06",
    "P07": "planted-url-07",
    "P08": "planted-env-08",
    "P09": "redis://:planted-env-url-09@cache:6379",
    "P10": "hf_Planted10TokenOfTheEngine",
    "P11": "AKIAPLANTED11ABCDEFG",
    "P12": "planted-user-12",
    "P13": "planted-nested-13",
    "P14": "planted-list-14",
    "P15": "planted-inner-15",
    "P16": "-----BEGIN PRIVATE KEY-----\nPLANTED16PEMxxxxxxxxxxxxxxxx\n-----END PRIVATE KEY-----",
    "P17": "eyJPLANTED17.eyJPLANTED17xx.c2lnbmF0dXJl",
    "P18": "planted-connector-env-18",
    "P19": "planted-connector-flag-19",
    "PLANTED_TOKEN": "planted-reference-23",
}
# What processes inherit, and no config speaks of.
INHERITED = {
    "HTTP_PROXY_OF_THE_STORE": "https://user:planted-proxy-20@proxy:1",
    "VLLM_PLUGIN_TOKEN": "planted-inherited-21",
    "AWS_SECRET_ACCESS_KEY": "planted-inherited-22",
}
ARGS = {
    "api_key": "${P01}",
    "hf_token": "${P02}",
    "hf_overrides": json.dumps({"auth": {"password": "${P03}"}}),
    "max_model_len": 2048,
}
EXTRA_ARGS = [
    *("--db-password", "${P04}"),
    "--wandb-api-key=${P05}",
    *("--header", "Authorization: Bearer ${P06}"),
    *("--remote", "redis://user:${P07}@cache:6379"),
]
ENGINE_ENV = {
    "REDIS_PASSWORD": "${P08}",
    "LMCACHE_REMOTE_URL": "${P09}",
    "HF_TOKEN": "${P10}",
    "MOONCAKE_NOTE": "${P11}",
    "CONNECTOR_TAX_STEP_FLUSH_S": "0.1",
}
EXTRA_CONFIG = {
    "remote": {"credentials": {"user_secret": "${P12}", "secret_key": "${P13}"}},
    "servers": [{"host": "a", "accessKey": "${P14}"}],
    "inner": json.dumps({"password": "${P15}"}),
    "material": "${P16}",
    "ticket": "${P17}",
    "shown": "to ${PLANTED_TOKEN}",
}
CONNECTOR_ENV = {"LMCACHE_AUTH": "${P18}"}
CONNECTOR_ARGS = ["--kv-secret", "${P19}"]
PLANTED = [
    *(f"planted-{name}" for name in ["api-key-01", "hf-token-02", "json-03", "flag-04", "equals-05", "bearer-06", "url-07", "env-08", "env-url-09"]),
    *("Planted10Token", "PLANTED11", "PLANTED16PEM", "PLANTED17"),
    *(f"planted-{name}" for name in ["user-12", "nested-13", "list-14", "inner-15", "connector-env-18", "connector-flag-19", "proxy-20"]),
    *("planted-inherited-21", "planted-inherited-22", "planted-reference-23"),
]  # fmt: skip


@dataclass
class Planted:
    """A campaign with secrets, its doors, and all that they printed."""

    root: Path
    config: Path
    environment: dict[str, str]
    printed: list[str] = field(default_factory=list)

    @property
    def folder(self) -> CampaignFolder:
        return CampaignFolder(self.root / "results" / "planted")

    def door(self, script: str, *arguments: object, code: int = 0) -> str:
        own = [f"scripts/{script}"] if script.endswith(".py") else ["-m", "connector_tax", script]
        done = subprocess.run(
            [sys.executable, *own, *map(str, arguments)],
            env=self.environment,
            cwd=PROJECT_ROOT,
            capture_output=True,
            text=True,
        )
        self.printed.append(done.stdout + done.stderr)
        assert done.returncode == code, self.printed[-1]
        return self.printed[-1]

    def found(self) -> list[str]:
        """``secret in file`` for each that is there, as itself or as a hash of it alone."""
        texts = {str(p.relative_to(self.root)): p.read_bytes() for p in self.root.rglob("*") if p.is_file()}
        texts = {
            name: text for name, text in texts.items() if name not in ("planted.yaml", "connectors.yaml")
        }
        texts["printed"] = "\n".join(self.printed).encode()
        wanted = {secret: secret.encode() for secret in PLANTED}
        wanted |= {f"hash of {s}": hashlib.sha256(s.encode()).hexdigest()[:16].encode() for s in PLANTED}
        return [
            f"{what} in {name}" for name, text in texts.items() for what, it in wanted.items() if it in text
        ]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    root = tmp_path_factory.mktemp("planted")
    connectors: dict[str, Any] = yaml.safe_load((PROJECT_ROOT / "config/connectors.yaml").read_text())
    kv = {"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_connector_extra_config": EXTRA_CONFIG}
    leaky = {
        "label": "with secrets",
        "kv_transfer_config": kv,
        "env": CONNECTOR_ENV,
        "extra_args": CONNECTOR_ARGS,
    }
    (root / "connectors.yaml").write_text(yaml.safe_dump({"plain": connectors["plain"], "leaky": leaky}))
    demo = yaml.safe_load((PROJECT_ROOT / "config/demo.yaml").read_text())
    engine = {**demo["engine"], "args": ARGS, "extra_args": EXTRA_ARGS, "env": ENGINE_ENV}
    config = {
        **demo,
        "campaign": "planted",
        "connectors_file": str(root / "connectors.yaml"),
        "connectors": ["plain", "leaky"],
        "engine": engine,
        "phase_a": {"rates_per_s": [20], "input_tokens": 64, "output_tokens": 8},
        "phase_b": {"input_tokens": [64], "output_tokens": [8]},
        "phase_b_prime": {},
        "cell": {**demo["cell"], "duration_s": 0.5, "min_completed": 6},
        "accuracy": {**demo["accuracy"], "prompts": 1},
    }
    (root / "planted.yaml").write_text(yaml.safe_dump(config))
    cache = str(tmp_path_factory.mktemp("cache"))
    yield Planted(
        root, root / "planted.yaml", {**os.environ, **REFERRED, **INHERITED, "CONNECTOR_TAX_CACHE": cache}
    )


BEGIN = """
import sys
from pathlib import Path
from connector_tax.base.config import load_campaign
from connector_tax.base.plan.start import begin_campaign
begin_campaign(load_campaign(Path(sys.argv[1])), Path(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def measured(planted: Planted) -> Planted:
    """Planned, tried, measured in Phase A, analysed and listed by the doors that the workflow asks."""
    results = planted.root / "results"
    begin = [sys.executable, "-c", BEGIN, str(planted.config), str(results)]
    subprocess.run(begin, env=planted.environment, cwd=PROJECT_ROOT, check=True)
    planted.door(
        "preflight.py",
        "--campaign-file",
        planted.folder.campaign_file,
        "--log",
        planted.root / "preflight.log",
    )
    given = ("--campaign-file", planted.folder.campaign_file, "--connector", "leaky", "--phase", "a")
    planted.door("measure.py", *given, "--log", planted.root / "leaky.log")
    planted.door("analyze.py", "--root", planted.folder.root)
    planted.door(
        "build_manifest.py", "--root", planted.folder.root, "--manifest", planted.root / "MANIFEST.md"
    )
    planted.door("status", planted.folder.root)
    return planted


def run_of(planted: Planted, connector: str) -> Any:
    date = read_json(planted.folder.campaign_file)["date"]
    return planted.folder.run(date, connector, "a")


def test_nothing_planted_is_found_after_a_launch(measured: Planted) -> None:
    assert measured.found() == []
    assert "--db-password" in (measured.root / "MANIFEST.md").read_text()


def test_nothing_planted_is_found_after_a_rehearsal(planted: Planted) -> None:
    planted.door("plan", planted.config, "--to", planted.root / "rehearsed")
    assert planted.found() == []


def test_the_engine_was_given_what_the_documents_do_not_say(measured: Planted) -> None:
    """It answered to the key, its log was written and gone through, and plain settings are legible."""
    run = run_of(measured, "leaky")
    cell = read_json(next(run.cells.glob("*/cell.json")))
    assert cell["health"]["statuses"]["ok"] and cell["launch"]["args"]["max_model_len"] == 2048
    assert cell["launch"]["args"]["api_key"] == "${P01}"
    log = run.stdout.read_text()
    assert "--db-password" in log and MASKED in log
    assert cell["launch"]["kv_transfer_config"]["kv_connector_extra_config"] == EXTRA_CONFIG


@pytest.mark.parametrize("name", ["P01", "P05", "P07", "P11"])
def test_one_that_is_written_out_is_refused_and_not_repeated(
    planted: Planted, tmp_path: Path, name: str
) -> None:
    config = tmp_path / "inline.yaml"
    config.write_text(planted.config.read_text().replace(f"${{{name}}}", REFERRED[name]))
    said = planted.door("plan", config, "--to", planted.root / "refused", code=2)
    assert "is written out here" in said and REFERRED[name] not in said
    assert not (planted.root / "refused").exists()


def test_a_runs_script_asks_for_each_secret_and_runs_once_they_are_set(measured: Planted) -> None:
    script = run_of(measured, "leaky").launch_sh
    bare = {"PATH": os.environ["PATH"], "HOME": "/", "ENGINE_PYTHON": "echo"}
    asked: dict[str, str] = {}
    for _ in range(40):
        done = subprocess.run(
            ["bash", str(script)], env={**bare, **asked}, cwd=PROJECT_ROOT, capture_output=True, text=True
        )
        if done.returncode == 0:
            break
        assert "launch.sh: the run had a secret here, which is not kept: set " in done.stderr, done.stderr
        name = done.stderr.strip().rpartition("set ")[2]
        assert name not in asked
        asked[name] = f"given-{name}"
    assert {"P02", "P04", "P07", "P19"} <= set(asked)
    command = done.stdout
    assert (
        "--max-model-len 2048" in command and "--db-password given-P04" in command and MASKED not in command
    )
    assert "# Not kept, since each was secret: VLLM_PLUGIN_TOKEN." in script.read_text()
