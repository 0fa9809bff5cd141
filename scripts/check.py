"""What switching a KV connector on does to vLLM on a virtual GPU, in minutes: settings, hooks, taxes and one verdict (docs/check.md)."""

import sys

from connector_tax.base.door import run_door
from connector_tax.check.arguments import parser, request_of
from connector_tax.check.command import run_check
from connector_tax.read.stats.taxes import LATENCIES
from connector_tax.run.engine.lifeline import end_in_order


def main() -> None:
    args = parser(__doc__).parse_args()
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
    sys.exit(printed.exit_code)


if __name__ == "__main__":
    run_door(main, interrupted="nothing of a check is kept without --root")
