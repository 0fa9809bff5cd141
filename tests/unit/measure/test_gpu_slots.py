"""Several runs of one campaign at once: each on a card of its own, and none ends what another has at work."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from builders import SMALL, Campaign, campaign_config
from msgspec.structs import replace

from connector_tax.base.artifacts.layout import RunFolder
from connector_tax.base.artifacts.supervisor import RECORD
from connector_tax.base.errors import ConfigError, EngineError
from connector_tax.run.engine.gpus import Cards, Slot
from connector_tax.run.engine.supervised import Supervisor, start_supervised, stop_supervised
from connector_tax.run.measure import locks
from connector_tax.run.measure.locks import CLEARING, held, measuring_alone, on_a_card, wait_for_card_s
from connector_tax.run.measure.time_left import OutOfTime, TimeLimit

CONNECTORS = ["plain", "noop_connector", "mooncake_both"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(locks.WAIT_VARIABLE, raising=False)


def campaign(tmp_path: Path, **engine: object) -> Campaign:
    config = campaign_config(**{**SMALL, "connectors": CONNECTORS})
    settings = {"gpus": (0, 1), "wait_for_card_s": 0.0, "stop_grace_s": 0.2, **engine}
    found = Campaign(tmp_path / config.campaign, replace(config, engine=replace(config.engine, **settings)))
    for connector in CONNECTORS:
        found.run(connector, "a").path.mkdir(parents=True, exist_ok=True)
    return found


@contextmanager
def measuring(
    found: Campaign, connector: str, said: list[str] | None = None, limit: TimeLimit | None = None
) -> Iterator[Slot]:
    run, say = found.run(connector, "a"), (said if said is not None else []).append
    with on_a_card(found.folder, found.config, run, say, limit) as slot:
        yield slot


def sleeper(run: RunFolder, card: str) -> Supervisor:
    """What an engine is to whoever looks for leftovers."""
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    return start_supervised(
        command, folder=run.path, environment=dict(os.environ), grace_s=0.2, cards=(card,)
    )


def test_each_run_takes_a_place_of_its_own_and_a_third_is_told_who_has_them(tmp_path: Path) -> None:
    found = campaign(tmp_path)
    with measuring(found, "plain") as one, measuring(found, "noop_connector") as two:
        assert (one.cards.slot, two.cards.slot) == (0, 1)
        with pytest.raises(EngineError) as told, measuring(found, "mooncake_both"):
            pytest.fail("three on two cards")
    who = f"process {os.getpid()}, which measures phase A of"
    words = str(told.value)
    assert (
        f"place 0 on this host is in use by {who} plain of campaign demo in {found.folder.root} since 20"
        in words
    )
    assert f"place 1 on this host is in use by {who} noop_connector of campaign demo" in words
    with measuring(found, "mooncake_both") as again:
        assert again.cards.slot == 0


def test_a_run_is_measured_once_at_a_time(tmp_path: Path) -> None:
    found = campaign(tmp_path)
    with measuring(found, "plain"), pytest.raises(EngineError, match="phase A of plain is in use by process"):
        with measuring(found, "plain"):
            pytest.fail("measured twice")


def test_who_waited_for_its_run_waits_for_a_card_as_long_as_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for the card as long again, and SLURM cut it off; and who waits says for whom."""
    monkeypatch.setattr(locks, "SAY_AFTER_S", 0.1)
    said: list[str] = []
    found = campaign(tmp_path, wait_for_card_s=None)
    begun_s = time.monotonic()
    with ExitStack() as earlier, measuring(found, "plain"), measuring(found, "noop_connector"):
        earlier.enter_context(held(found.folder.run_lock(found.run("mooncake_both", "a")), "it", "4711"))
        ends = threading.Timer(1.8, earlier.close)
        ends.start()
        limit = TimeLimit(begun_s + 2.0, 0.0)
        with (
            pytest.raises(OutOfTime, match=r"waited for place 0 on this host, in use by"),
            measuring(found, "mooncake_both", said, limit),
        ):
            pytest.fail("three on two cards")
        ends.join()
    assert time.monotonic() - begun_s < 3.8
    assert said[0].startswith("waiting for ") and "in use by process 4711" in said[0]


