"""``connector-tax``: every command is there under its name, says what it does, and ends as its script does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.errors import ConfigError
from connector_tax.cli import COMMANDS, command, help_text, main

ENTRY = [sys.executable, "-c", "from connector_tax.cli import main; main()"]


def ran(*arguments: str, cwd: Path = PROJECT_ROOT) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*ENTRY, *arguments], cwd=cwd, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help_under_its_own_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*name.split(), "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: connector-tax {name} ")


def test_every_module_of_commands_is_listed() -> None:
    modules = {p.stem for p in (PROJECT_ROOT / "src/connector_tax/commands").glob("*.py")} - {"__init__"}
    assert modules == {name.replace("-", "_").replace(" ", "_") for name in COMMANDS}


def test_the_list_names_each_command_once() -> None:
    lines = help_text().splitlines()
    for name, about in COMMANDS.items():
        assert lines.count(f"  {name:<14}{about}") == 1


def test_each_script_says_the_command_that_it_is() -> None:
    """A script that is a command holds nothing of its own."""
    of_scripts = set()
    for path in (PROJECT_ROOT / "scripts").glob("*.py"):
        text = path.read_text()
        if "connector_tax.commands." in text:
            name = text.split("``connector-tax ")[1].split("``")[0]
            assert f"from connector_tax.commands.{name.replace('-', '_')} import COMMAND\n" in text
            of_scripts.add(name)
    assert of_scripts == set(COMMANDS) - {"run", "sweep", "advance", "gpu-smoke"}


def test_an_unknown_command_is_one_line_and_exit_code_2() -> None:
    ended = ran("reprot")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "connector-tax: 'reprot' is no command. `connector-tax --help` lists them.\n"


def test_without_a_command_the_list_is_shown() -> None:
    ended = ran()
    assert (ended.returncode, ended.stdout.splitlines()[0]) == (
        2,
        "usage: connector-tax [--help] [--version] COMMAND ...",
    )


def test_a_mistake_in_a_command_is_one_message(tmp_path: Path) -> None:
    ended = ran("report", "--root", str(tmp_path))
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: ") and "aggregate.json" in ended.stderr


def test_a_folder_that_is_not_there_is_named() -> None:
    ended = ran("analyze", "--root", "results/demmo")
    assert (ended.returncode, ended.stderr) == (
        2,
        "error: results/demmo/campaign.json: no such file: there is no folder results/demmo.\n",
    )


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_knows_every_command_and_option(shell: str) -> None:
    ended = ran("completion", shell)
    assert ended.returncode == 0
    for word in ("revert-patch", "--find-rate", "--allow-missing"):
        assert word in ended.stdout


def test_completion_of_an_unknown_shell_is_refused() -> None:
    ended = ran("completion", "korn")
    assert ended.returncode == 2 and "wanted is one of bash, zsh" in ended.stderr


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


def test_run_hands_its_arguments_to_snakemake(tmp_path: Path) -> None:
    """From any folder; the config's path is the caller's."""
    config = tmp_path / "mine.yaml"
    config.write_text("campaign: 7\n")
    ended = ran("run", "--configfile", "mine.yaml", "--", "--dry-run", cwd=tmp_path)
    assert ended.returncode != 0
    assert str(config) in ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "mine.yaml: no such file. Give an existing one"),
        ("", "mine.yaml: the file holds nothing"),
        ("campaign: a\nengine: [1\n", "mine.yaml: not valid YAML: line 3"),
        ("seed: 1\nseed: 2\n", "mine.yaml: not valid YAML: line 2, column 1: this key stands in line 1"),
    ],
)
def test_run_with_a_file_that_is_no_campaign_is_one_message(
    tmp_path: Path, text: str | None, said: str
) -> None:
    """Snakemake ended with a traceback, or named neither file nor line."""
    if text is not None:
        (tmp_path / "mine.yaml").write_text(text)
    ended = ran("run", "--configfile", "mine.yaml", cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("error: ") and said in ended.stderr and len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "again", [["--configfile", "other.yaml"], ["--configfiles=other.yaml"], ["--configfi", "x"]]
)
def test_run_with_a_second_config_file_is_one_message(again: list[str]) -> None:
    """The one before ``--`` was measured without a word."""
    with pytest.raises(
        ConfigError, match=rf"^{again[0]}: given to Snakemake beside --configfile config/demo\.yaml"
    ):
        command("run").call(["--configfile", "config/demo.yaml", "--", *again])


@pytest.mark.parametrize("cores", ["0", "-2"])
def test_run_with_less_than_one_core_is_one_message(cores: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With none Snakemake waits for one without end."""
    with pytest.raises(SystemExit) as ended:
        command("run").call(["--cores", cores])
    assert ended.value.code == 2
    assert f"argument --cores: {cores}: give 1 or more" in capsys.readouterr().err


def test_run_without_a_checkout_says_what_would_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("connector_tax.commands.run.PROJECT_ROOT", tmp_path)
    with pytest.raises(ConfigError, match="measured in a checkout"):
        command("run").call([])


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
from connector_tax.run.engine.command import LAUNCH
print(connector_tax.__file__, (LAUNCH / "common.sh").is_file(), len(entry_by_id("nixl_both")))
print(load_campaign(PROJECT_ROOT / "config" / "demo.yaml").campaign)
"""
    ended = subprocess.run(
        [sys.executable, "-c", what], env=there, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert ended.stdout.splitlines() == [
        f"{unpacked}/connector_tax/__init__.py True 2",
        "demo",
    ], ended.stderr
    for name in ("check", "load", "report", "compare", "analyze"):
        helped = subprocess.run([*ENTRY, name, "--help"], env=there, cwd=tmp_path, capture_output=True)
        assert helped.returncode == 0, helped.stderr
