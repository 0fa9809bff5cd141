"""Runs a script: masks secrets in its output, copies the output to a log, and reports errors.

An error that a person can fix is one message. Measuring scripts write their log themselves: a pipe through
``tee`` would put a shell between them and Snakemake, and the shell would not die with it.
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

# ``EX_SOFTWARE`` of sysexits.h. Not Python's 1, by which judging scripts report an exceeded limit.
BUG = 70


# The same code as for other errors that a person can fix.
UNSAID = 2
# Exit codes of a process that was told to end and did so in order, with its ``finally`` blocks run.
TOLD_TO_END = (128 + signal.SIGTERM, 128 + signal.SIGHUP)


def exit_on_broken_pipe(stream: TextIO) -> NoReturn:
    """Exit as SIGPIPE would: the pipe's reader (``head``) has read enough."""
    _to_nowhere(stream)
    sys.exit(128 + signal.SIGPIPE)


def _to_nowhere(stream: TextIO) -> None:
    """Redirect the stream to /dev/null, since flushing its buffer at exit would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class _RedactingStream:
    """A text stream that masks secrets and may also write a log, which it gives up with a message on failure.

    Attributes:
        unsaid: why the stream can no longer be written, as on a full disk; None if it can.
    """

    def __init__(self, stream: TextIO, log: FileIO | None = None) -> None:
        self._stream = stream
        self._log = log
        self.unsaid: OSError | None = None

    def write(self, text: str) -> int:
        # A path or variable may hold bytes that are no text, and a server's message characters that the
        # stream cannot encode.
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
            exit_on_broken_pipe(self._stream)
        except OSError as error:
            # The measurement goes on, and its files hold the same facts.
            self.unsaid = error
            _to_nowhere(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def log_to(path: Path | None) -> None:
    """Also write all further output to ``path``; an earlier log is continued."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # Unbuffered: what a full disk refused must not be written again at exit.
    log = FileIO(path, "a")
    sys.stdout = _RedactingStream(sys.stdout, log)
    sys.stderr = _RedactingStream(sys.stderr, log)


def end_in_log() -> None:
    """Write only to the log from now on; the parent process reads there why this one ended and reports it."""
    _to_nowhere(sys.stderr)


def _there(stream: TextIO | None) -> TextIO:
    """Return ``stream``, or /dev/null if it was closed at the start (``>&-``)."""
    return open(os.devnull, "w", encoding="utf-8") if stream is None else stream


def _open_standard_files() -> None:
    """Make 0, 1 and 2 open and inheritable; a closed one becomes a socket in a child, which breaks libuv."""
    for fd in range(3):
        try:
            os.set_inheritable(fd, True)
        except OSError:
            # open() returns the lowest free number, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def run_entrypoint(main: Callable[[], None], *, interrupted: str = "what was finished is kept") -> None:
    """Run a script's ``main`` and exit: 2 for an error that a person can fix, 70 and a traceback for a bug.

    A stream that cannot be written, as on a full disk, does not end the run. It is reported on the other
    stream at the end, with exit code 2.

    Args:
        interrupted: the message on Ctrl-C about what is kept; also logged if the process was told to end.
    """
    _open_standard_files()
    # Kept to the end of the process: a traceback is printed after everything else.
    out, err = _RedactingStream(_there(sys.stdout)), _RedactingStream(_there(sys.stderr))
    sys.stdout, sys.stderr = out, err
    try:
        main()
    except SystemExit as exiting:
        if exiting.code in (None, 0, 1):
            _end_if_unsaid(out, err)
        if exiting.code in TOLD_TO_END and isinstance(sys.stderr, _RedactingStream) and sys.stderr.logs:
            # Readers of the log do not see the exit code.
            print(f"interrupted; {interrupted}", file=sys.stderr)
        raise
    except ConnectorTaxError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        # Nothing is left that another signal could end.
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
    """Return what the file system refused, and a remedy."""
    file = error.filename2 or error.filename or "a file"
    path_text = os.fsdecode(file) if isinstance(file, (str, bytes)) else str(file)
    if error.errno in (*OF_THE_DISK, *IN_THE_WAY):
        return str(writing_failed(Path(path_text), error))
    owners = error.errno in (errno.EACCES, errno.EPERM)
    remedy = "Fix its permissions, or those of its folder" if owners else "Look whether it is there"
    return f"{path_text}: {error.strerror}. {remedy}, then start again; what was finished is kept."


def _end_if_unsaid(out: _RedactingStream, err: _RedactingStream) -> None:
    for stream, stream_name, other_stream in ((out, "standard output", err), (err, "standard error", out)):
        if stream.unsaid is not None:
            cause = stream.unsaid.strerror or stream.unsaid
            other_stream.write(
                f"error: {stream_name} cannot be written ({cause}). What was to stand there is lost; the"
                " run itself went on.\n"
            )
            sys.exit(UNSAID)
