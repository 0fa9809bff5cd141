"""Some 400 hostile values in every place that somebody else can fill in.

Nothing is executed, nothing outside ``results/`` is read or written, and a bad value costs what it stands in. Cells are damaged
together, each in its own way, and read in one pass: so each of them also shows that it does not harm the others.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from connector_tax.artifacts.layout import CampaignFolder, CellFolder
from connector_tax.artifacts.receipts import write_receipt
from connector_tax.config import CampaignConfig, parse_campaign
from connector_tax.config.checked import PROJECT_ROOT
from connector_tax.config.load import load_campaign
from connector_tax.engine.command import engine_arguments, engine_environment
from connector_tax.engine.gpus import Cards
from connector_tax.errors import ConfigError, ConnectorTaxError
from connector_tax.files import parse_json, to_json, write_json
from connector_tax.forms import misfit
from connector_tax.ingest import read_campaign
from connector_tax.opening import is_bare
from connector_tax.plan import campaign_document, cells_of, config_of
from connector_tax.plan.campaign import NAMES
from connector_tax.report.compare import LATENCIES, compare, read_side
from connector_tax.report.compare_text import comparison_text
from connector_tax.report.page import build_report
from connector_tax.report.status import status_text
from connector_tax.stats.aggregate import aggregate

sys.path.insert(0, str(Path(__file__).parents[1]))
from builders import DATE, ENGINE, Behaviour, Campaign, campaign_config, reseal
from hostile import CANARY, COMMANDS, DOCUMENTS, IRREGULAR, KINDS, PATHS, Watch, put, watched
from read_through import Result, read

SECRET = "the secret of somebody who never asked for it"
TEXTS = {**COMMANDS, **PATHS}

# --- Cells: one campaign, a damage per cell, one pass.

Damage = Callable[[CellFolder, Path], None]


def _document(change: Callable[[dict[str, Any]], Any]) -> Damage:
    def damage(cell: CellFolder, outside: Path) -> None:
        value = json.loads(cell.cell_json.read_text())
        change(value)
        cell.cell_json.write_text(json.dumps(value))

    return damage


def _key(place: str, value: Any) -> Damage:
    """``value`` at ``a.b`` of cell.json."""

    def change(document: dict[str, Any]) -> None:
        *way, last = place.split(".")
        for name in way:
            document = document[name]
        document[last] = deepcopy(value)

    return _document(change)


def _bytes(content: bytes) -> Damage:
    return lambda cell, outside: cell.cell_json.write_bytes(content) and None


def _line(stream: str, key: str, value: Any) -> Damage:
    """``value`` under ``key`` of a line in the middle of a stream, with checksums that agree."""

    def damage(cell: CellFolder, outside: Path) -> None:
        path: Path = getattr(cell, stream)
        lines = path.read_text().split("\n")
        k = next(k for k, line in enumerate(lines) if k > 1 and '"kind":"worker_step"' not in line)
        lines[k] = json.dumps({**json.loads(lines[k]), key: value})
        path.write_text("\n".join(lines))
        reseal(cell)

    return damage


def _raw_line(stream: str, text: str) -> Damage:
    def damage(cell: CellFolder, outside: Path) -> None:
        path: Path = getattr(cell, stream)
        first, rest = path.read_text().split("\n", 1)
        path.write_bytes(
            f"{first}\n".encode() + text.encode("utf-8", "surrogatepass") + b"\n" + rest.encode()
        )
        reseal(cell)

    return damage


def _irregular(stream: str, kind: str) -> Damage:
    return lambda cell, outside: put(getattr(cell, stream), kind, outside)


def _listed(name: str) -> Damage:
    return _document(lambda d: d["files"].update({name: {"bytes": 1, "sha256": "0"}}))


CELL_KEYS = (
    *(
        "window",
        "window.t0_ns",
        "window.window_start_ns",
        "clock.utc_ns",
        "spec",
        "spec.rate_per_s",
        "spec.seed",
    ),
    *(
        "verdict",
        "reasons",
        "flags",
        "files",
        "engine.versions",
        "engine.gpu",
        "code",
        "cpu",
        "health",
        "launch",
        "attempt",
    ),
    *("prefix_cache_hits_delta", "cache", "connector"),
)
TEXT_KEYS = ("verdict", "campaign", "cell_id")
# Whether the cell must be lost; others may also be read for what they are.
CELLS: dict[str, tuple[Damage, bool]] = {
    **{f"cell.json: {name}": (_bytes(content), True) for name, content in DOCUMENTS.items()},
    **{
        f"{stream}: {kind}": (_irregular(stream, kind), True)
        for stream in ("cell_json", "requests", "metrics", "engine_step")
        for kind in IRREGULAR
    },
    **{f"listed: {name}": (_listed(value), True) for name, value in PATHS.items() if name != "half a pair"},
    **{
        f"{place}: {name}": (_key(place, value), False)
        for k, place in enumerate(CELL_KEYS)
        # Every other kind at every other place: each pair of neighbours sees all of them.
        for i, (name, value) in enumerate(KINDS.items())
        if (i + k) % 2
    },
    **{f"{place}: {name}": (_key(place, value), True) for place in TEXT_KEYS for name, value in COMMANDS.items() if len(name) % 2},
    **{f"reasons: {name}": (_key("reasons", [value]), False) for name, value in COMMANDS.items()},
    **{
        f"requests {key}: {name}": (_line("requests", key, value), False)
        for k, key in enumerate(("t_sched_ns", "prompt_tokens", "status", "session"))
        for i, (name, value) in enumerate(KINDS.items())
        if (i + k) % 2
    },
    **{
        f"metrics {key}: {name}": (_line("metrics", key, value), False)
        for k, key in enumerate(("t_ns", "values", "host"))
        for i, (name, value) in enumerate(KINDS.items())
        if (i + k) % 2
    },
    **{
        f"steps {key}: {name}": (_line("engine_step", key, value), False)
        for k, key in enumerate(("t_ns", "step_duration_us", "decode_tokens", "hooks"))
        for i, (name, value) in enumerate(KINDS.items())
        if (i + k) % 2
    },
    **{f"{s}: a deep line": (_raw_line(s, "[" * 200_000), s != "metrics") for s in ("requests", "metrics", "engine_step")},
    **{f"{s}: half a pair": (_raw_line(s, '{"a": "\ud800"}'), s != "metrics") for s in ("requests", "metrics", "engine_step")},
    "reasons: half a pair": (_key("reasons", ["\ud800"]), True),
    "steps: a line without an end": (_raw_line("engine_step", '{"a": "' + "x" * 9_000_000), True),
    "metrics: infinite in a sum": (_line("metrics", "values", {"num_requests_waiting": 1.7e308}), True),
}  # fmt: skip
UNDAMAGED = 2


@dataclass
class Damaged:
    """One campaign whose cells were damaged, and what was made of it."""

    campaign: Campaign
    place: dict[str, str]
    sound: Result
    found: Result
    watch: Watch


def _rate(k: int) -> float:
    return round(2 + k / 128, 7)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Damaged:
    around = tmp_path_factory.mktemp("around")
    (around / "secret").write_text(SECRET)
    sections: dict[str, Any] = {
        "campaign": "demo",
        "connectors": ["plain", "noop_connector"],
        "phase_a": {"rates_per_s": [_rate(k) for k in range(len(CELLS) + UNDAMAGED)], "input_tokens": 256, "output_tokens": 16},
        "phase_b": {"input_tokens": [256], "output_tokens": [16]},
        "phase_b_prime": {"configs": [], "shapes": []},
        "cell": {"warmup_s": 1, "duration_s": 2, "min_completed": 3, "max_cell_s": 4},
        "analysis": {"bootstrap_draws": 200},
    }  # fmt: skip
    plain = Behaviour(noise=0.05)
    behaviours = {"plain": plain, "noop_connector": plain.taxed(0.1)}
    campaign = Campaign(around / "results" / "demo", campaign_config(**sections), behaviours, max_steps=5)
    for connector in behaviours:
        specs = cells_of(campaign.config, connector, "a")
        for spec in specs if connector == "noop_connector" else specs[:UNDAMAGED]:
            campaign.cell(connector, spec)
        campaign.receipt(connector, "a")
    folders = campaign.run("noop_connector", "a")
    cells = [folders.cell(spec.cell_id) for spec in cells_of(campaign.config, "noop_connector", "a")]
    with pytest.MonkeyPatch.context() as patch:
        # What cannot be otherwise in a campaign without damage is asked of the two first cells alone.
        few = around / "few" / "demo"
        shutil.copytree(
            campaign.root, few, ignore=shutil.ignore_patterns(*(c.cell_id for c in cells[UNDAMAGED:]))
        )
        ids = [c.cell_id for c in cells[:UNDAMAGED]]
        receipt_of(CampaignFolder(few), "noop_connector", ids)
        draw_nothing(few)
        sound = read(few, patch, draw=False)
        for (damage, _), cell in zip(CELLS.values(), cells[UNDAMAGED:], strict=True):
            damage(cell, around / "secret")
        folders.receipt.unlink()
        draw_nothing(campaign.root)
        with watched(around, around / "results") as watch:
            found = read(campaign.root, patch, draw=False)
    place = {name: cell.cell_id for name, cell in zip(CELLS, cells[UNDAMAGED:], strict=True)}
    return Damaged(campaign, place, sound, found, watch)


def receipt_of(folder: CampaignFolder, connector: str, ids: list[str]) -> None:
    write_receipt(
        folder.run(DATE, connector, "a"), campaign="demo", status="measured", cell_ids=ids, step_timing_available=True, engine=ENGINE
    )  # fmt: skip


def draw_nothing(root: Path) -> None:
    write_json(root / "figures" / "index.json", {"schema": 1, "figures": []})


@pytest.mark.parametrize("name", CELLS)
def test_a_hostile_cell_costs_itself_at_most(damaged: Damaged, name: str) -> None:
    """It is named with a reason of one printable line, or was read for what it is."""
    cell_id = damaged.place[name]
    where = f"{DATE}_noop_connector/phase_a/cells/{cell_id}"
    usable = damaged.found.cells().get(("noop_connector", "a", cell_id), {"usable": False})["usable"]
    said = [what for w, what in damaged.found.problems if w.startswith(where)]
    verdict = json_or_none(damaged.campaign.root / where / "cell.json", "verdict")
    assert usable or said or verdict != "valid", damaged.found.problems
    assert not usable or not CELLS[name][1]
    assert all(what.isprintable() and len(what) < 2100 for what in said)


def json_or_none(path: Path, key: str) -> Any:
    """Of a regular file that is JSON."""
    try:
        return json.loads(path.read_text())[key] if path.is_file() else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def test_hostile_cells_touch_no_other(damaged: Damaged) -> None:
    """Plain's, and those of the same configuration that nobody touched."""
    own = [f"r{_rate(k):g}_256x16" for k in range(UNDAMAGED)]
    cells, before = damaged.found.cells(), damaged.sound.cells()
    for key in [(c, "a", cell_id) for c in ("plain", "noop_connector") for cell_id in own]:
        assert cells[key]["usable"]
        # Cells of one rate and shape tell together how long their blocks are, and no other has theirs.
        assert cells[key] == before[key]
    assert {t for t in damaged.sound.taxes() if t[0] == "noop_connector"}


