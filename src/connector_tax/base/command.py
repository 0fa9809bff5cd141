"""A command: what it takes, and the function that does it. One form for ``connector-tax NAME`` and for its
script."""

import argparse
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from connector_tax.base.door import run_door
from connector_tax.base.units import ratio_of


def one_or_more(text: str) -> int:
    """The type of an argument that counts."""
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text}: give 1 or more")
    return value


def ratio(text: str) -> float:
    """The type of an argument that is one."""
    try:
        return ratio_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def add_options(parser: Any, *options: tuple[Any, ...]) -> None:
    """Add options to a parser or a group of it.

    Args:
        options: names=METAVAR; the type, the choices, or bool for a switch; help; the default where there is
            one, [] for what may be repeated, and ... for what has to be given.
    """
    for names, kind, about, *given in options:
        flags, _, metavar = names.partition("=")
        default = given[0] if given else None
        how: dict[str, Any] = {"type": kind, "metavar": metavar or None}
        if kind is bool:
            how, default = {"action": "store_true"}, False
        elif isinstance(kind, tuple):
            how = {"choices": kind}
        if default == []:
            how["action"] = "append"
        parser.add_argument(*flags.split(), default=default, required=default is ..., help=about, **how)


class Parser(argparse.ArgumentParser):
    """One that says what is wrong in one line, and names what was probably meant."""

    def error(self, message: str) -> NoReturn:
        remedy = f"{self.prog} --help says what it takes."
        for option in re.findall(r"--[\w-]+", message) if message.startswith("unrecognized") else ():
            if option in ("--root", "--configfile", "--campaign-file"):
                remedy = "The campaign is the first argument, without an option."
            elif close := get_close_matches(option, self._option_string_actions, 1):
                remedy = f"Did you mean {close[0]}?"
        self.exit(2, f"error: {message}. {remedy}\n")


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Attributes:
        about: stands above its help.
        arguments: adds what the command takes to a parser.
        run: does it; returns the exit code.
        usage: what stands behind its name in the first line of its help, where that is no list of all
            options.
        brief: of a command with many options those that ``--help`` lists; ``--help-all`` lists the others,
            too.
        hands_on: whether what follows ``--`` is another program's: ``args.behind``.
        epilog: stands below its help, line by line as it is.
        interrupted: what is said on Ctrl-C of what is kept.
    """

    about: str | None
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    usage: str | None = None
    brief: Collection[str] = ()
    hands_on: bool = False
    epilog: str | None = None
    interrupted: str = "what was finished is kept"

    def parser(self, prog: str | None = None, *, whole: bool = False) -> argparse.ArgumentParser:
        """Its command line.

        Args:
            prog: its name in messages, by default the script's.
            whole: whether its help lists all that it takes.
        """
        parser = Parser(
            prog=prog,
            description="\n\n".join(textwrap.fill(part, 98) for part in (self.about or "").split("\n\n")),
            epilog=self.epilog,
            formatter_class=partial(argparse.RawDescriptionHelpFormatter, max_help_position=34),
        )
        self.arguments(parser)
        # Set behind the arguments, since names of subcommands are made of it.
        parser.usage = self.usage and f"%(prog)s {self.usage}"
        if self.brief and not whole:
            for action in parser._actions:
                if not {*action.option_strings} & {"-h", *self.brief}:
                    action.help = argparse.SUPPRESS
            parser.add_argument("--help-all", action="store_true", help="list all options")
        return parser

    def call(self, argv: Sequence[str], prog: str | None = None) -> int:
        """Do what ``argv`` says; the exit code. What a person can mend is raised."""
        if self.brief and "--help-all" in argv:
            print(self.parser(prog, whole=True).format_help(), end="")
            return 0
        own = list(argv)
        behind = own[own.index("--") :] if self.hands_on and "--" in own else []
        args = self.parser(prog).parse_args(own[: len(own) - len(behind)])
        args.behind = behind[1:]
        return self.run(args)

    def main(self, argv: Sequence[str] | None = None, prog: str | None = None) -> None:
        """Do it as a process's own work and exit: 2 for what a person can mend, 70 for a bug, else as ``run``
        says."""
        arguments = sys.argv[1:] if argv is None else argv

        def do() -> None:
            if code := self.call(arguments, prog):
                sys.exit(code)

        run_door(do, interrupted=self.interrupted)


def of_root(about: str | None, work: Callable[[Path], str]) -> None:
    """Run a script that takes ``--root`` and prints what ``work`` returns."""

    def do(args: argparse.Namespace) -> int:
        print(work(args.root))
        return 0

    def arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--root", type=Path, required=True, help="results/<campaign>")

    Command(about, arguments, do).main()
