"""Linux's ``prctl(2)`` with one argument."""

import ctypes
import signal

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# Loaded here: between fork and exec the loader's lock, held by another thread, would never be released.
_LIBC = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    """Set one option of this process or thread.

    Raises:
        OSError: the kernel refused.
    """
    if _LIBC.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def killed_with_parent() -> None:
    """Have this child killed when the thread that started it ends; called before exec, not inherited."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