def test_hostile_cells_open_nothing_beside_the_results_and_start_nothing(damaged: Damaged) -> None:
    assert damaged.watch.opened == []
    assert damaged.watch.started == []
    written = damaged.campaign.root / "report.html", damaged.campaign.root / "aggregate.json"
    for text in (path.read_text() for path in written):
        assert SECRET not in text
    assert "<script" not in written[0].read_text()
    assert "\x1b" not in damaged.found.manifest


# --- Documents beside the cells: one at a time.


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """With everything that a campaign can hold, in two cells."""
    sections: dict[str, Any] = {
        "campaign": "demo",
        "connectors": ["plain", "noop_connector"],
        "phase_a": {"rates_per_s": [2], "input_tokens": 256, "output_tokens": 16},
        "phase_b": {"input_tokens": [256], "output_tokens": [16]},
        "phase_b_prime": {"configs": [], "shapes": []},
        "cell": {"warmup_s": 1, "duration_s": 2, "min_completed": 3, "max_cell_s": 4},
        "analysis": {"bootstrap_draws": 200},
    }  # fmt: skip
    root = tmp_path_factory.mktemp("small") / "results" / "demo"
    campaign = Campaign(root, campaign_config(**sections), {}, max_steps=5)
    for connector in ("plain", "noop_connector"):
        campaign.measure(connector, "a")
        run = campaign.run(connector, "a")
        outputs = {
            "schema": 1,
            "campaign": "demo",
            "connector": connector,
            "spec_hash": "h",
            "outputs": [{"token_ids": [1, 2]}],
        }
        write_json(run.outputs, outputs)
        write_json(
            run.launches, {"schema": 1, "launches": [{"attempt": 1, "started_utc": "x", "elapsed_s": 1.0}]}
        )
    campaign.receipt("noop_connector")
    write_json(
        root / "engine_diff.json",
        {"schema": 1, "campaign": "demo", "plain": {"cache_config.block_size": 16}, "configs": {"plain": {}, "noop_connector": {"a.b": {"plain": 1, "own": 2}}}},
    )  # fmt: skip
    write_json(
        root / "reference_rates.json",
        {"schema": 1, "ref_safe_per_s": 2.0, "ref_load_per_s": 2.0, "b_prime_needed": False, "shapes": {"256x16": {"rate_per_s": 2.0}}, "flags": []},
    )  # fmt: skip
    return campaign


