"""One YAML file against one JSON Schema of ``workflow/schemas/``: defaults filled in, or one readable message.

The schemas hold the types, the bounds and every default.
"""

import copy
import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator, ValidationError, validators
from yaml.error import MarkedYAMLError

from connector_tax.base.errors import ConfigError
from connector_tax.base.records.bounds import Foreign

_HERE = Path(__file__).resolve()
# The checkout. A wheel has no more of it than setup.py puts into the package.
PROJECT_ROOT = (
    _HERE.parents[4] if (_HERE.parents[4] / "Snakefile").is_file() else _HERE.parents[2] / "project"
)
SCHEMAS = PROJECT_ROOT / "workflow" / "schemas"
# A null byte ends what C takes for text; half of a surrogate pair is none in UTF-8.
_UNFIT = re.compile("[\x00\ud800-\udfff]")


class _Strict(yaml.SafeLoader):
    """Refuses what PyYAML takes without a word: a key twice in one mapping, of which it keeps the last, and an alias inside of what it stands for."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._open: list[str] = []

    def compose_node(self, parent: Any, index: Any) -> Any:
        parser: Any = self  # PyYAML's methods have no types
        if parser.check_event(yaml.AliasEvent) and (event := parser.peek_event()).anchor in self._open:
            raise MarkedYAMLError(
                problem="an alias stands inside of what it stands for", problem_mark=event.start_mark
            )
        return super().compose_node(parent, index)

    def compose_sequence_node(self, anchor: Any) -> Any:
        with self._inside(anchor):
            return super().compose_sequence_node(anchor)

    def compose_mapping_node(self, anchor: Any) -> Any:
        with self._inside(anchor):
            node = super().compose_mapping_node(anchor)
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (first := lines.get((key.tag, key.value))) is not None:
                    raise MarkedYAMLError(
                        problem=f"this key stands in line {first} of the same mapping already; leave one of them out",
                        problem_mark=key.start_mark,
                    )
                lines[key.tag, key.value] = key.start_mark.line + 1
        return node

    @contextmanager
    def _inside(self, anchor: str | None) -> Iterator[None]:
        self._open.append(anchor or "")
        yield
        self._open.pop()


def read_yaml(path: Path, example: str = "config/demo.yaml") -> Foreign:
    """The mapping in ``path``.

    Args:
        example: a file of that kind, which is named where there is none.

    Raises:
        ConfigError: missing, unreadable, not YAML, a key twice in one mapping, or no mapping.
    """
    try:
        value = _Strict(path.read_text(encoding="utf-8")).get_single_data()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path}: cannot be read ({error}). Give a YAML file, such as {example}."
        ) from error
    except yaml.YAMLError as error:
        raise ConfigError(
            f"{path}: not valid YAML: {_yaml_words(error)}. Indent by blanks, and quote text with special characters."
        ) from error
    except RecursionError as error:
        raise ConfigError(f"{path}: nested too deep.") from error
    if value is None:
        raise ConfigError(f"{path}: the file holds nothing; a mapping is wanted at the top.")
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: a mapping is wanted at the top, found {type(value).__name__}.")
    return value


def checked(mapping: Foreign, schema_name: str, where: str) -> Foreign:
    """A copy of ``mapping`` with defaults filled in.

    Args:
        schema_name: of ``workflow/schemas/<name>.schema.yaml``.
        where: the file to name in messages.

    Raises:
        ConfigError: one line per complaint.
    """
    value = copy.deepcopy(dict(mapping))
    errors = sorted(
        _validator(schema_name).iter_errors(value), key=lambda e: [str(p) for p in e.absolute_path]
    )
    if not errors and (found := _not_storable(value, "")) is not None:
        raise ConfigError(f"{where}: {found.lstrip('.')}")
    if errors:
        # The schema complains once for each missing key, and a sentence names all of them.
        raise ConfigError("\n".join(dict.fromkeys(f"{where}: {_sentence(e)}" for e in errors)))
    return value


def _yaml_words(error: yaml.YAMLError) -> str:
    """What and where; nothing of the text itself, since a password that begins with ``*`` or ``!`` is no YAML."""
    mark = getattr(error, "problem_mark", None)
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    problem = getattr(error, "problem", None) or type(error).__name__
    return place + re.sub(r"(alias|anchor|tag|handle) '[^']*'", r"\1", problem)


def _not_storable(value: Any, place: str) -> str | None:
    """Where something is that YAML can write, a schema cannot refuse, and no file or environment can hold; and what would do."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{place}: .inf and .nan are no numbers to work with; give a finite one."
    if isinstance(value, str) and (unfit := _UNFIT.search(value)):
        return f"{place}: {unfit[0]!r} at character {unfit.start()} can stand in no file name, argument or environment; leave it out."
    parts: Iterable[tuple[str, Any]] = ()
    if isinstance(value, dict):
        keys = ((f"{place} (one of its keys)", key) for key in value)
        parts = chain(keys, ((f"{place}.{name}", part) for name, part in value.items()))
    elif isinstance(value, list):
        parts = ((f"{place}[{index}]", part) for index, part in enumerate(value))
    return next((found for name, part in parts if (found := _not_storable(part, name)) is not None), None)


