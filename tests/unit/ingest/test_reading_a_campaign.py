"""Trouble is data: each fault has a name, keeps its cell out, and stops nothing."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from analysed import aggregate_json
from builders import CODE, DATE, ENGINE, ROOT, SMALL, Campaign, campaign_config, fail, reseal

from connector_tax.base.artifacts.cells import read_cell
from connector_tax.base.artifacts.layout import CampaignFolder, CellFolder
from connector_tax.base.documents.aggregate import Problem
from connector_tax.base.documents.campaign import CampaignDocument
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import as_json, document_of, to_json, write_json
from connector_tax.base.parallel import each_in
from connector_tax.base.plan import campaign_document, cells_of, config_of, launch_spec
from connector_tax.base.records.cell import CellWindow
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.secrets import MASKED
from connector_tax.read.figures.words import problem_text
from connector_tax.read.ingest import CampaignData, read_campaign
from connector_tax.read.ingest.cells import MOST_FAULTS, other_campaign, read_requests
from connector_tax.read.ingest.samples import read_samples
from connector_tax.read.stats.aggregate import aggregate
from connector_tax.read.stats.completeness import missing_cells

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
        (_edit('"t_sched_ns":', '"t_sched_ns":NaN,"was":'), "line 1 is not a request"),
        (_edit('"t_first_token_ns":', '"t_first_token_ns":null,"t_last_token_ns":'), "line 1 lacks a time"),
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


@pytest.mark.parametrize("stream", ["requests", "engine_step"])
def test_a_missing_file_keeps_the_cell_out(campaign: Campaign, stream: str) -> None:
    cell = campaign.measure("plain")[0]
    getattr(cell, stream).unlink()
    data = read_campaign(campaign.root)
    assert f"{stream}_A_r2_256x16.jsonl is missing" in said(data)
    # What completed is not known then.
    assert "no request completed" not in said(data)
    assert usable(data) == ["plain r4_256x16"]


def test_a_cell_in_the_receipt_that_is_gone_is_named(campaign: Campaign) -> None:
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


def test_another_load_generator_is_named_and_kept(campaign: Campaign) -> None:
    """An edit of the load generator must not silently discard hours of measuring; nor do a few MiB of memory."""
    campaign.measure("plain")
    host = {**ENGINE["host"], "memory_mib": 262100}
    campaign.measure("nixl_both", code={**CODE, "loadgen_sha256": "def"}, engine={**ENGINE, "host": host})
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


@pytest.mark.parametrize("text", ["{", '{"schema": 2}'])
def test_an_unreadable_receipt_or_preflight_is_named_and_the_cells_are_read(
    campaign: Campaign, text: str
) -> None:
    campaign.measure("plain")
    campaign.folder.preflight_status.write_text(text)
    campaign.run("plain", "a").receipt.write_text(text)
    data = read_campaign(campaign.root)
    assert "2026-11-20_plain/phase_a/receipt.json: " in said(data), (
        "a place inside the campaign, on any machine"
    )
    assert data.preflight is None and "preflight/preflight_status.json" in said(data)
    assert len(usable(data)) == 2


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
        ("shapes", None, "Expected `object`, got `null` - at `$.shapes`"),
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


def test_a_hook_that_is_named_twice_keeps_both_of_its_columns(campaign: Campaign) -> None:
    """As of a connector that was made twice in one process."""
    cell = campaign.measure("plain", receipt=False)[0]
    header, row = '"patch_sha256":"p"', '"decode_tokens":4}'
    text = cell.engine_step.read_text().replace(header, header + ',"hooks":["h","h"]', 1)
    cell.engine_step.write_text(text.replace(row, '"decode_tokens":4,"hooks":[1000,1,2000,2]}'))
    reseal(cell)
    records = read_campaign(campaign.root).cells()[0].steps
    assert records is not None
    assert records.load().hooks.us[0].tolist() == [1.0, 2.0]
    assert records.load().hooks.calls[0].tolist() == [1, 2]


def test_several_processes_find_the_same(campaign: Campaign) -> None:
    campaign.measure("plain")
    campaign.measure("nixl_both")
    with each_in(2) as each:
        value = to_json(aggregate(read_campaign(campaign.root, each=each), each))
    assert value == to_json(aggregate(read_campaign(campaign.root)))


def test_records_that_differ_from_their_checksum_are_not_read(campaign: Campaign) -> None:
    cell = campaign.measure("plain", receipt=False)[0]
    cell.engine_step.write_text(cell.engine_step.read_text().replace('"update_us":20', '"update_us":21', 1))
    (problem,) = read_campaign(campaign.root).problems
    assert problem.because == Problem("file_changed", cell.engine_step.name)


# A stream that somebody filled with anything takes neither memory nor hours.
WINDOW = CellWindow(0, 0, 10**9, 10**9, True)


@pytest.fixture
def line_feeds(tmp_path: Path) -> Path:
    path = tmp_path / "stream.jsonl"
    path.write_bytes(b"\n" * 500_000)
    return path


def peak_bytes(read: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        read()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_requests_that_are_line_feeds_take_no_memory(line_feeds: Path) -> None:
    assert peak_bytes(lambda: read_requests(line_feeds)) < 1_000_000
    assert peak_bytes(lambda: read_samples(line_feeds, WINDOW)) < 1_000_000
    assert read_samples(line_feeds, WINDOW).n_missed == 500_000


def test_reading_ends_where_the_cell_is_surely_lost(tmp_path: Path) -> None:
    """Five faults are named, and what stands behind too many of them is not looked at."""
    path = tmp_path / "requests.jsonl"
    dropped = RequestRecord(0, 1, None, None, None, None, "dropped", None, None, 0, 0, "window")
    good = json.dumps(asdict(dropped)) + "\n"
    path.write_text("x\n" * (MOST_FAULTS - 1) + good)
    records, faults = read_requests(path)
    assert [(f.code, f.numbers["at"]) for f in faults] == [("line_no_request", k) for k in range(1, 6)]
    assert len(records) == 1
    path.write_text("x\n" * MOST_FAULTS + good)
    assert read_requests(path) == ([], faults)


# Results of somebody else, some of which this user may not read.
PR_CAPBSET_DROP, DAC_OVERRIDE, DAC_READ_SEARCH = 24, 1, 2
LIBC = ctypes.CDLL(None)


def anybody() -> None:
    """In a child, before its command: modes hold for root as well."""
    if os.geteuid() == 0:
        for capability in (DAC_OVERRIDE, DAC_READ_SEARCH):
            LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


READS = """
import sys
from pathlib import Path
from connector_tax.base.artifacts.compact import make_compact
from connector_tax.base.errors import ArtifactError
from connector_tax.read.analysis import analyse
from connector_tax.read.bundle import bundle
root = Path(sys.argv[1])
analyse(root)
for make in (lambda: bundle(root, root.with_suffix(".tar.xz"), partial=True), lambda: make_compact(root, root.with_name("thinned"))):
    try:
        make()
    except ArtifactError as error:
        print(error)
