"""A campaign's changes as an archive: whole units travel, nothing leaves the folder, nothing of another campaign is mixed in."""

import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.artifacts import archive as archives
from connector_tax.base.artifacts.archive import Taken, pack, put_back, take
from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.errors import ArtifactError, EngineError
from connector_tax.base.locks import started_once
from connector_tax.base.plan import named
from connector_tax.commands.run import COMMAND
from connector_tax.run.measure import locks

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


@pytest.fixture
def here(tmp_path: Path) -> CampaignFolder:
    return CampaignFolder(tmp_path / "here" / "demo")


Bring = Callable[[], Taken]


@pytest.fixture
def bring(there: CampaignFolder, here: CampaignFolder, tmp_path: Path) -> Bring:
    """Pack what is there, as ``1.tar.gz``, ``2.tar.gz`` and so on, and take it here."""
    numbers = count(1)

    def packed_and_taken() -> Taken:
        archive = tmp_path / f"{next(numbers)}.tar.gz"
        pack(there, archive)
        return take(archive, here)

    return packed_and_taken


def write(folder: CampaignFolder, name: str, text: str) -> None:
    path = folder.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def files(folder: CampaignFolder) -> dict[str, str]:
    return {
        str(p.relative_to(folder.root)): p.read_text() for p in sorted(folder.root.rglob("*")) if p.is_file()
    }


def test_a_run_that_changed_replaces_what_was_there(
    there: CampaignFolder, here: CampaignFolder, bring: Bring
) -> None:
    assert bring().units == ["2026-01-31_noop_connector/phase_a", RUN, "campaign.json"]
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
    bring()
    assert {n for n in files(here) if n.startswith(RUN)} == {
        f"{RUN}/attempt_1/vllm_stdout.log",
        f"{RUN}/cells/r1_8x8/cell.json",
        f"{RUN}/receipt.json",
    }
    assert list(here.root.rglob(".*")) == [], "nothing temporary is left"


def test_records_of_a_preflight_travel(there: CampaignFolder, here: CampaignFolder, bring: Bring) -> None:
    """By what hooks took there a connector that was off is found; at home it was measured."""
    steps = "preflight/nixl_both/steps/engine_step.scheduler.1.jsonl"
    write(there, steps, "raw")
    write(there, "preflight/nixl_both/.decision.json.0123abcd.tmp", "{")
    bring()
    assert [name for name in files(here) if name.startswith("preflight")] == [steps]


@pytest.mark.parametrize("name", ["../outside.json", "a/../../b", "link"])
def test_an_archive_that_leads_outside_is_refused(
    there: CampaignFolder, here: CampaignFolder, tmp_path: Path, name: str
) -> None:
    """By the data filter of ``tarfile``."""
    archive = tmp_path / "bad.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(there.campaign_file, "campaign.json")
        member = tarfile.TarInfo(name)
        if name == "link":
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(member)
    with pytest.raises(ArtifactError, match=r"cannot be unpacked"):
        take(archive, here)
    assert files(here) == {}


@pytest.mark.parametrize(
    ("key", "other"), [("campaign", "another"), ("date", "2026-02-01"), ("config", {"seed": 2})]
)
def test_a_parcel_of_another_campaign_is_refused(
    there: CampaignFolder, here: CampaignFolder, bring: Bring, tmp_path: Path, key: str, other: object
) -> None:
    """Also where there is none yet; what may change at any time makes none: a host has another interpreter, port and confidence."""
    document = json.loads(there.campaign_file.read_text())
    write(here, "campaign.json", json.dumps({**document, key: other}))
    before = files(here)
    with pytest.raises(ArtifactError, match=f"its {key} is another than that of"):
        bring()
    assert files(here) == before
    with pytest.raises(ArtifactError, match=r"is of campaign 'demo', and .*/h200 is another's"):
        take(tmp_path / "1.tar.gz", CampaignFolder(tmp_path / "h200"))
    own = {"engine": {"python": "/home/me/python", "port": 9000}, "analysis": {"confidence": 0.9}}
    write(here, "campaign.json", json.dumps({**document, "config": own}))
    assert RUN in bring().units
    assert json.loads(here.campaign_file.read_text())["config"] == own


