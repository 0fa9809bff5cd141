"""What switching a KV connector on costs vLLM on a virtual GPU, in minutes: a campaign of three lines and its taxes (docs/check.md)."""

import argparse
from pathlib import Path

from connector_tax.base.command import Command
from connector_tax.base.files import to_json
from connector_tax.base.units import ratio_of
from connector_tax.check.command import kept_in, run_check, say_on_stderr, text_of
from connector_tax.check.engine_python import add_engine_python, engine_python_of
from connector_tax.check.request import (
    GIVEN,
    CheckRequest,
    engine_args,
    entry_by_id,
    entry_of_json,
    model_folder,
)
from connector_tax.run.engine.lifeline import end_in_order

MODEL = "Qwen3-Coder-30B-A3B-Instruct"
CODES = (
    "Exit code 0: no tax is shown to be above --fail-above; 1: one is; 2: the connector does not serve, its tax was not measured, or the "
    "request is invalid."
)


def _ratio(text: str) -> float:
    try:
        return ratio_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r}: wanted is NAME=VALUE")
    return name, value


def _arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--kv-transfer-config", metavar="JSON", help="as vLLM takes it")
    what.add_argument("--connector", metavar="ID", help="an entry of config/connectors.yaml")
    add_engine_python(parser)
    add("--gpu", default="h200", help="a file of config/gpus/, or a path to one; default %(default)s")
    add("--model-config", default=MODEL, help="a file of config/models/, or a path; default %(default)s")
    add("--engine-args", metavar="JSON", help='engine arguments, such as {"max_num_seqs": 128}')
    variable = "variable of the engine; may be repeated"
    add("--env", action="append", type=_variable, default=[], metavar="NAME=VALUE", help=variable)
    limit = "2%% or 0.02: exit code 1 where a tax is shown to be above it"
    add("--fail-above", type=_ratio, metavar="TAX", help=limit)
    add("--json", action="store_true", help="one JSON object instead of text")
    add("--root", type=Path, help="keep the raw artifacts in this new folder")


def _run(args: argparse.Namespace) -> int:
    end_in_order()
    request = _request(args)
    with kept_in(args.root) as root:
        found = run_check(request, root, args.fail_above, say_on_stderr)
    print(to_json(found) if args.json else text_of(found))
    return found.exit_code


def _request(args: argparse.Namespace) -> CheckRequest:
    """
    Raises:
        ConfigError: the connector, the model or an argument is none, or no interpreter is given.
    """
    python = engine_python_of(args)
    entry, notes = entry_by_id(args.connector) if args.connector else entry_of_json(args.kv_transfer_config)
    own_args = engine_args(args.engine_args)
    name, folder = model_folder(args.model_config, python)
    return CheckRequest(
        connector_id=args.connector or GIVEN,
        entry=entry,
        notes=notes,
        engine_python=python,
        gpu=args.gpu,
        model_name=name,
        model=folder,
        args=own_args,
        env=dict(args.env),
    )


COMMAND = Command(
    __doc__, _arguments, _run, epilog=CODES, interrupted="nothing of a check is kept without --root"
)
