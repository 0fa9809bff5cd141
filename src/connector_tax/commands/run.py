"""Measure a campaign, or go on with one that was interrupted: Snakemake with this project's Snakefile."""

import argparse
import os
import re
import sys
from pathlib import Path
from typing import NoReturn

from connector_tax.base.command import Command, one_or_more
from connector_tax.base.config.checked import PROJECT_ROOT, read_yaml
from connector_tax.base.errors import ConfigError

# As Snakemake reads it: also a beginning that no other option of it has, and its plural.
CONFIGFILE = re.compile(r"--configf[iles]*(=|$)")
EPILOG = """
examples:
  connector-tax run --configfile config/demo.yaml
  connector-tax run --configfile config/demo.yaml figures          from results on disk; never measures
  connector-tax run --configfile config/h200.yaml -- --dry-run     everything after -- is Snakemake's
  connector-tax run --configfile config/demo.yaml report -- --report study.html    Snakemake's own report, with the figures
"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--configfile", type=Path, help="the campaign; default config/config.yaml")
    parser.add_argument(
        "--cores",
        type=one_or_more,
        default=1,
        help="Snakemake's; default %(default)s, which is one engine at a time",
    )
    parser.add_argument("targets", nargs="*", help="stages or files, and further arguments of Snakemake")


def start_snakemake(configfile: Path | None, cores: int, *more: str) -> NoReturn:
    """Become Snakemake, in the project's folder; as ``snakemake_command``.

    Raises:
        ConfigError: there is no mapping in ``configfile``. Snakemake would say so without file and line. Or ``more`` names another.
    """
    if configfile is not None:
        if again := next((word for word in more if CONFIGFILE.match(word)), None):
            raise ConfigError(
                f"{again}: given to Snakemake beside --configfile {configfile}. A campaign has one config file; name it once."
            )
        read_yaml(configfile)
    command = snakemake_command(configfile, cores, *more)
    os.chdir(PROJECT_ROOT)
    sys.stdout.flush()
    os.execv(sys.executable, command)  # nosec B606  # a list of arguments, quoted by nobody


def snakemake_command(configfile: Path | None, cores: int | None, *more: str) -> list[str]:
    """Snakemake with this project's Snakefile, to be run in ``PROJECT_ROOT``; ``configfile`` is the caller's.

    Args:
        cores: None leaves it to a profile in ``more``.

    Raises:
        ConfigError: there is no Snakefile.
    """
    snakefile = PROJECT_ROOT / "Snakefile"
    if not snakefile.is_file():
        raise ConfigError(
            f"{snakefile}: not there. Campaigns are measured in a checkout of the project, not from an "
            "installed package: clone it and run `make env`, then .venv/bin/connector-tax run."
        )
    chosen = [] if configfile is None else ["--configfile", str(configfile.absolute())]
    at_once = [] if cores is None else ["--cores", str(cores)]
    return [sys.executable, "-m", "snakemake", *at_once, *more, *chosen]


def _run(args: argparse.Namespace) -> int:
    start_snakemake(args.configfile, args.cores, *args.targets)


COMMAND = Command(__doc__, _arguments, _run, epilog=EPILOG)