def launched(folder: CampaignFolder, run: str, *started: str) -> None:
    launches = [{"attempt": n, "started_utc": s, "elapsed_s": 1.0} for n, s in enumerate(started, start=1)]
    write(folder, f"{run}/launches.json", json.dumps({"schema": 1, "launches": launches}))


def test_a_run_that_went_on_here_since_is_kept(
    there: CampaignFolder, here: CampaignFolder, bring: Bring, tmp_path: Path
) -> None:
    """``--take out/*.tar.gz`` takes every archive again; what was measured here after one of them is no less measured, and its rates stay."""
    launched(there, RUN, "there, once")
    write(there, "reference_rates.json", "there")
    assert bring().kept == []
    launched(here, RUN, "there, once", "here")
    write(here, f"{RUN}/cells/r2_8x8/cell.json", "{}")
    write(here, f"{RUN}/receipt.json", "{}")
    write(here, "reference_rates.json", "here")
    before = files(here)
    assert take(tmp_path / "1.tar.gz", here).kept == [RUN, "reference_rates.json"]
    assert files(here) == before


class Killed(BaseException):
    pass


def killed_at(n: int, archive: Path, folder: CampaignFolder) -> bool:
    """Whether a take had an n-th rename, before which it was killed: nothing that it does at its end is done."""
    renames = count(1)
    replace = os.replace

    def replaced(*given: Any) -> None:
        if next(renames) == n:
            patch.setattr(archives, "put_back", lambda folder: None)
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
    there: CampaignFolder, here: CampaignFolder, bring: Bring, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring()
    write(there, f"{RUN}/cells/r2_8x8/cell.json", "{}")
    before, replace, renames = files(here), os.replace, count(1)

    def full(*given: Any) -> None:
        if ".tar" not in str(given) and next(renames) == 2:
            raise OSError(28, "No space left on device")
        replace(*given)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        bring()
    assert files(here) == before


