"""vLLM deprecates kv_both for NIXL: it serves in the roles that take its place, and says nothing of them."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import parse_campaign
from connector_tax.base.files import read_json
from connector_tax.base.plan.start import begin_campaign

pytestmark = pytest.mark.vllm
ROOT = Path(__file__).parents[2]
ROLES = ("nixl_virtual", "nixl_virtual_producer", "nixl_virtual_consumer")


def test_nixl_serves_in_the_roles_that_replace_kv_both(
    engine_python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINE_PYTHON", engine_python)
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MODEL_FOLDER", str(tmp_path / "model"))
    shape = ROOT / "config" / "models" / "Qwen3-Coder-30B-A3B-Instruct.json"
    subprocess.run(
        [engine_python, "scripts/make_model_folder.py", str(shape), str(tmp_path / "model")],
        cwd=ROOT,
        check=True,
    )
    value = yaml.safe_load((ROOT / "config" / "virtual-gpu.yaml").read_text())
    value |= {"campaign": "roles", "connectors": ["plain", *ROLES], "phase_b_prime": {}}
    folder = CampaignFolder(begin_campaign(parse_campaign(value, "roles"), tmp_path).parent)
    done = subprocess.run(
        [sys.executable, "scripts/preflight.py", "--campaign-file", str(folder.campaign_file)],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    preflight = folder.preflight
    decided = read_json(folder.preflight_status)["configs"]
    assert {c: decided[c]["decision"] for c in ROLES} == dict.fromkeys(ROLES, "include"), done.stdout
    warned = [c for c in ROLES if "kv_role='kv_both' with NixlConnector is deprecated" in "".join(
        p.read_text(errors="replace") for p in (preflight / c).glob("vllm_std*.log")
    )]  # fmt: skip
    assert warned == ["nixl_virtual"]
