"""Nothing outlives what started it, also after ``kill -9``.

Measuring scripts turn SIGTERM and SIGHUP into ``SystemExit``, so that every ``finally`` runs. Snakemake
passes SIGTERM on to nobody, and a killed Snakemake leaves its jobs measuring: so those that it starts ask the
kernel for a SIGTERM when their parent dies. Nobody else's do: a shell may end before what it started, by
``nohup``, ``setsid`` or ``disown``.
"""

import signal
import sys
from types import FrameType

import psutil

from connector_tax.base.prctl import PR_SET_PDEATHSIG, prctl

ENDING = (signal.SIGTERM, signal.SIGHUP)


def end_in_order() -> None:
    """Make this process end with its ``finally`` blocks on SIGTERM, and on SIGHUP unless that is ignored, as
    under ``nohup``."""
    for signum in ENDING:
        if signal.getsignal(signum) != signal.SIG_IGN:
            signal.signal(signum, _exit_on_signal)


def end_with_parent(started_by: int) -> None:
    """The same when its parent dies.

    Args:
        started_by: process id of an ancestor. Where that died while this process still imported, the kernel
            sends nothing, and somebody else is the parent.
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