def _sentence(error: ValidationError) -> str:
    shown = error.instance
    place = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.absolute_path).lstrip(".")
    place = place or "top level"
    schema = error.schema if isinstance(error.schema, dict) else {}
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        known = list(schema.get("properties", {}))
        unknown = [k for k in error.instance if k not in known]
        return f"{place}: unknown key {', '.join(map(repr, unknown))}. Allowed: {', '.join(known)}."
    if error.validator == "required":
        present: Any = error.instance
        missing = [k for k in schema["required"] if k not in present]
        return f"{place}: missing {', '.join(map(repr, missing))}."
    if error.validator == "contains":
        return f"{place}: {shown!r} holds no 'plain'; every tax is taken against it, so add it."
    allowed: dict[str, Callable[[Any], str]] = {
        "enum": lambda v: f"one of {', '.join(map(repr, v))}",
        "type": lambda v: f"{v if isinstance(v, str) else ' or '.join(v)}",
        "minimum": lambda v: f"{v} or more",
        "maximum": lambda v: f"{v} or less",
        "exclusiveMinimum": lambda v: f"more than {v}",
        "exclusiveMaximum": lambda v: f"less than {v}",
        "pattern": lambda v: f"text matching {v}",
        "minItems": lambda v: f"at least {v} entries",
        "maxItems": lambda v: f"at most {v} entries",
        "uniqueItems": lambda v: "entries that differ from one another",
    }
    name = str(error.validator)
    if name not in allowed:
        return f"{place}: {error.message}."
    if (
        error.validator == "type"
        and isinstance(error.instance, str)
        and str(error.validator_value) in ("object", "array")
    ):
        # Whatever was written here in place of a mapping may hold a secret anywhere.
        return f"{place}: a text is not allowed; wanted: {allowed['type'](error.validator_value)}."
    what = "the name " * ("propertyNames" in error.absolute_schema_path) + repr(shown)
    return f"{place}: {what} is not allowed; wanted: {allowed[name](error.validator_value)}."


@cache
def _validator(schema_name: str) -> Any:
    schema = yaml.safe_load((SCHEMAS / f"{schema_name}.schema.yaml").read_text(encoding="utf-8"))
    filling: Any = _filling_defaults(Draft202012Validator)
    return filling(schema)


def _filling_defaults(base: Any) -> Any:
    """A validator class that puts each property's ``default`` in before it looks inside.

    Source: the recipe in the jsonschema FAQ, "Why doesn't my schema's default property set...".
    """
    check_properties = base.VALIDATORS["properties"]

    def set_then_check(
        validator: Any, properties: Foreign, instance: Any, schema: Foreign
    ) -> Iterator[ValidationError]:
        if isinstance(instance, dict):
            for name, subschema in properties.items():
                if "default" in subschema:
                    instance.setdefault(name, copy.deepcopy(subschema["default"]))
        yield from check_properties(validator, properties, instance, schema)

    extend: Any = validators.extend
    whole = base.TYPE_CHECKER.redefine("integer", _is_whole)
    return extend(base, {"properties": set_then_check}, type_checker=whole)


def _is_whole(checker: Any, value: Any) -> bool:
    """``7.0`` is an integer to a schema and none to what reads ``campaign.json``, which would refuse it when the engine is to start."""
    return isinstance(value, int) and not isinstance(value, bool)
