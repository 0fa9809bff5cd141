"""``connector-tax``: every command is there under its name, says what it does, and ends as its script does."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.errors import ConfigError
from connector_tax.cli import COMMANDS, HIDDEN, MORE, command, help_text, main

ALL = COMMANDS | MORE
ENTRY = [sys.executable, "-c", "from connector_tax.cli import main; main()"]


def ran(*arguments: str, cwd: Path = PROJECT_ROOT) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*ENTRY, *arguments], cwd=cwd, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("name", [*ALL, *HIDDEN])
def test_each_command_has_help_under_its_own_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*name.split(), "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: connector-tax {name} ")


def test_every_module_of_commands_is_listed() -> None:
    modules = {p.stem for p in (PROJECT_ROOT / "src/connector_tax/commands").glob("*.py")} - {"__init__"}
    parts_of_run = {"sitting", "smoke"}
    assert modules - parts_of_run == {name.replace("-", "_") for name in (*ALL, *HIDDEN)}


def test_the_list_names_each_command_once() -> None:
    lines = help_text().splitlines()
    for name, about in ALL.items():
        assert lines.count(f"  {name:<9}{about}") == 1


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


@pytest.mark.parametrize("name", [*ALL, *HIDDEN])
def test_the_help_of_a_command_fits_on_a_screen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    lines = command(name).parser(f"connector-tax {name}").format_help().splitlines()
    assert len(lines) < 30 and max(map(len, lines)) <= 100


@pytest.mark.parametrize("name", ["check", "load"])
def test_what_a_long_help_leaves_out_is_in_its_whole(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(name).call(["--help-all"]) == 0
    whole = capsys.readouterr().out
    known = {word for action in command(name).parser()._actions for word in action.option_strings}
    assert known - set(re.findall(r"--?[a-z-]+", whole)) == {"--help-all"}


def test_one_flag_has_one_name() -> None:
    """The campaign is an argument, and what is written goes `--to`; options of `load` are held by those who use them."""
    found = {
        name: {word for action in command(name).parser()._actions for word in action.option_strings}
        for name in ALL
        if name != "load"
    }
    for word in ("--root", "--configfile", "--results", "--out"):
        assert [name for name, options in found.items() if word in options] == []


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("reprot", "Did you mean connector-tax report?"),
        ("figure", "Did you mean connector-tax report CAMPAIGN?"),
        ("figures", "is now connector-tax report CAMPAIGN"),
        ("analyze", "is now connector-tax report CAMPAIGN"),
        ("track", "is now connector-tax compare --history"),
        ("rehearse", "is now connector-tax plan CAMPAIGN"),
        ("advance", "is now connector-tax run CAMPAIGN --minutes N"),
        ("gpu-smoke", "is now connector-tax run --smoke"),
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


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--root", "demo"], "The campaign is the first argument"),
        (["--configfile", "demo"], "The campaign is the first argument"),
        (["demo", "--markdwn"], "Did you mean --markdown?"),
    ],
)
def test_an_option_that_is_none_leads_to_what_is_meant(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command("report").call(options)
    assert ended.value.code == 2 and said in capsys.readouterr().err


def test_without_a_command_the_list_is_shown() -> None:
    ended = ran()
    assert (ended.returncode, ended.stdout.splitlines()[0]) == (
        2,
        "usage: connector-tax COMMAND [CAMPAIGN] [options]",
    )


def test_a_mistake_in_a_command_is_one_message(tmp_path: Path) -> None:
    ended = ran("report", str(tmp_path))
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: ") and "campaign.json" in ended.stderr


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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "mine.yaml: no such campaign"),
        ("", "mine.yaml: a mapping is wanted at the top, found nothing"),
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
    ended = ran("run", "mine.yaml", cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("error: ") and said in ended.stderr and len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "again", [["--configfile", "other.yaml"], ["--configfiles=other.yaml"], ["--configfi", "x"]]
)
def test_run_with_a_second_config_file_is_one_message(again: list[str]) -> None:
    """The one before ``--`` was measured without a word."""
    with pytest.raises(ConfigError, match=rf"^{again[0]}: given to Snakemake beside config/demo\.yaml"):
        command("run").call(["config/demo.yaml", "--", *again])


@pytest.mark.parametrize("cores", ["0", "-2"])
def test_run_with_less_than_one_core_is_one_message(cores: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With none Snakemake waits for one without end."""
    with pytest.raises(SystemExit) as ended:
        command("run").call(["demo", "--cores", cores])
    assert ended.value.code == 2
    assert f"argument --cores: {cores}: give 1 or more" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("python", "said"),
    [
        (None, "that environment variable is not set"),
        ("/nope/bin/python", "no such program"),
        ("/tmp", "is a folder"),
        ("/bin/true", "does not answer as Python does"),
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
