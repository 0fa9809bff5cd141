"""Makes sure that nothing outlives the process that started it, even after ``kill -9``.

Measuring scripts turn SIGTERM and SIGHUP into ``SystemExit``, so that every ``finally`` runs. Snakemake
does not forward SIGTERM, and its jobs go on if it is killed, so jobs that Snakemake starts ask the
kernel for a SIGTERM when their parent dies. Other processes do not: a shell may end before its jobs
(``nohup``, ``setsid``, ``disown``).
"""

import signal
import sys
from types import FrameType

import psutil

from connector_tax.base.prctl import PR_SET_PDEATHSIG, prctl

ENDING = (signal.SIGTERM, signal.SIGHUP)


def end_in_order() -> None:
    """Run ``finally`` blocks on SIGTERM, and on SIGHUP unless it is ignored, as under ``nohup``."""
    for signum in ENDING:
        if signal.getsignal(signum) != signal.SIG_IGN:
            signal.signal(signum, _exit_on_signal)


def end_with_parent(started_by: int) -> None:
    """End this process in the same way when its parent dies.

    Args:
        started_by: process id of an ancestor. If it died while this process was importing, the kernel sends
            nothing, so the current ancestors are checked.
    """
    signal.signal(signal.SIGTERM, _exit_on_signal)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if started_by not in {ancestor.pid for ancestor in psutil.Process().parents()}:
        sys.exit(143)


def _exit_on_signal(signum: int, frame: FrameType | None) -> None:
    # A second signal must not interrupt the clean-up that the first one started.
    for ending in ENDING:
        signal.signal(ending, signal.SIG_IGN)
    sys.exit(128 + signum)
