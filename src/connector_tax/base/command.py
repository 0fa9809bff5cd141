"""A command: what it takes, and the function that does it. One form for ``connector-tax NAME`` and for its script."""

import argparse
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from connector_tax.base.door import run_door


def one_or_more(text: str) -> int:
    """The type of an argument that counts."""
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text}: give 1 or more")
    return value


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Attributes:
        about: its first line stands above its help.
        arguments: adds what the command takes to a parser.
        run: does it; returns the exit code.
        epilog: stands below its help, line by line as it is.
        interrupted: what is said on Ctrl-C of what is kept.
    """

    about: str | None
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    epilog: str | None = None
    interrupted: str = "what was finished is kept"

    def parser(self, prog: str | None = None) -> argparse.ArgumentParser:
        """Its command line; ``prog`` is its name in messages, by default the script's."""
        parser = argparse.ArgumentParser(
            prog=prog,
            description="\n".join(map(textwrap.fill, (self.about or "").splitlines())),
            epilog=self.epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.arguments(parser)
        return parser

    def call(self, argv: Sequence[str], prog: str | None = None) -> int:
        """Do what ``argv`` says; the exit code. What a person can mend is raised."""
        return self.run(self.parser(prog).parse_args(argv))

    def main(self, argv: Sequence[str] | None = None, prog: str | None = None) -> None:
        """Do it as a process's own work and exit: 2 for what a person can mend, 70 for a bug, else as ``run`` says."""
        arguments = sys.argv[1:] if argv is None else argv

        def do() -> None:
            if code := self.call(arguments, prog):
                sys.exit(code)

        run_door(do, interrupted=self.interrupted)
