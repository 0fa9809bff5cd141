"""``workflow/schemas/aggregate.schema.json``: true of every aggregate, and false of one with a key renamed."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from analysed import aggregate_json
from builders import DATE, ROOT, SMALL, Campaign, campaign_config, fail
from cache_levels import measure_levels
from invented_server import Behaviour
from jsonschema import Draft202012Validator

from connector_tax.base.config.model import PhaseCConfig, SessionFile
from connector_tax.base.documents.aggregate import SCHEMA_VERSION
from connector_tax.base.files import to_json, write_json
from connector_tax.base.plan import campaign_document, cells_of
from connector_tax.base.records.rates import ReferenceRates
from connector_tax.read.ingest import read_campaign

SCHEMA = json.loads((ROOT / "workflow" / "schemas" / "aggregate.schema.json").read_text())
VALIDATOR = Draft202012Validator(SCHEMA)
EXAMPLE = ROOT / "tests" / "data" / "aggregate_example.json"
PLAIN = Behaviour(noise=0.05)
BEHAVIOURS = {
    "plain": PLAIN,
    "plain_again": PLAIN,
    "noop_connector": PLAIN.taxed(0.02, hooks_us=(2.0, 1.0, 1.0)),
    "mooncake_both": PLAIN.taxed(0.30),
    "nixl_both": PLAIN.taxed(0.20),
}


def complaints(value: Any) -> list[str]:
    """Of the file, not of what Python holds: a tuple or an integer as a key would pass there and not here."""
    found = VALIDATOR.iter_errors(json.loads(to_json(value)))
    return [f"{'/'.join(map(str, e.absolute_path))}: {e.message[:200]}" for e in found]


def campaign(root: Path, **sections: Any) -> Campaign:
    """Few resamples and steps: nothing here depends on the numbers."""
    quick = {**SMALL, "analysis": {"bootstrap_draws": 200}, **sections}
    return Campaign(root, campaign_config(**quick), BEHAVIOURS, max_steps=60)


def host(t_ns: int, start_ns: int) -> dict[str, Any]:
    """What a sample says of a GPU host whose CPUs tell their clocks."""
    gpu = {"sm_mhz": 1980, "mem_mhz": 2619, "temperature_c": 60, "power_w": 400.5, "utilisation": 0.9}
    told = {**gpu, "clock_reasons": ["sw_power_cap"], "errors": ["power_w: Unknown Error"]}
    ticks = t_ns // 10_000_000
    return {"cpu_ticks": ticks * 2, "steal_ticks": ticks // 10, "cpu_mhz": [2600, 2601], "gpu": told}


def everything(root: Path) -> Campaign:
    """Blocks of repeats, cells without the recorder, answers to compare, and a host that tells all about itself."""
    levels = {"cached_tokens": [0, 8000], "running": [1, 4], "output_tokens": 8, "duration_s": 5}
    found = campaign(root, repeats=3, observer_effect=True, phase_d=levels)
    found.host = host
    found.measure_everything()
    for connector in ("plain", "nixl_both"):
        measure_levels(found, connector)
    for connector, token in (("plain", 1), ("nixl_both", 2), ("mooncake_both", 1)):
        document = {
            "campaign": found.config.campaign,
            "connector": connector,
            "outputs": [{"token_ids": [token]}],
        }
        write_json(found.run(connector, "a").outputs, document)
    return found


def matched(root: Path) -> Campaign:
    found = campaign(root, connectors=["plain", "noop_connector", "nixl_both", "plain_matched_nixl_both"], phase_b_prime={"configs": [], "shapes": []})  # fmt: skip
    found.measure_everything()
    configs = {"plain": {}, "noop_connector": None, "nixl_both": {"x.y": {"plain": False, "own": [1]}}}
    write_json(found.folder.engine_diff, {"schema": 1, "plain": {}, "configs": configs})
    return found


def conversations(root: Path) -> Campaign:
    found = campaign(root)
    rates = found.measure_everything()
    file = SessionFile("config/sessions/talk.jsonl", "0" * 64, 3.0)
    found.config = msgspec.structs.replace(found.config, phase_c=PhaseCConfig((file,), warmup_s=2.0))
    for connector in ("plain", "nixl_both"):
        (spec,) = cells_of(
            found.config, connector, "c", ReferenceRates(rates.ref_safe_per_s, rates.ref_safe_per_s)
        )
        found.cell(connector, replace(spec, input_tokens=64, output_tokens=8))
    return found


def saturated(root: Path) -> Campaign:
    """Mooncake queues, NIXL loses requests, a cell of plain is damaged, a configuration is skipped."""
    found = campaign(root)
    found.behaviours = {**BEHAVIOURS, "mooncake_both": Behaviour(130, 13, 0.05, capacity_per_s=7)}
    found.skip("noop_connector", "no such module")
    found.measure_everything()
    found.measure("nixl_both", "a", change=fail(every=6))
    found.run("plain", "a").cell("r2_256x16").requests.unlink()
    return found


def without_steps(root: Path) -> Campaign:
    found = Campaign(root, campaign_config(**SMALL), BEHAVIOURS, step_timing=False)
    found.measure_everything()
    return found


def no_longer_listed(root: Path) -> Campaign:
    """NIXL was measured in Phase A and then taken out of the campaign."""
    found = campaign(root)
    for connector in ("plain", "nixl_both"):
        found.measure(connector, "a")
    fewer = campaign_config(**{**SMALL, "connectors": ["plain", "mooncake_both"]})
    write_json(found.folder.campaign_file, campaign_document(fewer, date=DATE, created_utc="now"))
    return found


def half(root: Path) -> Campaign:
    found = campaign(root)
    found.measure("plain", "a", receipt=False)
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    value = aggregate_json(read_campaign(everything(tmp_path_factory.mktemp("everything")).root))
    assert all(
        value[k]
        for k in ("repeats", "host_drift", "power", "observer_effect", "growth", "attribution", "outputs")
    )
    return value


def test_it_is_a_schema_and_names_the_version_that_is_written_and_read() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$defs"]["Aggregate"]["properties"]["schema_version"] == {"enum": [SCHEMA_VERSION]}


def test_it_is_true_of_a_campaign_with_everything_in_it(whole: dict[str, Any]) -> None:
    assert complaints(whole) == []


@pytest.mark.parametrize(
    "build", [matched, conversations, saturated, without_steps, no_longer_listed, half, campaign]
)
def test_it_is_true_of_a_campaign_that_is(build: Callable[[Path], Campaign], tmp_path: Path) -> None:
    """``campaign``: with nothing measured in it."""
    assert complaints(aggregate_json(read_campaign(build(tmp_path).root))) == []


def test_it_is_true_of_what_the_door_writes(tmp_path: Path) -> None:
    found = half(tmp_path)
    command = [sys.executable, str(ROOT / "scripts" / "analyze.py"), "--root", str(found.root)]
    subprocess.run(command, check=True, capture_output=True)
    assert complaints(json.loads(found.folder.aggregate.read_text())) == []


def test_the_example_that_other_tests_read_is_an_aggregate() -> None:
    assert complaints(json.loads(EXAMPLE.read_text())) == []


def objects(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The place of every object; of a list, its first entry of each set of keys."""
    if isinstance(value, dict):
        return [place, *(p for k, v in value.items() for p in objects(v, (*place, k)))]
    if not isinstance(value, list):
        return []
    kinds = {str(sorted(v)) if isinstance(v, dict) else "": k for k, v in reversed(list(enumerate(value)))}
    return [p for k in kinds.values() for p in objects(value[k], (*place, k))]


