"""Records the supervisor of a run's engine in ``run.engine.pid.json``, which ``kill -9`` leaves behind.

The kernel reuses pids, so the record also has the process's start, in clock ticks since boot, and that boot.
It also has its folder's device and inode: in a copy of a campaign the record is about the original's engine.
"""

from pathlib import Path

import msgspec

from connector_tax.base.config.model import Runtime
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import parse_json, read_whole, write_json

RECORD = "engine.pid.json"


class Supervisor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The recorded supervisor.

    Attributes:
        start_ticks: None if it had ended before it was recorded.
        mark: in the environment of all that it launched; see ``run/engine/supervised.py``.
        folder: device and inode of the record's folder.
        cards: of the launch, by the names of their locks.
        container: the runtime of the launch's container, if any.
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
    """Return the recorded supervisor; None if it is missing, torn, or of another version or folder."""
    try:
        found = msgspec.convert(parse_json(read_whole(folder / RECORD)), Supervisor)
    except (FileNotFoundError, ArtifactError, ValueError):  # msgspec.ValidationError is a ValueError
        return None
    return found if found.folder == _identity(folder) else None


def start_ticks(pid: int) -> int | None:
    """Return the start of a process in clock ticks since boot; None if it is gone or a zombie."""
    fields = process_stat(pid)
    return None if fields is None else int(fields[19])


def process_stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the third on; None if the process is gone or a zombie."""
    try:
        # The name, in parentheses, may contain spaces and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields


def _identity(folder: Path) -> tuple[int, int]:
    """Return device and inode, which a folder keeps when moved and a copy does not have."""
    found = folder.stat()
    return found.st_dev, found.st_ino


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
