"""Trouble is data: each fault has a name, keeps its cell out, and stops nothing."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.artifacts.layout import CellFolder
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import as_json, write_json
from connector_tax.read.figures.words import problem_text
from connector_tax.read.ingest import CampaignData, read_campaign
from connector_tax.read.stats.completeness import missing_cells

sys.path.insert(0, str(Path(__file__).parents[2]))
from analysed import aggregate_json
from builders import CODE, ENGINE, SMALL, Campaign, campaign_config, fail, reseal

CONFIG = campaign_config(
    **{
        **SMALL,
        "connectors": ["plain", "nixl_both"],
        "phase_a": {"rates_per_s": [2, 4], "input_tokens": 256, "output_tokens": 16},
        "phase_b_prime": {"configs": ["plain"], "shapes": [[64, 16]]},
    }
)


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return Campaign(tmp_path, CONFIG, max_steps=40)


def said(data: CampaignData) -> str:
    return "\n".join(f"{p.subject}: {problem_text(p)}" for p in data.problems)


def usable(data: CampaignData) -> list[str]:
    return [f"{c.config} {c.cell_id}" for c in data.cells() if c.usable]


def test_a_sound_campaign_has_no_problems(campaign: Campaign) -> None:
    campaign.measure("plain")
    campaign.measure("nixl_both")
    data = read_campaign(campaign.root)
    assert data.problems == ()
    assert len(usable(data)) == 4
    cell = data.cells()[0]
    assert [r.seq for r in cell.requests] == list(range(len(cell.requests)))
    assert cell.samples.waiting_p50 == 0
    assert cell.steps is not None and cell.steps.n > 0


def test_a_run_without_a_receipt_is_read_as_far_as_it_got(campaign: Campaign) -> None:
    campaign.measure("plain", receipt=False)
    data = read_campaign(campaign.root)
    assert len(usable(data)) == 2
    assert data.runs[0].receipt is None
    assert data.problems == ()


def _torn(cell: CellFolder) -> None:
    text = cell.requests.read_text()
    cell.requests.write_text(text[: len(text) - 40])


def _twice(cell: CellFolder) -> None:
    lines = cell.requests.read_text().splitlines(keepends=True)
    cell.requests.write_text("".join([*lines, lines[3]]))


def _gap(cell: CellFolder) -> None:
    lines = cell.requests.read_text().splitlines(keepends=True)
    cell.requests.write_text("".join(lines[:3] + lines[4:]))


def _edit(old: str, new: str) -> Callable[[CellFolder], None]:
    def change(cell: CellFolder) -> None:
        text = cell.requests.read_text()
        assert old in text
        cell.requests.write_text(text.replace(old, new, 1))

    return change


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_torn, "is not a request"),
        (_twice, "request 3 stands twice"),
        (_gap, "request 3 is missing"),
        (_edit('"status":"ok"', '"status":"fine"'), "line 1 is not a request: Invalid enum value 'fine'"),
        (_edit('"t_sched_ns":', '"t_sched_ns":"soon","was":'), "is not a request"),
        (_edit('"t_first_token_ns":', '"t_first_token_ns":null,"t_last_token_ns":'), "line 1 lacks a time"),
        (_edit("{", "[1]\n{"), "line 1 is not a request"),
    ],
)
def test_a_fault_in_the_requests_keeps_the_cell_out(
    campaign: Campaign, damage: Callable[[CellFolder], None], message: str
) -> None:
    """Also where the checksums were made afterwards and agree."""
    cell = campaign.measure("plain", receipt=False)[0]
    damage(cell)
    reseal(cell)
    data = read_campaign(campaign.root)
    assert message in said(data)
    assert usable(data) == ["plain r4_256x16"]
    assert "cell left out" in said(data)


def test_a_file_that_differs_from_its_checksum_keeps_the_cell_out(campaign: Campaign) -> None:
    cell = campaign.measure("plain")[0]
    cell.requests.write_text(
        cell.requests.read_text().replace('"prompt_tokens":256', '"prompt_tokens":255', 1)
    )
    data = read_campaign(campaign.root)
    assert "requests_A_r2_256x16.jsonl differs from its checksum" in said(data)
    assert usable(data) == ["plain r4_256x16"]


def test_a_cell_resealed_after_the_receipt_is_still_noticed(campaign: Campaign) -> None:
    """The receipt holds the checksum of cell.json, which holds those of the rest."""
    cell = campaign.measure("plain")[0]
    _gap(cell)
    reseal(cell)
    data = read_campaign(campaign.root)
    assert "cell.json differs from its checksum" in said(data)
    assert usable(data) == ["plain r4_256x16"]


@pytest.mark.parametrize("stream", ["requests", "metrics", "engine_step"])
def test_a_missing_file_keeps_the_cell_out(campaign: Campaign, stream: str) -> None:
    cell = campaign.measure("plain")[0]
    getattr(cell, stream).unlink()
    data = read_campaign(campaign.root)
    assert f"{stream}_A_r2_256x16.jsonl is missing" in said(data)
    # What completed is not known then.
    assert "no request completed" not in said(data)
    assert usable(data) == ["plain r4_256x16"]


def test_a_cell_in_the_receipt_that_is_gone_is_named(campaign: Campaign) -> None:
    import shutil

    cell = campaign.measure("plain")[0]
    shutil.rmtree(cell.path)
    assert "cells/r2_256x16: in the receipt and not on disk" in said(read_campaign(campaign.root))


def test_a_cell_of_another_campaign_is_left_out(campaign: Campaign) -> None:
    campaign.measure("plain", campaign="yesterday", receipt=False)
    data = read_campaign(campaign.root)
    assert usable(data) == []
    assert "belongs to yesterday, plain, a, r2_256x16, not here" in said(data)


def test_a_receipt_of_another_campaign_is_not_used(campaign: Campaign) -> None:
    campaign.measure("plain")
    path = campaign.run("plain", "a").receipt
    path.write_text(path.read_text().replace('"campaign": "demo"', '"campaign": "yesterday"'))
    data = read_campaign(campaign.root)
    assert "of yesterday, plain, a" in said(data)
    assert data.runs[0].receipt is None
    assert len(usable(data)) == 2


def test_runs_of_another_date_are_left_out(campaign: Campaign) -> None:
    campaign.measure("plain")
    folder = campaign.run("plain", "a").path.parent
    folder.rename(folder.with_name("2026-11-19_plain"))
    data = read_campaign(campaign.root)
    assert data.runs == ()
    assert "of another date than this campaign" in said(data)


def test_a_cell_in_which_nothing_completed_is_said(campaign: Campaign) -> None:
    """It is a result, not damage: it counts as saturated and has no percentiles."""
    campaign.measure("plain", change=fail(every=1))
    data = read_campaign(campaign.root)
    assert said(data).count("no request completed") == 2
    assert len(usable(data)) == 2


def test_another_engine_than_plains_is_not_compared(campaign: Campaign) -> None:
    campaign.measure("plain")
    other = {**ENGINE, "versions": {**ENGINE["versions"], "vllm": "0.33.0"}}
    campaign.measure("nixl_both", engine=other)
    data = read_campaign(campaign.root)
    assert usable(data) == ["plain r2_256x16", "plain r4_256x16"]
    assert "not comparable: vllm 0.33.0 / 0.32.0 not as in plain's cell" in said(data)
    assert "measured with several versions of the engine, " in said(data)


def test_engines_of_two_container_runtimes_are_not_compared(campaign: Campaign) -> None:
    """Also of one image; and the aggregate says in what its numbers were measured."""
    podman = {"runtime": "podman", "version": "4.3.1", "image": "registry/vllm:v1"}
    inside = {**ENGINE, "versions": {**ENGINE["versions"], "image": "sha256:ab"}, "container": podman}
    campaign.measure("plain", engine=inside)
    assert aggregate_json(read_campaign(campaign.root))["provenance"]["container"] == podman
    campaign.measure("nixl_both", engine={**inside, "container": {**podman, "runtime": "docker"}})
    data = read_campaign(campaign.root)
    assert usable(data) == ["plain r2_256x16", "plain r4_256x16"]
    assert "not comparable: container runtime docker / podman not as in plain's cell" in said(data)


@pytest.mark.parametrize(
    "change",
    [{"gpu": ["GPU 0: NVIDIA H20 (UUID: GPU-2)"]}, {"host": {**ENGINE["host"], "cpu": "EPYC"}}],
)
def test_another_gpu_or_host_than_plains_is_not_compared(
    campaign: Campaign, change: dict[str, object]
) -> None:
    campaign.measure("plain")
    campaign.measure("nixl_both", engine={**ENGINE, **change})
    assert len(usable(read_campaign(campaign.root))) == 2


def test_a_few_mib_of_memory_do_not_make_another_host(campaign: Campaign) -> None:
    campaign.measure("plain")
    campaign.measure("nixl_both", engine={**ENGINE, "host": {**ENGINE["host"], "memory_mib": 262100}})
    data = read_campaign(campaign.root)
    assert (len(usable(data)), data.problems) == (4, ())


def test_another_load_generator_is_named_and_kept(campaign: Campaign) -> None:
    """An edit of the load generator must not silently discard hours of measuring."""
    campaign.measure("plain")
    campaign.measure("nixl_both", code={**CODE, "loadgen_sha256": "def"})
    data = read_campaign(campaign.root)
    assert len(usable(data)) == 4
    assert "measured with several versions of the load generator, " in said(data)


def test_an_invalid_cell_is_read_and_kept_out(campaign: Campaign) -> None:
    campaign.measure("plain", verdict="invalid", reasons=["engine died: out of memory"])
    data = read_campaign(campaign.root)
    assert len(data.cells()) == 2
    assert usable(data) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ('{"schema": 99}', "schema 99, and this version of connector-tax reads 1"),
        ('{"schema": 1}', "Object missing required field `campaign`"),
        ("[]", "Expected `object`, got `array`"),
    ],
)
def test_an_unreadable_cell_is_named(campaign: Campaign, text: str, message: str) -> None:
    cell = campaign.measure("plain", receipt=False)[0]
    cell.cell_json.write_text(text)
    data = read_campaign(campaign.root)
    assert message in said(data)
    assert usable(data) == ["plain r4_256x16"]


@pytest.mark.parametrize("text", ["{", '{"schema": 1}', '{"schema": 2}', "[]"])
def test_an_unreadable_receipt_is_named_and_the_cells_are_read(campaign: Campaign, text: str) -> None:
    campaign.measure("plain")
    campaign.run("plain", "a").receipt.write_text(text)
    data = read_campaign(campaign.root)
    assert "receipt.json: " in said(data)
    assert len(usable(data)) == 2


def test_an_unreadable_preflight_status_is_named(campaign: Campaign) -> None:
    campaign.folder.preflight_status.write_text("{")
    data = read_campaign(campaign.root)
    assert data.preflight is None
    assert "preflight/preflight_status.json" in said(data)


def test_a_fault_in_a_step_record_keeps_the_cell_out(campaign: Campaign) -> None:
    cell = campaign.measure("plain", receipt=False)[0]
    lines = cell.engine_step.read_text().splitlines(keepends=True)
    cell.engine_step.write_text("".join([*lines[:5], "###\n", *lines[5:]]))
    reseal(cell)
    data = read_campaign(campaign.root)
    assert "not a step record" in said(data)
    assert usable(data) == ["plain r4_256x16"]


def test_missed_samples_are_counted_and_not_guessed(campaign: Campaign) -> None:
    cell = campaign.measure("plain", receipt=False)[0]
    lines = cell.metrics.read_text().splitlines()
    start = json.loads(lines[5])["t_ns"]
    lines[5] = f'{{"t_ns":{start},"ok":false,"error":"timeout"}}'
    lines[6] = lines[6][:30]
    cell.metrics.write_text("\n".join(lines) + "\n")
    reseal(cell)
    found = read_campaign(campaign.root).cells()[0]
    assert found.usable
    assert found.samples.n_missed == 2
    assert found.samples.waiting_p50 == 0


def test_problems_name_places_inside_the_campaign(campaign: Campaign) -> None:
    """So that the analysis says the same on every machine."""
    campaign.measure("plain")[0].metrics.unlink()
    assert read_campaign(campaign.root).problems[0].subject == "2026-11-20_plain/phase_a/cells/r2_256x16"


def test_no_campaign_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"campaign\.json: no such file"):
        read_campaign(tmp_path)


def test_requests_are_the_ones_that_were_written(campaign: Campaign) -> None:
    """Every field comes back, failed requests included."""
    written = []

    def keep(requests):  # type: ignore[no-untyped-def]
        changed = [replace(r, error="why") for r in fail(every=7, status="dropped")(requests)]
        written.append(changed)
        return changed

    campaign.measure("plain", change=keep)
    assert [c.requests for c in read_campaign(campaign.root).cells()] == written


@pytest.mark.parametrize(
    ("key", "damaged", "fault"),
    [
        ("shapes", [], "Expected `object`, got `array` - at `$.shapes`"),
        ("shapes", None, "Expected `object`, got `null` - at `$.shapes`"),
        ("shapes", {"256x16": {}}, "Object missing required field `rate_per_s` - at `$.shapes[...]`"),
        (
            "load_shapes",
            {"256x16": {"rate_per_s": "4"}},
            "Expected `float | null`, got `str` - at `$.load_shapes[...].rate_per_s`",
        ),
        (
            "shapes",
            {"foo": {"rate_per_s": 4.0}},
            "Expected `str` matching regex '^[1-9][0-9]{0,9}x[1-9][0-9]{0,9}$' - at `key` in `$.shapes`",
        ),
        (
            "shapes",
            {"256x16": {"rate_per_s": 0}},
            "Expected `float` >= 1e-13 - at `$.shapes[...].rate_per_s`",
        ),
        ("ref_load_per_s", 0, "Expected `float` >= 1e-13 - at `$.ref_load_per_s`"),
    ],
)
def test_damaged_rates_of_shapes_are_named_and_no_lost_cell_is_taken_from_them(
    campaign: Campaign, key: str, damaged: Any, fault: str
) -> None:
    campaign.measure("plain")
    rates = {"schema": 1, "ref_safe_per_s": 4.0, "ref_load_per_s": 4.0, "b_prime_needed": False, "shapes": {}}
    write_json(campaign.folder.reference_rates, rates)
    read = as_json(read_campaign(campaign.root).reference_rates)
    assert {name: read[name] for name in rates} == rates
    write_json(campaign.folder.reference_rates, {**rates, key: damaged})
    data = read_campaign(campaign.root)
    assert data.reference_rates is None
    assert said(data) == (
        f"reference_rates.json: cannot be read, left out: {fault}. Remove it to have it made again."
    )
    assert missing_cells(data) == []