def test_a_disk_that_fills_while_an_archive_is_unpacked_is_no_fault_of_the_archive(
    here: CampaignFolder, bring: Bring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was to be brought once more."""

    def full(*given: Any, **named: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "extractall", full)
    with pytest.raises(ArtifactError, match=r"demo: cannot write \(No space left on device\).*; make room"):
        bring()
    assert files(here) == {}


def test_an_archive_is_taken_again_after_one_that_was_killed(here: CampaignFolder, bring: Bring) -> None:
    """It had put one run in its place and was removing the one that had been there, and had moved another one away."""
    bring()
    before = files(here)
    write(here, "2026-01-31_plain/.phase_a.replaced/cells/r1_8x8/cell.json", "{}")
    write(here, ".taken.abcdefgh/campaign.json", "{}")
    own = here.root / "2026-01-31_noop_connector" / "phase_b"
    write(here, "2026-01-31_noop_connector/.phase_b.replaced/receipt.json", "{}")
    assert bring().units == bring().units
    (own / "receipt.json").unlink()
    own.rmdir()
    assert files(here) == before and list(here.root.rglob(".*")) == []


def test_a_preflight_that_was_made_again_here_is_kept(
    there: CampaignFolder, here: CampaignFolder, bring: Bring, tmp_path: Path
) -> None:
    """Every archive is taken again, and the first one's preflight left out a connector that works since."""
    launched(there, "preflight", "there")
    names, skipped = (
        ("preflight/preflight_status.json", "engine_diff.json"),
        "2026-01-31_noop_connector/phase_a",
    )
    for name in names:
        write(there, name, "skip")
    for n, reason in enumerate(("no module", "too few cores")):
        write(there, f"{skipped}/receipt.json", json.dumps({"status": "skipped", "reason": reason}))
        taken = bring()
        assert taken.kept == [] and ("preflight" in taken.units or n)
        assert reason in (here.root / skipped / "receipt.json").read_text()
    launched(here, "preflight", "there", "here")
    (here.root / skipped / "receipt.json").unlink()  # as a start does that is about to measure it
    for name in names:
        write(here, name, "include")
    taken = take(tmp_path / "1.tar.gz", here)
    # The receipt that followed from the other one comes back; it is void, and the next start removes it.
    assert taken.kept == ["preflight", "engine_diff.json"] and "preflight" not in taken.units
    assert here.preflight_status.read_text() == here.engine_diff.read_text() == "include"


def test_a_run_that_was_launched_here_in_vain_takes_a_guests_cells(
    there: CampaignFolder, here: CampaignFolder, bring: Bring
) -> None:
    """They were said to be older than a launch that measured nothing. What a launch here made of them since is kept."""
    write(here, "campaign.json", there.campaign_file.read_text())
    launched(here, RUN, "here")
    assert RUN in bring().units
    launched(here, RUN, "here")
    write(here, f"{RUN}/receipt.json", "{}")
    assert bring().kept == [RUN]
    # One that failed here is not given for one that was only launched.
    shutil.rmtree(there.root / RUN / "cells")
    shutil.rmtree(here.root / RUN / "cells")
    launched(there, RUN, "there")
    write(here, f"{RUN}/receipt.json", json.dumps({"status": "failed"}))
    assert bring().kept == [RUN]


@pytest.mark.parametrize("order", ["021", "0121", "2101", "20"])
def test_rates_are_those_of_the_phase_a_that_is_there(
    there: CampaignFolder, here: CampaignFolder, tmp_path: Path, order: str
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
    # Nor has an archive whose Phase A is another one and has none yet.
    write(here, "reference_rates.json", "at home")
    launched(there, RUN, "once", "at home", "again")
    there.reference_rates.unlink()
    pack(there, tmp_path / "4.tar.gz")
    assert take(tmp_path / "4.tar.gz", here).removed == ["reference_rates.json"]
    assert not here.reference_rates.exists()


def test_what_the_model_puts_in_is_taken_from_a_later_archive_than_the_rates(
    there: CampaignFolder, here: CampaignFolder, tmp_path: Path
) -> None:
    """A sitting may end between the two. The archive's was said to be older than the one here, where there was none."""
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


def test_what_was_read_before_is_read_again(
    there: CampaignFolder, here: CampaignFolder, bring: Bring
) -> None:
    """Receipts bring the times of the other host. The report of the runs before passed for one of those that were taken."""
    bring()
    write(here, "aggregate.json", "of one launch")
    launched(there, RUN, "there, again")
    write(there, f"{RUN}/receipt.json", "{}")
    os.utime(there.root / RUN / "receipt.json", (1e9, 1e9))
    write(there, "aggregate.json", "of the other host")
    bring()
    assert here.aggregate.read_text() == "of one launch"
    receipt = here.root / RUN / "receipt.json"
    assert 0 < here.aggregate.stat().st_mtime < receipt.stat().st_mtime  # to Snakemake 0 is no time
    # An archive that brings nothing new makes nobody read again.
    os.utime(here.aggregate)
    bring()
    assert here.aggregate.stat().st_mtime > receipt.stat().st_mtime


def test_logs_of_both_hosts_are_kept(
    there: CampaignFolder, here: CampaignFolder, bring: Bring, tmp_path: Path
) -> None:
    first, both = "there, first\n", "there, first\nthere, second\n"
    own = {"logs/progress.log": "here\n", "logs/measure_a_plain.log": "error: here\n"}
    for name, line in own.items():
        write(here, name, line)
    for line in (first, both):
        write(there, "logs/progress.log", line)
        bring()
    take(tmp_path / "2.tar.gz", here)
    kept = {name: text for name, text in files(here).items() if name.startswith("logs/")}
    assert kept == {"logs/1/progress.log": first, "logs/2/progress.log": both, **own}


@pytest.mark.parametrize(("launches", "its"), [(("here",), ("there",)), ((), ()), ((), ("there",))], ids=str)
def test_a_run_that_was_measured_on_both_hosts_is_refused_by_name(
    there: CampaignFolder, here: CampaignFolder, bring: Bring, launches: tuple[str, ...], its: tuple[str, ...]
) -> None:
    """A host that began anew, or a guest in another run's launch, which has no launch of its own."""
    if its:
        launched(there, RUN, *its)
    write(here, "campaign.json", there.campaign_file.read_text())
    write(here, f"{RUN}/cells/r2_8x8/cell.json", "{}")
    if launches:
        launched(here, RUN, *launches)
    before = files(here)
    with pytest.raises(ArtifactError, match="was measured on both hosts, and cell r2_8x8 of it is here"):
        bring()
    assert files(here) == before


def test_what_was_a_guests_and_went_on_there_in_a_launch_of_its_own_is_taken(
    there: CampaignFolder, here: CampaignFolder, bring: Bring
) -> None:
    shutil.copytree(there.root, here.root)
    write(here, f"{RUN}/receipt.json", json.dumps({"status": "failed"}))
    launched(there, RUN, "there")
    write(there, f"{RUN}/cells/r2_8x8/cell.json", "{}")
    write(there, f"{RUN}/receipt.json", json.dumps({"status": "complete"}))
    assert bring().kept == []
    assert f"{RUN}/cells/r2_8x8/cell.json" in files(here)


def test_what_failed_here_without_a_cell_gives_way(
    there: CampaignFolder, here: CampaignFolder, bring: Bring
) -> None:
    """The host has what the connector wants, and this machine has not: nothing was measured on both."""
    launched(there, RUN, "there")
    launched(here, RUN, "here", "here, again")
    write(here, f"{RUN}/receipt.json", json.dumps({"status": "failed"}))
    assert RUN in bring().units
    assert f"{RUN}/cells/r1_8x8/cell.json" in files(here)


def test_a_configurations_folder_without_a_run_replaces_none(
    there: CampaignFolder, here: CampaignFolder, bring: Bring
) -> None:
    """Somebody removed the run there, and its empty folder took the place of every run of the configuration here."""
    shutil.copytree(there.root, here.root)
    shutil.rmtree(there.root / RUN)
    write(there, "2026-01-31_plain/notes.txt", "removed, since its card was hot")
    bring()
    assert f"{RUN}/cells/r1_8x8/cell.json" in files(here)


def test_nothing_is_taken_while_the_campaign_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch system's job goes on whose Snakemake was killed, and holds the campaign's lock; the start's was dropped."""
    monkeypatch.setattr(locks, "WAIT_S", 0.1)
    monkeypatch.setattr(named, "results_folder", lambda: tmp_path)
    folder = CampaignFolder(tmp_path / "demo")
    holders = {
        "campaign demo was started already and is going on": started_once(folder.start_lock, "demo"),
        "campaign demo is in use by process 4711": locks.held(
            folder.lock, "campaign demo", "4711", shared=True
        ),
    }
    for said, held in holders.items():
        with held, pytest.raises(EngineError, match=said):
            COMMAND.call(["demo", "--take", "1.tar.gz"])


def test_a_small_archive_that_holds_much_is_refused(
    there: CampaignFolder, here: CampaignFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MOST_BYTES", 1 << 20)
    archive = tmp_path / "large.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(there.campaign_file, "campaign.json")
        member = tarfile.TarInfo("a")
        member.size = 2 << 20
        tar.addfile(member, io.BytesIO(bytes(member.size)))
    with pytest.raises(ArtifactError, match="would unpack to more than 1048576 bytes"):
        take(archive, here)
    assert files(here) == {}


def test_a_cut_archive_is_one_message(there: CampaignFolder, here: CampaignFolder, tmp_path: Path) -> None:
    archive = tmp_path / "1.tar.gz"
    pack(there, archive)
    archive.write_bytes(archive.read_bytes()[:-40])
    with pytest.raises(ArtifactError, match=r"cannot be unpacked .*Bring it here once more"):
        take(archive, here)
    assert files(here) == {}
