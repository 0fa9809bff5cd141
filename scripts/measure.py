"""Measure one configuration in one phase: launch, cells, receipt. Resumes where it was interrupted."""

import argparse

from connector_tax.base.errors import ConfigError
from connector_tax.base.records.cell import is_phase
from connector_tax.run.measure.run import measure_run, require_baseline
from connector_tax.run.measure.time_left import TimeLimit, run_job


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--connector", required=True)
    parser.add_argument("--phase", required=True, help="a, b, b_prime, c, or a block of repeats: r1, r2, ...")


def _measure(args: argparse.Namespace, limit: TimeLimit | None) -> None:
    if not is_phase(args.phase):
        raise ConfigError(f"--phase {args.phase}: there is no such phase")
    measure_run(args.campaign_file, args.connector, args.phase, limit=limit)
    require_baseline(args.campaign_file, args.connector, args.phase)


if __name__ == "__main__":
    run_job(__doc__, _arguments, _measure)
