"""How a script begins and ends: its words hold no secret and also go to a log, a person's mistake is one
message.

Measuring scripts write their log themselves, since a pipe through ``tee`` would put a shell between them
and Snakemake, and the shell would not die with it.
"""

import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any, NoReturn, TextIO

from connector_tax.base.errors import IN_THE_WAY, OF_THE_DISK, ConnectorTaxError
from connector_tax.base.files import writing_failed
from connector_tax.base.secrets import masked

# ``EX_SOFTWARE`` of sysexits.h. Not Python's own 1, by which scripts that judge say that a limit was passed.
BUG = 70


# As for other mistakes that a person can mend.
UNSAID = 2
# Of a process that was told to end and did so in order, its ``finally`` blocks run.
TOLD_TO_END = (128 + signal.SIGTERM, 128 + signal.SIGHUP)


def nobody_reads(stream: TextIO) -> NoReturn:
    """End as a process does that SIGPIPE ends: what it was piped into (``head``) has read enough."""
    _to_nowhere(stream)
    sys.exit(128 + signal.SIGPIPE)


def _to_nowhere(stream: TextIO) -> None:
    """What is still buffered would fail once more while the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class _Words:
    """A text stream without secrets that may also go to a log; a log that cannot be written any more is given
    up, in words.

    Attributes:
        unsaid: why the stream cannot be written any more, as on a disk that is full; None where it can.
    """

    def __init__(self, stream: TextIO, log: FileIO | None = None) -> None:
        self._stream = stream
        self._log = log
        self.unsaid: OSError | None = None

    def write(self, text: str) -> int:
        # A path or variable may hold what is no text, and a server's words what the stream's encoding does
        # not have.
        text = masked(text).encode(errors="backslashreplace").decode()
        encoding = self._stream.encoding or "utf-8"
        with self._giving_up():
            self._stream.write(text.encode(encoding, errors="backslashreplace").decode(encoding))
        if self._log is not None:
            try:
                self._log.write(text.encode())
            except OSError as error:
                log, self._log = self._log, None
                self.write(f"{log.name}: log ends here, it cannot be written ({error})\n")
        self.flush()
        return len(text)

    @property
    def logs(self) -> bool:
        return self._log is not None

    def flush(self) -> None:
        with self._giving_up():
            self._stream.flush()

    @contextmanager
    def _giving_up(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            nobody_reads(self._stream)
        except OSError as error:
            # What is measured goes on, and its files say the same.
            self.unsaid = error
            _to_nowhere(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def log_to(path: Path | None) -> None:
    """From now on everything printed also goes to ``path``; an earlier log is kept and continued."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # Unbuffered: what a full disk refused must not be tried again while the interpreter ends.
    log = FileIO(path, "a")
    sys.stdout = _Words(sys.stdout, log)
    sys.stderr = _Words(sys.stderr, log)


def end_in_log() -> None:
    """Say no more but to the log: whoever started this process reads there why it ended, and says it once."""
    _to_nowhere(sys.stderr)


def _there(stream: TextIO | None) -> TextIO:
    """``stream``; what is said goes nowhere where it was closed before this process began (``>&-``)."""
    return open(os.devnull, "w", encoding="utf-8") if stream is None else stream


def _open_standard_files() -> None:
    """Whoever is started from here inherits 0, 1 and 2. One that is closed would become a socket there, which
    libuv does not survive."""
    for fd in range(3):
        try:
            os.set_inheritable(fd, True)
        except OSError:
            # It is the lowest that is free.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def run_door(main: Callable[[], None], *, interrupted: str = "what was finished is kept") -> None:
    """Run a script's ``main`` and exit: 2 for what a person can mend, a traceback and 70 for what is a bug.

    What cannot be said, as on a disk that is full, is a person's to mend: it ends nothing, and is said on the
    other stream at the end.

    Args:
        interrupted: what is said on Ctrl-C of what is kept, and to a log also where the process was told to
            end.
    """
    _open_standard_files()
    # To the end of the process: a traceback is printed after everything else.
    out, err = _Words(_there(sys.stdout)), _Words(_there(sys.stderr))
    sys.stdout, sys.stderr = out, err
    try:
        main()
    except SystemExit as ended:
        if ended.code in (None, 0, 1):
            _end_if_unsaid(out, err)
        if ended.code in TOLD_TO_END and isinstance(sys.stderr, _Words) and sys.stderr.logs:
            # Whoever reads the log has no exit code.
            print(f"interrupted; {interrupted}", file=sys.stderr)
        raise
    except ConnectorTaxError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        # Nothing is left that another one could end.
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, signal.SIG_IGN)
        print(f"interrupted; {interrupted}", file=sys.stderr)
        sys.exit(130)
    except OSError as error:
        if error.filename is None and error.errno not in OF_THE_DISK:
            traceback.print_exc()
            sys.exit(BUG)
        print(f"error: {_of_a_file(error)}", file=sys.stderr)
        sys.exit(2)
    except Exception:  # noqa: BLE001 - whatever it is, it is no verdict
        traceback.print_exc()
        sys.exit(BUG)
    _end_if_unsaid(out, err)


def _of_a_file(error: OSError) -> str:
    """What a file system refused, and what to do."""
    where = error.filename2 or error.filename or "a file"
    place = os.fsdecode(where) if isinstance(where, (str, bytes)) else str(where)
    if error.errno in (*OF_THE_DISK, *IN_THE_WAY):
        return str(writing_failed(Path(place), error))
    owners = error.errno in (errno.EACCES, errno.EPERM)
    remedy = "Fix its permissions, or those of its folder" if owners else "Look whether it is there"
    return f"{place}: {error.strerror}. {remedy}, then start again; what was finished is kept."


def _end_if_unsaid(out: _Words, err: _Words) -> None:
    for words, name, other in ((out, "standard output", err), (err, "standard error", out)):
        if words.unsaid is not None:
            why = words.unsaid.strerror or words.unsaid
            other.write(
                f"error: {name} cannot be written ({why}). What was to stand there is lost; the run itself"
                " went on.\n"
            )
            sys.exit(UNSAID)
