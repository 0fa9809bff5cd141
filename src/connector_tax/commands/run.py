"""Measure a campaign, or go on with it, then report. Nothing is measured twice."""

import argparse
import contextlib
import io
import os
import re
import shlex
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn, get_args

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.command import Command, add_options, one_or_more
from connector_tax.base.config import load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.errors import ConfigError
from connector_tax.base.job_failures import COMMAND_VARIABLE, QUIET_VARIABLE
from connector_tax.base.plan.named import DEFAULT, Named, add_campaign, results_folder
from connector_tax.base.units import duration_text
from connector_tax.check.request import add_engine_python
from connector_tax.commands.sitting import measure, take_all
from connector_tax.commands.smoke import GPU, VIRTUAL, smoke_campaign
from connector_tax.read.report.status import seconds_left
from connector_tax.run.engine.gpu_host import refuse_engine
from connector_tax.run.measure.preflight import Launching

# Snakemake accepts unique prefixes of the option and its plural.
CONFIGFILE = re.compile(r"--configf[iles]*(=|$)")
# The settings of profiles/default: Snakemake announces a profile that it found itself before it can be
# hushed.
PROFILE = [
    "--workflow-profile",
    "none",
    "--rerun-incomplete",
    "--nolock",
    "--rerun-triggers",
    "mtime",
    "params",
]
EPILOG = """
examples:
  connector-tax run my.yaml                            Ctrl-C at any time; the same command goes on
  connector-tax run my.yaml --minutes 9 --save out/    without Snakemake; exit code 75: more to do
  connector-tax run my.yaml phase_a -- --dry-run       a stage; all behind -- is Snakemake's
"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_campaign(parser)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="stages or files; default all")
    parser.add_argument("--end-with-parent", type=int, help=argparse.SUPPRESS)
    add_options(
        parser,
        ("--cores", one_or_more, "engines side by side; default %(default)s", 1),
        ("--verbose", bool, "show what Snakemake says as well"),
        ("--minutes=N", float, "end after so many minutes; needs no Snakemake"),
    )
    parser.add_argument(
        "--take", type=Path, nargs="+", metavar="FILE", help="take over what --save packed elsewhere"
    )
    add_options(
        parser,
        ("--save=FOLDER", Path, "with --minutes: pack the campaign into a file there"),
        (
            "--preflight",
            get_args(Launching),
            "with --minutes: who is tried beforehand; default all",
            "all",
        ),
        ("--launch-s=S", float, "with --minutes: seconds of a launch here"),
        ("--smoke", bool, "ten minutes in place of a campaign: does this host work?"),
        ("--on", (GPU, VIRTUAL), "with --smoke; default %(default)s", GPU),
        ("--connectors=A,B", str, "with --smoke; default noop_connector,nixl_both"),
        ("--model-config=FILE", str, "with --smoke: of config/models/, or a config.json"),
    )
    add_engine_python(parser)


def _run(args: argparse.Namespace) -> int:
    campaign: Named = args.campaign
    if args.smoke:
        if campaign.given != DEFAULT:
            raise ConfigError(f"--smoke measures config/gpu-smoke.yaml. Leave {campaign.given} out.")
        campaign = smoke_campaign(args)
    elif args.connectors or args.model_config or args.engine_python:
        raise ConfigError(
            "--connectors, --model-config and --engine-python go with --smoke; the config has them."
        )
    if args.take:
        return take_all(campaign, sorted(args.take))
    if args.minutes is not None:
        return measure(campaign, args)
    if args.save is not None:
        raise ConfigError("--save: archives are made of sittings. Give --minutes as well.")
    return _start_snakemake(campaign, args.cores, [*args.stages, *args.behind], quiet=not args.verbose)


def _start_snakemake(campaign: Named, cores: int, more: list[str], *, quiet: bool) -> NoReturn:
    file = campaign.config_file()
    if again := next((word for word in more if CONFIGFILE.match(word)), None):
        raise ConfigError(
            f"{again}: given to Snakemake beside {file}. A campaign has one config file; name it once."
        )
    command = snakemake_command(file, cores, *more)
    # Checked before Snakemake, which would print the mistake below its own lines.
    config, folder = load_campaign(file), CampaignFolder(campaign.root)
    if not more and (left_s := seconds_left(config, folder)):
        refuse_engine(config.engine)
        left = f"about {duration_text(left_s)} left"
        print(f"{config.campaign}: {left}; Ctrl-C keeps what is done, and the same command goes on")
    os.chdir(results_folder().parent)
    if any(word.startswith("-") for word in more):
        quiet = False  # an option of Snakemake's asks for its output
        _refuse_unknown_options(command[3:])
    if quiet:
        command += PROFILE
        # Until it has jobs, Snakemake would answer Ctrl-C with a traceback; the signal waits until then.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    again = shlex.join(["connector-tax", *sys.argv[1:]])
    os.environ |= {COMMAND_VARIABLE: again, QUIET_VARIABLE: "1" * quiet}
    # Snakemake's own folder; if Snakemake cannot create it, that ends in a traceback.
    Path(".snakemake").mkdir(exist_ok=True)
    sys.stdout.flush()
    os.execv(sys.executable, command)  # nosec B606  # a list of arguments, quoted by nobody


def _refuse_unknown_options(words: list[str]) -> None:
    """Print in one line what Snakemake would print below its usage."""
    # Imported here, since it takes a second and only Snakemake's options need it.
    from snakemake.cli import parse_args
    from snakemake.exceptions import CliException

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parse_args(words)
    except (CliException, SystemExit) as ended:
        if isinstance(ended, SystemExit) and not ended.code:
            raise
        last = f"{said.getvalue()}\n{ended}" if isinstance(ended, CliException) else said.getvalue()
        why = re.sub(r"^.*?[Ee]rror: ", "", last.strip().rpartition("\n")[2])
        raise ConfigError(f"Snakemake: {why.rstrip('.')}. Its options: connector-tax run -- --help") from None


def snakemake_command(configfile: Path, cores: int | None, *more: str) -> list[str]:
    """Return Snakemake's command line with this project's Snakefile, to be run beside ``results_folder()``.

    Args:
        configfile: relative to the caller's folder.
        cores: None leaves it to a profile in ``more``.

    Raises:
        ConfigError: Snakemake is not installed.
    """
    if find_spec("snakemake") is None:
        raise ConfigError(
            "Snakemake is not installed. pip install 'connector-tax[run]' brings it; run --minutes N needs"
            " none."
        )
    at_once = [] if cores is None else ["--cores", str(cores)]
    rules = ["--snakefile", str(PROJECT_ROOT / "Snakefile"), "--configfile", str(configfile.absolute())]
    return [sys.executable, "-m", "snakemake", *at_once, *more, *rules]


COMMAND = Command(
    __doc__,
    _arguments,
    _run,
    usage="[CAMPAIGN] [STAGE ...] [options] [-- SNAKEMAKE ...]",
    hands_on=True,
    epilog=EPILOG,
)
