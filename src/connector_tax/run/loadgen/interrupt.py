"""Ctrl-C and SIGTERM while cells are measured: what was measured is worth keeping.

The first one stops sending and waits for what is in flight, the second one does not wait, and both leave it
to the caller to write what there is. The third one, and one that comes while nothing is measured, ends the
process: workers have a second to close their connections, and one that does not answer is killed.
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
    """How often somebody has asked for an end. Use ``heed_interrupts`` to have it asked by signals."""

    def __init__(self) -> None:
        self.asked = 0
        self._measuring = False

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        self.asked += 1
        if not self._measuring or self.asked > 2:
            raise KeyboardInterrupt
        words = "again to leave what is in flight" if self.asked == 1 else "leaving what is in flight"
        print(f"interrupted; sending has stopped ({words})", file=sys.stderr)

    def should_stop(self) -> str | None:
        return REASON if self.asked else None

    def should_abort(self) -> str | None:
        return REASON if self.asked > 1 else None

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """In the body a first and a second signal raise nothing: their turn comes behind it."""
        self._measuring = True
        try:
            yield
        finally:
            self._measuring = False

    def raise_if_asked(self) -> None:
        """
        Raises:
            KeyboardInterrupt: somebody asked for an end, and what was measured is written.
        """
        if self.asked:
            raise KeyboardInterrupt


@contextmanager
def heed_interrupts() -> Iterator[Interrupt]:
    """Handlers of the signals for the time of the body; one that is ignored, as SIGHUP under ``nohup``, stays
    so."""
    interrupt = Interrupt()
    # Python takes signals in its main thread alone, and lets no other set a handler.
    heeded = SIGNALS if threading.current_thread() is threading.main_thread() else ()
    earlier = {s: signal.getsignal(s) for s in heeded}
    for signum, handler in earlier.items():
        if handler != signal.SIG_IGN:
            signal.signal(signum, interrupt)
    try:
        yield interrupt
    finally:
        for signum, handler in earlier.items():
            signal.signal(signum, handler)
