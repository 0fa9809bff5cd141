"""Workers that the cells of a file share, as those of a launch do."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import pytest

from connector_tax.run.loadgen import cell
from connector_tax.run.loadgen.coordinator import WorkerPool, worker_pool


@pytest.fixture(scope="module")
def shared_worker() -> Iterator[None]:
    """One for all cells that have one worker and bring none: starting it takes longer than most of these cells."""
    with worker_pool(1) as shared, pytest.MonkeyPatch.context() as patch:

        def pool(n: int) -> AbstractContextManager[WorkerPool]:
            return nullcontext(shared) if n == 1 else worker_pool(n)

        patch.setattr(cell, "worker_pool", pool)
        yield
