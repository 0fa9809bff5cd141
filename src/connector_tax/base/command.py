"""A command: its arguments and its function, in one form for ``connector-tax NAME`` and for its script."""

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

from connector_tax.base.entrypoint import run_entrypoint
from connector_tax.base.units import ratio_of


def one_or_more(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text}: give 1 or more")
    return value


def ratio(text: str) -> float:
    try:
        return ratio_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def add_options(parser: Any, *options: tuple[Any, ...]) -> None:
    """Add options to a parser or an argument group.

    Args:
        options: (names=METAVAR, kind, help, default). The kind is a type, the choices, or bool for a switch.
            The default may be absent, [] for a repeatable option, or ... for a required one.
    """
    for names, kind, help_text, *given_default in options:
        flags, _, metavar = names.partition("=")
        default = given_default[0] if given_default else None
        keywords: dict[str, Any] = {"type": kind, "metavar": metavar or None}
        if kind is bool:
            keywords, default = {"action": "store_true"}, False
        elif isinstance(kind, tuple):
            keywords = {"choices": kind}
        if default == []:
            keywords["action"] = "append"
        parser.add_argument(
            *flags.split(), default=default, required=default is ..., help=help_text, **keywords
        )


class Parser(argparse.ArgumentParser):
    """A parser that reports an error in one line and suggests the option that was probably meant."""

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
    """A command of ``connector-tax``.

    Attributes:
        about: stands above its help, ``epilog`` below, with its line breaks.
        arguments: adds its arguments to a parser.
        run: does the work and returns the exit code.
        usage: replaces the list of all options in the help's first line.
        brief: the options that ``--help`` lists, if not all; ``--help-all`` lists all.
        hands_on: pass arguments after ``--`` on to another program, in ``args.behind``.
        interrupted: the message on Ctrl-C about what is kept.
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
        """Return the parser.

        Args:
            prog: its name in messages, by default the script's.
            whole: list all options in the help.
        """
        parser = Parser(
            prog=prog,
            description="\n\n".join(textwrap.fill(part, 98) for part in (self.about or "").split("\n\n")),
            epilog=self.epilog,
            formatter_class=partial(argparse.RawDescriptionHelpFormatter, max_help_position=34),
        )
        self.arguments(parser)
        # Set after the arguments, because argparse derives the names of subcommands from it.
        parser.usage = self.usage and f"%(prog)s {self.usage}"
        if self.brief and not whole:
            for action in parser._actions:
                if not {*action.option_strings} & {"-h", *self.brief}:
                    action.help = argparse.SUPPRESS
            parser.add_argument("--help-all", action="store_true", help="list all options")
        return parser

    def call(self, argv: Sequence[str], prog: str | None = None) -> int:
        """Run the command on ``argv`` and return the exit code; raise errors that a person can fix."""
        if self.brief and "--help-all" in argv:
            print(self.parser(prog, whole=True).format_help(), end="")
            return 0
        arguments = list(argv)
        behind = arguments[arguments.index("--") :] if self.hands_on and "--" in arguments else []
        args = self.parser(prog).parse_args(arguments[: len(arguments) - len(behind)])
        args.behind = behind[1:]
        return self.run(args)

    def main(self, argv: Sequence[str] | None = None, prog: str | None = None) -> None:
        """Run the command and exit: 2 if a person can fix the error, 70 for a bug, else ``run``'s code."""
        arguments = sys.argv[1:] if argv is None else argv

        def do() -> None:
            if code := self.call(arguments, prog):
                sys.exit(code)

        run_entrypoint(do, interrupted=self.interrupted)


def of_root(about: str | None, work: Callable[[Path], str]) -> None:
    """Run a script that takes ``--root`` and prints what ``work`` returns."""

    def do(args: argparse.Namespace) -> int:
        print(work(args.root))
        return 0

    def arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--root", type=Path, required=True, help="results/<campaign>")

    Command(about, arguments, do).main()
