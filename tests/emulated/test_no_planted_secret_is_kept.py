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
from connector_tax.base.config import load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.config.secrets import hand_on
from connector_tax.base.files import read_json
from connector_tax.base.plan import spec_hash
from connector_tax.base.records.cell import CellSpec
from connector_tax.base.redaction import BLANKED

pytestmark = pytest.mark.emulated
API_KEY = "planted-api-key-01"
ARGS = {
    "api_key": API_KEY,
    "hf_token": "planted-hf-token-02",
    "hf_overrides": json.dumps({"auth": {"password": "planted-json-03"}}),
    "max_model_len": 2048,
}
EXTRA_ARGS = [
    *("--db-password", "planted-flag-04"),
    "--wandb-api-key=planted-equals-05",
    *("--header", "Authorization: Bearer planted-bearer-06"),
    *("--remote", "redis://user:planted-url-07@cache:6379"),
]
ENGINE_ENV = {
    "REDIS_PASSWORD": "planted-env-08",
    "LMCACHE_REMOTE_URL": "redis://:planted-env-url-09@cache:6379",
    "HF_TOKEN": "hf_Planted10TokenOfTheEngine",
    "MOONCAKE_NOTE": "AKIAPLANTED11ABCDEFG",
    "CONNECTOR_TAX_STEP_FLUSH_S": "0.1",
}
EXTRA_CONFIG = {
    "remote": {"credentials": {"user": "planted-user-12", "secret_key": "planted-nested-13"}},
    "servers": [{"host": "a", "accessKey": "planted-list-14"}],
    "inner": json.dumps({"password": "planted-inner-15"}),
    "material": "-----BEGIN PRIVATE KEY-----\nPLANTED16PEMxxxxxxxxxxxxxxxx\n-----END PRIVATE KEY-----",
    "ticket": "eyJPLANTED17.eyJPLANTED17xx.c2lnbmF0dXJl",
    "redis_password": "${PLANTED_REFERENCE}",
}
CONNECTOR_ENV = {"LMCACHE_AUTH": "planted-connector-env-18"}
CONNECTOR_ARGS = ["--kv-secret", "planted-connector-flag-19"]
MODEL = "https://user:planted-model-20@hub/model"
INHERITED = {
    "VLLM_PLUGIN_TOKEN": "planted-inherited-21",
    "AWS_SECRET_ACCESS_KEY": "planted-inherited-22",
    "PLANTED_REFERENCE": "planted-reference-23",
}
PLANTED = [
    *(f"planted-{name}" for name in ["api-key-01", "hf-token-02", "json-03", "flag-04", "equals-05", "bearer-06", "url-07", "env-08", "env-url-09"]),
    *("Planted10Token", "PLANTED11", "PLANTED16PEM", "PLANTED17"),
    *(f"planted-{name}" for name in ["user-12", "nested-13", "list-14", "inner-15", "connector-env-18", "connector-flag-19", "model-20"]),
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
    engine = {**demo["engine"], "args": ARGS, "extra_args": EXTRA_ARGS, "env": ENGINE_ENV, "model": MODEL}
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
    yield Planted(root, root / "planted.yaml", {**os.environ, **INHERITED, "CONNECTOR_TAX_CACHE": cache})


@pytest.fixture(scope="module")
def measured(planted: Planted) -> Planted:
    """Planned, tried, measured in Phase A, analysed and listed by the doors that the workflow asks."""
    campaign = load_campaign(planted.config)
    hand_on(campaign, planted.environment)
    results = planted.root / "results"
    planted.door("plan.py", "--configfile", planted.config, "--root", results)
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
    assert BLANKED in (measured.root / "MANIFEST.md").read_text().replace("&lt;", "<").replace("&gt;", ">")


def test_nothing_planted_is_found_after_a_rehearsal(planted: Planted) -> None:
    planted.door("plan", planted.config, "--to", planted.root / "rehearsed")
    assert planted.found() == []


def test_the_engine_was_given_what_the_documents_do_not_say(measured: Planted) -> None:
    """It answered to the key, its log was written and gone through, and plain settings are legible."""
    run = run_of(measured, "leaky")
    cell = read_json(next(run.cells.glob("*/cell.json")))
    assert cell["health"]["statuses"]["ok"] and cell["launch"]["args"]["max_model_len"] == 2048
    assert cell["launch"]["args"]["api_key"] == BLANKED
    assert cell["launch"]["model"] == f"https://{BLANKED}@hub/model"
    log = run.stdout.read_text()
    assert "--db-password" in log and BLANKED in log
    assert (
        cell["launch"]["kv_transfer_config"]["kv_connector_extra_config"]["redis_password"]
        == "${PLANTED_REFERENCE}"
    )


def test_specification_hashes_are_those_of_the_originals(measured: Planted) -> None:
    cell = read_json(next(run_of(measured, "leaky").cells.glob("*/cell.json")))
    config = load_campaign(measured.config)
    assert cell["spec_hash"] == spec_hash(config, "leaky", CellSpec.from_json(cell["spec"]))


def test_who_was_not_handed_the_secrets_is_told_so(measured: Planted) -> None:
    """By hand, say: the campaign's file alone is not enough, and nothing is launched with ``<redacted>``."""
    without = {k: v for k, v in measured.environment.items() if k != "CONNECTOR_TAX_CONFIG"}
    alone = Planted(measured.root, measured.config, without)
    said = alone.door("preflight.py", "--campaign-file", measured.folder.campaign_file, code=2)
    assert "config.engine.args.api_key" in said and "write ${NAME} for it" in said and alone.found() == []


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
    assert {
        "VLLM_API_KEY",
        "HF_TOKEN",
        "ENGINE_HF_TOKEN",
        "REDIS_PASSWORD",
        "MODEL",
        "LMCACHE_REMOTE_URL",
        "PLANTED_REFERENCE",
    } <= set(asked)
    command = done.stdout
    assert (
        f"--model {asked['MODEL']} " in command and '"redis_password": "given-PLANTED_REFERENCE"' in command
    )
    assert "--max-model-len 2048" in command and "--db-password given-" in command and BLANKED not in command
    assert "VLLM_PLUGIN_TOKEN was set as well" in script.read_text()
