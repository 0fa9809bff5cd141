"""Secrets in a config: only as ``${NAME}``, resolved from the environment when an engine is launched.

References to secrets stay in ``campaign.json``, in all documents and hashes. Others are resolved when the
config is read, since their values shape the measurement.
"""

import json
import os
import re
from collections.abc import Collection, Iterator
from typing import Any

from connector_tax.base.errors import ConfigError
from connector_tax.base.records.connector import STORE
from connector_tax.base.secrets import REFERENCE, format_in, is_secret, is_secret_name

# Other values under such names, including vLLM's documented placeholder for a key that is not required.
_SETTINGS = re.compile(
    r"|0|1|auto|default|disabled|empty|enabled|false|no|none|null|off|on|required|true|yes", re.IGNORECASE
)
_NAMED = re.compile(r"(?P<name>-*[A-Za-z][\w.-]*)=(?P<value>.+)", re.DOTALL)


def refuse_inline(value: Any, where: str, allowed: Collection[str] = ()) -> None:
    """Refuse a secret that is written out.

    Args:
        where: the file, for messages.
        allowed: keys whose values are not checked.

    Raises:
        ConfigError: names the key and what to write instead, without the secret.
    """
    for place, key, what in _inline(value, "", ""):
        if key not in allowed:
            variable = re.sub(r"\W", "_", key).upper().strip("_")
            raise ConfigError(
                f"{where}: {place.lstrip('.')}: {what} is written out here and would stand in every file of"
                f" the campaign. Write ${{{variable}}} and export {variable}; if it is no secret, add"
                f" allow_inline: [{key}] to the campaign's config."
            )


def _inline(value: Any, place: str, key: str) -> Iterator[tuple[str, str, str]]:
    """Yield place, key and kind of each secret in ``value``."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _inline(part, f"{place}.{name}", str(name))
    elif isinstance(value, list):
        flag = ""
        for k, part in enumerate(value):
            is_flag = isinstance(part, str) and part.startswith("-")
            yield from _inline(part, f"{place}[{k}]", "" if is_flag else flag or key)
            flag = part.lstrip("-") if is_flag and "=" not in part else ""
    elif isinstance(value, str) and not is_secret_name(key) and (inside := _json_in(value)) is not None:
        yield from _inline(inside, place, key)
    elif isinstance(value, str) and not is_secret_name(key) and (named := _NAMED.fullmatch(value)):
        yield from _inline(named["value"], place, named["name"].lstrip("-"))
    elif value is not None and not isinstance(value, bool):
        text = str(value)
        bare = REFERENCE.sub("", text)
        what = format_in(bare)
        if what is None and bare == text and is_secret_name(key) and not _SETTINGS.fullmatch(text.strip()):
            what = "a secret, by its name,"
        if what is not None:
            yield place, key, what


def _json_in(text: str) -> Any:
    try:
        return json.loads(text) if text.lstrip()[:1] in ("{", "[") else None
    except (ValueError, RecursionError):
        return None


def put_in(text: str, where: str) -> str:
    """Return ``text`` with its variables resolved; an unset or empty one stays and is reported on use.

    Raises:
        ConfigError: a variable holds a secret, and this key is in every document.
    """

    def found(match: re.Match[str]) -> str:
        value = os.environ.get(match[1]) or match[0]
        if value != match[0] and is_secret(match[1], value):
            raise ConfigError(
                f"{where}: {match[0]} holds {format_in(value) or 'a secret, by its name'}, and what stands"
                " here is in every file of the campaign. Take the secret out of it; an engine gets one by"
                " engine.env."
            )
        return value

    return REFERENCE.sub(found, text)


def without_harmless_references(value: Any, name: str = "") -> Any:
    """Return ``value`` with its variables resolved, except ``${NAME}`` of secrets and unset variables.

    Args:
        name: its key.
    """
    if isinstance(value, dict):
        return {key: without_harmless_references(part, str(key)) for key, part in value.items()}
    if isinstance(value, list):
        # The preceding flag names a value.
        names = [name, *(str(part).lstrip("-") for part in value)]
        return [without_harmless_references(part, names[k]) for k, part in enumerate(value)]
    if not isinstance(value, str):
        return value

    def settled(match: re.Match[str]) -> str:
        found = os.environ.get(match[1])
        if found is None or match[0] == STORE or is_secret(match[1], found):
            return match[0]
        # Its value would be refused here: `redis://me:${DB}@host`, `--redis-password=${DB}`, JSON with a
        # secret key.
        refused = next(_inline(value.replace(match[0], found), "", name), None)
        return found if refused is None else match[0]

    return REFERENCE.sub(settled, value)


def with_references(value: Any, where: str) -> Any:
    """Return ``value`` for a launch: every ``${NAME}`` resolved from the environment, except the store's.

    Args:
        where: the place of ``value``, for the message.

    Raises:
        ConfigError: a variable is not set.
    """
    if isinstance(value, dict):
        return {key: with_references(part, f"{where}.{key}") for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [with_references(part, f"{where}[{k}]") for k, part in enumerate(value)]
    if not isinstance(value, str):
        return value

    def look_up(match: re.Match[str]) -> str:
        if match[0] == STORE:
            return match[0]
        if match[1] not in os.environ:
            raise ConfigError(
                f"{where}: {match[0]}: that environment variable is not set. Export {match[1]}, then start"
                " again."
            )
        return os.environ[match[1]]

    return REFERENCE.sub(look_up, value)
