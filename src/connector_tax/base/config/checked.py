"""Converts one YAML file to its type, with defaults filled in, or reports what is wrong."""

import math
import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from itertools import chain, islice
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
import yaml
from yaml.error import MarkedYAMLError

from connector_tax.base.errors import ConfigError
from connector_tax.base.files import shown
from connector_tax.base.imports import PROJECT
from connector_tax.base.records.bounds import Foreign

T = TypeVar("T")
PROJECT_ROOT = PROJECT
# A null byte ends a C string, and half of a surrogate pair has no UTF-8.
_UNFIT = re.compile("[\x00\ud800-\udfff]")


class _Strict(yaml.SafeLoader):
    """A loader that refuses what PyYAML accepts: a repeated key, and an alias inside its own anchor."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        node: Any = super().compose_node(parent, index)
        if node.end_mark is None:  # still being composed, so an alias points to it
            raise MarkedYAMLError(
                problem="an alias stands inside of what it stands for", problem_mark=node.start_mark
            )
        return node

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (first := lines.get((key.tag, key.value))) is not None:
                    raise MarkedYAMLError(
                        problem=(
                            f"this key stands in line {first} of the same mapping already; leave one of"
                            " them out"
                        ),
                        problem_mark=key.start_mark,
                    )
                lines[key.tag, key.value] = key.start_mark.line + 1
        return node


def read_yaml(path: Path, example: str = "config/demo.yaml") -> Foreign:
    """Read the mapping in ``path``.

    Args:
        example: a file of that kind, for messages.

    Raises:
        ConfigError: missing, unreadable, not YAML, with a repeated key, or not a mapping.
    """
    try:
        value = _Strict(path.read_text(encoding="utf-8")).get_single_data()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path}: cannot be read ({why}). Give one that can, such as {example}.") from error
    except yaml.YAMLError as error:
        raise ConfigError(
            f"{path}: not valid YAML: {_yaml_words(error)}. Indent by blanks, and quote text with special"
            " characters."
        ) from error
    except RecursionError as error:
        raise ConfigError(f"{path}: nested too deep.") from error
    if not isinstance(value, dict):
        raise ConfigError(
            f"{path}: a mapping is wanted at the top, found"
            f" {'nothing' if value is None else type(value).__name__}."
        )
    return value


def checked(value: Any, kind: type[T], where: str) -> T:
    """Convert ``value`` to a ``kind``, with defaults filled in.

    Args:
        where: the file, for messages.

    Raises:
        ConfigError: a line for each of the first three mistakes: place, value, and what is wanted.
    """
    for place, leaf in leaves(value):
        if isinstance(leaf, float) and not math.isfinite(leaf):
            raise ConfigError(
                f"{where}: {place}: .inf and .nan are no numbers to work with; give a finite one."
            )
        if isinstance(leaf, str) and (unfit := _UNFIT.search(leaf)):
            raise ConfigError(
                f"{where}: {place}: {unfit[0]!r} at character {unfit.start()} can stand in no file name,"
                " argument or environment; leave it out."
            )
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        lines = islice(_mistakes(value, kind, ""), 3)
        raise ConfigError("\n".join(f"{where}: {line.lstrip('.: ')}" for line in lines)) from error


def _yaml_words(error: yaml.YAMLError) -> str:
    """Return place and problem without the text, which may be a password that begins with ``*`` or ``!``."""
    mark = getattr(error, "problem_mark", None)
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    problem = getattr(error, "problem", None) or type(error).__name__
    return place + re.sub(r"(alias|anchor|tag|handle) '[^']*'", r"\1", problem)


def leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield place and value of everything in mappings and lists, keys included."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield f"{place} (one of its keys)", key
            yield from leaves(part, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            yield from leaves(part, f"{place}[{index}]")
    else:
        yield place, value


def _mistakes(value: Any, kind: Any, at: str) -> Iterator[str]:
    """Yield one line per innermost mistake that keeps ``value`` from being a ``kind``."""
    try:
        msgspec.convert(value, kind)
        return
    except msgspec.ValidationError as error:
        what = str(error)
    inside, members = False, list(_members(kind))
    for line in chain.from_iterable(_inside(value, member, at) for member in members):
        inside = True
        yield line
    if inside:
        return
    if what.startswith("Invalid enum value"):
        words = (word for member in members if get_origin(member) is Literal for word in get_args(member))
        wanted = f"one of {', '.join(words)}"
    elif what.startswith("Expected "):
        wanted = what.removeprefix("Expected ").partition(", got ")[0]
    else:  # from the type's own check, which names the key; msgspec's messages begin with a capital
        yield f"{at}{': ' if what[0].isupper() else '.'}{what}."
        return
    # A text in place of a mapping may hold a secret anywhere.
    text = isinstance(value, str) and wanted.startswith(("`object", "`array"))
    yield f"{at}: {'a text' if text else shown(value)} is not allowed; wanted: {wanted}."


def _inside(value: Any, kind: Any, at: str) -> Iterator[str]:
    """Yield the mistakes in parts of ``value``; none if it is no such mapping or list."""
    parts = get_args(kind)
    if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        if missing := [name for name, field in fields.items() if field.required and name not in value]:
            yield f"{at}: missing {', '.join(map(repr, missing))}."
        for name, part in value.items():
            if name in fields:
                yield from _mistakes(part, fields[name].type, f"{at}.{name}")
            elif kind.__struct_config__.forbid_unknown_fields:
                yield f"{at}: unknown key {meant(name, fields)} Allowed: {', '.join(fields)}."
    elif isinstance(value, dict) and get_origin(kind) is dict:
        for name, part in value.items():
            yield from (f"{at}: the name {line[2:]}" for line in _mistakes(name, parts[0], ""))
            yield from _mistakes(part, parts[1], f"{at}.{name}")
    elif isinstance(value, list) and get_origin(kind) is tuple:
        for k, part in enumerate(value):
            yield from _mistakes(part, parts[0 if ... in parts else min(k, len(parts) - 1)], f"{at}[{k}]")


def meant(name: object, known: Iterable[str]) -> str:
    """Return ``name`` with the closest known one as a suggestion."""
    near = get_close_matches(str(name), known, 1)
    return f"{name!r}; did you mean {near[0]!r}?" if near else f"{name!r}."


def _members(kind: Any) -> Iterator[Any]:
    """Yield the members of a union, or the type itself."""
    origin = get_origin(kind)
    if origin in (Annotated, Union, UnionType):
        for part in get_args(kind)[: 1 if origin is Annotated else None]:
            yield from _members(part)
    else:
        yield kind
