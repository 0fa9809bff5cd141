"""A campaign's changes as an archive: whole units travel, nothing leaves the folder, nothing of another campaign is mixed in."""

import io
import json
import shutil
import tarfile
from pathlib import Path

import pytest

from connector_tax.base.artifacts import parcel
from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.artifacts.parcel import pack, standing, take
from connector_tax.base.errors import ArtifactError, EngineError
from connector_tax.base.locks import started_once
from connector_tax.commands.advance import COMMAND
from connector_tax.run.measure import locks

ROOT = Path(__file__).parents[3]
RUN = "2026-01-31_plain/phase_a"


@pytest.fixture
def there(tmp_path: Path) -> CampaignFolder:
    folder = CampaignFolder(tmp_path / "there" / "demo")
    write(folder, "campaign.json", json.dumps({"campaign": "demo", "date": "2026-01-31", "config": {}}))
    write(folder, f"{RUN}/vllm_stdout.log", "first launch")
    write(folder, f"{RUN}/cells/r1_8x8/cell.json", "{}")
    write(folder, f"{RUN}/cells/.r2_8x8.partial/requests.jsonl", "")
    write(folder, f"{RUN}/steps/engine_step.1.jsonl", "raw")
    write(folder, "2026-01-31_noop_connector/phase_a/receipt.json", "{}")
    return folder


def write(folder: CampaignFolder, name: str, text: str) -> None:
    path = folder.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def files(folder: CampaignFolder) -> dict[str, str]:
    return {
        str(p.relative_to(folder.root)): p.read_text()
        for p in sorted(folder.root.rglob("*"))
        if p.is_file() and p != folder.packed
    }


def test_only_what_changed_travels_and_replaces_what_was_there(there: CampaignFolder, tmp_path: Path) -> None:
    here = CampaignFolder(tmp_path / "here" / "demo")
    empty = standing(CampaignFolder(tmp_path / "nothing"))
    assert pack(there, empty, tmp_path / "1.tar.gz") == [
        "2026-01-31_noop_connector/phase_a",
        RUN,
        "campaign.json",
    ]
    take(tmp_path / "1.tar.gz", here)
    assert set(files(here)) == {
        "campaign.json",
        f"{RUN}/vllm_stdout.log",
        f"{RUN}/cells/r1_8x8/cell.json",
        "2026-01-31_noop_connector/phase_a/receipt.json",
    }
    # The next launch puts the log of the first aside: here it must not lie in both places.
    before = standing(there)
    (there.root / RUN / "attempt_1").mkdir()
    (there.root / RUN / "vllm_stdout.log").rename(there.root / RUN / "attempt_1" / "vllm_stdout.log")
    write(there, f"{RUN}/receipt.json", "{}")
    assert pack(there, before, tmp_path / "2.tar.gz") == [RUN, "campaign.json"]
    take(tmp_path / "2.tar.gz", here)
    assert {n for n in files(here) if n.startswith(RUN)} == {
        f"{RUN}/attempt_1/vllm_stdout.log",
        f"{RUN}/cells/r1_8x8/cell.json",
        f"{RUN}/receipt.json",
    }
    assert list(here.root.rglob(".*")) == [here.packed], "nothing temporary is left"


@pytest.mark.parametrize(
    "name", ["../outside.json", "/etc/outside.json", "2026-01-31_plain/.hidden/x", "a/../../b"]
)
def test_an_archive_that_names_a_place_outside_is_refused(
    there: CampaignFolder, tmp_path: Path, name: str
) -> None:
    archive = tmp_path / "bad.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(there.campaign_file, "campaign.json")
        member = tarfile.TarInfo(name)
        member.size = 1
        tar.addfile(member, io.BytesIO(b"x"))
    here = CampaignFolder(tmp_path / "here" / "demo")
    with pytest.raises(ArtifactError, match=r"is no plain file or folder of a campaign\. Nothing was taken"):
        take(archive, here)
    assert files(here) == {}