RUN = f"{DATE}_noop_connector/phase_a"
FILES = {
    "campaign.json": (
        "date",
        "campaign",
        "config",
        "config.analysis",
        "config.connectors",
        "order",
        "config.engine",
        "config.seed",
    ),
    "reference_rates.json": ("ref_safe_per_s", "shapes", "flags"),
    "preflight/preflight_status.json": ("configs", "configs.noop_connector.reason", "step_timing_reason"),
    "engine_diff.json": ("configs", "plain", "configs.noop_connector"),
    f"{RUN}/receipt.json": ("cells", "reason", "launches", "engine", "phase"),
    f"{RUN}/accuracy.json": ("outputs", "connector"),
}
DOCUMENT_CASES = {
    **{f"{file}: {name}": (file, None, content) for file in FILES for k, (name, content) in enumerate(DOCUMENTS.items()) if (k + len(file)) % 3 == 0},
    **{f"{file}: {kind}": (file, "irregular", kind) for file in FILES for kind in IRREGULAR if kind != "link to nothing"},
    **{
        f"{file} {place}: {name}": (file, place, value)
        for file, places in FILES.items()
        for k, place in enumerate(places)
        for i, (name, value) in enumerate(KINDS.items())
        if (i + k) % 4 == 0
    },
}  # fmt: skip


