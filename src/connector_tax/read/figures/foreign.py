"""An ``aggregate.json`` of another form than its schema: one message that names the place, instead of a traceback.

The schema is closed and belongs to one release, so it is not asked beforehand: an older file lacks keys and is read all the
same. It is asked when reading failed. A file that keeps it and cannot be read is a fault of this program, and stays one.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.errors import ArtifactError
from connector_tax.base.opening import printable, shown
from connector_tax.read.figures.lookup import Aggregate

SCHEMA = PROJECT_ROOT / "workflow" / "schemas" / "aggregate.schema.json"
# What a value of another form makes its readers raise.
UNREADABLE = (LookupError, AttributeError, TypeError, ValueError, ArithmeticError, RecursionError)
# Complaints about keys: another release has others.
_KEYS = ("additionalProperties", "required", "propertyNames")


@contextmanager
def reading(aggregate: Aggregate, path: Path) -> Iterator[None]:
    """
    Raises:
        ArtifactError: the body failed, and ``aggregate`` has not the form that it should have.
    """
    try:
        yield
    except UNREADABLE as error:
        fault = fault_of_aggregate(aggregate)
        if fault is None:
            raise
        raise ArtifactError(f"{path}: {fault}. Make it again with connector-tax analyze.") from error


def fault_of_aggregate(aggregate: Aggregate) -> str | None:
    """The first place that differs from the schema in more than keys; None where there is none."""
    faults = (e for e in _validator().iter_errors(aggregate) if e.validator not in _KEYS)
    first = next(faults, None)
    if first is None:
        return None
    place = ".".join(map(str, first.absolute_path)) or "it"
    return printable(f"{place} is {shown(first.instance)}, which is not what belongs there", 300)


@cache
def _validator() -> Any:
    return Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
