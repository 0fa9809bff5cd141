"""``connector-tax``: every command is there under its name, says what it does, and ends as its script does."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.errors import ConfigError
from connector_tax.cli import COMMANDS, HIDDEN, MORE, command, main

ALL = COMMANDS | MORE
ENTRY = [sys.executable, "-c", "from connector_tax.cli import main; main()"]


@pytest.mark.parametrize("name", [*ALL, *HIDDEN])
def test_each_command_has_help_under_its_own_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*name.split(), "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: connector-tax {name} ")


def test_each_script_says_the_command_that_it_is() -> None:
    """A script that is a command holds nothing of its own; those of rules are a part of one, so that no other part is an input of the rule."""
    of_scripts, parts = set(), set()
    for path in (PROJECT_ROOT / "scripts").glob("*.py"):
        text = path.read_text()
        if "connector_tax.commands." in text:
            name = text.split("``connector-tax ")[1].split("``")[0]
            assert f"from connector_tax.commands.{name.replace('-', '_')} import COMMAND\n" in text
            of_scripts.add(name)
        elif "A part of ``connector-tax report``" in text:
            parts.add(path.name)
    assert of_scripts == {"load", "revert-patch"}
    assert parts == {"analyze.py", "plot_connector_tax.py", "build_report.py"}


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("reprot", "Did you mean connector-tax report?"),
        ("figures", "is now connector-tax report CAMPAIGN"),
        ("zzz", "connector-tax --help lists them"),
    ],
)
def test_a_name_that_is_no_command_leads_to_one_in_one_line(
    typed: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([typed, "--root", "results/demo"])
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert said in err and len(err.splitlines()) == 1


def test_a_reader_that_has_enough_is_no_fault() -> None:
    """``connector-tax ... | head``: no traceback, and the exit code of a process that SIGPIPE ended."""
    ended = subprocess.run(
        ["bash", "-c", '"$@" | true; echo ${PIPESTATUS[0]}', "-", *ENTRY, "--help"],
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.stdout.splitlines()[-1] == "141" and ended.stderr == ""
    listed = subprocess.run(ENTRY, cwd=PROJECT_ROOT, capture_output=True, text=True, timeout=60)
    first = "usage: connector-tax COMMAND [CAMPAIGN] [options]"
    assert (listed.returncode, listed.stdout.splitlines()[0]) == (2, first), "without a command, the list"


def test_run_hands_its_arguments_to_snakemake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From any folder; the config's path is the caller's."""
    config = tmp_path / "mine.yaml"
    config.write_text(
        (PROJECT_ROOT / "config/demo.yaml").read_text().replace("campaign: demo", "campaign: x")
    )
    monkeypatch.chdir(tmp_path)
    started: list[list[str]] = []

    def start(path: str, words: list[str]) -> None:
        started.append(words)
        raise SystemExit

    monkeypatch.setattr("os.execv", start)
    monkeypatch.setattr("os.chdir", lambda folder: None)
    monkeypatch.setattr("os.environ", {**os.environ})
    with pytest.raises(SystemExit):
        command("run").call(["mine.yaml", "phase_a", "--cores", "2", "--", "--dry-run"])
    [words] = started
    assert words[1:] == [
        *("-m", "snakemake", "--cores", "2", "phase_a", "--dry-run"),
        *("--snakefile", str(PROJECT_ROOT / "Snakefile"), "--configfile", str(config)),
    ]


@pytest.mark.parametrize("again", [["--configfile", "other.yaml"], ["--configfi", "x"]])
def test_run_with_a_second_config_file_is_one_message(again: list[str]) -> None:
    """The one before ``--`` was measured without a word."""
    with pytest.raises(ConfigError, match=rf"^{again[0]}: given to Snakemake beside config/demo\.yaml"):
        command("run").call(["config/demo.yaml", "--", *again])


@pytest.mark.parametrize(
    ("python", "said"),
    [
        (None, "that environment variable is not set"),
        ("/nope/bin/python", "no such program"),
        ("/tmp", "is a folder"),
        (sys.executable, "has no vLLM"),
    ],
)
def test_run_refuses_an_engines_python_that_cannot_serve_before_snakemake_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: str | None, said: str
) -> None:
    """It took a DAG and a job to learn that a variable was not set. What only looks, or asks for a stage, does not need it."""
    monkeypatch.setattr("os.execv", lambda path, words: pytest.fail("Snakemake was started"))
    monkeypatch.setattr("os.chdir", lambda folder: None)
    monkeypatch.setattr("os.environ", {**os.environ})
    os.environ.pop("ENGINE_PYTHON", None)
    if python is not None:
        os.environ["ENGINE_PYTHON"] = python
    text = (PROJECT_ROOT / "config/config.yaml").read_text()
    text = re.sub(r"^campaign: .*", "campaign: unheard-of", text, flags=re.MULTILINE)
    (tmp_path / "my.yaml").write_text(re.sub(r"^  model: .*", "  model: org/name", text, flags=re.MULTILINE))
    with pytest.raises(ConfigError, match=said) as refused:
        command("run").call([str(tmp_path / "my.yaml")])
    assert "engine.python: " in str(refused.value) and len(str(refused.value).splitlines()) <= 3
    with pytest.raises(pytest.fail.Exception, match="Snakemake was started"):
        command("run").call([str(tmp_path / "my.yaml"), "--", "--dry-run"])


def test_run_without_snakemake_says_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connector_tax.commands.run.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"^Snakemake is not .* pip install 'connector-tax\[run\]' [^\n]*$"):
        command("run").call(["demo"])


def test_a_wheel_reads_checks_and_loads_without_a_checkout(tmp_path: Path) -> None:
    """Built from a copy, unpacked elsewhere, run from a third place: the connectors and launchers are its own."""
    source, unpacked = tmp_path / "source", tmp_path / "site"
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "."]
        + [":!results", ":!tests", ":!docs"],
        cwd=PROJECT_ROOT,
        capture_output=True,
        check=True,
    ).stdout.split(b"\0")
    for name in map(os.fsdecode, filter(None, tracked)):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((PROJECT_ROOT / name).read_bytes())
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", str(tmp_path), str(source)], check=True, timeout=120)
    [wheel] = tmp_path.glob("*.whl")
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(wheel), str(unpacked)], check=True)
    there = {**os.environ, "PYTHONPATH": str(unpacked)}
    what = """
import connector_tax
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.config import load_campaign
from connector_tax.check.request import entry_by_id
from connector_tax.run.engine.container import PLUGINS
print(connector_tax.__file__, (PLUGINS.parent / "common.sh").is_file(), len(entry_by_id("nixl_both")))
print(load_campaign(PROJECT_ROOT / "config" / "demo.yaml").campaign)
"""
    ended = subprocess.run(
        [sys.executable, "-c", what], env=there, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert ended.stdout.splitlines() == [
        f"{unpacked}/connector_tax/__init__.py True 2",
        "demo",
    ], ended.stderr
    for name in ("check", "load", "report", "compare", "verify"):
        helped = subprocess.run([*ENTRY, name, "--help"], env=there, cwd=tmp_path, capture_output=True)
        assert helped.returncode == 0, helped.stderr