@pytest.fixture
def copied(small: Campaign, tmp_path: Path) -> Path:
    root = tmp_path / "results" / "demo"
    shutil.copytree(small.root, root)
    (tmp_path / "secret").write_text(SECRET)
    return root


def set_at(document: Any, place: str, value: Any) -> Any:
    *way, last = place.split(".")
    inner = document
    for name in way:
        inner = inner[name]
    inner[last] = value
    return document


@pytest.mark.parametrize("name", DOCUMENT_CASES)
def test_a_hostile_document_is_a_problem_or_a_message(copied: Path, tmp_path: Path, name: str) -> None:
    """Either the rest is analysed, or one sentence says which file stops it."""
    file, place, value = DOCUMENT_CASES[name]
    path = copied / file
    if place == "irregular":
        put(path, str(value), tmp_path / "secret")
    elif place is None:
        path.write_bytes(value)  # type: ignore[arg-type]
    else:
        path.write_text(json.dumps(set_at(json.loads(path.read_text()), place, value)))
    with watched(tmp_path, tmp_path / "results") as watch:
        try:
            found = aggregate(read_campaign(copied))
            text = json.dumps(found, allow_nan=False)
            usable = [c for c in found["cells"] if c["usable"]]
            assert len(usable) == 2 or found["problems"]
        except ConnectorTaxError as error:
            text = str(error)
            assert file.rpartition("/")[2] in text or "is a link" in text or "plain has no usable" in text
            assert len(text) < 1000
    assert SECRET not in text
    assert (watch.opened, watch.started) == ([], [])