def test_who_clears_up_is_waited_for_no_longer_than_is_left(tmp_path: Path) -> None:
    """It was waited for 62 s here, whatever was left of the job."""
    found = campaign(tmp_path, wait_for_card_s=None)
    begun_s = time.monotonic()
    with held(found.folder.clearing_lock, CLEARING, "4711, which is stopped"):
        limit = TimeLimit(begun_s + 0.5, 0.0)
        with (
            pytest.raises(OutOfTime, match=f"waited for {CLEARING}, in use by process 4711"),
            measuring(found, "plain", limit=limit),
        ):
            pytest.fail("beside who clears up")
    assert time.monotonic() - begun_s < 30


def test_preflight_has_the_campaign_to_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = campaign(tmp_path)
    alone = measuring_alone(found.folder.root, "demo", Cards((), 7), waiting=locks.Waiting(0.0))
    with measuring(found, "plain"), pytest.raises(EngineError, match="campaign demo is in use by process"):
        with alone:
            pytest.fail("beside a measurement")
    with measuring_alone(found.folder.root, "demo", Cards((), 7)):
        with (
            pytest.raises(EngineError, match="campaign demo is in use by process"),
            measuring(found, "plain"),
        ):
            pytest.fail("beside preflight")


def test_how_long_is_waited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One card: half a minute, by which a campaign that was started twice ends. Several, or a batch job: as long as it takes. Or as one is told."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    engine = campaign(tmp_path, wait_for_card_s=None).config.engine
    one_card, endless = replace(engine, gpus=None), float("inf")
    assert (wait_for_card_s(engine), wait_for_card_s(one_card)) == (endless, locks.WAIT_S)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert wait_for_card_s(one_card) == endless
    assert wait_for_card_s(replace(one_card, wait_for_card_s=90)) == 90.0
    for given, waited in (("7200", 7200.0), ("inf", endless)):
        monkeypatch.setenv(locks.WAIT_VARIABLE, given)
        assert wait_for_card_s(replace(engine, wait_for_card_s=90)) == waited
    monkeypatch.setenv(locks.WAIT_VARIABLE, "long")
    with pytest.raises(ConfigError, match="no whole number of seconds"):
        wait_for_card_s(engine)


def test_a_neighbours_engine_lives_and_what_nobody_measures_is_ended(tmp_path: Path) -> None:
    found = campaign(tmp_path)
    at_work, dead = found.run("plain", "a"), found.run("noop_connector", "a")
    with ExitStack() as stack:
        stack.enter_context(held(found.folder.run_lock(at_work), "it", "a neighbour"))
        neighbour, orphan = sleeper(at_work, "gpu1"), sleeper(dead, "gpu1")
        stack.callback(stop_supervised, neighbour, at_work.path, grace_s=0.2)
        stack.callback(orphan.kill)
        with measuring(found, "mooncake_both") as slot:
            assert slot.cards.slot == 0
            assert neighbour.poll() is None
            assert orphan.wait(10) is not None
            assert (at_work.path / RECORD).exists() and not (dead.path / RECORD).exists()


def test_what_is_left_on_the_card_is_ended_though_its_run_goes_on_elsewhere(tmp_path: Path) -> None:
    """A job was killed with its supervisor; its run was begun anew on the other card before anybody took this one."""
    found = campaign(tmp_path)
    run = found.run("plain", "a")
    with held(found.folder.run_lock(run), "it", "the job that measures it now"):
        orphan = sleeper(run, "gpu0")
        try:
            with measuring(found, "mooncake_both") as slot:
                assert slot.cards.slot == 0
                assert orphan.wait(10) is not None
        finally:
            orphan.kill()
            orphan.wait()


def test_all_of_a_phase_stays_on_one_card(tmp_path: Path) -> None:
    found = campaign(tmp_path, mix_cards=False)
    with measuring(found, "plain") as slot:
        assert slot.cards.slot == 0
        with pytest.raises(
            EngineError,
            match=r"place 0 on this host is in use by process \d+, which measures phase A of plain",
        ):
            with measuring(found, "noop_connector"):
                pytest.fail("on another card")
