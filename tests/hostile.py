"""Values that somebody hostile would write, and a watch over what a test opens, writes and starts."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Each would make a file of this name in the current folder if a shell, or Python, or YAML, ran it.
CANARY = "canary"
COMMANDS = {
    "command substitution": f"$(touch {CANARY})",
    "backquotes": f"`touch {CANARY}`",
    "next command": f"; touch {CANARY}",
    "pipe": f"| touch {CANARY}",
    "and": f"&& touch {CANARY} &&",
    "next line": f"\ntouch {CANARY}\n",
    "redirection": f"> {CANARY}",
    "out of quotes": f"'; touch {CANARY}; '",
    "out of double quotes": f'"; touch {CANARY}; "',
    "arithmetic": f"a[$(touch {CANARY})]",
    "parameter": f"${{x:=$(touch {CANARY})}}",
    "process substitution": f"<(touch {CANARY})",
    "Python": f"__import__('os').system('touch {CANARY}')",
    "Python in a format": "{0.__class__}",
    "jinja": "{{ cycler.__init__.__globals__.os.popen('touch " + CANARY + "') }}",
    "glob": "*",
    "history and home": "~/!!",
    "options": f"--output={CANARY}",
    "escape": "\\",
    "terminal": "\x1b]0;title\x07\x1b[2J",
    "separators": "a\u2028b\x85c\u202e",
    "markup": f"<script>x</script><img src=x onerror=touch('{CANARY}')>",
    "Markdown": "![x](http://example.invalid/x) [y](javascript:z) <!-- end campaign demo --> | `",
}
PATHS = {
    "up": "../../../outside",
    "absolute": "/etc/passwd",
    "inside out": "cells/../../outside",
    "device": "/dev/zero",
    "hidden": ".ssh",
    "dot": ".",
    "dots": "..",
    "line feed at its end": "demo\n",
    "null byte": "demo\0",
    "half a pair": "demo\ud800",
    "too long": "d" * 300,
    "empty": "",
}
# Where a number, a list or an object is expected.
KINDS: dict[str, Any] = {
    "null": None,
    "true": True,
    "negative": -1,
    "largest integer": 2**63 - 1,
    "smallest integer": -(2**63),
    "largest number": 1.7e308,
    "smallest number": 5e-324,
    "text": "many",
    "empty list": [],
    "empty object": {},
    "list of lists": [[1]],
    "object": {"a": {"b": 1}},
}
# Whole documents, as bytes.
DOCUMENTS: dict[str, bytes] = {
    "nothing": b"",
    "deep": b"[" * 200_000,
    "deep and closed": b'{"a":' * 500 + b"1" + b"}" * 500,
    "half a pair": b'{"schema": 1, "a": "\\ud800"}',
    "NaN": b'{"schema": 1, "a": NaN}',
    "1e400": b'{"schema": 1, "a": 1e400}',
    "huge integer": b'{"schema": 1, "a": ' + b"9" * 5000 + b"}",
    "beyond 64 bits": b'{"schema": 1, "a": 99999999999999999999}',
    "a key twice": b'{"schema": 1, "schema": 1}',
    "no UTF-8": b'{"a": "\xff"}',
    "zip": b"PK\x03\x04" + b"\0" * 100,
    "gzip": b"\x1f\x8b\x08" + b"\0" * 100,
    "list": b"[1]",
    "text": b'"schema"',
    "of nothing": b'{"schema": 1}',
}
# Not files at all. ``outside`` is put there by the watch.
IRREGULAR = ("link to a device", "link outside", "link to nothing", "pipe", "folder")


def put(path: Path, kind: str, outside: Path) -> None:
    """Something irregular in the place of ``path``."""
    if path.is_dir():
        raise AssertionError(f"{path} is a folder")
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(
            {"link to a device": "/dev/zero", "link outside": str(outside), "link to nothing": "/nowhere"}[
                kind
            ]
        )


STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "pty.spawn")
# And how many of the first arguments are names.
CHANGES = {"os.mkdir": 1, "os.remove": 1, "os.rmdir": 1, "os.rename": 2, "os.truncate": 1, "os.chmod": 1}


@dataclass
class Watch:
    """What happened between ``watched``'s beginning and end.

    Attributes:
        opened: files opened by Python below ``around`` and outside ``allowed``, links followed.
        started: processes.
    """

    around: Path
    allowed: tuple[Path, ...]
    opened: list[str] = field(default_factory=list)
    started: list[str] = field(default_factory=list)

    def see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in STARTS:
            self.started.append(f"{event} {arguments[:2]}")
        elif event == "open":
            self._note(_followed(arguments[0]))
        elif event in CHANGES:
            for argument in arguments[: CHANGES[event]]:
                self._note(_there(argument))

    def _note(self, path: Path | None) -> None:
        if path is not None and self._is_beyond(path):
            self.opened.append(str(path))

    def _is_beyond(self, path: Path) -> bool:
        below = path.is_relative_to(self.around) or path.is_relative_to("/etc") or path.is_relative_to("/dev")
        harmless = path in (Path("/dev/null"), Path("/dev/urandom"))
        return below and not harmless and not any(path.is_relative_to(a) for a in self.allowed)


def _followed(argument: object) -> Path | None:
    """What an opened name leads to."""
    if not isinstance(argument, str | bytes | os.PathLike):
        return None  # a descriptor that was opened by name before
    try:
        return Path(os.path.realpath(os.fsdecode(argument)))
    except (ValueError, OSError):
        return None


def _there(argument: object) -> Path | None:
    """What a changed name is: a link is removed or renamed itself."""
    parent = (
        _followed(os.path.dirname(os.fsdecode(argument)) or ".")
        if isinstance(argument, str | os.PathLike)
        else None
    )
    return None if parent is None else parent / os.path.basename(os.fsdecode(argument))  # type: ignore[arg-type]


_WATCHES: list[Watch] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    for watch in _WATCHES:
        watch.see(event, arguments)


@contextmanager
def watched(around: Path, *allowed: Path, within_s: int = 60) -> Iterator[Watch]:
    """Nothing may wait for ever: what a pipe or a device holds up ends after ``within_s``."""
    if not getattr(sys, "_connector_tax_hook", False):
        sys.addaudithook(_hook)  # it cannot be taken out again
        sys._connector_tax_hook = True  # type: ignore[attr-defined]
    watch = Watch(around.resolve(), tuple(a.resolve() for a in allowed))
    before = signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(within_s)
    _WATCHES.append(watch)
    try:
        yield watch
    finally:
        _WATCHES.remove(watch)
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _too_long(*_: object) -> None:
    raise TimeoutError("held up by a file that never ends")
