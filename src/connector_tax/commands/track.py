"""Taxes of many campaigns over time: series, changes of level, and whether a tax rose (exit code 1)."""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from connector_tax.base.command import Command
from connector_tax.base.errors import EngineError

if TYPE_CHECKING:
    from connector_tax.base.documents.history import History

EPILOG = """\
examples:
  connector-tax track results --to site/history
  connector-tax track nights/ releases/ --to history --fail-above 0.01
  connector-tax track results --to history --confirm config/nightly.yaml
  connector-tax track --sweep config/sweep.yaml --to history

exit code 0: no tax is known to have risen (one may be suspected); 1: one rose, and a second campaign confirms it; 2: a mistake, or nothing to track
"""


def _limit(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text}: wanted is a ratio from 0 to 1; 0.02 is 2 %")
    return value


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folders",
        type=Path,
        nargs="*",
        metavar="DIR",
        help="a campaign's folder, or one with folders of campaigns in it",
    )
    parser.add_argument(
        "--sweep",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="campaigns of that sweep. Its axes keep series apart; a series follows the axes that the sweep follows. May be given more than once",
    )
    parser.add_argument(
        "--to",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="where index.html, history.json and pytorch-benchmark.json go",
    )
    parser.add_argument(
        "--fail-above",
        type=_limit,
        default=0.0,
        metavar="RATIO",
        help="a tax that now stands no more than this above its level before a confirmed rise is no regression; default %(default)s",
    )
    parser.add_argument(
        "--confirm",
        type=Path,
        metavar="CONFIGFILE",
        help="if a rise is suspected in the newest campaign, measure the campaign of this config once more, under a new name, and judge again",
    )


# It imports what it needs when it is called, so that help comes at once.
def _run(args: argparse.Namespace) -> int:
    from connector_tax.base.errors import ConfigError
    from connector_tax.read.track.history import history, worth_measuring

    if args.sweep:
        return _along_axes(args)
    if not args.folders:
        raise ConfigError("nothing to track: name folders of campaigns, or a sweep with --sweep FILE.")
    if args.confirm is not None:
        from connector_tax.base.config import load_campaign

        load_campaign(args.confirm)  # a mistake in it should not wait for the night of an alarm
    found = history(args.folders, args.fail_above)
    if args.confirm is None or not worth_measuring(found):
        return _told(found, args.to)
    # Before the second measurement, which takes long and may fail.
    known = _told(found, args.to)
    try:
        again = measured_again(args.confirm)
    except EngineError as error:
        if not known:
            raise
        print(f"error: {error}", file=sys.stderr)
        return known
    return _told(history([*args.folders, again], args.fail_above), args.to)


def _along_axes(args: argparse.Namespace) -> int:
    """Campaigns of sweeps, beside those of folders that are named."""
    from msgspec.structs import replace

    from connector_tax.base.config.checked import PROJECT_ROOT
    from connector_tax.base.config.sweep import load_sweep
    from connector_tax.base.errors import ConfigError
    from connector_tax.read.track.history import history
    from connector_tax.sweep.results import own_of, require_results

    if args.confirm is not None:
        raise ConfigError(
            "--confirm measures one campaign, and a sweep has many. Leave it out, and give an axis that the sweep follows one more entry, with the suspected campaign once more."
        )
    results = PROJECT_ROOT / "results"
    sweeps = [load_sweep(path) for path in args.sweep]
    owned = [own_of(sweep, results) for sweep in sweeps]
    for sweep, own in zip(sweeps, owned, strict=True):
        require_results(sweep, own, results)
    places = {path: place for own in owned for path, place in own.places.items()}
    left_out = {path: out for own in owned for path, out in own.left_out.items() if path not in places}
    found = history([*args.folders, *places], args.fail_above, places, left_out)
    missing = left_out.values()
    return _told(replace(found, left_out=(*found.left_out, *missing)), args.to)


def _told(found: "History", to: Path) -> int:
    """Files, what was left out and the verdict; the exit code."""
    from connector_tax.base.opening import printable
    from connector_tax.read.track.write import write_history

    for left_out in found.left_out:
        print(f"left out: {printable(left_out.path)}: {printable(left_out.reason)}", file=sys.stderr)
    for path in write_history(found, to):
        print(f"wrote {path}")
    print(found.sentence)
    return found.exit_code


def measured_again(configfile: Path) -> Path:
    """Measure the campaign of ``configfile`` under a name that no results have yet; its folder.

    Raises:
        EngineError: it did not come to its end.
    """
    from connector_tax.base.config import load_campaign
    from connector_tax.base.config.checked import PROJECT_ROOT
    from connector_tax.commands.run import snakemake_command

    config = load_campaign(configfile)
    name = config.campaign
    results = PROJECT_ROOT / "results"
    taken = {path.name for path in results.glob("*")}
    again = next(f"{name}-again-{k}" for k in range(1, len(taken) + 2) if f"{name}-again-{k}" not in taken)
    print(f"measuring {name} once more, as {again}", flush=True)
    # One after the other on cards that the nights used side by side would be of another series.
    command = snakemake_command(configfile, len(config.engine.slots), "--config", f"campaign={again}")
    code = subprocess.run(command, cwd=PROJECT_ROOT, check=False).returncode
    if code or not (results / again / "aggregate.json").is_file():
        raise EngineError(
            f"{again}: the second measurement did not come to its end (Snakemake's exit code {code}), so nothing is confirmed. "
            f"Go on with it: connector-tax run --configfile {configfile} --cores {len(config.engine.slots)} -- --config campaign={again}; then track once more."
        )
    return results / again


COMMAND = Command(__doc__, _arguments, _run, epilog=EPILOG)
