"""Campaigns that differ along axes (releases, models, connectors, GPUs), from one file: planned, measured, resumed and read as one."""

import argparse
import os
import re
import shlex
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from connector_tax.base.command import Command, one_or_more

if TYPE_CHECKING:
    from connector_tax.base.config.sweep import Sweep
    from connector_tax.sweep.folder import SweepFolder
    from connector_tax.sweep.running import Outcome
    from connector_tax.sweep.standing import Standing

EPILOG = """
examples:
  connector-tax sweep config/sweep.yaml plan                       each campaign and how long it takes
  connector-tax sweep config/sweep.yaml run                        measure them one after another; again: go on
  connector-tax sweep config/sweep.yaml run --profile profiles/slurm
  connector-tax sweep config/sweep.yaml run -- phase_a             everything after -- is Snakemake's
  connector-tax sweep config/sweep.yaml status                     a line for each campaign
  connector-tax sweep config/sweep.yaml table --page sweep.html    every tax of every campaign
  connector-tax sweep config/sweep.yaml run --help                 the options of run

exit code of run: 0 when every campaign came to its end, 1 when one failed (the others were measured), 128 and the signal's number when it
was interrupted
"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="SWEEP.yaml", help="the sweep")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    def action(name: str, about: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.")

    for own in (
        plan := action("plan", "say what would be measured, and for how long"),
        action("status", "say where each campaign stands"),
        table := action("table", "print the taxes of all campaigns in Markdown"),
    ):
        own.add_argument(
            "--results",
            type=Path,
            metavar="DIR",
            help="where results are read; default results/ of the checkout",
        )
    plan.add_argument(
        "--gpus",
        type=one_or_more,
        help="engines side by side at most, as run takes --resources gpu=N; default: as many as a campaign has cards",
    )
    action("write", "write each campaign's config, and measure nothing")
    run = action("run", "measure one campaign after another, or go on")
    run.add_argument(
        "--cores",
        type=one_or_more,
        help="Snakemake's; default: as many as the campaign has engines side by side",
    )
    run.add_argument(
        "--profile",
        metavar="DIR",
        help="Snakemake's --workflow-profile, seen from the checkout: profiles/slurm",
    )
    run.add_argument(
        "more", nargs="*", metavar="SNAKEMAKE", help="stages, and further arguments of Snakemake"
    )
    table.add_argument(
        "--across",
        metavar="AXIS",
        help="the columns; default: the first axis",
    )
    table.add_argument(
        "--reference", choices=("ref_safe", "ref_load"), default="ref_safe", help="default %(default)s"
    )
    table.add_argument("--page", type=Path, metavar="FILE", help="write an HTML page as well")


# It imports what it needs when it is called, so that help comes at once.
def _run(args: argparse.Namespace) -> int:
    from connector_tax.base.config.checked import PROJECT_ROOT
    from connector_tax.base.config.sweep import load_sweep

    sweep = load_sweep(args.file)
    results = getattr(args, "results", None) or PROJECT_ROOT / "results"
    match args.action:
        case "plan":
            print(plan_text(sweep, results, args.gpus))
        case "status":
            print(status_text(sweep, results))
        case "write":
            from connector_tax.sweep.guards import refuse_others_results

            folder = _folder(sweep)
            refuse_others_results(sweep, folder, PROJECT_ROOT / "results")
            # Who runs the sweep starts campaigns from these files.
            with folder.held(sweep):
                paths = folder.write_configs(sweep)
            print("\n".join(f"wrote {_shown(path)}" for path in paths))
        case "table":
            _table(sweep, results, args)
        case "run":
            return _measure(sweep, args)
    return 0


def plan_text(sweep: "Sweep", results: Path, gpus: int | None = None) -> str:
    """Each campaign in the order of measuring: entries, configurations, expected time; and the sum."""
    from connector_tax.base.plan import SIDE_BY_SIDE
    from connector_tax.base.units import duration_text
    from connector_tax.sweep.standing import standing_of, table

    standings = {cell.name: standing_of(cell.config, results, gpus) for cell in sweep.order}
    rows = [
        [
            cell.name,
            *cell.entries.values(),
            str(len(cell.config.connector_ids)),
            str(standings[cell.name].runs),
            _time(standings[cell.name]),
        ]
        for cell in sweep.order
    ]
    left_s = sum(s.left_s for s in standings.values())
    excluded = f", {sweep.excluded} excluded" if sweep.excluded else ""
    beside = gpus != 1 and any(len(cell.config.engine.slots) > 1 for cell in sweep.order)
    return "\n".join(
        [
            f"sweep {sweep.name}: {len(sweep.cells)} campaigns of {sweep.base}{excluded}, measured in this order",
            "",
            *table(["campaign", *sweep.axes, "configurations", "launches", "time left"], rows),
            "",
            f"{duration_text(left_s)} in all, as far as rates and a launch's time are guessed; figures and reports come on top. "
            "`connector-tax rehearse --configfile FILE` simulates one campaign.",
            *([SIDE_BY_SIDE] if beside else []),
        ]
    )


def status_text(sweep: "Sweep", results: Path) -> str:
    """A line for each campaign, in the order of measuring, and what is to do."""
    from connector_tax.base.units import duration_text
    from connector_tax.sweep.standing import standing_of, table, words

    folder = _folder(sweep)
    ends, damaged = folder.read_ends()
    standings = {cell.name: standing_of(cell.config, results) for cell in sweep.order}
    rows = [[name, words(standing, ends.get(name))] for name, standing in standings.items()]
    finished = sum(s.state == "finished" for s in standings.values())
    left_s = sum(s.left_s for s in standings.values())
    lines = [*table(["campaign", "state"], rows), "", f"{finished} of {len(rows)} campaigns finished"]
    if left_s:
        lines[-1] += f", about {duration_text(left_s)} left"
    if finished < len(rows):
        lines.append(f"go on with: connector-tax sweep {sweep.word} run")
    if damaged:
        lines.append(f"how starts ended is not known: {damaged}")
    if strangers := folder.strangers(sweep):
        lines.append(f"no longer in the sweep, results are kept: {', '.join(strangers)}")
    return "\n".join(lines)


def _time(standing: "Standing") -> str:
    from connector_tax.base.units import duration_text

    said = duration_text(standing.left_s) if standing.left_s else ""
    if standing.state in ("edited", "unreadable"):
        return f"{said}, edited".lstrip(", ") if standing.state == "edited" else standing.state
    return said or "measured"


def _table(sweep: "Sweep", results: Path, args: argparse.Namespace) -> None:
    from connector_tax.base.files import write_text
    from connector_tax.sweep.matrix import markdown, matrix_of
    from connector_tax.sweep.page import render

    matrix = matrix_of(sweep, results, args.across, args.reference)
    print(markdown(matrix))
    if args.page is not None:
        write_text(args.page, render(matrix))
        print(f"wrote {args.page}", file=sys.stderr)


def _measure(sweep: "Sweep", args: argparse.Namespace) -> int:
    from connector_tax.base.config.checked import PROJECT_ROOT
    from connector_tax.base.documents.sweep import End
    from connector_tax.base.errors import ArtifactError
    from connector_tax.commands.run import snakemake_command
    from connector_tax.sweep.guards import refuse_another_release, refuse_others_results
    from connector_tax.sweep.running import run_all

    _check_what_is_named(sweep)
    folder = _folder(sweep)
    refuse_others_results(sweep, folder, PROJECT_ROOT / "results")
    refuse_another_release(sweep, PROJECT_ROOT / "results")
    profile = [] if args.profile is None else ["--workflow-profile", str(PROJECT_ROOT / args.profile)]
    commands = {}
    for cell in sweep.order:
        # A profile says itself how many cores there are.
        cores = args.cores or (None if profile else len(cell.config.engine.slots))
        commands[cell.name] = snakemake_command(folder.config(cell), cores, *args.more, *profile)
    with folder.held(sweep):
        folder.write_configs(sweep)
        if _only_shows(args.more):
            shown = run_all(commands, PROJECT_ROOT, _say, lambda name, code: None)
            return 128 + shown.interrupted if shown.interrupted is not None else int(bool(shown.failed))
        ends, damaged = folder.read_ends()
        if damaged:
            _note(damaged)

        def ended(name: str, code: int | None) -> None:
            if code is None:
                ends.pop(name, None)
            else:
                ends[name] = End(code=code, utc=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
            try:
                folder.write_ends(sweep, ends)
            except (ArtifactError, OSError) as error:
                # What is measured does not depend on it.
                _note(f"how campaign {name} ended is not noted: {error}")

        outcome = run_all(commands, PROJECT_ROOT, _say, ended)
        if outcome.at is not None:
            # Its earlier end is not that of its last start any more.
            ended(outcome.at, None)
    return _told(sweep, outcome, args.more, _again(sweep, args))


def _only_shows(more: Sequence[str]) -> bool:
    """Whether Snakemake is to say what it would do, and to do nothing."""
    return any(
        word in ("--dry-run", "--dryrun") or re.fullmatch(r"-[pqFkr]*n[npqFkr]*", word) for word in more
    )


def _say(what: str) -> None:
    """Nights of measuring do not end because the window that showed them, or ``tee``, is gone."""
    try:
        print(what, flush=True)
    except SystemExit:  # of ``door``, which has turned the stream to nowhere
        _note("nobody reads what is said; measuring goes on")


def _note(what: str) -> None:
    with suppress(SystemExit):
        print(what, file=sys.stderr, flush=True)


def _again(sweep: "Sweep", args: argparse.Namespace) -> str:
    """The command once more, as a shell takes it: without a stage it would measure all of it, without a profile on this host."""
    cores = [] if args.cores is None else ["--cores", str(args.cores)]
    profile = [] if args.profile is None else ["--profile", args.profile]
    more = ["--", *args.more] if args.more else []
    return " ".join([f"connector-tax sweep {sweep.word} run", *map(shlex.quote, [*cores, *profile, *more])])


def _told(sweep: "Sweep", outcome: "Outcome", more: Sequence[str], again: str) -> int:
    """What came of it; the exit code.

    Args:
        more: what Snakemake was asked for. A stage that was measured is no campaign that was.
        again: the command that goes on with it.
    """
    from connector_tax.base.opening import printable
    from connector_tax.sweep.running import code_text

    n = len(sweep.order)
    for name, code in outcome.failed.items():
        config = _shown(_folder(sweep).root / f"{name}.yaml")
        print(
            f"failed: {name} ({code_text(code)}); connector-tax status --configfile {shlex.quote(config)} says where it stands, logs lie in results/{name}/logs",
            file=sys.stderr,
        )
    end = f"the end of what was asked for ({printable(' '.join(more), 200)})" if more else "their end"
    went = f"{len(outcome.codes) - len(outcome.failed)} of {n} campaigns came to {end}"
    if outcome.interrupted is not None:
        where = f" in campaign {outcome.at}" if outcome.at else ""
        print(
            f"interrupted by {signal.Signals(outcome.interrupted).name}{where}; what was measured is kept. {went}. Go on with: {again}",
            file=sys.stderr,
        )
        return 128 + outcome.interrupted
    if outcome.failed:
        print(f"{went}, {len(outcome.failed)} failed. Try those again with: {again}", file=sys.stderr)
        return 1
    then = "What is left of them" if more else "Their taxes"
    print(f"{went}. {then}: connector-tax sweep {sweep.word} {'status' if more else 'table'}")
    return 0


def _check_what_is_named(sweep: "Sweep") -> None:
    """Before anything is measured, and not when its turn comes in a night or two.

    Raises:
        ConfigError: an interpreter or a model refers to a variable that is not set.
    """
    from connector_tax.base.errors import ConfigError

    for cell in sweep.order:
        for key in ("python", "model"):
            text = getattr(cell.config.engine, key) or ""
            if found := re.search(r"\$\{(\w+)\}", text):
                raise ConfigError(
                    f"{sweep.path}: campaign {cell.name}: engine.{key}: {found[0]}: that environment variable is not set. "
                    f"Export {found[1]}, then start again."
                )


def _folder(sweep: "Sweep") -> "SweepFolder":
    from connector_tax.base.config.checked import PROJECT_ROOT
    from connector_tax.sweep.folder import SweepFolder

    return SweepFolder(PROJECT_ROOT / "sweeps" / sweep.name)


def _shown(path: Path) -> str:
    """Seen from where the command was called."""
    return os.path.relpath(path)


COMMAND = Command(__doc__, _arguments, _run, epilog=EPILOG)