"""


def test_a_cell_that_may_not_be_read_is_named_and_no_copy_is_made_without_it(campaign: Campaign) -> None:
    campaign.measure("plain")
    campaign.measure("nixl_both")
    closed = campaign.run("nixl_both", "a").finished_cells()[0]
    closed.path.chmod(0)
    try:
        command = [sys.executable, "-c", READS, str(campaign.root)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, preexec_fn=anybody)
    finally:
        closed.path.chmod(0o755)
    assert done.returncode == 0, done.stderr
    problems = json.loads((campaign.root / "aggregate.json").read_text())["problems"]
    assert any(p["subject"].endswith(closed.cell_id) and "Permission denied" in p["detail"] for p in problems)
    refused = done.stdout.splitlines()
    assert len(refused) == 2
    assert all(said.startswith(f"{closed.path}: cannot be read (Permission denied)") for said in refused)
    assert not campaign.root.with_suffix(".tar.xz").exists()
    assert not campaign.root.with_name("thinned").exists()


# A version before blanked a key that was written out.
def test_a_cell_with_its_key_blanked_belongs_to_a_campaign_with_its_key_blanked(tmp_path: Path) -> None:
    config = campaign_config(engine={"args": {"max_model_len": 4096}})
    config.engine.args["api_key"] = MASKED
    spec = cells_of(config, "plain", "a")[0]
    run = CampaignFolder(tmp_path).run(DATE, "plain", "a")
    (folder,) = Campaign(tmp_path / "made", config).measure("plain")[:1]
    cell = msgspec.structs.replace(read_cell(folder), launch=launch_spec(config, "plain"))
    text = to_json(campaign_document(config, date=DATE, created_utc=""))
    plan = config_of(document_of(json.loads(text), CampaignDocument, "campaign.json"))
    assert other_campaign(plan, run, run.cell(spec.cell_id), cell) == []
    args = {"api_key": MASKED, "max_model_len": 2048}
    other = msgspec.structs.replace(cell, launch=msgspec.structs.replace(cell.launch, args=args))
    assert other_campaign(plan, run, run.cell(spec.cell_id), other) == [
        Problem("launched_otherwise", names=("args",))
    ]
