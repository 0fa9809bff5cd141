"""Shell completion of ``connector-tax``: ``eval "$(connector-tax completion bash)"``."""

import argparse
from collections.abc import Mapping, Sequence

import shtab

from connector_tax.base.command import Command
from connector_tax.base.errors import ConfigError


def shell_of(words: Sequence[str]) -> str:
    """The one shell that was named.

    Raises:
        ConfigError: it is none that can be completed.
    """
    if len(words) != 1 or words[0] not in shtab.SUPPORTED_SHELLS:
        known = ", ".join(shtab.SUPPORTED_SHELLS)
        said = " ".join(["completion", *words])
        raise ConfigError(
            f'{said}: wanted is one of {known}; it prints what that shell evaluates: eval "$(connector-tax completion bash)".'
        )
    return words[0]


def script(shell: str, commands: Mapping[str, Command], about: Mapping[str, str]) -> str:
    """What ``shell`` has to evaluate."""
    whole = argparse.ArgumentParser(prog="connector-tax")
    subparsers = whole.add_subparsers(metavar="COMMAND")
    for name, command in commands.items():
        command.arguments(subparsers.add_parser(name, help=about[name], description=about[name]))
    return str(shtab.complete(whole, shell))
