"""From what was asked to what is printed."""

import json
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import msgspec

from connector_tax.base.errors import ArtifactError, ConfigError, EngineError
from connector_tax.check.campaigns import write_campaigns
from connector_tax.check.confirm import dearest_mode, measure_experiments, write_experiments
from connector_tax.check.document import check_document
from connector_tax.check.experiments import Results, read_experiments
from connector_tax.check.findings import Findings, read_findings
from connector_tax.check.request import CheckRequest
from connector_tax.check.run import measure_check, say_on_stderr
from connector_tax.check.text import check_text
from connector_tax.check.verdict import noise_floor, verdict
from connector_tax.read.stats.taxes import LATENCIES

LOG = "check.log"


@dataclass(frozen=True, slots=True)
class Printed:
    text: str
    exit_code: int


def run_check(
    request: CheckRequest,
    *,
    root: Path | None,
    fail_above: float | None,
    deciding: tuple[str, ...] = tuple(LATENCIES),
    explain: bool,
    as_json: bool,
    confirm: bool = False,
) -> Printed:
    """Measure, read and judge.

    Args:
        deciding: whose taxes the verdict and the exit code go by.
        root: an empty or new folder that keeps the raw artifacts; None: a temporary one, removed in the end.
        confirm: whether the causes are looked for by experiments, in two further launches.

    Raises:
        ConfigError: the request cannot be measured, or ``root`` holds something.
        EngineError: plain vLLM cannot be measured here.
    """
    begun = time.monotonic()
    if root is not None and root.exists() and not root.is_dir():
        raise ConfigError(f"--root {root}: is no folder. Give a new one.")
    if root is not None and root.exists() and any(root.iterdir()):
        raise ConfigError(
            f"--root {root}: holds something already; a check is measured anew. Give a new folder."
        )
    place: AbstractContextManager[str] = (
        tempfile.TemporaryDirectory(prefix="connector-tax-check-") if root is None else nullcontext(str(root))
    )
    with place as name:
        folder = Path(name)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"--root {root}: cannot be made ({error.strerror}).") from error
        campaigns = write_campaigns(request, folder)
        measured = measure_check(campaigns, folder / LOG, say_on_stderr)
        say_on_stderr(f"{time.monotonic() - begun:4.0f} s  measured; now reading")
        findings = read_findings(campaigns, measured.failed, measured.deaths)
        results = _confirmed(findings, folder) if confirm else None
    found = verdict(findings, fail_above, deciding)
    elapsed_s = time.monotonic() - begun
    say_on_stderr(f"{elapsed_s:4.0f} s  done")
    if as_json:
        document = check_document(findings, found, fail_above, elapsed_s, results, deciding)
        text = json.dumps(msgspec.to_builtins(document), indent=2, allow_nan=False)
    else:
        text = check_text(findings, found, explain=explain, results=results)
    return Printed(text, found.exit_code)


def _confirmed(findings: Findings, folder: Path) -> Results | None:
    """None where the connector does not serve, since there is nothing to be explained, and where no experiment can be made here.

    The verdict is known by then and must not be lost.
    """
    mode = dearest_mode(findings)
    if mode is None:
        return None
    experiments = write_experiments(findings.campaigns, mode, folder)
    taxes = next(m.taxes for m in findings.modes if m.mode == mode)
    try:
        measure_experiments(experiments, folder / LOG, findings.campaigns.request.label, say_on_stderr)
        return read_experiments(experiments, {m: noise_floor(taxes, m) for m in LATENCIES})
    except (ArtifactError, EngineError, OSError) as error:
        say_on_stderr(f"the experiments cannot be made here: {error}")
        return None
