"""Measures one cell against any OpenAI-compatible server."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import httpx
import numpy as np

from connector_tax.base import direct
from connector_tax.base.documents.cell import Health, Output
from connector_tax.base.records.cell import CellSpec, CellWindow
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.records.target import Target
from connector_tax.base.seeds import stream
from connector_tax.run.loadgen.coordinator import Coordinator, WorkerPool, worker_pool
from connector_tax.run.loadgen.descriptors import check_limit
from connector_tax.run.loadgen.health import health
from connector_tax.run.loadgen.messages import NOTHING, Observe, Queue, SessionResult, unseen
from connector_tax.run.loadgen.sse import MalformedStream, read_completion

# Collects an engine's answers to a fixed set of prompts, which guards against wrong but fast connectors.
#
# The prompts are sent one by one at temperature 0, so batching has no effect. A difference from plain's
# answers is then the connector's, unless plain's own launches differ too.

OUTPUT_TIMEOUT_S = 120.0
NO_ANSWER = "no answer"


def collect_outputs(
    base_url: str,
    model: str,
    *,
    seed: int,
    prompts: int,
    input_tokens: int,
    output_tokens: int,
    token_ids: tuple[int, int],
    headers: Mapping[str, str] | None = None,
) -> list[Output]:
    """Return one entry per prompt: ``token_ids``, or ``text`` without ids, or ``error``.

    Args:
        token_ids: range of the prompts' ids; all configurations of a campaign get the same prompts.
        headers: of every request, such as the API key.
    """
    rng = stream(seed, "accuracy")
    drawn_prompts = rng.integers(*token_ids, size=(prompts, input_tokens), dtype=np.int64)
    with direct.Client(base_url=base_url, timeout_s=OUTPUT_TIMEOUT_S, headers=headers) as client:
        outputs: list[Output] = []
        for prompt in drawn_prompts:
            if outputs and outputs[-1].get("error", "").startswith(NO_ANSWER):
                # A hanging engine would take the whole time-out for each prompt.
                outputs.append({"error": f"{NO_ANSWER} to an earlier prompt"})
            else:
                outputs.append(_ask(client, model, prompt.tolist(), output_tokens))
        return outputs


def _ask(client: direct.Client, model: str, prompt: list[int], output_tokens: int) -> Output:
    request = {
        "model": model,
        "prompt": prompt,
        "max_tokens": output_tokens,
        "temperature": 0,
        "ignore_eos": True,
        # vLLM's extension of the API, since 0.10.2; others ignore it.
        "return_token_ids": True,
    }
    try:
        response = client.post("/v1/completions", json=request)
        response.raise_for_status()
        completion = read_completion(response.content)
        (choice,) = list(completion.choices or ())
        if choice.token_ids is not None:
            return {"token_ids": completion.ids(response.content)}
        return {"text": choice.text} if isinstance(choice.text, str) else {"error": "neither ids nor text"}
    except httpx.TimeoutException:
        return {"error": f"{NO_ANSWER} within {OUTPUT_TIMEOUT_S:g} s"}
    except (httpx.HTTPError, ValueError, MalformedStream) as error:
        return {"error": f"{type(error).__name__}: {error}"}


# Compares a server's prefix-cache counters before and after a cell; nothing is read during the cell.

HITS, QUERIES, EXTERNAL = "prefix_cache_hits", "prefix_cache_queries", "external_prefix_cache_hits"

COUNTED = (HITS, QUERIES, EXTERNAL)

Counters = Mapping[str, float]


def hits_between(before: Counters, after: Counters) -> dict[str, float | None] | None:
    """Return prompt tokens found in the cache, looked up, and served from a store in between.

    None if the counters are missing or went back because the server restarted. They
    include other clients' requests.
    """
    if (
        HITS not in before
        or HITS not in after
        or any(after.get(k, v) < v for k, v in before.items() if k in COUNTED)
    ):
        return None
    counter_by_field = {"hit_tokens": HITS, "queried_tokens": QUERIES, "store_hit_tokens": EXTERNAL}
    return {
        field: after[counter] - before[counter] if counter in before and counter in after else None
        for field, counter in counter_by_field.items()
    }


def said_of(hits: Mapping[str, float | None] | None) -> str | None:
    """Return a sentence on the hits; None if there were none or they are unknown."""
    if hits is None or not (hits["hit_tokens"] or hits["store_hit_tokens"]):
        return None
    hit_tokens, queried_tokens, store_tokens = (
        hits[name] or 0.0 for name in ("hit_tokens", "queried_tokens", "store_hit_tokens")
    )
    share = f" ({hit_tokens / queried_tokens:.0%})" if queried_tokens else ""
    store = f", and {store_tokens:.0f} came out of a store" if store_tokens else ""
    return f"prefix cache: {hit_tokens:.0f} of {queried_tokens:.0f} prompt tokens were in it{share}{store}"


# One cell over a pool of workers: start, ask it to end, wait, and the outcome.

INTERRUPTED = "interrupted"


class BenchmarkSession:
    """Runs one cell: ``start``, then ``wait_for_test_end``, then ``result``."""

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
            should_abort: polled a few times a second; a text ends the cell for that
                reason, with requests in flight.
            should_stop: polled likewise; a text ends sending, and requests in flight are awaited.
            queue: polled likewise; a cell behind a growing queue ends after ``duration_s``.

        Raises:
            ConfigError: the load needs more file descriptors than a worker may open.
        """
        check_limit(spec)
        session = cls(spec, target, pool, should_abort, should_stop, observe, queue)
        session._thread.start()
        return session

    def wait_for_test_end(self, timeout_s: float | None = None) -> bool:
        """Wait; return False if it still runs after ``timeout_s``."""
        return self._finished.wait(timeout_s)

    def stop(self) -> None:
        """Send nothing more; requests in flight are awaited, and the result says ``interrupted``."""
        self._stop_requested.set()

    def abandon(self) -> None:
        """End at once and abandon requests in flight."""
        self._abandon_requested.set()

    def result(self) -> SessionResult:
        """Return the outcome of a finished session.

        Raises:
            EngineError: the workers did not start.
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


# Time for workers to close their connections once nobody waits for their cell.
LEAVE_WITHIN_S = 1.0
# A session without workers ends once it has looked for them.
GONE_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True)
class CellOutcome:
    """A record for every arrival between T0 and T_stop, ordered by ``seq``, and the client's health."""

    window: CellWindow
    requests: list[RequestRecord]
    health: Health
    session: SessionResult