def test_a_link_in_an_archive_is_refused(there: CampaignFolder, tmp_path: Path) -> None:
    archive = tmp_path / "link.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        member = tarfile.TarInfo("campaign.json")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(member)
    with pytest.raises(ArtifactError, match="is no plain file or folder"):
        take(archive, CampaignFolder(tmp_path / "here"))


@pytest.mark.parametrize(
    ("key", "other"), [("campaign", "another"), ("date", "2026-02-01"), ("config", {"seed": 2})]
)
def test_a_parcel_of_another_campaign_is_refused(
    there: CampaignFolder, tmp_path: Path, key: str, other: object
) -> None:
    pack(there, standing(CampaignFolder(tmp_path / "nothing")), tmp_path / "1.tar.gz")
    here = CampaignFolder(tmp_path / "here" / "demo")
    document = {**json.loads(there.campaign_file.read_text()), key: other}
    write(here, "campaign.json", json.dumps(document))
    before = files(here)
    with pytest.raises(ArtifactError, match=f"its {key} is another than that of"):
        take(tmp_path / "1.tar.gz", here)
    assert files(here) == before


def test_a_parcel_of_another_campaign_is_refused_where_there_is_none_yet(
    there: CampaignFolder, tmp_path: Path
) -> None:
    """It was taken into the folder of the campaign whose config file was given."""
    pack(there, standing(CampaignFolder(tmp_path / "nothing")), tmp_path / "1.tar.gz")
    here = CampaignFolder(tmp_path / "here" / "h200")
    with pytest.raises(ArtifactError, match=r"is of campaign 'demo', and .*/here/h200 is another's"):
        take(tmp_path / "1.tar.gz", here)
    assert files(here) == {}


def launched(folder: CampaignFolder, run: str, *started: str) -> None:
    launches = [{"attempt": n, "started_utc": s, "elapsed_s": 1.0} for n, s in enumerate(started, start=1)]
    write(folder, f"{run}/launches.json", json.dumps({"schema": 1, "launches": launches}))


def test_a_run_that_went_on_here_since_is_kept(there: CampaignFolder, tmp_path: Path) -> None:
    """``--take out/*.tar.gz`` takes every archive again; what was measured here after one of them is no less measured."""
    first = tmp_path / "1.tar.gz"
    launched(there, RUN, "there, once")
    pack(there, standing(CampaignFolder(tmp_path / "nothing")), first)
    here = CampaignFolder(tmp_path / "here" / "demo")
    assert take(first, here).kept == []
    launched(here, RUN, "there, once", "here")
    write(here, f"{RUN}/cells/r2_8x8/cell.json", "{}")
    write(here, f"{RUN}/receipt.json", "{}")
    before = files(here)
    assert take(first, here).kept == [RUN]
    assert files(here) == before
    # And what went on there since is newer than what is here, also where it has lost a cell on its way.
    (here.root / RUN / "launches.json").unlink()
    launched(there, RUN, "there, once", "there, again")
    (there.root / RUN / "cells" / "r1_8x8" / "cell.json").unlink()
    pack(there, standing(here), tmp_path / "2.tar.gz")
    launched(here, RUN, "there, once")
    assert take(tmp_path / "2.tar.gz", here).kept == []
    assert f"{RUN}/cells/r2_8x8/cell.json" not in files(here)


def test_an_archive_is_taken_again_after_one_that_was_killed(there: CampaignFolder, tmp_path: Path) -> None:
    """It had put one run in its place and was removing the one that had been there, and had moved another one away."""
    pack(there, standing(CampaignFolder(tmp_path / "nothing")), tmp_path / "1.tar.gz")
    here = CampaignFolder(tmp_path / "here" / "demo")
    take(tmp_path / "1.tar.gz", here)
    before = files(here)
    write(here, "2026-01-31_plain/.phase_a.replaced/cells/r1_8x8/cell.json", "{}")
    write(here, ".taken.abcdefgh/campaign.json", "{}")
    own = here.root / "2026-01-31_noop_connector" / "phase_b"
    write(here, "2026-01-31_noop_connector/.phase_b.replaced/receipt.json", "{}")
    assert take(tmp_path / "1.tar.gz", here).units == take(tmp_path / "1.tar.gz", here).units
    (own / "receipt.json").unlink()
    own.rmdir()
    assert files(here) == before and list(here.root.rglob(".*")) == [here.packed]


