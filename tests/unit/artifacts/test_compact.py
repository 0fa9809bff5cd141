"""A thinned campaign gives the numbers of the whole one, says what is not in it, and is read by everything that reads a campaign."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from analysed import aggregate_json
from builders import Campaign

from connector_tax.base.artifacts.compact import RULE, make_compact
from connector_tax.base.errors import ArtifactError, ConfigError
from connector_tax.base.files import read_json, sha256_of, write_json
from connector_tax.cli import command
from connector_tax.read.bundle import bundle
from connector_tax.read.figures.draw_all import draw_figures
from connector_tax.read.ingest import read_campaign
from connector_tax.read.report.page import build_report


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    campaign = Campaign(tmp_path_factory.mktemp("whole"))
    campaign.measure_everything()
    return campaign


@pytest.fixture(scope="module")
def thinned(whole: Campaign, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("thinned") / "campaign"
    make_compact(whole.root, target)
    return target


def _aggregate(root: Path) -> dict[str, Any]:
    return dict(aggregate_json(read_campaign(root)))


def test_every_latency_and_verdict_is_that_of_the_whole_campaign(whole: Campaign, thinned: Path) -> None:
    mine, its = _aggregate(thinned), _aggregate(whole.root)
    assert mine["problems"] == its["problems"] == []
    assert mine["hypotheses"] == its["hypotheses"]
    assert mine["criteria"] == its["criteria"], "what was left out by the rule is not missing"
    pairs = list(zip(mine["cells"], its["cells"], strict=True))
    assert all(a[k] == b[k] for a, b in pairs for k in ("ttft_ms", "tpot_ms", "e2e_ms"))
    kept = [(a, b) for a, b in pairs if a["step"]["available"]]
    assert 0 < len(kept) < len(pairs)
    assert all(a["step"] == b["step"] for a, b in kept)


def specs(root: Path, phase: str) -> list[dict[str, Any]]:
    return [read_json(p)["spec"] for p in root.glob(f"*/phase_{phase}/cells/*/cell.json")]


def test_step_records_are_kept_at_the_reference_rates_and_named_where_they_are_not(
    whole: Campaign, thinned: Path
) -> None:
    rates = read_json(whole.folder.reference_rates)
    kept = {rates["ref_safe_per_s"], rates["ref_load_per_s"]}
    (shape,) = {(s["input_tokens"], s["output_tokens"]) for s in specs(thinned, "a")}
    found = set()
    for cell in thinned.glob("*/phase_*/cells/*/cell.json"):
        document = read_json(cell)
        spec = document["spec"]
        is_load = spec["rate_per_s"] in kept and (spec["input_tokens"], spec["output_tokens"]) == shape
        is_kept = document["phase"] in ("a", "b") and is_load
        found.add((document["phase"], is_kept))
        names = sorted(p.name for p in cell.parent.iterdir() if p.name != "cell.json")
        assert names == sorted(document["files"])
        assert any(n.startswith("engine_step") and n.endswith(".jsonl.gz") for n in names) == is_kept
        assert [n for n in document["left_out_streams"] if n.startswith("engine_step")] == [] or not is_kept
    assert {("a", True), ("a", False), ("b", True), ("b", False)} <= found


def test_the_rule_and_checksums_of_the_source_stand_in_the_campaign(whole: Campaign, thinned: Path) -> None:
    said = read_json(thinned / "campaign.json")["thinned"]
    assert said["rule"] == RULE
    for name, sha256 in said["source"].items():
        assert sha256_of(whole.root / name) == sha256
    assert len(said["source"]) == 1 + len(list(whole.root.glob("*/phase_*/receipt.json")))


def test_nobodys_home_is_published(whole: Campaign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    source = tmp_path / "source"
    shutil.copytree(whole.root, source)
    (run,) = source.glob("*_plain/phase_a")
    (run / "vllm_stdout.log").write_text("loading /home/somebody/model and /home/somebody2/model\n")
    (run / "launch.sh").write_text("exec /home/somebody/engine\n")
    (run / "launch.sh").chmod(0o755)
    make_compact(source, tmp_path / "thin")
    (copy,) = (tmp_path / "thin").glob("*_plain/phase_a")
    assert (copy / "vllm_stdout.log").read_text() == "loading ~/model and /home/somebody2/model\n"
    assert (copy / "launch.sh").read_text() == "exec ~/engine\n" and (
        copy / "launch.sh"
    ).stat().st_mode & 0o100
    assert read_campaign(tmp_path / "thin").problems == read_campaign(whole.root).problems


def _truncated(cell: Path) -> None:
    next(cell.glob("requests*.jsonl")).write_text("")


def _edited(cell: Path) -> None:
    document = read_json(cell / "cell.json")
    write_json(cell / "cell.json", {**document, "verdict": "suspect", "reasons": ["edited"]})


def _edited_in_place(cell: Path) -> None:
    (requests,) = cell.glob("requests*.jsonl")
    requests.write_text(requests.read_text().replace("1", "2"))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_truncated, r"requests_\S+ has 0 bytes, and had \d+ when it was written"),
        (shutil.rmtree, "is not there"),
        (_edited, r"cell.json has \d+ bytes, and had \d+ when it was written"),
        (_edited_in_place, r"requests_\S+ differs from its checksum"),
    ],
)
def test_a_damaged_campaign_is_one_message_and_leaves_no_half_bundle(
    whole: Campaign, tmp_path: Path, damage: Callable[[Path], None], said: str
) -> None:
    shutil.copytree(whole.root, tmp_path / "damaged")
    cell = sorted((tmp_path / "damaged").glob("*_plain/phase_b/cells/*"))[-1]
    damage(cell)
    for _ in range(2):
        whole_message = rf"^{cell}: {said}; a damaged campaign is not published\.$"
        with pytest.raises(ArtifactError, match=whole_message):
            bundle(tmp_path / "damaged", tmp_path / "b.tar.xz", compact=True)
        assert [p.name for p in tmp_path.iterdir()] == ["damaged"]


def test_what_reads_an_aggregate_names_the_command_that_makes_it(thinned: Path, tmp_path: Path) -> None:
    copy = tmp_path / "a copy"
    shutil.copytree(thinned, copy)
    readers: list[Callable[[], object]] = [
        lambda: command("compare").call([str(copy), str(copy)]),
        lambda: draw_figures(copy),
        lambda: build_report(copy),
    ]
    for reader in readers:
        with pytest.raises(ArtifactError) as refused:
            reader()
        assert str(refused.value).endswith(f"Analyse it first: connector-tax report '{copy}'")
    with pytest.raises(ConfigError, match="no such campaign"):
        command("report").call([str(tmp_path / "nothing")])


def test_step_records_that_were_lost_before_thinning_are_still_missing(tmp_path: Path) -> None:
    """Only what the rule left out is excused."""
    campaign = Campaign(tmp_path / "whole")
    campaign.measure_everything()
    rate = read_json(campaign.folder.reference_rates)["ref_safe_per_s"]
    for path in campaign.root.glob(f"*_plain/phase_a/cells/r{rate:g}_*/cell.json"):
        document = read_json(path)
        (name,) = [n for n in document["files"] if n.startswith("engine_step")]
        (path.parent / name).unlink()
        del document["files"][name]
        write_json(path, document)
    campaign.receipt("plain", "a")
    make_compact(campaign.root, tmp_path / "thinned")
    (criterion,) = [c for c in _aggregate(tmp_path / "thinned")["criteria"] if c["number"] == 6]
    assert criterion["outcome"] == "not met"
    assert "engine_step" in criterion["evidence"][0]["subject"]


def test_a_campaign_is_thinned_once_and_only_when_it_is_finished(thinned: Path, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="is thinned already"):
        make_compact(thinned, tmp_path / "twice")
    open_one = Campaign(tmp_path / "open")
    open_one.measure_everything()
    open_one.run("plain", "b").receipt.unlink()
    with pytest.raises(
        ArtifactError, match=r"no receipt\.json, the first plain in phase b, so the campaign is not"
    ):
        make_compact(open_one.root, tmp_path / "thin")
    assert not (tmp_path / "thin").exists()


def test_the_same_campaign_gives_the_same_bytes(whole: Campaign, thinned: Path, tmp_path: Path) -> None:
    make_compact(whole.root, tmp_path / "b")
    one = {
        p.relative_to(thinned): sha256_of(p)
        for p in thinned.rglob("*")
        if p.is_file() and "tables" not in p.parts
    }
    other = {p.relative_to(tmp_path / "b"): sha256_of(p) for p in (tmp_path / "b").rglob("*") if p.is_file()}
    assert one == other
