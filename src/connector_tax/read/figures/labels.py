"""The table that turns codes into words, for page, figures and tables: ``workflow/report/labels.yaml``."""

from functools import cache

import yaml

from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.records.cell import is_repeat

WORDS = PROJECT_ROOT / "workflow" / "report"


@cache
def labels() -> dict[str, dict[str, str]]:
    """Return kind -> code -> words."""
    text = (WORDS / "labels.yaml").read_text(encoding="utf-8")
    # libyaml's, where PyYAML has it, takes a tenth of the time.
    found: dict[str, dict[str, str]] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # nosec B506
    return found


def label(kind: str, code: str) -> str:
    """Return the words of a code; a code of another version stands for itself."""
    return labels()[kind].get(code, code.replace("_", " "))


def phase_text(phase: str) -> str:
    """Return what a phase is about: ``rates``, ``repeat 2``."""
    return f"{label('phase', 'repeat')} {phase[1:]}" if is_repeat(phase) else label("phase", phase)


def reason_text(reason: str | None, subject: str = "") -> str:
    """Return the words of a reason: of a code those of the table, else what a file says; whose number it is about stands in front."""
    said = labels()["missing"].get(reason or "", reason or "")
    return f"{labels()['subject'].get(subject, subject)}: {said}" if subject else said


def launches_text(n_blocks: int) -> str:
    """Return over how many launches a number is taken: ``of one launch``, ``over 4 blocks``."""
    return label("n_blocks", "one" if n_blocks == 1 else "several").format(n=n_blocks)