# --- aggregate.json: somebody sends nothing but that.

AGGREGATE = PROJECT_ROOT / "tests" / "data" / "aggregate_example.json"
AGGREGATE_PLACES = (
    *(
        "configs",
        "cells",
        "taxes",
        "main_taxes",
        "hypotheses",
        "problems",
        "provenance",
        "reference_rates",
        "campaign",
    ),
    *(
        "cells.0.reasons",
        "cells.0.ttft_ms",
        "taxes.0.rate_per_s",
        "main_taxes.0.point",
        "growth",
        "repeats",
        "outputs",
    ),
    *("configs.plain.label", "attribution", "observer_effect", "saturation"),
)


@pytest.mark.parametrize("place", AGGREGATE_PLACES)
def test_a_hostile_aggregate_is_a_page_or_a_message(tmp_path: Path, place: str) -> None:
    """The page and the comparison; in the page every text is text."""
    root = tmp_path / "results" / "demo"
    draw_nothing(root)
    whole = {k: v[:4] if isinstance(v, list) else v for k, v in json.loads(AGGREGATE.read_text()).items()}
    with watched(tmp_path, root) as watch:
        turn = AGGREGATE_PLACES.index(place)
        for value in (*list(KINDS.values())[turn % 3 :: 3], COMMANDS["markup"], COMMANDS["terminal"]):
            way = [int(k) if k.isdigit() else k for k in place.split(".")]
            inner = document = deepcopy(whole)
            for name in way[:-1]:
                inner = inner[name]
            inner[way[-1]] = value
            (root / "aggregate.json").write_text(json.dumps(document))
            try:
                build_report(root)
                page = (root / "report.html").read_text()
                assert "<script" not in page and "<img src=x" not in page
                side = read_side("B", root)
                compare_both(side, side)
            except ConnectorTaxError as error:
                assert len(str(error)) < 1000
    assert (watch.opened, watch.started) == ([], [])


def compare_both(a: Any, b: Any) -> None:
    from connector_tax.figures.foreign import reading

    with reading(b.aggregate, b.path):
        found = compare(a, b, fail_above=0.05, deciding=tuple(LATENCIES), allow_missing=False)
        assert "\x1b" not in comparison_text(found)


# --- The config: refused, or taken as the text that it is.


def demo() -> dict[str, Any]:
    value: dict[str, Any] = yaml.safe_load((PROJECT_ROOT / "config" / "demo.yaml").read_text())
    return value


def stored(config: CampaignConfig) -> Any:
    """What is read back of ``campaign.json``."""
    document = campaign_document(config, date=DATE, created_utc=f"{DATE}T00:00:00Z")
    assert misfit(document, NAMES) is None
    return parse_json(to_json(document).encode())