# Their keys are names of things: configurations, versions, rates, statuses; or they are as cell.json has them.
OPEN = {"configs", "engine_args", "versions", "code", "order", "statuses", "saturation", "fired", "criteria"}  # fmt: skip
OPEN |= {"medians_us", "p50_taxes", "engine_diff", "by_block", "by_length", "by_phase_s", "parts", "cpu", "health", "loaded_s", "idle_share", "rss_mib", "clock_reasons"}  # fmt: skip


def open_keys(place: tuple[Any, ...]) -> bool:
    """The settings of one configuration have names of their own, too."""
    if place == ("provenance", "host") or place[:2] == ("provenance", "settings"):
        return True
    return bool(place) and (place[-1] in OPEN or (len(place) == 2 and place[0] == "engine_diff"))


@pytest.fixture(scope="module")
def slim(whole: dict[str, Any]) -> dict[str, Any]:
    """With one cell, so that each try is quick."""
    cells = [next(c for c in whole["cells"] if c["config"] == "nixl_both")]
    return {**json.loads(json.dumps(whole)), "cells": cells}


def test_no_key_can_be_dropped_or_renamed(slim: dict[str, Any]) -> None:
    """Every key of every kind of object, one after the other: 200 ways to break a reader."""
    tried = 0
    for place in [p for p in objects(slim) if not open_keys(p)]:
        top = place[0] if place else None
        for key in _at(slim, place):
            broken = json.loads(json.dumps(slim if top is None else {**_bare(slim), top: slim[top]}))
            target = _at(broken, place)
            target[f"{key}_renamed"] = target.pop(key)
            # A reason is wanted where a number is missing only.
            if key == "reason" and "reason" not in _at(slim, place):
                continue
            assert not VALIDATOR.is_valid(broken), f"{place}: {key} could be renamed"
            tried += 1
    assert tried > 200