def measure_cell(
    spec: CellSpec,
    target: Target,
    *,
    pool: WorkerPool | None = None,
    should_abort: Callable[[], str | None] = lambda: None,
    observe: Observe = NOTHING,
    should_stop: Callable[[], str | None] = lambda: None,
    queue: Queue = unseen,
) -> CellOutcome:
    """Load ``target`` according to ``spec`` and return the outcome; blocks until drained.

    Args:
        pool: ``spec.workers`` workers to use; None starts some for this cell.
        should_abort: polled a few times a second; a text (such as the engine's death) ends the
            cell and requests in flight.
        should_stop: polled likewise; a text ends sending, and requests in flight are awaited.
        queue: samples of the engine's waiting requests, see ``run.measure.cell``; a cell behind a growing
            queue ends after ``duration_s`` and is flagged ``overloaded``.

    Raises:
        ConfigError: the load needs more file descriptors than there are.
        EngineError: the workers did not start.
    """
    if pool is None:
        with worker_pool(spec.workers or 1) as own_pool:
            return measure_cell(
                spec,
                target,
                pool=own_pool,
                should_abort=should_abort,
                observe=observe,
                should_stop=should_stop,
                queue=queue,
            )
    assert pool.n == (spec.workers or 1), "the pool is made for the campaign's number of workers"
    session = BenchmarkSession.start(
        spec,
        target,
        pool,
        should_abort=should_abort,
        should_stop=should_stop,
        observe=observe,
        queue=queue,
    )
    try:
        session.wait_for_test_end()
    except BaseException:
        # SIGTERM or Ctrl-C in the waiting thread: let the workers close their sockets first.
        session.abandon()
        if not session.wait_for_test_end(LEAVE_WITHIN_S):
            # Only the session's thread may close its sockets; it ends once its workers are gone.
            pool.kill_all()
            session.wait_for_test_end(GONE_WITHIN_S)
        raise
    result = session.result()
    return CellOutcome(result.window, result.requests, health(spec, result, pool.placement), result)
