"""Plan, measure, resume and read campaigns that differ along axes (releases, models, connectors, GPUs)."""

import argparse
import os
import shlex
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from connector_tax.base.command import Command, add_options, one_or_more

if TYPE_CHECKING:
    from connector_tax.sweep import Sweep

EPILOG = """
examples:
  connector-tax sweep config/sweep.yaml plan                       how long each campaign takes
  connector-tax sweep config/sweep.yaml run                        measure them; again: go on
  connector-tax sweep config/sweep.yaml run -- phase_a             all behind -- is Snakemake's
  connector-tax sweep config/sweep.yaml run --help                 the options of run
  connector-tax sweep config/sweep.yaml table --across model --page sweep.html

options of table: --across AXIS (the columns; default: the first axis), --reference
{ref_safe,ref_load}, --page FILE (HTML as well); of plan, status and table: --results DIR

exit code of run: 0 all came to their end; 1 one failed, the others were measured; 128 and the
signal's number: interrupted
"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="SWEEP.yaml", help="the sweep")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    def action(name: str, about: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.")

    for own in (
        action("plan", "say what would be measured, and for how long"),
        action("status", "say where each campaign stands"),
        table := action("table", "print the taxes of all campaigns in Markdown"),
    ):
        add_options(own, ("--results=DIR", Path, "where results are read; default results/ of the checkout"))
    action("write", "write each campaign's config, and measure nothing")
    run = action("run", "measure one campaign after another, or go on")
    add_options(
        run,
        (
            "--cores",
            one_or_more,
            "Snakemake's; default: as many as the campaign has engines side by side",
        ),
        ("--profile=DIR", str, "Snakemake's --workflow-profile, seen from the checkout: profiles/slurm"),
    )
    run.add_argument(
        "more", nargs="*", metavar="SNAKEMAKE", help="stages, and further arguments of Snakemake"
    )
    add_options(
        table,
        ("--across=AXIS", str, "the columns; default: the first axis"),
        ("--reference", ("ref_safe", "ref_load"), "default %(default)s", "ref_safe"),
        ("--page=FILE", Path, "write an HTML page as well"),
    )


# Imports on call, so that help is fast.
def _run(args: argparse.Namespace) -> int:
    from connector_tax.base.config import checked
    from connector_tax.base.errors import ConfigError
    from connector_tax.base.imports import IN_CHECKOUT
    from connector_tax.base.locks import started_once
    from connector_tax.sweep import load_sweep, write_configs

    if not IN_CHECKOUT:
        raise ConfigError("A sweep is of a checkout, whose sweeps/ it writes. Clone the project.")
    sweep = load_sweep(args.file)
    results = getattr(args, "results", None) or checked.PROJECT_ROOT / "results"
    if args.action == "table":
        _table(sweep, results, args)
    elif args.action in ("plan", "status"):
        print(overview(sweep, results))
    elif args.action == "run":
        return _measure(sweep, args)
    else:
        # A running sweep starts campaigns from these files.
        with started_once(sweep.folder / ".lock", sweep.name, "sweep"):
            print("\n".join(f"wrote {os.path.relpath(path)}" for path in write_configs(sweep)))
    return 0


def overview(sweep: "Sweep", results: Path) -> str:
    """Return a line for each campaign in measuring order, and the sum."""
    from connector_tax.base.files import printable
    from connector_tax.base.plan import SIDE_BY_SIDE
    from connector_tax.base.templates import columns
    from connector_tax.base.units import duration_text
    from connector_tax.sweep import state_of

    states = {cell.name: state_of(cell.config, results) for cell in sweep.order}
    rows = [["campaign", *sweep.axes, "configurations", "runs", "time left", "state"]]
    for cell in sweep.order:
        state = states[cell.name]
        left = duration_text(state.left_s) if state.left_s else "-"
        n = str(len(cell.config.connector_ids))
        rows.append([cell.name, *cell.entries.values(), n, f"{state.ended}/{state.runs}", left, state.text])
    finished = sum(state.code == "finished" for state in states.values())
    left = duration_text(sum(state.left_s for state in states.values()))
    beside = any(len(cell.config.engine.slots) > 1 for cell in sweep.order)
    lines = [
        (
            f"sweep {sweep.name}: {len(sweep.cells)} campaigns of {sweep.base}, {sweep.excluded} excluded,"
            " measured in this order"
        ),
        "",
        *columns(rows),
        "",
        (
            f"{finished} of {len(states)} campaigns finished, about {left} left, as far as rates and a"
            " launch's time are guessed"
        ),
        *[f"go on with: connector-tax sweep {sweep.word} run"] * (finished < len(states)),
        *[SIDE_BY_SIDE] * beside,
    ]
    return "\n".join(map(printable, lines))


def _table(sweep: "Sweep", results: Path, args: argparse.Namespace) -> None:
    from connector_tax.base.files import write_named
    from connector_tax.base.templates import template
    from connector_tax.read.track import STYLE
    from connector_tax.sweep import table_of

    table = table_of(sweep, results, args.across, args.reference)
    for row in (table[0], ["---"] * len(table[0]), *table[1:]):
        print(f"| {' | '.join(text.replace('|', chr(92) + '|') for text in row)} |")
    if args.page is not None:
        page = template(Path(__file__).parents[1] / "sweep.html.j2")
        css = STYLE.read_text(encoding="utf-8")
        write_named(args.page, page.render(sweep=sweep, table=table, reference=args.reference, css=css))
        print(f"wrote {args.page}", file=sys.stderr)


def _measure(sweep: "Sweep", args: argparse.Namespace) -> int:
    from connector_tax.base.config import checked
    from connector_tax.base.locks import started_once
    from connector_tax.commands.run import snakemake_command
    from connector_tax.sweep import refuse_unset, run_all, write_configs

    refuse_unset(sweep)
    profile = [] if args.profile is None else ["--workflow-profile", str(checked.PROJECT_ROOT / args.profile)]
    commands = {}
    for cell in sweep.order:
        # A profile sets the number of cores itself.
        cores = args.cores or (None if profile else len(cell.config.engine.slots))
        commands[cell.name] = snakemake_command(sweep.config_file(cell), cores, *args.more, *profile)
    with started_once(sweep.folder / ".lock", sweep.name, "sweep"):
        write_configs(sweep)
        outcome = run_all(commands, checked.PROJECT_ROOT, _say)
    for name in outcome.failed:
        config = shlex.quote(os.path.relpath(sweep.folder / f"{name}.yaml"))
        _note(
            f"failed: {name}; connector-tax status {config} says where it stands, logs lie in"
            f" results/{name}/logs"
        )
    went = f"{len(outcome.codes) - len(outcome.failed)} of {len(commands)} campaigns came to their end"
    if outcome.interrupted is not None:
        went = (
            f"interrupted by {signal.Signals(outcome.interrupted).name} in {outcome.at or 'no campaign'};"
            f" {went}"
        )
    elif not outcome.failed:
        _say(f"{went}. Their taxes: connector-tax sweep {sweep.word} table")
        return 0
    _note(f"{went}. Go on with: {shlex.join(['connector-tax', *sys.argv[1:]])}")
    return 1 if outcome.interrupted is None else 128 + outcome.interrupted


def _say(what: str, file: TextIO | None = None) -> None:
    """Print; measuring must not end because the terminal or ``tee`` is gone."""
    with suppress(SystemExit):  # from ``door``, which has redirected the stream to nowhere
        print(what, file=file, flush=True)


def _note(what: str) -> None:
    _say(what, sys.stderr)


COMMAND = Command(__doc__, _arguments, _run, usage="SWEEP.yaml ACTION [options]", epilog=EPILOG)
