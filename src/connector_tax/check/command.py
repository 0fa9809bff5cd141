"""From what was asked to what is printed."""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from connector_tax.base.documents.aggregate import Interval
from connector_tax.base.errors import ConfigError
from connector_tax.base.templates import template
from connector_tax.check import document
from connector_tax.check.campaign import AGAIN
from connector_tax.check.document import EXIT_CODES, Check, Connector, RealTime
from connector_tax.check.real_time import measure_real_time
from connector_tax.check.request import CheckRequest
from connector_tax.read.figures.words import with_interval

LOG = "check.log"
TEMPLATES = Path(__file__).parent


def run_check(
    request: CheckRequest, root: Path, fail_above: float | None, say: Callable[[str], None]
) -> Check:
    """Measure and judge.

    Args:
        root: an empty folder for the raw artifacts.

    Raises:
        ConfigError: the request cannot be measured.
        EngineError: plain vLLM cannot be measured here.
    """
    begun = time.monotonic()
    found = measure_real_time(
        request, root, root / LOG, lambda what: say(f"{time.monotonic() - begun:4.0f} s  {what}")
    )
    verdict = judge(found, request.connector_id, fail_above)
    kv_transfer_config = request.entry["kv_transfer_config"]
    return Check(
        verdict=verdict,
        exit_code=EXIT_CODES[verdict],
        fail_above=fail_above,
        connector=Connector(request.connector_id, request.label, kv_transfer_config, request.notes),
        model=request.model_name,
        gpu=request.gpu,
        elapsed_s=time.monotonic() - begun,
        real_time=found,
    )


def judge(found: RealTime, connector_id: str, fail_above: float | None) -> str:
    """Return the verdict: a tax is above the limit where its whole interval is."""
    if found.failure is not None:
        return document.NOT_SERVED
    taxes = [t for t in found.taxes if t.config == connector_id]
    if fail_above is not None and any(t.low is not None and t.low > fail_above for t in taxes):
        return document.ABOVE
    if found.lost or not taxes or any(t.reason is not None for t in taxes):
        return document.NOT_JUDGED
    return document.MEASURED if fail_above is None else document.NOT_ABOVE


def text_of(found: Check) -> str:
    return template(TEMPLATES / "check.txt.j2").render(
        c=found, again=AGAIN, interval=lambda t: with_interval(Interval(t.point, t.low, t.high))
    )


def say_on_stderr(line: str) -> None:
    print(line, file=sys.__stderr__, flush=True)


@contextmanager
def kept_in(root: Path | None) -> Iterator[Path]:
    """Yield a folder for the raw artifacts: ``root``, or a temporary one that is removed.

    Raises:
        ConfigError: ``root`` holds something, or cannot be made.
    """
    if root is None:
        with tempfile.TemporaryDirectory(prefix="connector-tax-check-") as name:
            yield Path(name)
        return
    if root.exists() and not root.is_dir():
        raise ConfigError(f"--root {root}: is no folder. Give a new one.")
    if root.exists() and any(root.iterdir()):
        raise ConfigError(
            f"--root {root}: holds something already; a check is measured anew. Give a new folder."
        )
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--root {root}: cannot be made ({error.strerror}).") from error
    yield root
