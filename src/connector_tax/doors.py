"""How a script begins and ends: its words also go to a log, a person's mistake is one message.

Measuring scripts write their log themselves, since a pipe through ``tee`` would put a shell between them
and Snakemake, and the shell would not die with it.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from connector_tax.errors import ConnectorTaxError


class _Both:
    """A text stream that goes to two."""

    def __init__(self, first: TextIO, second: TextIO) -> None:
        self._streams = (first, second)

    def write(self, text: str) -> int:
        for stream in self._streams:
            stream.write(text)
            stream.flush()
        return len(text)

    def flush(self) -> None:
        for stream in self._streams:
            stream.flush()


def log_to(path: Path | None) -> None:
    """From now on everything printed also goes to ``path``; an earlier log is kept and continued."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    log = open(path, "a", encoding="utf-8")  # noqa: SIM115 - open until the process ends
    sys.stdout = _Both(sys.stdout, log)
    sys.stderr = _Both(sys.stderr, log)


def run_door(main: Callable[[], None]) -> None:
    """Run a script's ``main`` and exit: 2 for what a person can mend, a traceback for what is a bug."""
    try:
        main()
    except ConnectorTaxError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted; finished cells are kept", file=sys.stderr)
        sys.exit(130)