def test_a_preflight_that_was_made_again_here_is_kept(there: CampaignFolder, tmp_path: Path) -> None:
    """Every archive is taken again, and the first one's preflight left out a connector that works since."""
    first = tmp_path / "1.tar.gz"
    launched(there, "preflight", "there")
    decided = {d: json.dumps({"configs": {"noop_connector": {"decision": d}}}) for d in ("skip", "include")}
    for name in ("preflight/preflight_status.json", "engine_diff.json"):
        write(there, name, decided["skip"])
    skipped = "2026-01-31_noop_connector/phase_a"
    write(there, f"{skipped}/receipt.json", json.dumps({"status": "skipped"}))
    pack(there, standing(CampaignFolder(tmp_path / "nothing")), first)
    here = CampaignFolder(tmp_path / "here" / "demo")
    assert "preflight" in take(first, here).units
    launched(here, "preflight", "there", "here")
    (here.root / skipped / "receipt.json").unlink()  # as a start does that is about to measure it
    for name in ("preflight/preflight_status.json", "engine_diff.json"):
        write(here, name, decided["include"])
    taken = take(first, here)
    assert taken.kept == [skipped, "preflight", "engine_diff.json"] and "preflight" not in taken.units
    assert not (here.root / skipped / "receipt.json").exists()
    assert here.preflight_status.read_text() == here.engine_diff.read_text() == decided["include"]
    # One of a later sitting has no preflight, and none is said to be kept of it.
    before = standing(there)
    write(there, f"{RUN}/cells/r2_8x8/cell.json", "{}")
    assert pack(there, before, tmp_path / "2.tar.gz") == [RUN, "campaign.json"]
    assert take(tmp_path / "2.tar.gz", here).kept == []


def test_receipts_of_what_was_left_out_travel_without_the_preflight(
    there: CampaignFolder, tmp_path: Path
) -> None:
    """A second sitting packs no preflight: its receipts were said to be older than the one here, and the campaign had an end there alone."""
    launched(there, "preflight", "there")
    write(
        there,
        "preflight/preflight_status.json",
        json.dumps({"configs": {"noop_connector": {"decision": "skip"}, "plain": {"decision": "include"}}}),
    )
    write(there, f"{RUN}/receipt.json", json.dumps({"status": "failed"}))
    here, before = CampaignFolder(tmp_path / "here" / "demo"), standing(CampaignFolder(tmp_path / "nothing"))
    left_out = [f"2026-01-31_{c}/phase_b" for c in ("noop_connector", "plain")]
    for archive in ("1.tar.gz", "2.tar.gz"):
        pack(there, before, tmp_path / archive)
        assert take(tmp_path / archive, here).kept == []
        before = standing(there)
        for run in left_out:  # by preflight, and since it failed in Phase A
            write(there, f"{run}/receipt.json", json.dumps({"status": "skipped"}))
    assert all((here.root / run / "receipt.json").is_file() for run in left_out)


def test_a_run_that_was_launched_here_in_vain_takes_a_guests_cells(
    there: CampaignFolder, tmp_path: Path
) -> None:
    """They were said to be older than a launch that measured nothing. What a launch here made of them since is kept."""
    pack(there, standing(CampaignFolder(tmp_path / "nothing")), tmp_path / "1.tar.gz")
    here = CampaignFolder(tmp_path / "here" / "demo")
    write(here, "campaign.json", there.campaign_file.read_text())
    launched(here, RUN, "here")
    assert RUN in take(tmp_path / "1.tar.gz", here).units
    launched(here, RUN, "here")
    write(here, f"{RUN}/receipt.json", "{}")
    assert take(tmp_path / "1.tar.gz", here).kept == [RUN]


