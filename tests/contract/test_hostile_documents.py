"""Hostile documents beside the cells, and an ``aggregate.json`` by itself: a problem, or one message."""

import json
import shutil
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.errors import ConnectorTaxError
from connector_tax.base.files import write_json
from connector_tax.fleet.resolved import resolved_of
from connector_tax.read.compare.comparison import LATENCIES, compare, read_side
from connector_tax.read.compare.text import comparison_text
from connector_tax.read.ingest import read_campaign
from connector_tax.read.report.page import build_report

sys.path.insert(0, str(Path(__file__).parents[1]))
from analysed import aggregate_json
from builders import DATE, Campaign, campaign_config
from hostile import COMMANDS, DOCUMENTS, IRREGULAR, KINDS, PATHS, put, watched

SECRET = "the secret of somebody who never asked for it"
TEXTS = {**COMMANDS, **PATHS}

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
        "cell": {"warmup_s": 1, "duration_s": 2, "min_completed": 6, "max_cell_s": 4},
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


def draw_nothing(root: Path) -> None:
    write_json(root / "figures" / "index.json", {"schema": 1, "figures": []})


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


# What stopped everything once, whole.
DOCUMENT_CASES |= {
    "a rate instead of rates": ("campaign.json", "config.phase_a_rates_per_s", 3),
    "rates of text": ("campaign.json", "config.phase_a_rates_per_s", ["many"]),
    "a change without values": ("engine_diff.json", "configs.noop_connector", {"scheduler_config.max_num_seqs": {}}),
    "a change to text": ("engine_diff.json", "configs.noop_connector", {"scheduler_config.max_num_seqs": {"plain": 1, "own": "many"}}),
    "a receipt of a cell elsewhere": (f"{RUN}/receipt.json", "cells", [{"cell_id": "../x", "files": {}}]),
    "a receipt of a hidden cell": (f"{RUN}/receipt.json", "cells", [{"cell_id": ".x", "files": {}}]),
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
            data = read_campaign(copied)
            resolved_of(data, "noop_connector")
            found = aggregate_json(data)
            text = json.dumps(found, allow_nan=False)
            usable = [c for c in found["cells"] if c["usable"]]
            assert len(usable) == 2 or found["problems"]
        except ConnectorTaxError as error:
            text = str(error)
            assert file.rpartition("/")[2] in text or "is a link" in text or "plain has no usable" in text
            assert len(text) < 1000
    assert SECRET not in text
    assert (watch.opened, watch.started) == ([], [])


@pytest.mark.parametrize("cell_id", ["../x", ".x", "a/b", ""])
def test_a_receipt_of_a_cell_elsewhere_costs_itself(copied: Path, cell_id: str) -> None:
    """Its own cells are then read by what their folders hold."""
    path = copied / RUN / "receipt.json"
    receipt = json.loads(path.read_text())
    receipt["cells"].append({"cell_id": cell_id, "files": {}})
    path.write_text(json.dumps(receipt))
    found = aggregate_json(read_campaign(copied))
    assert [c["usable"] for c in found["cells"]] == [True, True]
    said = {p["detail"] for p in found["problems"] if p["subject"] == f"{RUN}/receipt.json"}
    remedy = "Remove it and start again; cells are kept."
    assert said == {f"cells[1].cell_id is no bare name: {cell_id!r}. {remedy}"}


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
                assert (
                    page.count("<script") - page.count('<script type="application/json">') == 1
                    and "<img src=x" not in page
                )
                side = read_side("B", root)
                compare_both(side, side)
            except ConnectorTaxError as error:
                assert len(str(error)) < 1000
    assert (watch.opened, watch.started) == ([], [])


def compare_both(a: Any, b: Any) -> None:
    found = compare(a, b, fail_above=0.05, deciding=LATENCIES, allow_missing=False)
    assert "\x1b" not in comparison_text(found)
