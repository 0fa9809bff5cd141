"""The recorder's switch lies beside the step log for as long as nothing is to be recorded."""

from pathlib import Path

import pytest

from connector_tax.base.steptime.share import recording


def test_off_for_the_time_of_the_body(tmp_path: Path) -> None:
    log = tmp_path / "engine_step.jsonl"
    with recording(log, wanted=False, settle_s=0) as to_cut:
        assert to_cut is None
        assert (tmp_path / "engine_step.jsonl.off").exists()
    assert not list(tmp_path.iterdir())


def test_back_on_after_a_failure(tmp_path: Path) -> None:
    with pytest.raises(KeyError), recording(tmp_path / "x.jsonl", wanted=False, settle_s=0):
        raise KeyError
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wanted", [True, False])
def test_nothing_is_switched_where_nothing_is_recorded(wanted: bool) -> None:
    with recording(None, wanted=wanted, settle_s=0) as to_cut:
        assert to_cut is None


def test_on_is_the_log_itself(tmp_path: Path) -> None:
    log = tmp_path / "engine_step.jsonl"
    with recording(log, wanted=True, settle_s=0) as to_cut:
        assert to_cut == log
        assert not list(tmp_path.iterdir())
