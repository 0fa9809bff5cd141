"""Say whether a KV connector loads and serves, what it switches, and the tax of the engine's thread, on a
virtual GPU.

The tax is taken in virtual time (docs/check.md). --releases: over releases of vLLM.
"""

import argparse
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from connector_tax.base.command import Command, add_options, one_or_more, ratio
from connector_tax.base.errors import ConfigError
from connector_tax.base.files import write_named
from connector_tax.base.secrets import masked
from connector_tax.check.campaign import engine_spec, virtual_load, write_campaign
from connector_tax.check.command import Ending, kept_in, run_check
from connector_tax.check.engine_python import add_engine_python, engine_python_of
from connector_tax.check.growth import read_baseline
from connector_tax.check.output import json_of, junit_of, markdown_of, text_of
from connector_tax.check.releases import Asked, interpreters, measure_record
from connector_tax.check.request import (
    GIVEN,
    METRICS,
    STEP,
    CheckRequest,
    engine_args,
    entry_by_id,
    entry_of_json,
    model_folder,
)
from connector_tax.run.engine.lifeline import end_in_order
from connector_tax.virtual_time import Load

MODEL = "Qwen3-Coder-30B-A3B-Instruct"
RECORD_STARTS, RECORD_LOAD = 5, Load(requests=800)
BRIEF = {
    *("--kv-transfer-config", "--connector", "--engine-python", "--gpu", "--model-config", "--env", "--both"),
    *("--fail-above", "--metric", "--baseline", "--max-minutes", "--json", "--markdown", "--junit", "--to"),
}
CODES = """\
exit code 0: no tax (with --baseline: no growth) is shown to be above --fail-above; 1: one is; 2: it
does not load or serve, is not judged, or is a mistake. After SIGTERM what is known is judged.
"""


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r}: wanted is NAME=VALUE")
    return name, value


def _minutes(text: str) -> float:
    if not (value := float(text)) > 0:
        raise argparse.ArgumentTypeError(f"{text}: give the minutes that the check may take")
    return value


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_options(
        parser.add_mutually_exclusive_group(required=True),
        ("--kv-transfer-config=JSON", str, "as vLLM takes it"),
        ("--connector=ID", str, "an entry of config/connectors.yaml"),
        ("--connectors=A,B", str, "entries of config/connectors.yaml, with --releases"),
    )
    add_engine_python(parser)
    add_options(
        parser,
        ("--gpu", str, "a file of config/gpus/, or a path to one; default %(default)s", "h200"),
        ("--model-config=FILE", str, "a file of config/models/, or a path", MODEL),
        ("--engine-args=JSON", str, 'engine arguments, such as {"max_num_seqs": 128}'),
        ("--env=NAME=VALUE", _variable, "variable of the engine; may be repeated", []),
    )
    add_options(
        parser.add_mutually_exclusive_group(),
        ("--both", bool, "synchronous scheduling as well"),
        ("--real-time", bool, "plain, the connector and plain again in real time"),
    )
    add_options(
        parser,
        ("--fail-above=TAX", ratio, "2%% or 0.02: exit code 1 where a tax is shown to be above it"),
        (
            "--metric",
            (*METRICS, STEP),
            "whose tax decides; default all four latencies",
            [],
        ),
        (
            "--baseline=FILE",
            Path,
            "an earlier --json; --fail-above then limits growth since",
        ),
        ("--max-minutes=N", _minutes, "end after N minutes with what is known"),
        ("--json", bool, "one JSON object instead of text"),
        ("--markdown=FILE", Path, "append a summary, as to $GITHUB_STEP_SUMMARY"),
        ("--junit=FILE", Path, "write a JUnit report"),
        ("--to=FOLDER", Path, "keep raw artifacts, or the record, in this new folder"),
        ("--releases=A,B", str, "the record over these releases of vLLM; needs --to"),
        (
            "--starts=N",
            one_or_more,
            f"of each engine of the record; default {RECORD_STARTS}",
            RECORD_STARTS,
        ),
    )


