"""An engine is ready when it says which model it serves; nothing else that answers there makes it so, and nothing in between."""

import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace

from connector_tax.base import direct
from connector_tax.base.config import CampaignConfig, load_campaign
from connector_tax.run.engine.ports import free_port
from connector_tax.run.engine.process import LaunchError, LaunchRequest, RunningEngine, running_engine
from connector_tax.run.measure import checks
from connector_tax.run.measure.checks import alive, ask, cache_was_asked
from connector_tax.run.sampler.sampler import scrape_once

CONFIG = Path(__file__).parents[3] / "config"
PROXIES = ("http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")


@pytest.fixture
def campaign() -> CampaignConfig:
    return load_campaign(CONFIG / "demo.yaml")


@contextmanager
def answering(body: bytes, **headers: str) -> Iterator[int]:
    """A server that says ``body`` to every question, and 200; its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


NO_MODELS = [
    b"<html>please log in</html>",
    b"[]",
    b'{"data": null}',
    b'{"data": ["embedded-engine"]}',
    b'{"data": [{"name": "embedded-engine"}]}',
    b"[" * 200_000,
]


@pytest.mark.parametrize("body", NO_MODELS, ids=lambda b: repr(b[:30]))
def test_an_answer_that_is_no_list_of_models_is_not_ready(
    campaign: CampaignConfig, tmp_path: Path, body: bytes
) -> None:
    engine = replace(campaign.engine, ready_timeout_s=0.2)
    request = LaunchRequest(engine, campaign.connector("plain"), tmp_path)
    for headers in ({}, {"Content-Encoding": "gzip"} if body == b"[]" else {}):
        with answering(body, **headers) as port, subprocess.Popen(["sleep", "60"]) as starting:
            try:
                with pytest.raises(LaunchError, match=r"plain: not ready after 0\.2 s"):
                    RunningEngine(request, port, starting).wait_ready()
            finally:
                starting.kill()
    assert direct.served_models(httpx.Response(200, content=body)) is None


def test_a_question_to_an_engine_goes_through_no_proxy_and_its_client_is_made_before_the_clock_is_read(
    campaign: CampaignConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy answers everything, in its own words; and the engine keeps the variables for its own downloads. A client takes up to 100 ms where
    it loads certificates, which was counted as the engine's time for a prompt, from which Phase B's rates are made."""
    order: list[str] = []
    made, now = direct.Client.__init__, checks.time.monotonic

    def make(*args: object, **options: object) -> None:
        order.append("client")
        made(*args, **options)  # type: ignore[arg-type]

    def refuse(*args: object, **options: object) -> None:
        raise AssertionError("certificates are loaded for plain HTTP")

    with answering(b"<html>blocked by policy</html>") as proxy:
        for name in PROXIES:
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy}")
        assert "blocked" in httpx.get("http://127.0.0.1:9/").text, "the proxy is in the way of whoever asks"
        for name in ("load_verify_locations", "load_default_certs"):
            monkeypatch.setattr(ssl.SSLContext, name, refuse)
        with running_engine(LaunchRequest(campaign.engine, campaign.connector("plain"), tmp_path)) as engine:
            engine.wait_ready()
            monkeypatch.setattr(direct.Client, "__init__", make)
            monkeypatch.setattr(checks.time, "monotonic", lambda: (order.append("clock"), now())[1])
            assert ask(engine, campaign, 16, output_tokens=2, timeout_s=20).fault is None
            assert order[:3] == ["client", "clock", "clock"]
            assert scrape_once(engine.base_url)["generation_tokens"] == 2
            environment = next(iter(engine.processes().values())).environ()
            assert environment["http_proxy"] == f"http://127.0.0.1:{proxy}"


def test_an_engine_that_died_before_a_check_is_said_to_have_died(
    campaign: CampaignConfig, tmp_path: Path
) -> None:
    """A refused connection is no reason why a connector cannot be measured."""
    with subprocess.Popen(["sh", "-c", "kill -9 $$"]) as dead:
        dead.wait()
        request = LaunchRequest(campaign.engine, campaign.connector("plain"), tmp_path)
        engine = RunningEngine(request, free_port(), dead)
        for check in (cache_was_asked, alive):
            found = check(engine)
            assert (found.ok, found.detail) == (False, "killed by SIGKILL; the log gives no reason")