def test_a_run_that_failed_here_is_not_given_for_one_that_was_only_launched(
    there: CampaignFolder, tmp_path: Path
) -> None:
    shutil.rmtree(there.root / RUN / "cells")
    launched(there, RUN, "there")
    pack(there, standing(CampaignFolder(tmp_path / "nothing")), tmp_path / "1.tar.gz")
    here = CampaignFolder(tmp_path / "here" / "demo")
    write(here, "campaign.json", there.campaign_file.read_text())
    launched(here, RUN, "here")
    write(here, f"{RUN}/receipt.json", json.dumps({"status": "failed"}))
    assert take(tmp_path / "1.tar.gz", here).kept == [RUN]


def test_rates_of_a_phase_that_was_measured_again_here_are_kept(
    there: CampaignFolder, tmp_path: Path
) -> None:
    """The archive's are those of the cells that were there before."""
    first = tmp_path / "1.tar.gz"
    launched(there, RUN, "there")
    write(there, "reference_rates.json", "there")
    pack(there, standing(CampaignFolder(tmp_path / "nothing")), first)
    here = CampaignFolder(tmp_path / "here" / "demo")
    take(first, here)
    launched(here, RUN, "there", "here")
    write(here, "reference_rates.json", "here")
    assert take(first, here).kept == [RUN, "reference_rates.json"]
    assert here.reference_rates.read_text() == "here"


def test_what_was_left_out_with_another_reason_is_taken(there: CampaignFolder, tmp_path: Path) -> None:
    """A sitting's preflight was made again: nothing that was measured is in either receipt."""
    run = "2026-01-31_noop_connector/phase_a"
    here = CampaignFolder(tmp_path / "here" / "demo")
    for n, reason in enumerate(("no module", "too few cores")):
        write(there, f"{run}/receipt.json", json.dumps({"status": "skipped", "reason": reason}))
        pack(there, standing(CampaignFolder(tmp_path / "nothing")), tmp_path / f"{n}.tar.gz")
        assert take(tmp_path / f"{n}.tar.gz", here).kept == []
        assert reason in (here.root / run / "receipt.json").read_text()


@pytest.mark.parametrize(("launches", "its"), [(("here",), ("there",)), ((), ()), ((), ("there",))], ids=str)
def test_a_run_that_was_measured_on_both_hosts_is_refused_by_name(
    there: CampaignFolder, tmp_path: Path, launches: tuple[str, ...], its: tuple[str, ...]
) -> None:
    """A host that began anew, or a guest in another run's launch, which has no launch of its own."""
    if its:
        launched(there, RUN, *its)
    pack(there, standing(CampaignFolder(tmp_path / "nothing")), tmp_path / "1.tar.gz")
    here = CampaignFolder(tmp_path / "here" / "demo")
    write(here, "campaign.json", there.campaign_file.read_text())
    write(here, f"{RUN}/cells/r2_8x8/cell.json", "{}")
    if launches:
        launched(here, RUN, *launches)
    before = files(here)
    with pytest.raises(ArtifactError, match="was measured on both hosts, and cell r2_8x8 of it is here"):
        take(tmp_path / "1.tar.gz", here)
    assert files(here) == before


def test_what_was_a_guests_and_went_on_there_in_a_launch_of_its_own_is_taken(
    there: CampaignFolder, tmp_path: Path
) -> None:
    here = CampaignFolder(tmp_path / "here" / "demo")
    for name, text in files(there).items():
        write(here, name, text)
    write(here, f"{RUN}/receipt.json", json.dumps({"status": "failed"}))
    launched(there, RUN, "there")
    write(there, f"{RUN}/cells/r2_8x8/cell.json", "{}")
    write(there, f"{RUN}/receipt.json", json.dumps({"status": "complete"}))
    pack(there, standing(here), tmp_path / "1.tar.gz")
    assert take(tmp_path / "1.tar.gz", here).kept == []
    assert f"{RUN}/cells/r2_8x8/cell.json" in files(here)


