"""Things that are written down in two places agree, and things that must not be written down are not."""

import ast
import json
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CONNECTORS = yaml.safe_load((ROOT / "config" / "connectors.yaml").read_text())
SEED = (
    "plain",
    "noop_connector",
    "mooncake_producer",
    "mooncake_consumer",
    "mooncake_both",
    "nixl_both",
    "lmcache_only",
    "multi_mooncake_lmcache",
)


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / line for line in listed.stdout.splitlines()]


@pytest.mark.parametrize("connector", SEED)
def test_launch_scripts_say_what_the_data_say(connector: str) -> None:
    """Run by hand, a script passes on the very kv-transfer-config of config/connectors.yaml."""
    shown = subprocess.run(
        ["bash", str(ROOT / "launch" / f"launch_{connector}.sh")],
        env={
            "PATH": "/usr/bin:/bin",
            "MODEL": "m",
            "ENGINE_PYTHON": "echo",
            "PYTHON": sys.executable,
        },
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    config = CONNECTORS[connector]["kv_transfer_config"]
    if config is None:
        assert "--kv-transfer-config" not in shown
    else:
        assert json.loads(shown.split("--kv-transfer-config=")[1].split(" --served-model-name")[0]) == config


def test_a_script_by_hand_uses_the_published_settings() -> None:
    """Without arguments a launch script starts the engine of config/config.yaml."""
    from connector_tax.base.config import load_campaign
    from connector_tax.run.engine.command import engine_arguments

    config = load_campaign(ROOT / "config" / "config.yaml")
    expected = engine_arguments(config.engine, config.connector("plain"))
    shown = subprocess.run(
        ["bash", str(ROOT / "launch" / "launch_plain.sh")],
        env={"PATH": "/usr/bin:/bin", "MODEL": "m", "ENGINE_PYTHON": "echo", "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert shown[-len(expected) :] == expected


def test_conda_and_pip_users_get_the_same_versions() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    names = {
        "snakemake-minimal": "snakemake",
        "prometheus_client": "prometheus-client",
    }
    files = (ROOT / "requirements.in", ROOT / "requirements-run.in")
    wanted = [line for file in files for line in file.read_text().splitlines() if line[:1].isalpha()]
    listed = set()
    for entry in environment["dependencies"]:
        name, _, version = entry.partition("=")
        if name == "python":
            continue
        pip_name = names.get(name, name)
        listed.add(pip_name)
        assert re.search(rf"^{re.escape(pip_name)}=={re.escape(version)}[ ;]", lock, re.M), entry
    assert listed == {w.partition("==")[0] for w in wanted}


def test_what_checks_the_code_runs_on_what_a_campaign_runs_on() -> None:
    run, dev = (
        set(re.findall(r"^\S+==\S+", (ROOT / name).read_text(), re.M))
        for name in ("requirements.lock", "requirements-dev.lock")
    )
    assert run < dev


def test_what_recomputes_a_bundle_is_in_the_lock_of_a_campaign() -> None:
    """On a machine that has requirements.lock alone, `verify --reproduce` and every other command import."""
    of = packages_distributions()
    imported = set().union(*(_foreign_imports(path) for path in (ROOT / "src").rglob("*.py")))
    needed = {re.sub(r"[-_.]+", "-", name).lower() for module in imported for name in of.get(module, ())}
    locked = set(re.findall(r"^(\S+)==", (ROOT / "requirements.lock").read_text(), re.M))
    assert needed - {"connector-tax"} <= locked


def test_a_clone_stays_small() -> None:
    """Results above all: a campaign is published as one bundle, without what a bundle need not hold."""
    assert sum(path.stat().st_size for path in tracked() if path.is_file()) < 18 * 2**20


def test_no_registry_is_named() -> None:
    """A lock file or script that names a package host works on one network only."""
    words = re.compile(r"--index-url|--extra-index-url|pypi\.org|/simple/", re.IGNORECASE)
    found = []
    for path in tracked():
        if path.suffix in (".png", ".svg", ".xz") or path == Path(__file__):
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if words.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}")
    assert found == []


@pytest.mark.parametrize(
    ("pattern", "allowed"),
    [
        ("patches/*.py", {"vllm", "written_blocks"}),
        ("launch/plugins/*_connector.py", {"vllm", "noop_connector"}),
        ("launch/plugins/dummy_bootstrap.py", set()),
        ("launch/plugins/virtual_gpu/*.py", {"torch", "virtual_gpu", "vllm"}),
    ],
)
def test_what_runs_inside_the_engine_needs_nothing_of_the_pipeline(pattern: str, allowed: set[str]) -> None:
    paths = list(ROOT.glob(pattern))
    assert paths and {path.name: found for path in paths if (found := _foreign_imports(path) - allowed)} == {}


def _foreign_imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {a.name.partition(".")[0] for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    return found - sys.stdlib_module_names


def test_the_workflow_passes_snakemakes_lint() -> None:
    """One complaint is left standing: rules run in the environment that Snakemake itself is in, which the
    Makefile (or environment.yml) makes; the engine has one of its own, which is no rule's."""
    command = [sys.executable, "-m", "snakemake", "--lint", "--configfile", "config/demo.yaml"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    titles = re.findall(r"^    \* (.*)$", shown.stdout + shown.stderr, re.M)
    assert titles, "the lint said nothing at all"
    assert {t for t in titles if not t.startswith("Specify a conda environment")} == set()
