"""The command line of ``connector-tax check``."""

import argparse
from pathlib import Path

from connector_tax.base.units import ratio_of
from connector_tax.check.engine_python import add_engine_python, engine_python_of
from connector_tax.check.request import (
    ASYNC,
    GIVEN,
    SYNC,
    CheckRequest,
    engine_args,
    entry_by_id,
    entry_of_json,
    model_folder,
)
from connector_tax.read.stats.taxes import LATENCIES

MODEL = "Qwen3-Coder-30B-A3B-Instruct"
CODES = (
    "Exit code 0: no tax is shown to be above --fail-above; 1: one is; 2: the connector does not serve, a tax that decides could not be "
    "measured or judged, or the request is invalid."
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


def add_arguments(found: argparse.ArgumentParser) -> None:
    """All of them."""
    add = found.add_argument
    what = found.add_mutually_exclusive_group(required=True)
    what.add_argument("--kv-transfer-config", metavar="JSON", help="as vLLM takes it")
    what.add_argument("--connector", metavar="ID", help="an entry of config/connectors.yaml")
    add_engine_python(found)
    add("--gpu", default="h200", help="a file of config/gpus/, or a path to one; default h200")
    add("--model-config", default=MODEL, help=f"a file of config/models/, or a path; default {MODEL}")
    how = "as vLLM decides, with --no-async-scheduling, or both (default)"
    add("--scheduling", choices=[ASYNC, SYNC, "both"], default="both", help=how)
    blocks = (
        "how often all launches are repeated (default 1); from 3 on intervals hold what launches differ by"
    )
    add("--blocks", type=int, choices=range(1, 21), default=1, metavar="N", help=blocks)
    add("--engine-args", metavar="JSON", help='engine arguments, such as {"max_num_seqs": 128}')
    add(
        "--env",
        action="append",
        type=_variable,
        default=[],
        metavar="NAME=VALUE",
        help="variable of the engine; may be repeated",
    )
    limit = "2%% or 0.02: exit code 1 where a tax that decides is above it"
    add("--fail-above", type=_ratio, metavar="TAX", help=limit)
    decides = "a latency whose taxes decide; may be repeated; default all four"
    add("--metric", action="append", choices=list(LATENCIES), help=decides)
    add("--explain", action="store_true", help="what vLLM's log says of each switched engine setting")
    add(
        "--confirm",
        action="store_true",
        help="two further launches with experiments that remove suspected causes",
    )
    add("--json", action="store_true", help="one JSON object instead of text")
    add("--root", type=Path, help="keep the raw artifacts in this new folder")


def request_of(args: argparse.Namespace) -> CheckRequest:
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
        modes=(ASYNC, SYNC) if args.scheduling == "both" else (args.scheduling,),
        blocks=args.blocks,
        args=own_args,
        env=dict(args.env),
    )
