"""A campaign's changes as an archive: whole units travel, nothing leaves the folder, nothing of another campaign is mixed in."""

import io
import json
import os
import shutil
import tarfile
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.artifacts import parcel
from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.artifacts.parcel import pack, put_back, take
from connector_tax.base.errors import ArtifactError, EngineError
from connector_tax.base.locks import started_once
from connector_tax.base.plan import named
from connector_tax.commands.run import COMMAND
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
        str(p.relative_to(folder.root)): p.read_text() for p in sorted(folder.root.rglob("*")) if p.is_file()
    }


def test_a_run_that_changed_replaces_what_was_there(there: CampaignFolder, tmp_path: Path) -> None:
    here = CampaignFolder(tmp_path / "here" / "demo")
    assert pack(there, tmp_path / "1.tar.gz") == [
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
    (there.root / RUN / "attempt_1").mkdir()
    (there.root / RUN / "vllm_stdout.log").rename(there.root / RUN / "attempt_1" / "vllm_stdout.log")
    write(there, f"{RUN}/receipt.json", "{}")
    pack(there, tmp_path / "2.tar.gz")
    take(tmp_path / "2.tar.gz", here)
    assert {n for n in files(here) if n.startswith(RUN)} == {
        f"{RUN}/attempt_1/vllm_stdout.log",
        f"{RUN}/cells/r1_8x8/cell.json",
        f"{RUN}/receipt.json",
    }
    assert list(here.root.rglob(".*")) == [], "nothing temporary is left"


def test_records_of_a_preflight_travel(there: CampaignFolder, tmp_path: Path) -> None:
    """By what hooks took there a connector that was off is found; at home it was measured."""
    steps = "preflight/nixl_both/steps/engine_step.scheduler.1.jsonl"
    write(there, steps, "raw")
    write(there, "preflight/nixl_both/.decision.json.0123abcd.tmp", "{")
    pack(there, tmp_path / "1.tar.gz")
    here = CampaignFolder(tmp_path / "here" / "demo")
    take(tmp_path / "1.tar.gz", here)
    assert [name for name in files(here) if name.startswith("preflight")] == [steps]


@pytest.mark.parametrize("name", ["../outside.json", "a/../../b", "link"])
def test_an_archive_that_leads_outside_is_refused(there: CampaignFolder, tmp_path: Path, name: str) -> None:
    """By the data filter of ``tarfile``."""
    archive = tmp_path / "bad.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(there.campaign_file, "campaign.json")
        member = tarfile.TarInfo(name)
        if name == "link":
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(member)
    here = CampaignFolder(tmp_path / "here" / "demo")
    with pytest.raises(ArtifactError, match=r"cannot be unpacked"):
        take(archive, here)
    assert files(here) == {}


@pytest.mark.parametrize(
    ("key", "other"), [("campaign", "another"), ("date", "2026-02-01"), ("config", {"seed": 2})]
)
def test_a_parcel_of_another_campaign_is_refused(
    there: CampaignFolder, tmp_path: Path, key: str, other: object
) -> None:
    pack(there, tmp_path / "1.tar.gz")
    here = CampaignFolder(tmp_path / "here" / "demo")
    document = {**json.loads(there.campaign_file.read_text()), key: other}
    write(here, "campaign.json", json.dumps(document))
    before = files(here)
    with pytest.raises(ArtifactError, match=f"its {key} is another than that of"):
        take(tmp_path / "1.tar.gz", here)
    assert files(here) == before


def test_a_parcel_from_a_host_with_another_interpreter_is_taken(
    there: CampaignFolder, tmp_path: Path
) -> None:
    """A start there wrote into campaign.json what may change at any time, and nothing of it could be taken home."""
    pack(there, tmp_path / "1.tar.gz")
    here = CampaignFolder(tmp_path / "here" / "demo")
    own = {"engine": {"python": "/home/me/python", "port": 9000}, "analysis": {"confidence": 0.9}}
    write(
        here,
        "campaign.json",
        json.dumps({**json.loads(there.campaign_file.read_text()), "config": own}),
    )
    taken = take(tmp_path / "1.tar.gz", here)
    assert RUN in taken.units
    assert json.loads(here.campaign_file.read_text())["config"] == own


def test_a_parcel_of_another_campaign_is_refused_where_there_is_none_yet(
    there: CampaignFolder, tmp_path: Path
) -> None:
    """It was taken into the folder of the campaign whose config file was given."""
    pack(there, tmp_path / "1.tar.gz")
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
    pack(there, first)
    here = CampaignFolder(tmp_path / "here" / "demo")
    assert take(first, here).kept == []
    launched(here, RUN, "there, once", "here")
    write(here, f"{RUN}/cells/r2_8x8/cell.json", "{}")
    write(here, f"{RUN}/receipt.json", "{}")
    before = files(here)
    assert take(first, here).kept == [RUN]
    assert files(here) == before


class Killed(BaseException):
    pass


def killed_at(n: int, archive: Path, folder: CampaignFolder) -> bool:
    """Whether a take had an n-th rename, before which it was killed: nothing that it does at its end is done."""
    renames = count(1)
    replace = os.replace

    def replaced(*given: Any) -> None:
        if next(renames) == n:
            patch.setattr(parcel, "put_back", lambda folder: None)
            raise Killed
        replace(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", replaced)
        try:
            take(archive, folder)
        except Killed:
            return True
    return False


def test_a_take_that_is_killed_at_any_rename_loses_nothing(there: CampaignFolder, tmp_path: Path) -> None:
    """What the next sitting finds: each run as it was or as it is in the archive, and rates of what is there or none."""
    other = "2026-01-31_noop_connector/phase_a"
    for run in (RUN, other):
        launched(there, run, "there")
        write(there, f"{run}/receipt.json", "{}")
    write(there, "reference_rates.json", "once")
    pack(there, tmp_path / "1.tar.gz")
    for run in (RUN, other):
        launched(there, run, "there", "there, again")
        write(there, f"{run}/cells/r2_8x8/cell.json", "{}")
    write(there, "reference_rates.json", "again")
    pack(there, tmp_path / "2.tar.gz")
    for n in count(1):
        here = CampaignFolder(tmp_path / f"{n}" / "demo")
        take(tmp_path / "1.tar.gz", here)
        before = files(here)
        if not killed_at(n, tmp_path / "2.tar.gz", here):
            break
        put_back(here)
        after = files(here)
        at = {run: len(json.loads(after[f"{run}/launches.json"])["launches"]) for run in (RUN, other)}
        assert before.keys() - after.keys() <= {"reference_rates.json"}
        assert all((f"{run}/cells/r2_8x8/cell.json" in after) == (k == 2) for run, k in at.items())
        rates = after.get("reference_rates.json")
        assert rates is None or at == dict.fromkeys(at, 1 if rates == "once" else 2), n
        take(tmp_path / "2.tar.gz", here)
        assert all(files(there)[name] == text for name, text in files(here).items())
    assert n > 5


def test_a_take_into_an_empty_folder_that_is_killed_leaves_no_run_without_its_date(
    there: CampaignFolder, tmp_path: Path
) -> None:
    """The next sitting took today for the campaign's date and measured all of it again; the archive was refused then."""
    pack(there, tmp_path / "1.tar.gz")
    for n in count(1):
        here = CampaignFolder(tmp_path / f"{n}" / "demo")
        if not killed_at(n, tmp_path / "1.tar.gz", here):
            break
        assert here.campaign_file.is_file() or not here.runs()
        assert here.measured_on() in ("2026-01-31", None)
    assert n > 2


def test_a_disk_that_fills_in_a_take_leaves_every_run(
    there: CampaignFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack(there, tmp_path / "1.tar.gz")
    here = CampaignFolder(tmp_path / "here" / "demo")
    take(tmp_path / "1.tar.gz", here)
    write(there, f"{RUN}/cells/r2_8x8/cell.json", "{}")
    pack(there, tmp_path / "2.tar.gz")
    before, replace, renames = files(here), os.replace, count(1)

    def full(*given: Any) -> None:
        if next(renames) == 2:
            raise OSError(28, "No space left on device")
        replace(*given)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        take(tmp_path / "2.tar.gz", here)
    assert files(here) == before


def test_a_disk_that_fills_while_an_archive_is_unpacked_is_no_fault_of_the_archive(
    there: CampaignFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was to be brought once more."""
    pack(there, tmp_path / "1.tar.gz")
    here = CampaignFolder(tmp_path / "here" / "demo")

    def full(*given: Any, **named: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "extractall", full)
    with pytest.raises(
        ArtifactError, match=r"here/demo: cannot write \(No space left on device\).*; make room"
    ):
        take(tmp_path / "1.tar.gz", here)
    assert files(here) == {}


def test_an_archive_is_taken_again_after_one_that_was_killed(there: CampaignFolder, tmp_path: Path) -> None:
    """It had put one run in its place and was removing the one that had been there, and had moved another one away."""
    pack(there, tmp_path / "1.tar.gz")
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
    assert files(here) == before and list(here.root.rglob(".*")) == []


def test_a_preflight_that_was_made_again_here_is_kept(there: CampaignFolder, tmp_path: Path) -> None:
    """Every archive is taken again, and the first one's preflight left out a connector that works since."""
    first = tmp_path / "1.tar.gz"
    launched(there, "preflight", "there")
    decided = {d: json.dumps({"configs": {"noop_connector": {"decision": d}}}) for d in ("skip", "include")}
    for name in ("preflight/preflight_status.json", "engine_diff.json"):
        write(there, name, decided["skip"])
    skipped = "2026-01-31_noop_connector/phase_a"
    write(there, f"{skipped}/receipt.json", json.dumps({"status": "skipped"}))
    pack(there, first)
    here = CampaignFolder(tmp_path / "here" / "demo")
    assert "preflight" in take(first, here).units
    launched(here, "preflight", "there", "here")
    (here.root / skipped / "receipt.json").unlink()  # as a start does that is about to measure it
    for name in ("preflight/preflight_status.json", "engine_diff.json"):
        write(here, name, decided["include"])
    taken = take(first, here)
    # The receipt that followed from the other one comes back; it is void, and the next start removes it.
    assert taken.kept == ["preflight", "engine_diff.json"] and "preflight" not in taken.units
    assert here.preflight_status.read_text() == here.engine_diff.read_text() == decided["include"]


def test_a_run_that_was_launched_here_in_vain_takes_a_guests_cells(
    there: CampaignFolder, tmp_path: Path
) -> None:
    """They were said to be older than a launch that measured nothing. What a launch here made of them since is kept."""
    pack(there, tmp_path / "1.tar.gz")
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
    pack(there, tmp_path / "1.tar.gz")
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
    pack(there, first)
    here = CampaignFolder(tmp_path / "here" / "demo")
    take(first, here)
    launched(here, RUN, "there", "here")
    write(here, "reference_rates.json", "here")
    assert take(first, here).kept == [RUN, "reference_rates.json"]
    assert here.reference_rates.read_text() == "here"


@pytest.mark.parametrize("order", ["012", "021", "0121", "2101", "20"])
def test_rates_are_those_of_the_phase_a_that_is_there(
    there: CampaignFolder, tmp_path: Path, order: str
) -> None:
    """An archive of rates and of no run put those of an earlier Phase A in place of the ones that followed from the runs here."""
    other = "2026-01-31_noop_connector/phase_a"
    for run in (RUN, other):
        launched(there, run, "once")
        write(there, f"{run}/receipt.json", "{}")
    for n, (run, rates) in enumerate(((RUN, ""), (RUN, "once"), (other, "again"))):
        if rates:
            write(there, "reference_rates.json", rates)
        if rates == "again":
            launched(there, run, "once", "again")
        pack(there, tmp_path / f"{n}.tar.gz")
    here = CampaignFolder(tmp_path / "here" / "demo")
    for name in order:
        take(tmp_path / f"{name}.tar.gz", here)
    assert here.reference_rates.read_text() == "again"
    # The other run is measured again at home, and its rates are of neither host's Phase A then.
    launched(here, RUN, "once", "at home")
    write(here, "reference_rates.json", "at home")
    launched(there, other, "once", "again", "once more")
    write(there, "reference_rates.json", "once more")
    pack(there, tmp_path / "3.tar.gz")
    taken = take(tmp_path / "3.tar.gz", here)
    assert (taken.kept, taken.removed) == ([RUN], ["reference_rates.json"])
    assert not here.reference_rates.exists()


def test_what_the_model_puts_in_is_taken_from_a_later_archive_than_the_rates(
    there: CampaignFolder, tmp_path: Path
) -> None:
    """A sitting may end between the two. The archive's was said to be older than the one here, where there was none."""
    here = CampaignFolder(tmp_path / "here" / "demo")
    for n, again in enumerate(("once", "again")):
        launched(there, RUN, *("once", "again")[: n + 1])
        there.put_in.unlink(missing_ok=True)
        for made in ("reference_rates.json", "put_in.json"):
            write(there, made, again)
            archive = tmp_path / f"{again}_{made}.tar.gz"
            pack(there, archive)
            taken = take(archive, here)
            assert taken.kept == [] and made in taken.units
            assert here.reference_rates.read_text() == again
            assert here.put_in.exists() == (made == "put_in.json")
    assert take(tmp_path / "once_put_in.json.tar.gz", here).kept[1:] == [
        "reference_rates.json",
        "put_in.json",
    ]
    assert here.put_in.read_text() == "again"


def test_rates_go_where_an_archive_brings_another_phase_a_without_any(
    there: CampaignFolder, tmp_path: Path
) -> None:
    launched(there, RUN, "once")
    write(there, "reference_rates.json", "once")
    pack(there, tmp_path / "1.tar.gz")
    here = CampaignFolder(tmp_path / "here" / "demo")
    take(tmp_path / "1.tar.gz", here)
    launched(there, RUN, "once", "again")
    there.reference_rates.unlink()
    pack(there, tmp_path / "2.tar.gz")
    assert take(tmp_path / "2.tar.gz", here).removed == ["reference_rates.json"]
    assert not here.reference_rates.exists()


def test_what_was_read_before_is_read_again(there: CampaignFolder, tmp_path: Path) -> None:
    """Receipts bring the times of the other host. The report of the runs before passed for one of those that were taken."""
    pack(there, tmp_path / "1.tar.gz")
    here = CampaignFolder(tmp_path / "here" / "demo")
    take(tmp_path / "1.tar.gz", here)
    write(here, "aggregate.json", "of one launch")
    launched(there, RUN, "there, again")
    write(there, f"{RUN}/receipt.json", "{}")
    os.utime(there.root / RUN / "receipt.json", (1e9, 1e9))
    write(there, "aggregate.json", "of the other host")
    pack(there, tmp_path / "2.tar.gz")
    take(tmp_path / "2.tar.gz", here)
    assert here.aggregate.read_text() == "of one launch"
    receipt = here.root / RUN / "receipt.json"
    assert 0 < here.aggregate.stat().st_mtime < receipt.stat().st_mtime  # to Snakemake 0 is no time
    # An archive that brings nothing new makes nobody read again.
    os.utime(here.aggregate)
    take(tmp_path / "2.tar.gz", here)
    assert here.aggregate.stat().st_mtime > receipt.stat().st_mtime


def test_logs_of_both_hosts_are_kept(there: CampaignFolder, tmp_path: Path) -> None:
    here = CampaignFolder(tmp_path / "here" / "demo")
    for n, line in enumerate(("there, first\n", "there, first\nthere, second\n"), start=1):
        write(there, "logs/progress.log", line)
        pack(there, tmp_path / f"{n}.tar.gz")
    write(here, "logs/progress.log", "here\n")
    write(here, "logs/measure_a_plain.log", "error: here\n")
    for n in (1, 2, 2):
        take(tmp_path / f"{n}.tar.gz", here)
    kept = {name: text for name, text in files(here).items() if name.startswith("logs/")}
    assert kept == {
        "logs/1/progress.log": "there, first\n",
        "logs/2/progress.log": "there, first\nthere, second\n",
        "logs/measure_a_plain.log": "error: here\n",
        "logs/progress.log": "here\n",
    }


def test_what_was_left_out_with_another_reason_is_taken(there: CampaignFolder, tmp_path: Path) -> None:
    """A sitting's preflight was made again: nothing that was measured is in either receipt."""
    run = "2026-01-31_noop_connector/phase_a"
    here = CampaignFolder(tmp_path / "here" / "demo")
    for n, reason in enumerate(("no module", "too few cores")):
        write(there, f"{run}/receipt.json", json.dumps({"status": "skipped", "reason": reason}))
        pack(there, tmp_path / f"{n}.tar.gz")
        assert take(tmp_path / f"{n}.tar.gz", here).kept == []
        assert reason in (here.root / run / "receipt.json").read_text()


@pytest.mark.parametrize(("launches", "its"), [(("here",), ("there",)), ((), ()), ((), ("there",))], ids=str)
def test_a_run_that_was_measured_on_both_hosts_is_refused_by_name(
    there: CampaignFolder, tmp_path: Path, launches: tuple[str, ...], its: tuple[str, ...]
) -> None:
    """A host that began anew, or a guest in another run's launch, which has no launch of its own."""
    if its:
        launched(there, RUN, *its)
    pack(there, tmp_path / "1.tar.gz")
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
    pack(there, tmp_path / "1.tar.gz")
    assert take(tmp_path / "1.tar.gz", here).kept == []
    assert f"{RUN}/cells/r2_8x8/cell.json" in files(here)


def test_what_failed_here_without_a_cell_gives_way(there: CampaignFolder, tmp_path: Path) -> None:
    """The host has what the connector wants, and this machine has not: nothing was measured on both."""
    launched(there, RUN, "there")
    pack(there, tmp_path / "1.tar.gz")
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
    pack(there, tmp_path / "1.tar.gz")
    take(tmp_path / "1.tar.gz", here)
    assert f"{RUN}/cells/r1_8x8/cell.json" in files(here)


def test_nothing_is_taken_while_the_campaign_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with started_once(tmp_path / "demo" / ".start.lock", "demo"), pytest.raises(EngineError) as told:
        monkeypatch.setattr(named, "results_folder", lambda: tmp_path)
        COMMAND.call(["demo", "--take", str(tmp_path / "1.tar.gz")])
    assert "campaign demo was started already and is going on" in str(told.value)


def test_nothing_is_taken_while_a_job_measures_whose_snakemake_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch system's goes on, and holds the campaign's lock; the start's was dropped."""
    monkeypatch.setattr(locks, "WAIT_S", 0.1)
    monkeypatch.setattr(named, "results_folder", lambda: tmp_path)
    folder = CampaignFolder(tmp_path / "demo")
    with locks.held(folder.lock, "campaign demo", "4711", shared=True), pytest.raises(EngineError) as told:
        COMMAND.call(["demo", "--take", "1.tar.gz"])
    assert "campaign demo is in use by process 4711" in str(told.value)


def test_settings_of_the_analysis_may_differ(there: CampaignFolder, tmp_path: Path) -> None:
    pack(there, tmp_path / "1.tar.gz")
    here = CampaignFolder(tmp_path / "here" / "demo")
    document = {**json.loads(there.campaign_file.read_text()), "config": {"analysis": {"confidence": 0.9}}}
    write(here, "campaign.json", json.dumps(document))
    assert RUN in take(tmp_path / "1.tar.gz", here).units


def test_a_small_archive_that_holds_much_is_refused(
    there: CampaignFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parcel, "MOST_BYTES", 1 << 20)
    archive = tmp_path / "large.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(there.campaign_file, "campaign.json")
        member = tarfile.TarInfo("a")
        member.size = 2 << 20
        tar.addfile(member, io.BytesIO(bytes(member.size)))
    here = CampaignFolder(tmp_path / "here" / "demo")
    with pytest.raises(ArtifactError, match="would unpack to more than 1048576 bytes"):
        take(archive, here)
    assert files(here) == {}


def test_a_cut_archive_is_one_message(there: CampaignFolder, tmp_path: Path) -> None:
    archive = tmp_path / "1.tar.gz"
    pack(there, archive)
    archive.write_bytes(archive.read_bytes()[:-40])
    here = CampaignFolder(tmp_path / "here" / "demo")
    with pytest.raises(ArtifactError, match=r"cannot be unpacked .*Bring it here once more"):
        take(archive, here)
    assert files(here) == {}
