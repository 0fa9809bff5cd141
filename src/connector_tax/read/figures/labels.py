"""The table that turns codes into words, for page, figures and tables: ``workflow/report/labels.yaml``."""

from functools import cache

import yaml

from connector_tax.base.config.checked import PROJECT_ROOT

WORDS = PROJECT_ROOT / "workflow" / "report"


@cache
def labels() -> dict[str, dict[str, str]]:
    """Return kind -> code -> words."""
    found: dict[str, dict[str, str]] = yaml.safe_load((WORDS / "labels.yaml").read_text(encoding="utf-8"))
    return found


def label(kind: str, code: str) -> str:
    """Return the words of a code; a code of another version stands for itself."""
    return labels()[kind].get(code, code.replace("_", " "))