def _bare(value: dict[str, Any]) -> dict[str, Any]:
    """Valid without its lists."""
    return {k: ([] if isinstance(v, list) else v) for k, v in value.items()}


def _at(value: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        value = value[key]
    return value


def first(value: dict[str, Any], part: str, **wanted: Any) -> dict[str, Any]:
    found: dict[str, Any] = next(e for e in value[part] if all(e[k] == v for k, v in wanted.items()))
    return found


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda a: a.update(schema_version=2), "schema_version"),
        (lambda a: a.update(extra={}), "additional"),
        (lambda a: a["taxes"][0].update(verdict="no_tax"), "taxes/0/verdict"),
        (lambda a: a["taxes"][0].update(point="0.3"), "taxes/0/point"),
        (lambda a: a["taxes"][0].update(reference="ref_high"), "taxes/0/reference"),
        (lambda a: a["cells"][0].update(verdict="fine"), "cells/0"),
        (lambda a: a["cells"][0].update(usable="yes"), "cells/0"),
        (lambda a: a["cells"][0].update(n_ok=True), "cells/0"),
        (lambda a: a["configs"]["plain"].update(status="done"), "configs/plain/status"),
        (lambda a: a["hypotheses"][0].update(outcome="proven"), "hypotheses/0/outcome"),
        (lambda a: first(a, "hypotheses", outcome="not testable").update(numbers={"x": 1}), "numbers"),
        (lambda a: a["criteria"][0].update(outcome="pass"), "criteria/0/outcome"),
        (lambda a: a["outputs"][0].update(verdict="equal"), "outputs/0/verdict"),
        (lambda a: a["repeats"][0]["taxes"][0].update(verdict="undetermined"), "repeats/0/taxes/0/verdict"),
        (lambda a: a["engine_diff"].update(plain=3), "engine_diff/plain"),
        (lambda a: a["provenance"].update(engine_kind="sglang"), "provenance/engine_kind"),
        (lambda a: a["reference_rates"].pop("flags"), "reference_rates"),
        (lambda a: a["problems"].append("something"), "problems/"),
    ],
)
def test_a_word_a_type_or_a_key_that_is_not_known_is_refused(
    slim: dict[str, Any], change: Callable[[dict[str, Any]], None], place: str
) -> None:
    broken = json.loads(json.dumps(slim))
    change(broken)
    found = complaints(broken)
    assert found
    assert any(place in c.lower() for c in found), found
