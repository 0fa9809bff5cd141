"""Filling a prefix cache before a cell: what is sent, what the engine says it computed, and what the cell records of it."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from cell_specs import cell_spec

from connector_tax.base.documents.cell import Cache
from connector_tax.run.measure.checks import cache_flags, computed_tokens, parse_cache_size, prime_cache
from connector_tax.run.sampler.sampler import scrape_once

SPEC = cell_spec(phase="d", arrival="concurrency", concurrency=2, rate_per_s=0.0, cached_tokens=5000)


@dataclass
class Counting:
    """A server that counts as vLLM does.

    Attributes:
        kept: of every prompt so many tokens are found in the cache.
        fails_at: the request that is answered with HTTP 500, counted from 1.
    """

    prompts: list[list[int]] = field(default_factory=list)
    prompt_tokens: int = 0
    generated: int = 0
    hits: int = 0
    kept: int = 0
    fails_at: int | None = None
    counts: bool = True
    labels: str = 'block_size="16",num_gpu_blocks="1000"'
    url: str = ""
    says: str = "{}"

    def page(self) -> str:
        counted = {
            "prompt_tokens": self.prompt_tokens,
            "generation_tokens": self.generated,
            "prefix_cache_hits": self.hits,
        }
        lines = [
            f"# TYPE vllm:{n} counter\nvllm:{n}_total {float(v)}" for n, v in counted.items() if self.counts
        ]
        return "\n".join(
            [
                "# TYPE vllm:cache_config_info gauge",
                f"vllm:cache_config_info{{{self.labels}}} 1.0",
                *lines,
                "",
            ]
        )

    def complete(self, body: dict[str, Any]) -> int:
        if len(self.prompts) + 1 == self.fails_at:
            return 500
        assert body["max_tokens"] == 1
        self.prompts.append(body["prompt"])
        self.prompt_tokens += len(body["prompt"])
        self.hits += self.kept
        self.generated += 1
        return 200


@pytest.fixture
def server() -> Iterator[Counting]:
    state = Counting()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200, state.page())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._answer(state.complete(body), state.says)

        def _answer(self, code: int, text: str) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None: ...

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{http.server_port}"
    yield state
    http.shutdown()
    thread.join()
    http.server_close()


def prime(state: Counting, spec: Any = SPEC, **args: Any) -> Cache:
    launch = SimpleNamespace(engine=SimpleNamespace(args={"max_model_len": 1001, **args}))
    engine: Any = SimpleNamespace(base_url=state.url, model="m", request=launch, headers={})
    return prime_cache(spec, engine, lambda: scrape_once(state.url))


def test_a_cache_is_filled_to_its_level_with_prompts_that_the_engine_takes(server: Counting) -> None:
    """Prompts of at most max_model_len - 1 tokens, each with one token of output, until 5,000 are computed."""
    cache = prime(server)
    assert [len(p) for p in server.prompts] == [1000, 1000, 1000, 1000, 996]
    assert len({tuple(p[:16]) for p in server.prompts}) == 5
    assert (cache.primed_tokens, cache.computed_tokens) == (4996, 5001)
    assert (cache.prompts, cache.longest_prompt) == (5, 1000)
    assert (cache.block_size, cache.kv_blocks) == (16, 1000)
    assert cache.counters["generation_tokens"] == 5.0
    assert cache_flags(cache) == []


def test_what_earlier_cells_left_is_not_sent_again(server: Counting) -> None:
    server.prompt_tokens, server.generated = 4000, 500
    cache = prime(server)
    assert [len(p) for p in server.prompts] == [500]
    assert cache.computed_tokens == 5001


def test_tokens_that_were_found_in_the_cache_do_not_count_as_computed(server: Counting) -> None:
    """So a prompt that was not new leaves a cell below its level, and it says so."""
    server.kept = 100
    cache = prime(server)
    assert cache.computed_tokens == 5001 - 5 * 100
    assert cache_flags(cache) == ["cache_below_level"]


def test_a_failure_ends_priming_and_is_told(server: Counting) -> None:
    server.fails_at = 3
    cache = prime(server)
    assert cache.failed.startswith("HTTP 500")
    assert (cache.primed_tokens, cache.computed_tokens) == (2000, 2002)
    assert cache_flags(cache) == ["cache_below_level"]


def test_a_level_that_the_engine_has_no_blocks_for_is_flagged(server: Counting) -> None:
    server.labels = 'block_size="16",num_gpu_blocks="200"'
    cache = prime(server)
    assert (cache.computed_tokens, cache.kv_blocks) == (5001, 200)
    assert cache_flags(cache) == ["cache_below_level"]


def test_what_an_engine_computed_that_counts_nothing_is_not_known(server: Counting) -> None:
    server.counts = False
    cache = prime(server)
    assert (cache.computed_tokens, cache.primed_tokens) == (None, 4996)
    assert computed_tokens({"prompt_tokens": 3.0}) is None


def test_the_size_of_a_cache_is_read_where_a_release_knows_it() -> None:
    page = '# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1.0\n'
    assert parse_cache_size(page) == {"block_size": 16}
    assert parse_cache_size("# TYPE vllm:x gauge\nvllm:x 1.0\n") == {}


def test_of_a_known_secret_that_the_engine_repeats_no_half_is_kept(
    server: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "Zq8vT2xLk9Rw4nBd7fHsQ1")
    server.fails_at, server.says = 1, "m" * 290 + " Zq8vT2xLk9Rw4nBd7fHsQ1"
    assert "Zq8v" not in prime(server).failed
