"""Linux's ``prctl(2)`` with one argument."""

import ctypes
import signal

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# Loaded here, since between fork and exec another thread's lock on the loader would be held for ever.
_LIBC = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    """
    Raises:
        OSError: the kernel refused.
    """
    if _LIBC.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def killed_with_parent() -> None:
    """In a child, before its command: the kernel kills it when the thread that started it is gone, however
    that ended. It inherits to nobody."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
