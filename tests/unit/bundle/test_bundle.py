"""A bundle holds a campaign and what made its numbers; whatever is changed in it is named, and it can be computed anew."""

import json
import os
import random
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from builders import DATE, SMALL, Campaign, campaign_config
from read_through import unrendered

from connector_tax.base.artifacts.compact import make_compact
from connector_tax.base.artifacts.layout import LOGS, CampaignFolder
from connector_tax.base.documents.aggregate import Problem
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import sha256_of
from connector_tax.cli import command
from connector_tax.read.bundle import (
    MANIFEST,
    bundle,
    manifest_text,
    raw_files,
    read_manifest,
    reproduce,
    unfit,
    verify,
)
from connector_tax.read.figures.words import problem_text
from connector_tax.read.ingest import read_campaign

FLIPS = 20


@pytest.fixture(scope="module", autouse=True)
def without_pictures() -> Iterator[None]:
    with unrendered():
        yield


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    config = campaign_config(**{**SMALL, "connectors": ["plain", "noop_connector", "mooncake_both"]})
    found = Campaign(tmp_path_factory.mktemp("campaign"), config, max_steps=30)
    found.measure_everything()
    return found


@pytest.fixture(scope="module")
def bundled(campaign: Campaign, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundled") / "demo.tar.xz"
    bundle(campaign.root, path)
    return path


@pytest.fixture(scope="module")
def folder(bundled: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpacked as a reviewer does it."""
    path = tmp_path_factory.mktemp("unpacked") / "demo"
    path.mkdir()
    subprocess.run(["tar", "-xf", str(bundled)], cwd=path, check=True)
    return path


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    shutil.copytree(folder, tmp_path / "copy")
    return tmp_path / "copy"


def names(path: Path) -> list[str]:
    with tarfile.open(path) as archive:
        return archive.getnames()


def text_in(path: Path, name: str) -> str:
    with tarfile.open(path) as archive:
        member = archive.extractfile(name)
        assert member is not None
        return member.read().decode()


def test_round_trip(bundled: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sha256_of(bundled)
    for path in (bundled, folder):
        assert command("verify").call([str(path), "--reproduce"]) == 0
        out = capsys.readouterr().out
        assert "all as they were bundled" in out and "came out the same, byte for byte" in out
    assert sha256_of(bundled) == before and f"sha256 {before}" not in out
    assert verify(folder).findings == []


def test_other_tools_agree(folder: Path) -> None:
    """Nothing of this machine is in it."""
    assert {path.name for path in folder.iterdir()} == {"README.txt", MANIFEST, "results"}
    for path in (folder / "README.txt", folder / MANIFEST):
        assert str(Path.home()) + "/" not in path.read_text() and str(Path.cwd()) not in path.read_text()
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "--quiet", MANIFEST], cwd=folder, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_two_runs_give_the_same_bytes(campaign: Campaign, bundled: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "another" / "place"
    shutil.copytree(campaign.root, elsewhere)
    for path in elsewhere.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    bundle(elsewhere, tmp_path / "b.tar.xz")
    assert (tmp_path / "b.tar.xz").read_bytes() == bundled.read_bytes()


def test_only_raw_results_and_what_is_made_of_them_are_in_it(campaign: Campaign, tmp_path: Path) -> None:
    root = tmp_path / "mine"
    shutil.copytree(campaign.root, root)
    (run,) = root.glob("*_plain/phase_a")
    (tmp_path / "secret").write_text("x")
    for name in (".start.lock", "aggregate.json", "report.html", "logs/progress.log", "tables/x", "figures/old.svg"):  # fmt: skip
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("not raw")
    for path in (run / "steps" / "engine_step.jsonl", run / "cells" / ".x.partial" / "cell.json", run / ".hidden"):  # fmt: skip
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text("under way")
    (run / "link").symlink_to(tmp_path / "secret")
    bundle(root, tmp_path / "b.tar.xz")
    found = names(tmp_path / "b.tar.xz")
    inside = [n.removeprefix("results/demo/") for n in found if n.startswith("results/demo/")]
    raw = {p.relative_to(campaign.root).as_posix() for p in raw_files(campaign.root)}
    made = {"aggregate.json", "aggregate.csv", *(n for n in inside if n.startswith("figures/"))}
    assert set(inside) == raw | made and "figures/old.svg" not in inside
    assert {Path(n).suffix for n in made} == {".json", ".csv", ".svg"}
    assert f"{DATE}_plain/phase_a/receipt.json" in raw
    assert json.loads(text_in(tmp_path / "b.tar.xz", "results/demo/aggregate.json"))["problems"] == []


def test_no_log_of_what_is_not_finished_is_in_it(tmp_path: Path) -> None:
    """Its launch may be under way, or was killed: nobody has gone through what its engine printed."""
    folder = CampaignFolder(tmp_path)
    run = folder.run(DATE, "plain", "a")
    logs = [place / name for place in (run.path, folder.preflight / "plain") for name in LOGS]
    ends = (run.receipt, folder.preflight_status)
    for path in (*logs, *ends):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    assert set(raw_files(tmp_path)) == {*logs, *ends}
    for path in ends:
        path.unlink()
    assert raw_files(tmp_path) == unfit(tmp_path) == []


def test_a_flipped_bit_anywhere_in_the_folder_is_named(copy: Path) -> None:
    draw = random.Random(6)
    files = sorted(p for p in copy.rglob("*") if p.is_file() and p.stat().st_size)
    chosen = [draw.choice(files) for _ in range(FLIPS)] + [copy / MANIFEST] * 4
    for path in chosen:
        content = path.read_bytes()
        flipped = bytearray(content)
        flipped[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        path.write_bytes(flipped)
        assert [f.name for f in verify(copy).findings] == [path.relative_to(copy).as_posix()]
        path.write_bytes(content)
    assert verify(copy).findings == []


def test_changed_missing_added_and_linked_files_each_have_a_line(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (copy / "README.txt").write_text("other")
    (copy / "results" / "demo" / "campaign.json").unlink()
    (copy / "results" / "added.py").write_text("")
    (copy / os.fsdecode(b"\xff")).write_text("")
    (copy / "results" / "demo" / "aggregate.csv").unlink()
    (copy / "results" / "demo" / "aggregate.csv").symlink_to("/etc/passwd")
    shutil.move(copy / "results" / "demo" / "figures", copy.parent / "figures")
    (copy / "results" / "demo" / "figures").symlink_to(copy.parent / "figures")
    assert command("verify").call([str(copy), "--reproduce"]) == 1
    *lines, last = capsys.readouterr().out.splitlines()
    assert lines == [
        "README.txt: was changed",
        "results/added.py: was added",
        "results/demo/aggregate.csv: is a link",
        "results/demo/campaign.json: is missing",
        "results/demo/figures: is a link",
        "'\\udcff': was added",
    ]
    assert last.endswith("6 findings; nothing was reproduced")


@pytest.mark.parametrize("name", ["../out", "/etc/passwd"])
def test_a_manifest_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / MANIFEST).write_text(manifest_text({name: "0" * 64}))
    assert [str(f) for f in verify(tmp_path).findings] == [f"{name}: is missing"]


def test_a_compact_bundle_is_that_of_the_thinned_campaign(campaign: Campaign, tmp_path: Path) -> None:
    words = [str(campaign.root), "--to", str(tmp_path / "b.tar.xz"), "--compact"]
    assert command("bundle").call(words) == 0
    verified, copy = verify(tmp_path / "b.tar.xz"), tmp_path / "thin"
    make_compact(campaign.root, copy)
    raw = {f"results/demo/{p.relative_to(copy).as_posix()}": sha256_of(p) for p in raw_files(copy)}
    made = {f"results/demo/{name}" for name in ("aggregate.json", "aggregate.csv")}
    results = {n: s for n, s in verified.sha256.items() if n.startswith("results/") and "/figures/" not in n}
    assert {n: s for n, s in results.items() if n not in made} == raw
    assert verified.findings == [] and any(name.endswith(".jsonl.gz") for name in verified.sha256)
    assert reproduce(tmp_path / "b.tar.xz", verified).findings == []


def test_a_compact_bundle_keeps_the_step_records_of_cells_that_do_not_count(
    campaign: Campaign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be all that says that its connector was off: without them it would count again."""
    found = read_campaign(campaign.root)
    lost = next(c for c in found.cells() if c.phase == "b" and "256x16" not in c.cell_id and c.steps)
    runs = tuple(
        replace(
            run,
            cells=tuple(replace(c, faults=(Problem("file_missing"),)) if c is lost else c for c in run.cells),
        )
        for run in found.runs
    )
    monkeypatch.setattr("connector_tax.read.bundle.read_campaign", lambda root: replace(found, runs=runs))
    bundle(campaign.root, tmp_path / "b.tar.xz", compact=True)
    held = [n for n in verify(tmp_path / "b.tar.xz").sha256 if "/phase_b/" in n and "engine_step" in n]
    assert [n for n in held if lost.cell_id in n and f"_{lost.config}/" in n]
    assert not [n for n in held if lost.cell_id in n and f"_{lost.config}/" not in n]


def test_an_unfinished_campaign_only_where_it_is_asked_for(campaign: Campaign, tmp_path: Path) -> None:
    root = tmp_path / "open"
    shutil.copytree(campaign.root, root)
    (root / f"{DATE}_plain" / "phase_b" / "receipt.json").unlink()
    with pytest.raises(
        ArtifactError, match="the first plain in phase b, so the campaign is not finished"
    ) as e:
        bundle(root, tmp_path / "b.tar.xz")
    assert "\n" not in str(e.value) and "--partial" in str(e.value)
    with pytest.raises(ArtifactError, match="with --partial and without --compact"):
        bundle(root, tmp_path / "b.tar.xz", partial=True, compact=True)
    assert not (tmp_path / "b.tar.xz").exists()
    bundle(root, tmp_path / "b.tar.xz", partial=True)
    assert reproduce(tmp_path / "b.tar.xz", verify(tmp_path / "b.tar.xz")).findings == []


def test_a_damaged_campaign_is_bundled_as_it_is_and_said_to_be(
    campaign: Campaign, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, archive = tmp_path / "damaged", tmp_path / "b.tar.xz"
    shutil.copytree(campaign.root, root)
    *_, lost, cut = sorted((root / f"{DATE}_plain" / "phase_b" / "cells").iterdir())
    shutil.rmtree(lost)
    next(cut.glob("requests*.jsonl")).write_text("")
    assert command("bundle").call([str(root), "--to", str(archive)]) == 0
    said = capsys.readouterr().err.splitlines()
    assert archive.is_file() and len(said) == 1
    readme = text_in(archive, "README.txt")
    problems = json.loads(text_in(archive, "results/demo/aggregate.json"))["problems"]
    assert {Path(p["subject"]).name for p in problems} >= {lost.name, cut.name}
    first = f"{problems[0]['subject']}: {problem_text(msgspec.convert(problems[0], Problem))}"
    assert said[0].startswith(f"{root}: the analysis found {len(problems)} problems, the first {first}. ")
    assert f"as it is, with {len(problems)} problems that aggregate.json lists." in readme.splitlines()[0]


def test_a_campaign_before_its_reference_rates(tmp_path: Path) -> None:
    early = Campaign(tmp_path / "early", campaign_config(**SMALL))
    early.measure("plain", "a")
    with pytest.raises(ArtifactError, match="is not finished"):
        bundle(early.root, tmp_path / "b.tar.xz")
    bundle(early.root, tmp_path / "b.tar.xz", partial=True)
    assert reproduce(tmp_path / "b.tar.xz", verify(tmp_path / "b.tar.xz")).findings == []


def resealed(folder: Path, name: str, content: str) -> None:
    """A change by somebody who also wrote the checksums anew."""
    (folder / name).write_text(content)
    listed = read_manifest((folder / MANIFEST).read_bytes())
    assert listed is not None
    (folder / MANIFEST).write_text(manifest_text({**listed, name: sha256_of(folder / name)}))


def test_what_comes_out_otherwise_is_named_with_its_first_path(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "results/demo/aggregate.json"
    aggregate = json.loads((copy / name).read_text())
    aggregate["cells"][1]["ttft_ms"]["p90"] = 1.5
    resealed(copy, name, json.dumps(aggregate, indent=2, ensure_ascii=False) + "\n")
    figure = next((copy / "results/demo/figures").glob("*.svg"))
    svg = figure.relative_to(copy).as_posix()
    resealed(copy, svg, figure.read_text().replace("</svg>", "<!-- --></svg>"))
    assert command("verify").call([str(copy), "--reproduce"]) == 1
    out = capsys.readouterr().out.splitlines()
    assert any(x.startswith(f"{name}: differs, first at $.cells[1].ttft_ms.p90: 1.5, today ") for x in out)
    assert f"{svg}: differs" in out


def test_a_bundle_without_a_campaign_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    (tmp_path / MANIFEST).write_text(manifest_text({"x": sha256_of(tmp_path / "x")}))
    with pytest.raises(ArtifactError, match="has 0 campaigns"):
        command("verify").call([str(tmp_path), "--reproduce"])
    with pytest.raises(ArtifactError, match="no such file or folder"):
        command("verify").call([str(tmp_path / "nothing.tar.xz")])


@pytest.mark.parametrize("options", [[], ["--reproduce"]])
def test_a_folder_that_is_no_bundle_is_a_mistake_and_no_finding(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(
        ArtifactError, match=r"no bundle, since it has no manifest-sha256\.txt\. Give an archive"
    ):
        command("verify").call([str(tmp_path), *options])
