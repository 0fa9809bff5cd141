"""The recorder's switch: while a file lies beside the step log, a running engine records nothing and wraps nothing."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def recording(step_log: Path | None, *, wanted: bool, settle_s: float) -> Iterator[Path | None]:
    """Step records as wanted for the time of the body; yields the log to cut from, None where nothing is recorded.

    Args:
        step_log: AGENTIC_STEP_LOG_PATH of the launch; None where step timing is off.
        settle_s: how long the recorder may take to see its switch.
    """
    if wanted or step_log is None:
        yield step_log
        return
    switch = step_log.with_name(step_log.name + ".off")
    switch.touch()
    time.sleep(settle_s)
    try:
        yield None
    finally:
        switch.unlink()
        time.sleep(settle_s)