def _run(args: argparse.Namespace) -> int:
    if (args.releases is None) != (args.connectors is None):
        raise ConfigError("--releases and --connectors: the record needs both.")
    if args.baseline is not None and (args.real_time or args.releases is not None):
        raise ConfigError(
            "--baseline: one check in virtual time is compared. Leave out --real-time and --releases."
        )
    if args.releases is not None:
        return _record(args)
    ending = Ending(args.max_minutes)
    request = _request(args, args.connector)

    def show(part: str, value: Any) -> None:
        if not args.json:
            print(masked(text_of(part, value)), flush=True)

    with kept_in(args.to) as root:
        check = run_check(request, root, ending, show)
    if args.json:
        print(masked(json_of(check)))
    if args.junit is not None:
        write_named(args.junit, junit_of(check))
    if args.markdown is not None:
        args.markdown.parent.mkdir(parents=True, exist_ok=True)
        with open(args.markdown, "a", encoding="utf-8") as out:
            out.write(masked(markdown_of(check)) + "\n")
    return check.verdict.exit_code


def _record(args: argparse.Namespace) -> int:
    if args.to is None:
        raise ConfigError("--releases: the record is kept. Give its folder with --to.")
    end_in_order()
    ids, releases = list(dict.fromkeys(args.connectors.split(","))), args.releases.split(",")
    pythons = interpreters(releases, 2 * len(releases), _say)
    args.engine_python = pythons[releases[-1]]
    connectors, plain, load = {}, None, RECORD_LOAD
    with tempfile.TemporaryDirectory(prefix="connector-tax-check-") as name:
        for connector_id in ids:
            request = _request(args, connector_id)
            config = write_campaign(request, Path(name), connector_id, duration_s=1.0)
            plain, load = (
                plain or engine_spec(config.engine, config.connector("plain")),
                virtual_load(config, load),
            )
            connectors[connector_id] = (
                request.entry.label,
                engine_spec(config.engine, config.connector(connector_id)),
            )
    assert plain is not None, "split gives one name at least"
    asked = Asked(
        pythons=pythons,
        plain=plain,
        connectors=connectors,
        load=load,
        starts=args.starts,
        gpu=args.gpu,
        command=shlex.join(["connector-tax", "check", *_asked_words(sys.argv)]),
    )
    measure_record(asked, args.to, _say)
    return 0


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def _asked_words(argv: Sequence[str]) -> list[str]:
    """Return this process's arguments without the command's name."""
    return list(argv[2:] if argv[1:2] == ["check"] else argv[1:])


def _request(args: argparse.Namespace, connector_id: str | None) -> CheckRequest:
    """Build the request from arguments.

    Raises:
        ConfigError: the connector, the model or an argument is invalid, or no interpreter is given.
    """
    python = engine_python_of(args)
    baseline = None if args.baseline is None else read_baseline(args.baseline)
    entry, notes = entry_by_id(connector_id) if connector_id else entry_of_json(args.kv_transfer_config)
    own_args = engine_args(args.engine_args)
    name, folder = model_folder(args.model_config, python)
    return CheckRequest(
        connector_id=connector_id or GIVEN,
        entry=entry,
        notes=notes,
        engine_python=python,
        gpu=args.gpu,
        model_name=name,
        model=folder,
        args=own_args,
        env=dict(args.env),
        both=args.both,
        real_time=args.real_time,
        limit=args.fail_above,
        metrics=tuple(dict.fromkeys(args.metric or METRICS)),
        baseline=baseline,
    )


COMMAND = Command(
    __doc__,
    _arguments,
    _run,
    usage="(--connector ID | --kv-transfer-config JSON) [options]",
    brief=BRIEF,
    epilog=CODES,
    interrupted="nothing of a check is kept without --to",
)
