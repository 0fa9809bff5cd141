"""The first process of an engine's container: ``python container_init.py PACKAGES GRACE_S CPUS COMMAND...``.

Runs COMMAND under the supervisor that engines also have outside containers
(``connector_tax/run/engine/supervisor.py``, in the folder PACKAGES). COMMAND and all that it started end on
SIGTERM and when standard input ends. Standard input is a pipe that the runtime's client holds open, so
everything in here ends with the client, however it was killed. Without a pipe (started by hand) only
SIGTERM and Ctrl-C, which the client passes on, end it.

The variables named in CONNECTOR_TAX_HANDED arrive first through that pipe: the runtime would store variables
of the container's configuration on disk, longer than the container lives.

CPUS is ``0,2,3``, or empty for any. The affinity is set in here, since a daemon starts containers on cores
of its own. Standard library only.
"""

import os
import signal
import stat
import sys


def stay_on(cpus: str) -> None:
    """Restrict this process to ``cpus``.

    Raises:
        SystemExit: none of these cores is available to this container.
    """
    wanted = {int(cpu) for cpu in cpus.split(",") if cpu}
    if wanted:
        open_to_us = os.sched_getaffinity(0)
        if not wanted & open_to_us:
            has = ",".join(map(str, sorted(open_to_us)))
            sys.exit(f"container_init: Error: cores {cpus} are not open to this container, which has {has}")
        os.sched_setaffinity(0, wanted & open_to_us)


def hold_on() -> bool:
    """Replace a standard input that is no pipe by one that never ends; return whether it did."""
    kind = os.fstat(0).st_mode
    by_hand = not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind))
    if by_hand:
        os.dup2(os.pipe()[0], 0)
    return by_hand


def take_over() -> None:
    """Set the variables that are handed over.

    Raises:
        SystemExit: the sender has ended.
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
    """Remove empty proxy variables, which kept docker's client config from setting them.

    COMMAND must not see them: in Python an empty ``https_proxy`` cancels HTTPS_PROXY.
    """
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
