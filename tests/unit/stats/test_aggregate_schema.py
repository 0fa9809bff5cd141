"""``workflow/schemas/aggregate.schema.json``: true of every aggregate, and false of one with a key renamed."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from analysed import analysed, campaign_of
from builders import DATE, ROOT, SMALL, campaign_config
from jsonschema import Draft202012Validator
from mutations import CONNECTORS, LEVELS, MUTATIONS, Mutation, answers, both, host, levels

from connector_tax.base.documents.aggregate import SCHEMA_VERSION
from connector_tax.base.files import write_json
from connector_tax.base.plan import campaign_document

SCHEMA = json.loads((ROOT / "workflow" / "schemas" / "aggregate.schema.json").read_text())
VALIDATOR = Draft202012Validator(SCHEMA)
EXAMPLE = ROOT / "tests" / "data" / "aggregate_example.json"
EVERYTHING = Mutation(
    {"repeats": 3, "observer_effect": True, "phase_d": LEVELS, "connectors": CONNECTORS[:4]},
    options={"host": host},
    then=both(levels, answers),
)
KINDS = {"everything": EVERYTHING} | {
    name: replace(MUTATIONS[name], sections={"connectors": CONNECTORS[:4], **MUTATIONS[name].sections})
    for name in (
        "levels and conversations",
        "matched baseline",
        "embedded engine",
        "requests of plain's block failed",
    )
}
Aggregate = dict[str, Any]
# Their keys are names of things: configurations, versions, rates, statuses; or they are as cell.json has them.
OPEN = {"configs", "engine_args", "versions", "code", "order", "statuses", "saturation", "fired", "criteria"}  # fmt: skip
OPEN |= {"medians_us", "p50_taxes", "engine_diff", "by_block", "by_length", "by_phase_s", "parts", "cpu", "health", "loaded_s", "idle_share", "rss_mib", "clock_reasons"}  # fmt: skip


def complaints(value: Any) -> list[str]:
    return [f"{'/'.join(map(str, e.absolute_path))}: {e.message[:200]}" for e in VALIDATOR.iter_errors(value)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[Aggregate]:
    """Aggregates that have everything in them together: blocks, levels, conversations, answers, a host that tells all about itself."""
    found = [kind.made(tmp_path_factory.mktemp("made") / "c") for kind in KINDS.values()]
    for key in ("repeats", "host_drift", "power", "observer_effect", "growth", "attribution", "outputs"):
        assert any(value[key] for value in found)
    return found


def test_it_is_a_schema_and_names_the_version_that_is_written_and_read() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$defs"]["Aggregate"]["properties"]["schema_version"] == {"enum": [SCHEMA_VERSION]}
    assert complaints(json.loads(EXAMPLE.read_text())) == [], "the example that other tests read"


def test_it_is_true_of_campaigns_of_every_kind(made: list[Aggregate]) -> None:
    for name, value in zip(KINDS, made, strict=True):
        assert complaints(value) == [], name


def test_it_is_true_of_nothing_and_of_a_configuration_that_was_taken_out_of_the_campaign(
    tmp_path: Any,
) -> None:
    found = campaign_of(tmp_path)
    assert complaints(analysed(found)) == []
    for connector in ("plain", "nixl_both"):
        found.measure(connector)
    fewer = campaign_config(**{**SMALL, "connectors": ["plain", "mooncake_both"]})
    write_json(found.folder.campaign_file, campaign_document(fewer, date=DATE, created_utc="now"))
    assert complaints(analysed(found)) == []


def objects(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The place of every object; of a list, its first entry of each set of keys."""
    if isinstance(value, dict):
        return [place, *(p for k, v in value.items() for p in objects(v, (*place, k)))]
    if not isinstance(value, list):
        return []
    kinds = {str(sorted(v)) if isinstance(v, dict) else "": k for k, v in reversed(list(enumerate(value)))}
    return [p for k in kinds.values() for p in objects(value[k], (*place, k))]


def open_keys(place: tuple[Any, ...]) -> bool:
    """The settings of one configuration have names of their own, too."""
    if place == ("provenance", "host") or place[:2] == ("provenance", "settings"):
        return True
    return bool(place) and (place[-1] in OPEN or (len(place) == 2 and place[0] == "engine_diff"))


def at(value: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        value = value[key]
    return value


def test_no_key_can_be_dropped_or_renamed(made: list[Aggregate]) -> None:
    """Every key of every kind of object, one after the other: 200 ways to break a reader."""
    parts = {
        key: Draft202012Validator({"$defs": SCHEMA["$defs"], **part})
        for key, part in SCHEMA["$defs"]["Aggregate"]["properties"].items()
    }
    tried: set[tuple[Any, ...]] = set()
    for value in made:
        for place in [p for p in objects(value) if p and not open_keys(p)]:
            top, *inner = place
            part = value[top]
            if inner and isinstance(inner[0], int):
                part, inner[0] = [part[inner[0]]], 0
            for key in at(part, tuple(inner)):
                kind = (*(k for k in place if isinstance(k, str)), key)
                # A reason is wanted where a number is missing only.
                if kind in tried or key == "reason":
                    continue
                tried.add(kind)
                broken = json.loads(json.dumps(part))
                target = at(broken, tuple(inner))
                target[f"{key}_renamed"] = target.pop(key)
                assert not parts[top].is_valid(broken), f"{place}: {key} could be renamed"
    assert len(tried) > 200
    bare = {key: [] if isinstance(part, list) else part for key, part in made[0].items()}
    assert VALIDATOR.is_valid(bare)
    for key in bare:
        assert not VALIDATOR.is_valid({k: v for k, v in bare.items() if k != key})


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda a: a.update(schema_version=2), "schema_version"),
        (lambda a: a.update(extra={}), "additional"),
        (lambda a: a["taxes"][0].update(verdict="no_tax"), "taxes/0/verdict"),
        (lambda a: a["taxes"][0].update(point="0.3"), "taxes/0/point"),
        (lambda a: a["cells"][0].update(n_ok=True), "cells/0"),
        (lambda a: a["hypotheses"][0].update(outcome="proven"), "hypotheses/0/outcome"),
    ],
)
def test_a_word_a_type_or_a_key_that_is_not_known_is_refused(
    made: list[Aggregate], change: Callable[[Aggregate], None], place: str
) -> None:
    broken = json.loads(json.dumps(made[0]))
    broken["cells"] = broken["cells"][:1]
    change(broken)
    found = complaints(broken)
    assert found
    assert any(place in c.lower() for c in found), found
