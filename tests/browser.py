"""A headless Chromium for tests of pages, driven over two pipes (Chrome DevTools Protocol), not a port."""

import json
import os
import select
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# A hung browser fails one test and does not block the others.
ANSWER_TIMEOUT_S = 60
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--remote-debugging-pipe",
)


def browser_path() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Tab:
    """One page.

    Attributes:
        complaints: console output and script exceptions.
    """

    def __init__(self, out: int, into: int) -> None:
        self.out, self.into = out, into
        self._come = b""
        self.complaints: list[str] = []
        self.requested: list[str] = []
        self.loaded = False
        self._next, self._session = 0, None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the answer to one command; note events that come before it."""
        self._next += 1
        message = {"id": self._next, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._next:
            self._note(answer)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return dict(answer["result"])

    def _read(self) -> dict[str, Any]:
        """Return the next message; later ones stay in the buffer."""
        while b"\0" not in self._come:
            ready, _, _ = select.select([self.into], [], [], ANSWER_TIMEOUT_S)
            more = os.read(self.into, 1 << 16) if ready else b""
            if not more:
                raise AssertionError(
                    "the browser ended" if ready else f"the browser was silent for {ANSWER_TIMEOUT_S} s"
                )
            self._come += more
        message, _, self._come = self._come.partition(b"\0")
        return dict(json.loads(message))

    def _note(self, event: dict[str, Any]) -> None:
        told = event.get("params", {})
        match event.get("method"):
            case "Page.loadEventFired":
                self.loaded = True
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(told["exceptionDetails"])[:500])
            case "Runtime.consoleAPICalled":
                self.complaints.append(json.dumps(told["args"])[:500])
            case "Log.entryAdded":
                self.complaints.append(str(told["entry"]["text"]))
            case "Network.requestWillBeSent":
                self.requested.append(str(told["request"]["url"]))

    def open(self, path: Path, width: int = 1280) -> None:
        self.go(path.absolute().as_uri(), width)

    def go(self, url: str, width: int = 1280) -> None:
        """Load an address and wait for it."""
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        self.loaded = False
        self.ask("Page.navigate", url=url)
        while not self.loaded:
            self._note(self._read())

    def value(self, expression: str) -> Any:
        """Evaluate a JavaScript expression; an exception fails."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")


@contextmanager
def open_tab(path: str) -> Iterator[Tab]:
    """Open a tab in its own browser, which ends with the block."""
    to_browser, own_out = os.pipe()
    own_in, from_browser = os.pipe()

    def pipes() -> None:
        # Chromium reads from 3 and writes to 4. Copies first, since these numbers may be in use by the pipes.
        first, second = os.dup(to_browser), os.dup(from_browser)
        os.dup2(first, 3)
        os.dup2(second, 4)

    # Its helper processes may still write while the folder is removed.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [path, *OPTIONS, f"--user-data-dir={profile}"],
            preexec_fn=pipes,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        try:
            yield Tab(own_out, own_in)
        finally:
            os.close(own_out)
            os.close(own_in)
            process.kill()
            process.wait()
