"""One YAML file to the type of what it describes: defaults filled in, or readable messages."""

import copy
import difflib
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml
from yaml.error import MarkedYAMLError

from connector_tax.base.errors import ConfigError
from connector_tax.base.opening import shown
from connector_tax.base.records.bounds import Foreign

T = TypeVar("T")
_HERE = Path(__file__).resolve()
# The checkout. A wheel has no more of it than setup.py puts into the package.
PROJECT_ROOT = (
    _HERE.parents[4] if (_HERE.parents[4] / "Snakefile").is_file() else _HERE.parents[2] / "project"
)
# "Expected `int`, got `str` - at `$.cell.workers`", or "- at `key` in `$.engine.env`".
_ERROR = re.compile(r"(.*?)(?: - at (`key` in )?`\$([^`]*)`)?", re.DOTALL)
_STEP = re.compile(r"\.(\w+)|\[(\d+|\.\.\.)\]")
# A null byte ends what C takes for text; half of a surrogate pair is none in UTF-8.
_UNFIT = re.compile("[\x00\ud800-\udfff]")


class _Strict(yaml.SafeLoader):
    """Refuses what PyYAML takes without a word: a key twice in one mapping, of which it keeps the last, and an alias inside of what it stands for."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        node: Any = super().compose_node(parent, index)
        if node.end_mark is None:  # it is being composed, so an alias stands for it
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
                        problem=f"this key stands in line {first} of the same mapping already; leave one of them out",
                        problem_mark=key.start_mark,
                    )
                lines[key.tag, key.value] = key.start_mark.line + 1
        return node


def read_yaml(path: Path, example: str = "config/demo.yaml") -> Foreign:
    """The mapping in ``path``.

    Args:
        example: a file of that kind, which is named where there is none.

    Raises:
        ConfigError: missing, unreadable, not YAML, a key twice in one mapping, or no mapping.
    """
    try:
        value = _Strict(path.read_text(encoding="utf-8")).get_single_data()
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file. Give an existing one, such as {example}.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}).") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {_yaml_words(error)}") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: nested too deep.") from error
    if value is None:
        raise ConfigError(f"{path}: the file holds nothing; a mapping is wanted at the top.")
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: a mapping is wanted at the top, found {type(value).__name__}.")
    return value


def checked(value: Any, kind: type[T], where: str) -> T:
    """``value`` as a ``kind``, defaults filled in.

    Args:
        where: the file to name in messages.

    Raises:
        ConfigError: a line for each of the first three mistakes: place, what was found there, and what would do.
    """
    for place, leaf in leaves(value):
        if isinstance(leaf, float) and not math.isfinite(leaf):
            raise ConfigError(
                f"{where}: {place}: .inf and .nan are no numbers to work with; give a finite one."
            )
        if isinstance(leaf, str) and (unfit := _UNFIT.search(leaf)):
            raise ConfigError(
                f"{where}: {place}: {unfit[0]!r} at character {unfit.start()} can stand in no file name, argument or environment; leave it out."
            )
    said: list[str] = []
    rest = copy.deepcopy(value)
    while len(said) < 3:
        try:
            result = msgspec.convert(rest, kind)
        except msgspec.ValidationError as error:
            line, holder, key = _mistake(rest, kind, str(error))
            # What is missing now may be what was taken out.
            if holder is not None or not said:
                said.append(f"{where}: {line}")
            if not isinstance(holder, dict):
                break
            # Without it the next mistake is found. A list's other entries would have other places.
            del holder[key]
        else:
            if not said:
                return result
            break
    raise ConfigError("\n".join(said))


def _yaml_words(error: yaml.YAMLError) -> str:
    """What and where; nothing of the text itself, since a password that begins with ``*`` or ``!`` is no YAML."""
    mark = getattr(error, "problem_mark", None)
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    problem = getattr(error, "problem", None) or type(error).__name__
    return place + re.sub(r"(alias|anchor|tag|handle) '[^']*'", r"\1", problem)


def leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all that mappings and lists hold, keys as well, with its place."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield f"{place} (one of its keys)", key
            yield from leaves(part, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            yield from leaves(part, f"{place}[{index}]")
    else:
        yield place, value


def _mistake(value: Any, kind: Any, error: str) -> tuple[str, Any, Any]:
    """What msgspec says of ``value``, with what was found and what would do; where it stands, None where nothing can be taken out."""
    what, of_key, path = _ERROR.fullmatch(error).groups()  # type: ignore[union-attr]
    keys: list[Any] = []
    holder, node = None, value
    for name, index in [*_STEP.findall(path or ""), *([("", "...")] if of_key else [])]:
        key = name or (_failing_key(value, node, kind, error) if index == "..." else int(index))
        keys.append(key)
        holder, node = node, node[key]
    at = "".join(f"[{k}]" if isinstance(k, int) else f".{k}" for k in keys[: -1 if of_key else None])
    place = f"{at}: ".lstrip(".") if at else ""
    schemas = _schemas_at(kind, keys)
    if unknown := re.fullmatch("Object contains unknown field `(.*)`", what, re.DOTALL):
        known = [name for schema in schemas for name in schema.get("properties", ())]
        near = difflib.get_close_matches(unknown[1], known, 1)
        meant = f"; did you mean {near[0]!r}?" if near else "."
        return f"{place}unknown key {unknown[1]!r}{meant} Allowed: {', '.join(known)}.", node, unknown[1]
    if what.startswith("Object missing"):
        missing = [name for schema in schemas for name in schema.get("required", ()) if name not in node]
        return f"{place}missing {', '.join(map(repr, missing))}.", None, None
    if what.startswith("Invalid enum value"):
        wanted = "one of " + ", ".join(str(word) for schema in schemas for word in schema.get("enum", ()))
    elif what.startswith("Expected "):
        wanted = what.removeprefix("Expected ").partition(", got ")[0]
    else:  # of the types themselves, which name the key
        return f"{at}.{what}.".lstrip("."), None, None
    found = keys[-1] if of_key else node
    # Whatever was written in place of a mapping may hold a secret anywhere.
    text = isinstance(found, str) and wanted.startswith(("`object", "`array"))
    return (
        f"{place}{'the name ' * bool(of_key)}{'a text' if text else shown(found)} is not allowed; wanted: {wanted}.",
        holder,
        keys[-1],
    )


def _failing_key(whole: Any, node: dict[Any, Any], kind: Any, error: str) -> Any:
    """Under which key of ``node``, a mapping in ``whole``, the mistake is, of which msgspec says ``...``: the one that makes it alone."""
    entries = dict(node)
    for key, entry in entries.items():
        node.clear()
        node[key] = entry
        try:
            msgspec.convert(whole, kind)
        except msgspec.ValidationError as alone:
            if str(alone) == error:
                break
        finally:
            node.clear()
            node.update(entries)
    return key


def _schemas_at(kind: Any, keys: list[Any]) -> list[Foreign]:
    """What may stand in a ``kind`` under ``keys``."""
    (top,), parts = msgspec.json.schema_components((kind,), ref_template="{name}")

    def either(schema: Foreign) -> list[Foreign]:
        schema = parts.get(schema.get("$ref", ""), schema)
        return [one for part in schema["anyOf"] for one in either(part)] if "anyOf" in schema else [schema]

    found = either(top)
    for key in keys:
        inner = [
            schema.get("properties", {}).get(key) or schema.get("additionalProperties") or schema.get("items")
            for schema in found
        ]
        found = [one for schema in inner if isinstance(schema, dict) for one in either(schema)]
    return found
