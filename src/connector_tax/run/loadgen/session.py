"""One cell over a pool of workers, as its caller has it: start, ask it to end, wait, and the outcome.

The cell's coordinator lives on a thread, so that the caller can be told of signals while a cell runs.
"""

import threading
from collections.abc import Callable

from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.target import Target
from connector_tax.run.loadgen.coordinator import Coordinator
from connector_tax.run.loadgen.descriptors import check_limit
from connector_tax.run.loadgen.observe import NOTHING, Observe, Queue, unseen
from connector_tax.run.loadgen.pool import WorkerPool
from connector_tax.run.loadgen.result import SessionResult

INTERRUPTED = "interrupted"


class BenchmarkSession:
    """Runs one cell; ``start``, then ``wait_for_test_end``, then ``result``."""

    def __init__(
        self,
        spec: CellSpec,
        target: Target,
        pool: WorkerPool,
        should_abort: Callable[[], str | None],
        should_stop: Callable[[], str | None],
        observe: Observe,
        queue: Queue,
    ) -> None:
        self._stop_requested = threading.Event()
        self._abandon_requested = threading.Event()
        self._finished = threading.Event()
        self._failure: BaseException | None = None
        self._result: SessionResult | None = None

        def abort() -> str | None:
            return INTERRUPTED if self._abandon_requested.is_set() else should_abort()

        def stop() -> str | None:
            return INTERRUPTED if self._stop_requested.is_set() else should_stop()

        self._coordinator = Coordinator(spec, target, pool, abort, stop, observe, queue)
        self._thread = threading.Thread(target=self._run, name="coordinator", daemon=True)

    @classmethod
    def start(
        cls,
        spec: CellSpec,
        target: Target,
        pool: WorkerPool,
        *,
        should_abort: Callable[[], str | None] = lambda: None,
        should_stop: Callable[[], str | None] = lambda: None,
        observe: Observe = NOTHING,
        queue: Queue = unseen,
    ) -> "BenchmarkSession":
        """Begin at once.

        Args:
            should_abort: asked a few times a second; a text ends the cell with that reason, and what is in flight.
            should_stop: asked as often; a text ends sending, and what is in flight is waited for.
            queue: asked as often; a cell behind a growing queue ends after ``duration_s``.

        Raises:
            ConfigError: the load needs more file descriptors than a worker may open.
        """
        check_limit(spec)
        session = cls(spec, target, pool, should_abort, should_stop, observe, queue)
        session._thread.start()
        return session

    def wait_for_test_end(self, timeout_s: float | None = None) -> bool:
        """Wait; False if it is still running after ``timeout_s``."""
        return self._finished.wait(timeout_s)

    def stop(self) -> None:
        """Send nothing more; requests in flight are waited for, and the result says ``interrupted``."""
        self._stop_requested.set()

    def abandon(self) -> None:
        """End at once; requests in flight are abandoned."""
        self._abandon_requested.set()

    def result(self) -> SessionResult:
        """The outcome of a finished session.

        Raises:
            EngineError: the workers would not start.
        """
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        assert self._result is not None
        return self._result

    def _run(self) -> None:
        try:
            self._result = self._coordinator.drive()
        except BaseException as error:  # noqa: BLE001 - the thread's outermost frame; raised in result()
            self._failure = error
        finally:
            self._finished.set()
