"""The table that turns codes into words, for page, figures and tables: ``workflow/report/labels.yaml``."""

from collections import defaultdict
from functools import cache

import yaml

from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.documents.aggregate import Problem
from connector_tax.base.files import printable
from connector_tax.base.records.cell import is_phase, is_repeat, phase_word
from connector_tax.base.units import exact_duration

WORDS = PROJECT_ROOT / "workflow" / "report"


@cache
def labels() -> dict[str, dict[str, str]]:
    """Return kind -> code -> words."""
    text = (WORDS / "labels.yaml").read_text(encoding="utf-8")
    # libyaml's, where PyYAML has it, takes a tenth of the time.
    found: dict[str, dict[str, str]] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # nosec B506  # both loaders are safe ones
    return found


def label(kind: str, code: str) -> str:
    """Return the words of a code; a code of another version stands for itself."""
    return labels()[kind].get(code, code.replace("_", " "))


def phase_text(phase: str) -> str:
    """Return what a phase is about: ``rates``, ``repeat 2``."""
    return f"{label('phase', 'repeat')} {phase[1:]}" if is_repeat(phase) else label("phase", phase)


def reason_text(reason: str | None, subject: str = "") -> str:
    """Return the words of why a number is missing; whose it is stands in front."""
    said = labels()["missing"].get(reason or "", reason or "")
    return f"{labels()['subject'].get(subject, subject)}: {said}" if subject else said


def problem_text(problem: Problem | None) -> str:
    """Return the words of a problem, then what somebody else says of it and what it follows from; nothing of None."""
    if problem is None:
        return ""
    facts = defaultdict(lambda: "?")
    for name, value in problem.numbers.items():
        facts[name] = exact_duration(round(value)) if name.endswith("_s") else f"{value:,.10g}"
    facts["subject"] = phase_word(problem.subject) if is_phase(problem.subject) else problem.subject
    facts["names"] = ", ".join(problem.names)
    said = label("problem", problem.code).format_map(facts).strip()
    return printable(": ".join(filter(None, (said, problem.detail, problem_text(problem.because)))))


def launches_text(n_blocks: int) -> str:
    """Return over how many launches a number is taken: ``of one launch``, ``over 4 blocks``."""
    return label("n_blocks", "one" if n_blocks == 1 else "several").format(n=n_blocks)
