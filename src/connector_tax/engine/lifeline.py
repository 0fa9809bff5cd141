"""Nothing outlives what started it, also after ``kill -9``.

Snakemake passes SIGTERM on to nobody, and a killed Snakemake leaves its jobs measuring. So each
measuring script asks the kernel for a SIGTERM when its parent dies, and turns SIGTERM into
``SystemExit``, so that every ``finally`` runs.
"""

import ctypes
import os
import signal
import sys
from types import FrameType

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def end_with_parent() -> None:
    """Make this process end, with its ``finally`` blocks, when its parent dies or on SIGTERM."""
    signal.signal(signal.SIGTERM, _exit_on_signal)
    parent = os.getppid()
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    # The parent may have died between the two calls; the kernel then sends nothing.
    if os.getppid() != parent:
        sys.exit(143)


def killed_with_parent() -> None:
    """In a child, before its command: the kernel kills it when its parent is gone, however that ended. It inherits to nobody."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def prctl(option: int, value: int) -> None:
    """Linux's ``prctl(2)`` with one argument.

    Raises:
        OSError: the kernel refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def _exit_on_signal(signum: int, frame: FrameType | None) -> None:
    # A second signal must not interrupt the clean-up that the first one started.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + signum)