def test_what_failed_here_without_a_cell_gives_way(there: CampaignFolder, tmp_path: Path) -> None:
    """The host has what the connector wants, and this machine has not: nothing was measured on both."""
    launched(there, RUN, "there")
    pack(there, standing(CampaignFolder(tmp_path / "nothing")), tmp_path / "1.tar.gz")
    here = CampaignFolder(tmp_path / "here" / "demo")
    launched(here, RUN, "here", "here, again")
    write(here, f"{RUN}/receipt.json", json.dumps({"status": "failed"}))
    assert RUN in take(tmp_path / "1.tar.gz", here).units
    assert f"{RUN}/cells/r1_8x8/cell.json" in files(here)


def test_a_configurations_folder_without_a_run_replaces_none(there: CampaignFolder, tmp_path: Path) -> None:
    """Somebody removed the run there, and its empty folder took the place of every run of the configuration here."""
    here = CampaignFolder(tmp_path / "here" / "demo")
    for name, text in files(there).items():
        write(here, name, text)
    shutil.rmtree(there.root / RUN)
    write(there, "2026-01-31_plain/notes.txt", "removed, since its card was hot")
    pack(there, standing(CampaignFolder(tmp_path / "nothing")), tmp_path / "1.tar.gz")
    take(tmp_path / "1.tar.gz", here)
    assert f"{RUN}/cells/r1_8x8/cell.json" in files(here)


def test_nothing_is_taken_while_the_campaign_goes_on(tmp_path: Path) -> None:
    with started_once(tmp_path / "demo" / ".start.lock", "demo"), pytest.raises(EngineError) as told:
        config = str(ROOT / "config" / "demo.yaml")
        COMMAND.call(
            ["--configfile", config, "--results", str(tmp_path), "--take", str(tmp_path / "1.tar.gz")]
        )
    assert "campaign demo was started already and is going on" in str(told.value)


def test_nothing_is_taken_while_a_job_measures_whose_snakemake_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch system's goes on, and holds the campaign's lock; the start's was dropped."""
    monkeypatch.setattr(locks, "WAIT_S", 0.1)
    config, folder = ROOT / "config" / "demo.yaml", CampaignFolder(tmp_path / "demo")
    with locks.held(folder.lock, "campaign demo", "4711", shared=True), pytest.raises(EngineError) as told:
        COMMAND.call(["--configfile", str(config), "--results", str(tmp_path), "--take", "1.tar.gz"])
    assert "campaign demo is in use by process 4711" in str(told.value)


def test_settings_of_the_analysis_may_differ(there: CampaignFolder, tmp_path: Path) -> None:
    pack(there, standing(CampaignFolder(tmp_path / "nothing")), tmp_path / "1.tar.gz")
    here = CampaignFolder(tmp_path / "here" / "demo")
    document = {**json.loads(there.campaign_file.read_text()), "config": {"analysis": {"confidence": 0.9}}}
    write(here, "campaign.json", json.dumps(document))
    assert RUN in take(tmp_path / "1.tar.gz", here).units


@pytest.mark.parametrize(("members", "each"), [(1, 64 << 20), (200, 0)])
def test_a_small_archive_that_holds_much_is_refused(
    there: CampaignFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, members: int, each: int
) -> None:
    monkeypatch.setattr(parcel, "MOST_MEMBERS", 100)
    archive = tmp_path / "bomb.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(there.campaign_file, "campaign.json")
        for n in range(members):
            member = tarfile.TarInfo(f"{n}")
            member.size = each
            tar.addfile(member, io.BytesIO(bytes(each)))
    here = CampaignFolder(tmp_path / "here" / "demo")
    with pytest.raises(ArtifactError, match="would unpack to more than 200 times its size"):
        take(archive, here)
    assert files(here) == {}


def test_a_cut_archive_is_one_message(there: CampaignFolder, tmp_path: Path) -> None:
    archive = tmp_path / "1.tar.gz"
    pack(there, standing(CampaignFolder(tmp_path / "nothing")), archive)
    archive.write_bytes(archive.read_bytes()[:-40])
    here = CampaignFolder(tmp_path / "here" / "demo")
    with pytest.raises(ArtifactError, match=r"cannot be unpacked .*Bring it here once more"):
        take(archive, here)
    assert files(here) == {}
