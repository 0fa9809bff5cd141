"""What switching a KV connector on does to vLLM on a virtual GPU, in minutes: settings, hooks, taxes and one verdict (docs/check.md)."""

import argparse

from connector_tax.base.command import Command
from connector_tax.check.arguments import CODES, add_arguments, request_of
from connector_tax.check.command import run_check
from connector_tax.read.stats.taxes import LATENCIES
from connector_tax.run.engine.lifeline import end_in_order


def _run(args: argparse.Namespace) -> int:
    end_in_order()
    printed = run_check(
        request_of(args),
        root=args.root,
        fail_above=args.fail_above,
        deciding=tuple(dict.fromkeys(args.metric or LATENCIES)),
        explain=args.explain,
        as_json=args.json,
        confirm=args.confirm,
    )
    print(printed.text)
    return printed.exit_code


COMMAND = Command(
    __doc__, add_arguments, _run, epilog=CODES, interrupted="nothing of a check is kept without --root"
)