CONFIG_PLACES: dict[str, Callable[[dict[str, Any], Any], Any]] = {
    "campaign": lambda c, v: c.update(campaign=v),
    "a connector": lambda c, v: c["connectors"].append(v),
    "connectors_file": lambda c, v: c.update(connectors_file=v),
    "model": lambda c, v: c["engine"].update(model=v),
    "served_model_name": lambda c, v: c["engine"].update(served_model_name=v),
    "model_file": lambda c, v: c["engine"].update(model_file=v),
    "an argument": lambda c, v: c["engine"]["args"].update(revision=v),
    "an argument's name": lambda c, v: c["engine"]["args"].update({v: 1}),
    "extra_args": lambda c, v: c["engine"].update(extra_args=[v]),
    "a variable": lambda c, v: c["engine"].update(env={"VLLM_X": v}),
    "a variable's name": lambda c, v: c["engine"].update(env={v: "1"}),
    "a session file": lambda c, v: c.update(phase_c={"sessions": [v]}),
    "arrival": lambda c, v: c["cell"].update(arrival=v),
    "a key": lambda c, v: c.update({v: 1}),
}
# Of all texts so many are taken there; elsewhere what a file can hold is.
REFUSED = {
    **dict.fromkeys(("campaign", "a connector", "connectors_file", "a session file", "arrival", "a key"), 0),
    **dict.fromkeys(("an argument's name", "a variable's name"), 1),
}
NAMES_FILES = ("connectors_file", "a session file")


@pytest.mark.parametrize("place", CONFIG_PLACES)
def test_a_hostile_config_is_refused_or_kept_as_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """What is accepted comes back from ``campaign.json`` as it was, and names nothing outside ``results/``."""
    monkeypatch.chdir(tmp_path)
    accepted = 0
    with watched(tmp_path, tmp_path / "results") as watch:
        for name, text in TEXTS.items():
            if place in NAMES_FILES and name in (
                "device",
                "absolute",
                "up",
                "dot",
                "dots",
                "inside out",
                "empty",
            ):
                continue  # a path that the owner of the config gives is the owner's
            config = demo()
            CONFIG_PLACES[place](config, text)
            try:
                found = parse_campaign(config, where="hostile.yaml")
            except ConfigError as error:
                assert (
                    (len(str(error)) < 3000 and "hostile.yaml" in str(error))
                    or "connectors" in str(error)
                    or place in NAMES_FILES
                )
                continue
            accepted += 1
            folder = CampaignFolder(tmp_path / "results" / found.campaign)
            assert config_of(stored(found)) == found
            assert folder.root.parent == tmp_path / "results"
            assert is_bare(found.campaign) and all(map(is_bare, found.connector_ids))
            assert "not started" in status_text(found, tmp_path / "results", Path("hostile.yaml"))
    assert (watch.opened, watch.started) == ([], [])
    assert not (tmp_path / CANARY).exists() and not (PROJECT_ROOT / CANARY).exists()
    # A variable's name may have any length, and so may an argument's.
    assert accepted == REFUSED.get(place, accepted)


CONNECTOR_PLACES: dict[str, Callable[[dict[str, Any], Any], Any]] = {
    "its id": lambda c, v: c.update({v: c.pop("noop_connector")}),
    "label": lambda c, v: c["noop_connector"].update(label=v),
    "note": lambda c, v: c["noop_connector"].update(note=v),
    "a variable": lambda c, v: c["noop_connector"].update(env={"LMCACHE_X": v}),
    "a variable's name": lambda c, v: c["noop_connector"].update(env={v: "1"}),
    "extra_args": lambda c, v: c["noop_connector"].update(extra_args=[v]),
    "kv_connector": lambda c, v: c["noop_connector"]["kv_transfer_config"].update(kv_connector=v),
    "a key of its extra config": lambda c, v: c["noop_connector"]["kv_transfer_config"].update(kv_connector_extra_config={v: v}),
    "a module": lambda c, v: c["noop_connector"].update(modules=[{"module": v, "install": v}]),
    "a side port": lambda c, v: c["noop_connector"].update(side_ports=[{"env": v, "port": 1, "used_by": v}]),
    "verify": lambda c, v: c["noop_connector"].update(verify=v),
    "ttft_is_no_tax": lambda c, v: c["noop_connector"].update(ttft_is_no_tax=v),
}  # fmt: skip


