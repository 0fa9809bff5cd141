"""``connector-tax``: one command, its subcommands by name."""

import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module

from connector_tax import __version__
from connector_tax.base.command import Command
from connector_tax.base.door import run_door

# Name -> what it does; its module is commands/<name>.py. Only the one that is called is imported.
MEASURING = {
    "load": "load any OpenAI-compatible server and say how it answers, with intervals",
    "check": "what one connector does to vLLM on a virtual GPU, in minutes",
    "rehearse": "a campaign in virtual time: how long it takes, how small a tax it finds",
    "run": "measure a campaign, or go on with one (Snakemake)",
    "sweep": "campaigns over releases, models, connectors and GPUs, one after another",
    "advance": "measure a campaign for so many minutes, or go on with one, without Snakemake",
    "gpu-smoke": "plain, no-op and NIXL on this host's GPU, in ten minutes",
    "status": "what is done, running, skipped and left of a campaign",
    "revert-patch": "see that the engine's vLLM holds nothing of this project",
}
READING = {
    "analyze": "raw results to aggregate.json and aggregate.csv",
    "figures": "aggregate.json to figures",
    "report": "aggregate.json and figures to report.html, or taxes as a Markdown table",
    "compare": "two campaigns: which taxes changed, and whether one rose too far",
    "track": "many campaigns in order of time, each compared with the one before it",
    "bundle": "one archive of a campaign that a reviewer can compute again",
    "verify": "say which files of a bundle were changed, and compute it anew",
    "fleet": "many instances behind a gateway, from a campaign's step records",
    "fit-gpu": "fit a profile of the virtual GPU to step records of a GPU",
}
COMMANDS = MEASURING | READING

EXAMPLES = """\
examples:
  connector-tax load --base-url http://127.0.0.1:8000 --rates 1,2,4 --shape 2048,128 --out out/
  connector-tax check --connector nixl_both --engine-python ~/vllm/bin/python
  connector-tax run --configfile config/demo.yaml
  connector-tax report --root results/demo
  connector-tax NAME --help
  eval "$(connector-tax completion bash)"        or zsh, fish
"""


def command(name: str) -> Command:
    """The command of that name; imports its module."""
    module = import_module(f"connector_tax.commands.{name.replace('-', '_')}")
    found: Command = module.COMMAND
    return found


def help_text() -> str:
    """All commands, a line each, and examples."""

    def lines(title: str, of: dict[str, str]) -> list[str]:
        return [f"{title}:", *(f"  {name:<14}{about}" for name, about in of.items()), ""]

    return "\n".join(
        [
            "usage: connector-tax [--help] [--version] COMMAND ...",
            "",
            "What switching on a KV connector costs a vLLM server, before a block is transferred.",
            "",
            *lines("measure", MEASURING),
            *lines("read", READING),
            EXAMPLES,
        ]
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of the console script; exits."""
    run_door(partial(_main, list(sys.argv[1:] if argv is None else argv)))


def _main(arguments: list[str]) -> None:
    match arguments:
        case [] | ["-h" | "--help", *_]:
            print(help_text())
            sys.exit(0 if arguments else 2)
        case ["--version"]:
            print(f"connector-tax {__version__}")
        case ["completion", *words]:
            from connector_tax.completion import script, shell_of

            shell = shell_of(words)
            print(script(shell, {name: command(name) for name in COMMANDS}, COMMANDS))
        case [name, *rest] if name in COMMANDS:
            _run(name, rest)
        case [name, *_]:
            print(
                f"connector-tax: {name!r} is no command. `connector-tax --help` lists them.", file=sys.stderr
            )
            sys.exit(2)


def _run(name: str, arguments: list[str]) -> None:
    command(name).main(arguments, prog=f"connector-tax {name}")
