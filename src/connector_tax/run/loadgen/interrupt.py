"""Handles Ctrl-C and SIGTERM while cells are measured, so that measured data is kept.

The first one stops sending and waits for requests in flight, the second one does not wait; the caller then
writes what there is. The third one, or one while nothing is measured, ends the process: workers have a second
to close their connections before they are killed.
"""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
REASON = "interrupted"


class Interrupt:
    """Counts requests to end. ``heed_interrupts`` connects it to signals."""

    def __init__(self) -> None:
        self.asked = 0
        self._measuring = False

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        self.asked += 1
        if not self._measuring or self.asked > 2:
            raise KeyboardInterrupt
        next_effect = "again to leave what is in flight" if self.asked == 1 else "leaving what is in flight"
        print(f"interrupted; sending has stopped ({next_effect})", file=sys.stderr)

    def should_stop(self) -> str | None:
        return REASON if self.asked else None

    def should_abort(self) -> str | None:
        return REASON if self.asked > 1 else None

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Keep the first two signals from raising within the body."""
        self._measuring = True
        try:
            yield
        finally:
            self._measuring = False

    def raise_if_asked(self) -> None:
        """Raise once measured data is written.

        Raises:
            KeyboardInterrupt: an end was requested.
        """
        if self.asked:
            raise KeyboardInterrupt


@contextmanager
def heed_interrupts() -> Iterator[Interrupt]:
    """Handle the signals during the body; ignored ones, as SIGHUP under ``nohup``, stay ignored."""
    interrupt = Interrupt()
    # Python receives signals in its main thread only, and only there allows handlers to be set.
    heeded = SIGNALS if threading.current_thread() is threading.main_thread() else ()
    earlier_handlers = {s: signal.getsignal(s) for s in heeded}
    for signum, handler in earlier_handlers.items():
        if handler != signal.SIG_IGN:
            signal.signal(signum, interrupt)
    try:
        yield interrupt
    finally:
        for signum, handler in earlier_handlers.items():
            signal.signal(signum, handler)
