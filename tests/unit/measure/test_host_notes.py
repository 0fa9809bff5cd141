"""What preflight says of a host's settings."""

from pathlib import Path

import pytest

from connector_tax.run.measure.preflight import cpu_by_session


@pytest.mark.parametrize(("content", "said"), [("1\n", True), ("0\n", False), (None, False)])
def test_a_kernel_that_shares_by_session_is_named(tmp_path: Path, content: str | None, said: bool) -> None:
    setting = tmp_path / "sched_autogroup_enabled"
    if content is not None:
        setting.write_text(content)
    note = cpu_by_session(setting)
    assert (note is not None and "sched_autogroup_enabled=0" in note) is said
