"""Which process looks after a run's engine: ``run.engine.pid.json``, there while it runs and after ``kill
-9``.

A number alone names nobody for certain, since the kernel gives it to others later; with its start, in clock
ticks since boot, and that boot it does. The record also names its folder, by device and inode: in a copy of a
campaign it is of the original's engine, which is none of the copy's business.
"""

from pathlib import Path

import msgspec

from connector_tax.base.config.model import Runtime
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import parse_json, read_whole, write_json

RECORD = "engine.pid.json"


class Supervisor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who was recorded.

    Attributes:
        start_ticks: None if it had ended before it was recorded.
        mark: what the environment of everything that it launched holds; see ``run/engine/supervised.py``.
        folder: device and inode of the one that it was written into.
        cards: what it was launched on, by the names of their locks.
        container: the runtime of the container that it was launched in; None without one.
    """

    pid: int
    start_ticks: int | None
    boot: str
    mark: str
    folder: tuple[int, int]
    cards: tuple[str, ...] = ()
    container: Runtime | None = None

    @property
    def of_this_boot(self) -> bool:
        return self.boot == _boot_id()

    @property
    def lives(self) -> bool:
        return (
            self.of_this_boot and self.start_ticks is not None and start_ticks(self.pid) == self.start_ticks
        )


def record_supervisor(
    folder: Path,
    pid: int,
    mark: str,
    cards: tuple[str, ...] = (),
    container: Runtime | None = None,
) -> None:
    """Note in the run's folder which process looks after its engine."""
    folder.mkdir(parents=True, exist_ok=True)
    process = Supervisor(
        pid=pid,
        start_ticks=start_ticks(pid),
        boot=_boot_id(),
        mark=mark,
        folder=_identity(folder),
        cards=cards,
        container=container,
    )
    write_json(folder / RECORD, process)


def recorded_supervisor(folder: Path) -> Supervisor | None:
    """None where no record lies, or one that is torn, of another version or of another folder: it names
    nobody for certain."""
    try:
        found = msgspec.convert(parse_json(read_whole(folder / RECORD)), Supervisor)
    except (FileNotFoundError, ArtifactError, ValueError):  # msgspec.ValidationError is a ValueError
        return None
    return found if found.folder == _identity(folder) else None


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None if it is gone or a zombie."""
    fields = process_stat(pid)
    return None if fields is None else int(fields[19])


def process_stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third on; None if it is gone or a zombie."""
    try:
        # The name in parentheses may hold spaces and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields


def _identity(folder: Path) -> tuple[int, int]:
    """Device and inode, which a folder keeps when it is moved and a copy does not have."""
    found = folder.stat()
    return found.st_dev, found.st_ino


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
