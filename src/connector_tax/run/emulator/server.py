"""The embedded engine's server, with the vLLM endpoints that the pipeline uses."""

import asyncio
import json
import os
import sys
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from time import monotonic_ns
from typing import Any, Protocol, cast

import httptools

from connector_tax.base.records.bounds import Foreign
from connector_tax.base.timer import DeadlineTimer
from connector_tax.base.vllm_model.costs import NO_CONNECTOR, Member, costs_together
from connector_tax.base.vllm_model.model import EngineModel, StepResult
from connector_tax.run.emulator.faults import Faults
from connector_tax.run.emulator.steplog import StepLog

# HTTP: requests parsed by httptools, answers in vLLM's wire form.


class Handler(Protocol):
    """Handles one complete request."""

    def __call__(self, exchange: "Exchange", method: str, path: str, body: bytes) -> None: ...


class Exchange(asyncio.Protocol):
    """One client connection; one request at a time, kept alive in between."""

    def __init__(self, handler: Handler, on_lost: Callable[["Exchange"], None]) -> None:
        self._handler = handler
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._body: list[bytes] = []
        self.request_id: int | None = None
        self.authorization = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._on_lost(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.reset()

    def on_message_begin(self) -> None:
        self._url = b""
        self._body = []
        self.authorization = b""

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"authorization":
            self.authorization = value

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        method = self._parser.get_method().decode()
        self._handler(self, method, self._url.decode(), b"".join(self._body))

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def reset(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def answer_json(self, value: Any, status: str = "200 OK") -> None:
        self.answer(json.dumps(value).encode(), "application/json", status)

    def answer(self, body: bytes, content_type: str, status: str = "200 OK") -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
        self.write(head.encode() + body)

    def answer_error(self, status: str, message: str) -> None:
        code = int(status.split()[0])
        self.answer_json({"error": {"message": message, "type": "BadRequestError", "code": code}}, status)


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
)
STREAM_TAIL = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(payload: bytes) -> bytes:
    return b"data: " + payload + b"\n\n"


# The model in real time: steps start and end at the model's own absolute times.


class RealTimeEngine:
    """Drives an ``EngineModel`` on an event loop.

    Args:
        on_tokens: called at the end of each step with its result.
        on_lost_log: called if the step log cannot be written. Raised on the event loop, the error would end a
            connection or nothing, and the model would stop.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        model: EngineModel,
        step_log: StepLog | None,
        on_tokens: Callable[[StepResult], None],
        on_lost_log: Callable[[OSError], None],
    ) -> None:
        self.model = model
        self.hung = False
        self._step_log = step_log
        self._on_tokens = on_tokens
        self._on_lost_log = on_lost_log
        self._timer = DeadlineTimer(loop, self._step_ended)
        self._current: StepResult | None = None
        self._end_ns = 0

    def recost(self, members: tuple[Member, ...]) -> None:
        self.model.connector = costs_together(members)
        self._log(lambda log: log.recost(members))

    def add(self, request_id: int, prompt: int, max_tokens: int, *, cached: int) -> None:
        self.model.add(request_id, prompt, max_tokens, cached=cached)
        if self._current is None:
            self._begin(monotonic_ns())

    def _begin(self, start_ns: int) -> None:
        if self.hung:
            return
        step = self._current = self.model.step()
        self._end_ns = start_ns + step.duration_ns
        self._log(lambda log: log.step(start_ns, step))
        self._timer.arm(self._end_ns)

    def _step_ended(self) -> None:
        result, self._current = self._current, None
        if result is None:
            return
        self._on_tokens(result)
        if self.model.has_work:
            self._begin(self._end_ns)
        self._log(StepLog.flush_if_due)

    def _log(self, write: Callable[[StepLog], None]) -> None:
        if self._step_log is not None:
            try:
                write(self._step_log)
            except OSError as error:
                self._on_lost_log(error)


# Prefix cache: whole blocks, chained, least recently used ones evicted.


class PrefixCache:
    """Identifies blocks by a hash over all tokens up to their end, as vLLM's prefix cache does."""

    def __init__(self, block_size: int, blocks: int) -> None:
        self._block_size = block_size
        self._blocks = blocks
        self._known: OrderedDict[int, None] = OrderedDict()

    def hits(self, tokens: Sequence[int]) -> int:
        """Return how many leading tokens are cached; the last token is always computed."""
        n_cached = 0
        for key in self._keys(tokens[: len(tokens) - 1]):
            if key not in self._known:
                break
            n_cached += self._block_size
        return n_cached

    def insert(self, tokens: Sequence[int]) -> None:
        """Cache every whole block of ``tokens``."""
        for key in self._keys(tokens):
            self._known[key] = None
            self._known.move_to_end(key)
        while len(self._known) > self._blocks:
            self._known.popitem(last=False)

    def _keys(self, tokens: Sequence[int]) -> Iterator[int]:
        key = 0
        for end in range(self._block_size, len(tokens) + 1, self._block_size):
            key = hash((key, *tokens[end - self._block_size : end]))
            yield key


# /metrics under vLLM's names.

LMCACHE = "LMCacheConnectorV1"


@dataclass(slots=True)
class Counters:
    """The server's counters, in tokens."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    prefix_cache_queries: int = 0
    prefix_cache_hits: int = 0
    external_prefix_cache_queries: int = 0
    external_prefix_cache_hits: int = 0
    lmcache_lookups: int = 0


def metrics_text(
    model_name: str, model: EngineModel, counters: Counters, connectors: Collection[str] = ()
) -> str:
    """Return Prometheus text, with LMCache's own counter if it is in ``connectors``.

    Connectors find nothing, since nothing is transferred, unless a fault counts hits.
    """
    used_share = 1 - model.free_blocks / model.costs.kv_blocks
    gauges = {
        "num_requests_running": len(model.running),
        "num_requests_waiting": len(model.waiting),
        "kv_cache_usage_perc": used_share,
    }
    counts = {
        "prefix_cache_queries": counters.prefix_cache_queries,
        "prefix_cache_hits": counters.prefix_cache_hits,
        "external_prefix_cache_queries": counters.external_prefix_cache_queries,
        "external_prefix_cache_hits": counters.external_prefix_cache_hits,
        "num_preemptions": model.preemptions,
        "prompt_tokens": counters.prompt_tokens,
        "generation_tokens": counters.generation_tokens,
    }
    labels = f'{{engine="0",model_name="{model_name}"}}'
    # vLLM reports its cache size in an information metric whose labels are settings.
    size = f'block_size="{model.costs.block_size}",num_gpu_blocks="{model.costs.kv_blocks}"'
    lines = ["# TYPE vllm:cache_config_info gauge", f'vllm:cache_config_info{{engine="0",{size}}} 1.0']
    for name, value in gauges.items():
        lines += [f"# TYPE vllm:{name} gauge", f"vllm:{name}{labels} {float(value)}"]
    for name, value in counts.items():
        lines += [f"# TYPE vllm:{name} counter", f"vllm:{name}_total{labels} {float(value)}"]
    if LMCACHE in connectors:
        name = "lmcache:num_lookup_requests"
        lines += [f"# TYPE {name} counter", f"{name}_total{labels} {float(counters.lmcache_lookups)}"]
    return "\n".join(lines) + "\n"


class Answer:
    """A completion in progress."""

    __slots__ = (
        "exchange",
        "first_id",
        "ids",
        "number",
        "prefix",
        "produced",
        "prompt",
        "prompt_tokens",
        "stream",
        "usage",
        "with_ids",
    )

    def __init__(
        self, exchange: Exchange, number: int, prompt_tokens: int, model: str, options: Foreign
    ) -> None:
        self.exchange = exchange
        self.number = number
        self.prompt: list[int] = options["prompt"] if isinstance(options["prompt"], list) else []
        self.prompt_tokens = prompt_tokens
        self.produced = 0
        self.stream = bool(options.get("stream"))
        self.with_ids = bool(options.get("return_token_ids"))
        self.usage = bool((options.get("stream_options") or {}).get("include_usage"))
        frame = {
            "id": f"cmpl-{number}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        self.prefix = json.dumps(frame, separators=(",", ":"))[:-1]
        self.ids: list[int] = []
        # Answers depend on the prompt alone, as at temperature 0.
        self.first_id = zlib.crc32(json.dumps(options["prompt"]).encode()) if not self.stream else number * 7

    def token_event(self, text: str, token_id: int, finish: str | None) -> bytes:
        ids = f',"token_ids":[{token_id}]' if self.with_ids else ""
        choice = f'{{"index":0,"text":"{text}","logprobs":null,"finish_reason":{json.dumps(finish)}{ids}}}'
        return event(f'{self.prefix},"choices":[{choice}]}}'.encode())

    def usage_json(self) -> str:
        total = self.prompt_tokens + self.produced
        return (
            f'{{"prompt_tokens":{self.prompt_tokens},"total_tokens":{total},'
            f'"completion_tokens":{self.produced}}}'
        )


class Server:
    """Connects the sockets to the engine."""

    def __init__(
        self,
        model: str,
        max_model_len: int,
        faults: Faults,
        cache: PrefixCache,
        *,
        members: tuple[Member, ...],
        api_key: str | None = None,
    ) -> None:
        self._model = model
        self._max_model_len = max_model_len
        self._faults = faults
        self._cache = cache
        self._members = members
        # A running connector looks up every prompt; in degraded mode none.
        self._asked = [] if faults.degraded else [m.name for m in members]
        self._answers: dict[int, Answer] = {}
        self._asked_for = None if api_key is None else f"Bearer {api_key}".encode()
        self._requests = 0
        self._scrapes = 0
        self._compiled: set[int] = set()
        self.counters = Counters()
        self.engine: RealTimeEngine | None = None

    def exchange(self) -> Exchange:
        return Exchange(self._handle, self._client_gone)

    def _handle(self, exchange: Exchange, method: str, path: str, body: bytes) -> None:
        path = path.partition("?")[0]
        if path.startswith("/v1/") and self._asked_for not in (None, exchange.authorization):
            exchange.answer_json({"error": "Unauthorized"}, "401 Unauthorized")
        elif path == "/v1/completions" and method == "POST":
            self._complete(exchange, body)
        elif path == "/v1/models":
            card = {"id": self._model, "object": "model", "max_model_len": self._max_model_len}
            exchange.answer_json({"object": "list", "data": [card]})
        elif path == "/health":
            exchange.answer(b"", "text/plain")
        elif path == "/metrics":
            assert self.engine is not None
            self._scrapes += 1
            if self._faults.hits("metrics500", self._scrapes):
                exchange.answer_error("500 Internal Server Error", "no metrics (on demand).")
                return
            text = metrics_text(
                self._model, self.engine.model, self.counters, [m.name for m in self._members]
            )
            exchange.answer(text.encode(), "text/plain; version=0.0.4; charset=utf-8")
        else:
            exchange.answer_error("404 Not Found", f"no {path} here")

    def _complete(self, exchange: Exchange, body: bytes) -> None:
        try:
            options = json.loads(body)
            prompt = options["prompt"]
            max_tokens = int(options.get("max_tokens", 16))
        except (ValueError, KeyError, TypeError) as error:
            exchange.answer_error("400 Bad Request", f"not a completion request: {error}")
            return
        # One token per word: the embedded engine has no tokenizer.
        prompt_tokens = len(prompt) if isinstance(prompt, list) else len(str(prompt).split())
        assert self.engine is not None
        if options.get("model") != self._model:
            exchange.answer_error("404 Not Found", f"The model `{options.get('model')}` does not exist.")
            return
        too_long = prompt_tokens + max_tokens > self._max_model_len
        if (
            prompt_tokens < 1
            or max_tokens < 1
            or too_long
            or not self.engine.model.fits(prompt_tokens, max_tokens)
        ):
            exchange.answer_error(
                "400 Bad Request",
                f"This model's maximum context length is {self._max_model_len} tokens; the request has "
                f"{prompt_tokens} in the prompt and asks for {max_tokens}.",
            )
            return
        self._requests += 1
        number = self._requests
        if self._faults.die_after and number >= self._faults.die_after:
            os._exit(1)
        if max_tokens == self._faults.die_on_output:
            print(
                f"RuntimeError: {max_tokens} tokens kill this engine (on demand)", file=sys.stderr, flush=True
            )
            os._exit(1)
        if self._faults.hang_after and number >= self._faults.hang_after:
            self.engine.hung = True
        if self._faults.compile and prompt_tokens not in self._compiled:
            self._compiled.add(prompt_tokens)
            time.sleep(self._faults.compile)  # compiling blocks the whole engine
        if self._faults.hits("http500", number):
            print("RuntimeError: this request was to fail (on demand)", file=sys.stderr, flush=True)
            exchange.answer_error("500 Internal Server Error", "EngineCore encountered an issue (on demand).")
            return
        answer = Answer(exchange, number, prompt_tokens, self._model, options)
        exchange.request_id = number
        self._answers[number] = answer
        self.counters.prompt_tokens += prompt_tokens
        self.counters.prefix_cache_queries += prompt_tokens
        if number == self._faults.off_after:
            self._switch_off()
        self.counters.lmcache_lookups += self._asked.count(LMCACHE)
        if self._asked:
            self.counters.external_prefix_cache_queries += prompt_tokens
            if self._faults.hits("external_hits", number):
                self.counters.external_prefix_cache_hits += prompt_tokens
        if answer.stream:
            exchange.write(STREAM_HEAD)
        if self._faults.hits("short", number):
            max_tokens = max(1, max_tokens - 1)
        cached = self._cache.hits(answer.prompt)
        self.counters.prefix_cache_hits += cached
        self.engine.add(number, prompt_tokens, max_tokens, cached=cached)

    def _switch_off(self) -> None:
        """Switch off the connector or one child of a stack; its hooks are still called, at no cost."""
        child_index = self._faults.off_child
        switched_off = [
            child_index < 0 or member.prefix.startswith(f"{child_index}:") for member in self._members
        ]
        self._asked = [
            member.name for member, is_off in zip(self._members, switched_off, strict=True) if not is_off
        ]
        assert self.engine is not None
        self.engine.recost(
            tuple(
                replace(member, costs=NO_CONNECTOR) if is_off else member
                for member, is_off in zip(self._members, switched_off, strict=True)
            )
        )
        if self._faults.off_says:
            print(self._faults.off_says, file=sys.stderr, flush=True)

    def on_tokens(self, result: StepResult) -> None:
        """Handle a step's end: one write per request that got a token."""
        finished = set(result.finished)
        self.counters.generation_tokens += len(result.tokens)
        for number in result.tokens:
            answer = self._answers.get(number)
            if answer is not None:
                self._emit(answer, number in finished)

    def _emit(self, answer: Answer, last: bool) -> None:
        answer.produced += 1
        token_id = (answer.first_id + answer.produced) % 1000
        text = f"t{token_id} "
        if last:
            del self._answers[answer.number]
            answer.exchange.request_id = None
            self._cache.insert([*answer.prompt, *answer.ids])
        wrong_id = not answer.stream and last and self._faults.hits("wrong", answer.number)
        answer.ids.append(token_id + 1 if wrong_id else token_id)
        if not answer.stream:
            if last:
                self._answer_whole(answer)
            return
        if answer.produced == 2 and self._faults.hits("reset", answer.number):
            answer.exchange.reset()
            return
        if answer.produced == 2 and self._faults.hits("malformed", answer.number):
            answer.exchange.write(chunk(event(b'{"choices": [{')))
            return
        data = chunk(answer.token_event(text, token_id, "length" if last else None))
        if last:
            if answer.usage:
                data += chunk(event(f'{answer.prefix},"choices":[],"usage":{answer.usage_json()}}}'.encode()))
            data += chunk(event(b"[DONE]")) + STREAM_TAIL
        answer.exchange.write(data)

    def _answer_whole(self, answer: Answer) -> None:
        value = json.loads(answer.prefix + "}")
        text = "".join(f"t{token_id} " for token_id in answer.ids)
        value["choices"] = [{"index": 0, "text": text, "token_ids": answer.ids, "finish_reason": "length"}]
        value["usage"] = json.loads(answer.usage_json())
        answer.exchange.answer_json(value)

    def _client_gone(self, exchange: Exchange) -> None:
        if exchange.request_id is not None and self._answers.pop(exchange.request_id, None) is not None:
            assert self.engine is not None
            self.engine.model.cancel(exchange.request_id)
