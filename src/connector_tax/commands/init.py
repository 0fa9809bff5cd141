"""Write a campaign's config for so many hours, and say how small a tax it will find. Starts no engine."""

import argparse
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from connector_tax.base.command import Command, add_options
from connector_tax.base.errors import ConfigError
from connector_tax.base.files import write_text
from connector_tax.base.records.connector import ConnectorSpec
from connector_tax.base.templates import columns, template
from connector_tax.base.units import duration_text
from connector_tax.base.vllm_model.shape import model_shape
from connector_tax.check import early
from connector_tax.check.engine_python import VARIABLE, add_engine_python
from connector_tax.init import ADDED, Wanted, card_of, costs_of, known_connectors, plans, shape_of
from connector_tax.outlook import Outlook, between, outlook
from connector_tax.run.engine.gpus import host_gpus, memory_used_mib
from connector_tax.run.rehearsal.campaign import analyse, rehearse

INSTALLED = "installed"


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_options(
        parser,
        ("--connectors=A,B", str, "ids of config/connectors.yaml"),
        ("--list", bool, "list connectors, and which the engine's Python has"),
        ("--model=M", str, "hub id or folder, as the engine is given it"),
        ("--model-config=FILE", str, "its config.json, if not in config/models/"),
        ("--hours", float, "for the campaign; default %(default)g", 2.0),
        ("--gpu=NAME", str, "of config/gpus/; default this host's"),
        ("--to=FILE", Path, "default <model>.yaml here"),
    )
    add_engine_python(parser)


def _run(args: argparse.Namespace) -> int:
    python = args.engine_python or os.environ.get(VARIABLE)
    known = {c.id: c for c in known_connectors()}
    if args.list:
        print("\n".join(_listed(list(known.values()), python)))
        return 0
    if not args.connectors or not args.model:
        raise ConfigError("give --connectors A,B and --model M; --list says which connectors there are.")
    asked = tuple(c for c in dict.fromkeys(args.connectors.split(",")) if c not in ADDED)
    for connector in asked:
        if connector not in known:
            close = [c for c in known if c == f"{connector}_both"] or get_close_matches(connector, known, 1)
            raise ConfigError(
                f"--connectors: no connector {connector!r}. {f'Did you mean {close[0]}? ' if close else ''}"
                "All of them, and which are installed: connector-tax init --list"
            )
    if python:
        _refuse_missing([known[c] for c in asked], python)
    gpus, _ = host_gpus()
    profile, card = card_of(args.gpu, gpus)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(args.model).name).strip("-._").lower() or "campaign"
    path = args.to or Path(f"{name}.yaml")
    if path.exists():
        raise ConfigError(f"{path}: is there already. Give another name: --to FILE")
    wanted = Wanted(
        campaign=path.stem,
        connectors=asked,
        model=args.model,
        shape=shape_of(args.model, args.model_config),
        gpu=profile,
        hours=args.hours,
        python=args.engine_python or f"${{{VARIABLE}}}",
        index=card.index if card else 0,
        command=shlex.join(["connector-tax", *sys.argv[1:]]),
    )
    print("Rehearsing plans, which takes some seconds.", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="connector-tax-") as folder:
        text, repeats, plan = _first_that_fits(wanted, Path(folder))
    write_text(path, f"{text}\n")
    weights = model_shape(wanted.shape, args.model).weights_bytes
    seen = f"{card}, {memory_used_mib(card)} MiB in use" if card else "not on this host"
    rows = [
        ["Engine", f"{python} has {', '.join(asked)}" if python else f"not asked: {VARIABLE} is not set"],
        ["GPU", f"{profile}: {seen}"],
        ["Model", f"{args.model}: {weights / 1e9:.1f} GB of weights"],
        ["Added", "plain (the baseline), noop_connector (what vLLM's framework costs alone)"],
        ["Fits", _fits(plan, repeats, args.hours)],
        *(["Finds", line] for line in _finds(plan, repeats)),
        ["Wrote", str(path)],
    ]
    where = "" if card else ", on a host with such a card"
    print("\n".join([*columns(rows), "", f"Next{where}: connector-tax run {shlex.quote(str(path))}"]))
    return 0


def _first_that_fits(wanted: Wanted, folder: Path) -> tuple[str, int, Outlook]:
    """Return the largest plan that also fits when rehearsed: config text, repeats and outlook."""
    for text, config in plans(wanted, costs_of(wanted, folder)):
        root, times = rehearse(config, folder)
        if outlook(root, times, config).hours <= wanted.hours:
            analyse(root)
            return text, config.repeats, outlook(root, times, config)
    raise ConfigError(f"--hours {wanted.hours:g}: rehearsed, the smallest plan takes longer. Give more.")


def _listed(connectors: list[ConnectorSpec], python: str | None) -> Iterator[str]:
    states = ["not asked"] * len(connectors) if python is None else _states(connectors, python)
    yield from columns(
        [
            ["connector", "", f"in {python or 'the engine'}"],
            *([c.id, c.label, s] for c, s in zip(connectors, states, strict=True)),
        ]
    )
    if python is None:
        yield f"Nobody was asked what is installed: export {VARIABLE}=/path/to/venv/bin/python that has vLLM."


def _states(connectors: list[ConnectorSpec], python: str) -> list[str]:
    """Return for each connector that it is installed, or what is missing and what to do.

    Raises:
        ConfigError: there is no vLLM, or no such interpreter.
    """
    words: Any = template(Path(early.__file__).with_name("words.j2")).module
    found = early.faults(python, connectors, os.environ)
    states = [INSTALLED if fault is None else str(words.fault(fault, python)) for fault in found]
    if all(fault is not None and fault.code == "no_vllm" for fault in found):
        raise ConfigError(states[0])
    return states


def _refuse_missing(connectors: list[ConnectorSpec], python: str) -> None:
    """Check that all connectors load.

    Raises:
        ConfigError: one does not load; says for each what to install.
    """
    states = dict(zip((c.id for c in connectors), _states(connectors, python), strict=True))
    if missing := [f"{c}: {words}" for c, words in states.items() if words != INSTALLED]:
        left = ",".join(c for c, words in states.items() if words == INSTALLED)
        raise ConfigError("\n".join([*missing, *([f"Or leave it: --connectors {left}"] if left else [])]))


def _fits(plan: Outlook, repeats: int, hours: float) -> str:
    launches, cells = sum(p.launches for p in plan.phases), sum(p.cells for p in plan.phases)
    return (
        f"{repeats} repeats, with phases A and B {repeats + 2} blocks of launches ({launches} launches,"
        f" {cells} cells): {duration_text(3600 * plan.hours)} of {hours:g} h"
    )


def _finds(plan: Outlook, repeats: int) -> Iterator[str]:
    for found in plan.smallest_tax:
        if found.repeats == repeats:
            yield (
                f"a TTFT p90 tax of {between(found.ttft_p90)}, a TPOT p90 tax of {between(found.tpot_p90)},"
                " four times in five (SIMULATED)"
            )


COMMAND = Command(
    __doc__, _arguments, _run, usage="--connectors A,B --model M [options]", interrupted="nothing was written"
)
