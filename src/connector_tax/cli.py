"""``connector-tax``: one command, its subcommands by name."""

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from functools import partial
from importlib import import_module

from connector_tax import __version__
from connector_tax.base.command import Command
from connector_tax.base.entrypoint import run_entrypoint

# Name -> help; the module is commands/<name>.py. Only the called one is imported.
COMMANDS = {
    "init": "write a config that fits your GPU, your connectors and your hours",
    "plan": "show how long a campaign takes and how small a tax it finds; starts nothing",
    "run": "measure, or go on where it stopped, then report",
    "status": "show what is done, what runs and how long is left",
    "report": "write the numbers, the figures, the page and the CSV files",
    "compare": "show which tax changed between two campaigns, or along a --history",
    "check": "judge one connector without a GPU, in one to two minutes; made for CI",
    "load": "put load on any OpenAI-compatible server",
    "bundle": "pack a campaign into one file that anybody can recompute",
    "verify": "check a bundle or a results folder; --reproduce recomputes it",
}
MORE = {
    "sweep": "measure campaigns over releases, models, connectors and GPUs, one after another",
    "fleet": "model many instances behind a gateway, from a campaign's step records",
    "fit-gpu": "fit a profile of the virtual GPU to a campaign on a GPU",
}
HIDDEN = ("revert-patch",)
# Former name -> today's command.
RENAMED = {
    "advance": "run CAMPAIGN --minutes N",
    "analyze": "report CAMPAIGN",
    "figures": "report CAMPAIGN",
    "gpu-smoke": "run --smoke",
    "rehearse": "plan CAMPAIGN",
    "track": "compare --history FOLDER ... --to FOLDER",
}

HELP = """\
usage: connector-tax COMMAND [CAMPAIGN] [options]

Measure what switching on a KV connector costs a vLLM server.
CAMPAIGN is a config file or its results folder.

{commands}

more:
{more}

Each says more with --help; connector-tax --version.
Exit codes: 0 done, 1 over a limit, 2 you can mend it, 70 a bug, 75 more to do, 130 stopped.
With a GPU: connector-tax init --connectors nixl_both --model MODEL --hours 2
Without:    connector-tax run demo
"""


def command(name: str) -> Command:
    module = import_module(f"connector_tax.commands.{name.replace('-', '_')}")
    found: Command = module.COMMAND
    return found


def help_text() -> str:
    commands, more = (
        "\n".join(f"  {name:<9}{about}" for name, about in group.items()) for group in (COMMANDS, MORE)
    )
    return HELP.format(commands=commands, more=more)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the console script; exits."""
    run_entrypoint(partial(_main, list(sys.argv[1:] if argv is None else argv)))


def _main(arguments: list[str]) -> None:
    match arguments:
        case [] | ["-h" | "--help", *_]:
            print(help_text())
            sys.exit(0 if arguments else 2)
        case ["--version"]:
            print(f"connector-tax {__version__}")
        case [name, *rest] if name in (*COMMANDS, *MORE, *HIDDEN):
            command(name).main(rest, prog=f"connector-tax {name}")
        case [name, *rest]:
            print(f"connector-tax: {_unknown(name, rest)}", file=sys.stderr)
            sys.exit(2)


def _unknown(name: str, rest: Sequence[str]) -> str:
    if name in RENAMED:
        return f"{name!r} is now connector-tax {RENAMED[name]}"
    known = [*COMMANDS, *MORE, *RENAMED]
    behind = [f"{word} {name}" for word in rest if word in known] + [f"run {name}"] * name.endswith(".yaml")
    close = behind or [RENAMED.get(word, word) for word in get_close_matches(name, known, 1)]
    meant = f"Did you mean connector-tax {close[0]}?" if close else "connector-tax --help lists them."
    return f"{name!r} is no command. {meant}"
