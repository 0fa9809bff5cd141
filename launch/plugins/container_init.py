"""The first process of an engine's container: ``python container_init.py PACKAGES GRACE_S CPUS COMMAND...``.

Runs COMMAND under the supervisor that engines have outside of containers as well
(``connector_tax/run/engine/supervisor.py``, in the folder PACKAGES), so COMMAND ends, with all that it
started, on SIGTERM and when standard input ends. That is a pipe which the runtime's client holds open: with
the client everything in here ends, however it was killed. Without a pipe, by hand, nobody is waited for, and
Ctrl-C, which the client passes on, ends it as well.

Variables that CONNECTOR_TAX_HANDED names come through that pipe, before anything else: those of a container's
configuration are kept by the runtime, on disk and longer than the container.

CPUS, ``0,2,3`` or empty for any, is asked of the kernel in here, since a daemon starts containers on cores of
its own. Standard library only.
"""

import os
import signal
import stat
import sys


def stay_on(cpus: str) -> None:
    """Raises:
    SystemExit: none of these cores is open to this container.
    """
    wanted = {int(cpu) for cpu in cpus.split(",") if cpu}
    if wanted:
        open_to_us = os.sched_getaffinity(0)
        if not wanted & open_to_us:
            has = ",".join(map(str, sorted(open_to_us)))
            sys.exit(f"container_init: Error: cores {cpus} are not open to this container, which has {has}")
        os.sched_setaffinity(0, wanted & open_to_us)


def hold_on() -> bool:
    """Give a standard input that nobody closes, where there is no pipe; says whether."""
    kind = os.fstat(0).st_mode
    by_hand = not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind))
    if by_hand:
        os.dup2(os.pipe()[0], 0)
    return by_hand


def take_over() -> None:
    """Set what is handed over.

    Raises:
        SystemExit: whoever had it to hand over has ended.
    """
    if not os.environ.pop("CONNECTOR_TAX_HANDED", ""):
        return
    told = b"\0"
    while not told.endswith(b"\0\0"):
        piece = os.read(0, 1 << 16)
        if not piece:
            sys.exit(128 + signal.SIGTERM)
        told += piece
    for word in told.strip(b"\0").split(b"\0"):
        name, _, value = word.partition(b"=")
        if name:
            os.environb[name] = value


def drop_empty_proxies() -> None:
    """An empty one keeps the address of docker's client config out. COMMAND is without: in Python
    ``https_proxy=`` takes HTTPS_PROXY back."""
    for name in [name for name, value in os.environ.items() if name.lower().endswith("_proxy") and not value]:
        del os.environ[name]


def main(arguments: list[str]) -> int:
    packages, grace_s, cpus = arguments[:3]
    stay_on(cpus)
    take_over()
    drop_empty_proxies()
    ends_on = (signal.SIGTERM, signal.SIGINT) if hold_on() else (signal.SIGTERM,)
    sys.path.insert(0, packages)
    from connector_tax.run.engine import supervisor

    return supervisor.main([grace_s, *arguments[3:]], ends_on)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