@pytest.mark.parametrize("place", CONNECTOR_PLACES)
def test_a_hostile_connector_is_refused_or_kept_as_text(tmp_path: Path, place: str) -> None:
    entries = yaml.safe_load((PROJECT_ROOT / "config" / "connectors.yaml").read_text())
    with watched(tmp_path, tmp_path / "results", tmp_path / "config") as watch:
        for text in TEXTS.values():
            changed = deepcopy(entries)
            CONNECTOR_PLACES[place](changed, text)
            file = tmp_path / "config" / "connectors.yaml"
            file.parent.mkdir(exist_ok=True)
            file.write_text(yaml.safe_dump(changed))
            connectors = ["plain", text if place == "its id" else "noop_connector"]
            config = {**demo(), "connectors_file": str(file), "connectors": connectors, "phase_b_prime": {}}
            try:
                found = parse_campaign(config, where="hostile.yaml")
            except ConfigError:
                continue
            assert config_of(stored(found)) == found
            assert all(map(is_bare, found.connector_ids))
    assert (watch.opened, watch.started) == ([], [])


@pytest.mark.parametrize("name", [n for n in TEXTS if n not in ("null byte", "half a pair", "empty")])
def test_a_launch_hands_a_hostile_text_on_and_runs_none_of_it(tmp_path: Path, name: str) -> None:
    """As model, name, argument, variable, connector and path of the interpreter; by the launch script and by the record of it."""
    text = TEXTS[name]
    engine = tmp_path / "in ter$(touch canary)preter" / "python"
    engine.parent.mkdir()
    engine.write_text(
        '#!/bin/sh\nprintf "%s\\0" "$@" > "$RECORD"\nprintf "%s\\0" "$VLLM_X" "$LMCACHE_X" >> "$RECORD"\n'
    )
    engine.chmod(0o755)
    campaign = load_campaign(PROJECT_ROOT / "config" / "demo.yaml")
    config = replace(
        *(campaign.engine,), kind="vllm", python=str(engine), model=text, served_model_name=text,
        args={"revision": text}, extra_args=(text,), env={"VLLM_X": text},
    )  # fmt: skip
    connector = replace(
        campaign.connector("noop_connector"), env={"LMCACHE_X": text}, extra_args=(text,),
        kv_transfer_config={"kv_connector": text, "kv_connector_extra_config": {text: text}},
    )  # fmt: skip
    arguments = engine_arguments(config, connector)
    environment = engine_environment(config, connector, Cards((), 0)) | {
        "PORT": "1", "RECORD": str(tmp_path / "record"), "LAUNCH_SH_OUT": str(tmp_path / "launch.sh"),
    }  # fmt: skip
    expected = [
        *("-m", "vllm_serve", "serve", text, "--served-model-name", text, "--host", "127.0.0.1", "--port", "1"),
        *("--revision", text, text, text, "--kv-transfer-config", json.dumps(connector.kv_transfer_config)),
        *(text, text),
    ]  # fmt: skip
    script = PROJECT_ROOT / "launch" / "launch_any.sh"
    subprocess.run(["bash", script, *arguments], cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / "record").read_bytes().decode("utf-8", "surrogateescape").split("\0")[:-1] == expected
    (tmp_path / "record").unlink()
    by_hand = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "RECORD": str(tmp_path / "record"),
        "CONNECTOR_TAX_PROJECT": str(PROJECT_ROOT),
    }
    again = subprocess.run(["bash", "launch.sh"], cwd=tmp_path, env=by_hand, capture_output=True, text=True)
    if again.returncode == 0:
        assert (tmp_path / "record").read_bytes().decode().split("\0")[4:-1] == expected[4:]
    else:
        assert "MODEL: " in again.stderr and "no such folder here" in again.stderr
    assert not list(tmp_path.rglob(CANARY))
