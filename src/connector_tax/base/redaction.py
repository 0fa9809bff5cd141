"""The one redactor: a value that may hold secrets -> the same value with ``<redacted>`` in their places.

A secret is known by its name (``api_key``, ``HF_TOKEN``, ``redisPassword``), by its look (``hf_...``, ``AKIA...``, a URL with a
password), or because it is the value of something that was known in either way. Values are looked at in whole: mappings, lists,
JSON inside of strings, and text with ``name=value`` or ``--flag value`` somewhere in it. What is blanked already, and a reference
such as ``${HF_TOKEN}``, stays as it is, so redacting twice changes nothing.

Standard library only: ``launch/record.sh`` asks it by way of whatever Python there is.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from connector_tax.base.secret_known import BLANKED as BLANKED
from connector_tax.base.secret_known import (
    MIN_KNOWN_CHARS,
    any_of,
    is_login,
    is_mixed,
    is_no_secret,
    parts_of,
)
from connector_tax.base.secret_looks import (
    FLAG,
    GOES_ON,
    GOES_ON_LONG,
    HINTS,
    IN_URL,
    INSIDES,
    LINES_BEHIND,
    LINES_BEHIND_LONG,
    LOOKS,
    NAME,
    NO_BEARER,
    PEM,
    SCHEME,
    SIGNED,
    TAG,
    TOKEN,
    VALUE,
)
from connector_tax.base.secret_names import is_secret_name

# (name, secret) -> what is put in its place; the name is empty where only the look told.
Blank = Callable[[str, str], str]
# The checked config of a campaign, for the processes that launch its engines; see ``base/config/secrets.py``.
CONFIG_VARIABLE = "CONNECTOR_TAX_CONFIG"
# What a user configured, in documents of ours: engines and connectors read it, and its names are theirs.
USER_KEYS = frozenset(
    [
        "args",
        "argv",
        "command",
        "env",
        "environment",
        "extra_args",
        "kv_connector_extra_config",
        "kv_transfer_config",
    ]
)
# Words of ours stand under these keys: ids and states.
_OUR_WORDS = frozenset(
    [
        "campaign",
        "cell_id",
        "config",
        "connector",
        "connector_id",
        "decision",
        "id",
        "kind",
        "matches",
        "phase",
        "schema",
        "state",
        "status",
        "verdict",
    ]
)
REFERENCE = re.compile(r"\$\{(\w+)\}")
# A word of prose before a colon: "unexpected token: foo".
_PROSE = frozenset({"auth", "bearer", "cookie", "pass", "token"})
_PROSE_CHARS = 12

# Of a longer text only the lines are looked at that may hold a secret, with those that it may go on into.
_WHOLE_CHARS = 1 << 16
# One word of a command line that names what it sets, or a header.
_ITEM = re.compile(
    r"(?P<head>-*(?P<name>[A-Za-z_][\w.-]*)\+?(?P<sep>=|:\s{1,3}[\"']?))(?P<value>.+)", re.DOTALL
)
# What follows a secret's flag and begins with `-` is its value, unless a flag is written so.
_FLAG_SHAPE = re.compile(
    r"-[A-Za-z]{1,4}\d{0,3}(?:[.=].*)?|--(?:[a-z][a-z0-9_.+-]*|[A-Za-z_.+-]*)(?:=.*)?", re.DOTALL
)


def _blanked(name: str, secret: str) -> str:
    return BLANKED


def redacted(value: Any, name: str = "", blank: Blank = _blanked) -> Any:
    """``value`` without its secrets: mappings, lists and strings inside one another; a tuple becomes a list.

    Args:
        name: under which it stands, which may tell.
        blank: gives what stands in a secret's place.
    """
    if name and is_secret_name(name):
        return _all_blanked(value, name, blank)
    if isinstance(value, str):
        return _redacted_string(value, name, blank)
    if isinstance(value, dict):
        return _redacted_mapping(value, blank)
    if isinstance(value, list | tuple):
        return _redacted_list(value, blank)
    return value


def redacted_text(text: str, name: str = "", blank: Blank = _blanked) -> str:
    """``text`` without what its own words, or the look of a part, tell to be secret."""
    if not _is_suspect(text):
        return text
    text = PEM.sub(lambda m: blank(name, m[0]), text)
    if len(text) <= _WHOLE_CHARS:
        return _redacted_part(text, name, blank)
    parts = _runs(text.splitlines(keepends=True))
    return "".join(_redacted_part(part, name, blank) if suspect else part for part, suspect in parts)


def secrets_in(value: Any) -> frozenset[str]:
    """The secrets that ``redacted`` finds in ``value``, so that they are also known where nothing tells them."""
    return _taken(value, lambda whole, take: redacted(whole, blank=take))


def secrets_of(environment: Mapping[str, str]) -> frozenset[str]:
    """What is secret in the variables of a process; with it those that the campaign's config refers to."""
    config = environment.get(CONFIG_VARIABLE, "")
    own = {environment[name] for name in REFERENCE.findall(config) if name in environment}
    try:
        configured = _taken(json.loads(config or "null"), _document)
    except (ValueError, RecursionError):  # not this pipeline's
        configured = secrets_in(config)
    return (
        secrets_in({name: v for name, v in environment.items() if name != CONFIG_VARIABLE}) | configured | own
    )


def without(text: str, secrets: frozenset[str], blank: Blank = _blanked) -> str:
    """``text`` without any of ``secrets``, also where it writes them as JSON, Python or a URL does, or line by line."""
    pattern = any_of(secrets)
    return pattern.sub(lambda found: blank("", found[0]), text) if pattern is not None else text


def published(value: Any) -> Any:
    """A document of ours as it may be stored: redacted, and without the secrets of this process's environment.

    Names tell secrets only in what a user configured (``USER_KEYS``). Elsewhere a key may be a connector's id, which a person chose
    and which may read ``nixl_auth``; there the look, what a text says of itself, and known secrets tell.
    """
    secrets = _secrets_here()
    return _without_known(_document(value, _blanked), secrets)


def published_text(text: str, secrets: frozenset[str] = frozenset()) -> str:
    """``text`` as it may be stored or printed; ``secrets`` are known beside those of the environment."""
    return without(redacted_text(text), secrets | _secrets_here())


def excerpt(text: str | bytes, chars: int) -> str:
    """The beginning of what somebody else said, for a message. Secrets go first: half of one is known by nothing."""
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    return published_text(text)[:chars]


def _is_suspect(text: str) -> bool:
    lower = text.lower()
    return any(hint in lower for hint in HINTS) or ("token" in lower and TOKEN.search(lower) is not None)


_is_suspect_key = lru_cache(maxsize=4096)(_is_suspect)


def _runs(lines: list[str]) -> Iterator[tuple[str, bool]]:
    """A text's lines in runs, each with whether it may hold a secret: the lines that hint at one, and the next where it may go on."""
    run: list[str] = []
    was, last = False, -1
    for number, line in enumerate(lines):
        if _is_suspect(line):
            last = max(last, number + _lines_behind(line))
        if was != (number <= last):
            yield "".join(run), was
            run, was = [], not was
        run.append(line)
    yield "".join(run), was


def _lines_behind(line: str) -> int:
    if '"""' in line or "'''" in line:
        return LINES_BEHIND_LONG
    end = line[-200:].rstrip()
    if GOES_ON_LONG.search(end):
        return LINES_BEHIND_LONG
    bare = end.rstrip(" \t\\")
    return LINES_BEHIND if bare != end or GOES_ON.search(bare) else 0


def _redacted_part(text: str, name: str, blank: Blank) -> str:
    def tagged(match: re.Match[str]) -> str:
        if not is_secret_name(match["name"]) or is_no_secret(match["value"], match["name"]):
            return match[0]
        return f"<{match['name']}>{blank(match['name'], match['value'])}"

    def tail(match: re.Match[str]) -> str:
        if NO_BEARER.match(match["value"]) or (
            match["head"].lower().startswith("basic") and not is_login(match["value"])
        ):
            return match[0]
        return match["head"] + blank(name, match["value"])

    text = _named_blanked(NAME, text, blank)
    text = _named_blanked(FLAG, text, blank)
    text = TAG.sub(tagged, text)
    text = SCHEME.sub(tail, text)
    text = IN_URL.sub(lambda m: m[0] if REFERENCE.search(m[0]) else blank(name, m[0]), text)
    text = SIGNED.sub(lambda m: m["head"] + blank(name, m["value"]), text)
    return LOOKS.sub(lambda m: blank(name, m[0]) if _is_token(m[0]) else m[0], text)


def _is_token(found: str) -> bool:
    """``sk-`` also begins names of words joined by hyphens; a key has a long part, or one of digits and letters."""
    if not found.startswith("sk-"):
        return True
    parts = re.split("[_-]", found[3:])
    return any(len(part) >= 16 or (len(part) >= 7 and is_mixed(part)) for part in parts)


def _secrets_here() -> frozenset[str]:
    return _secrets_of_items(tuple(os.environ.items()))


@lru_cache(maxsize=4)
def _secrets_of_items(items: tuple[tuple[str, str], ...]) -> frozenset[str]:
    return secrets_of(dict(items))


def _taken(value: Any, walk: Callable[[Any, Blank], Any]) -> frozenset[str]:
    found: set[str] = set()

    def take(name: str, secret: str) -> str:
        found.update((secret, *parts_of(secret)))
        return BLANKED

    walk(value, take)
    return frozenset(found)


def _document(value: Any, blank: Blank) -> Any:
    """``redacted``, but for names of keys outside of what a user configured; keys are ours, and only their look tells."""
    if isinstance(value, str):
        return _redacted_string(value, "", blank)
    if isinstance(value, dict):
        return {
            redacted_text(key, "", blank) if isinstance(key, str) and _is_suspect_key(key) else key: (
                redacted if key in USER_KEYS else _document
            )(part, blank=blank)
            for key, part in value.items()
        }
    if isinstance(value, list | tuple):
        if any(isinstance(part, str) and part.startswith("-") for part in value):
            return _redacted_list(value, blank)
        return [_document(part, blank) for part in value]
    return value


def _redacted_string(text: str, name: str, blank: Blank) -> str:
    if text.lstrip()[:1] in ("{", "["):
        try:
            inside = json.loads(text)
        except (ValueError, RecursionError):
            return redacted_text(text, name, blank)
        clean = redacted(inside, blank=blank)
        # As it was written where nothing is in it.
        return text if clean == inside else json.dumps(clean, ensure_ascii=False)
    return redacted_text(text, name, blank)


def _redacted_mapping(value: dict[Any, Any], blank: Blank) -> dict[Any, Any]:
    # {"name": "HF_TOKEN", "value": "..."}, as environments and headers are also written.
    small = {str(key).lower(): part for key, part in value.items()}
    titles = ("name", "key", "header") if "value" in small else ()
    title = next((small[k] for k in titles if isinstance(small.get(k), str)), "")
    return {
        redacted_text(key, "", blank) if isinstance(key, str) and _is_suspect_key(key) else key: redacted(
            part, title if str(key).lower() == "value" and is_secret_name(title) else str(key), blank
        )
        for key, part in value.items()
    }


def _redacted_list(values: Iterable[Any], blank: Blank) -> list[Any]:
    """Arguments of a command among them: what follows a flag that names a secret, up to the next flag; ``--name=`` to its end."""
    values = list(values)
    pair = len(values) == 2 and isinstance(values[0], str) and values[0].replace("-", "_").isidentifier()
    flag = values[0] if pair and is_secret_name(values[0]) else ""
    found = []
    for index, item in enumerate(values):
        if (
            isinstance(item, str)
            and item.startswith("-")
            and not (flag and index and (pair or _is_value(item)))
        ):
            named = item.lstrip("-")
            flag = named if "=" not in named and is_secret_name(named) else ""
        elif flag and (index or not pair):
            found.append(_all_blanked(item, flag, blank))
            continue
        found.append(_redacted_item(item, blank) if isinstance(item, str) else redacted(item, "", blank))
    return found


def _is_value(item: str) -> bool:
    """Whether a word behind a secret's flag is its value, though it begins with a hyphen: one that was drawn by chance may."""
    return len(item) >= MIN_KNOWN_CHARS and _FLAG_SHAPE.fullmatch(item) is None and is_mixed(item)


def _redacted_item(item: str, blank: Blank) -> str:
    """One of a list. Behind ``--name=``, ``NAME=`` and ``Name: `` everything is the value: commas, blanks and quotes end none here."""
    found = _ITEM.fullmatch(item)
    inner = _ITEM.fullmatch(found["value"]) if found and found["sep"] == "=" else None
    for part, before in ((found, ""), (inner, found["head"] if found else "")):
        if part is not None and is_secret_name(part["name"]) and not _is_prose(part):
            return before + part["head"] + str(_all_blanked(part["value"], part["name"], blank))
    if found is not None and found["value"][:1] in ("{", "["):
        return found["head"] + _redacted_string(found["value"], "", blank)
    return str(redacted(item, "", blank))


def _is_prose(head: re.Match[str]) -> bool:
    """A word before a colon, and a short one behind it: "unexpected token: foo"."""
    return (
        head["sep"].startswith(":")
        and head["name"].lower() in _PROSE
        and len(head["value"]) < _PROSE_CHARS
        and " " not in head["value"]
    )


def _all_blanked(value: Any, name: str, blank: Blank) -> Any:
    """Every text and number in ``value``, which stands under a secret's name."""
    if isinstance(value, dict):
        return {key: _all_blanked(part, str(key) or name, blank) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_all_blanked(part, name, blank) for part in value]
    if isinstance(value, bool) or value is None or is_no_secret(str(value).strip(" \t\"'"), name):
        return value
    return blank(name, str(value))


def _named_blanked(heads: re.Pattern[str], text: str, blank: Blank) -> str:
    """``text`` with the values blanked that stand behind a secret's name."""
    parts, at = [], 0
    for head in heads.finditer(text):
        if head.start() < at or not is_secret_name(head["name"]):
            continue
        value = VALUE.match(text, head.end())
        if value is None or value.lastgroup is None:
            continue
        inside = next(g for g in INSIDES if value[g] is not None)
        secret = value[inside].strip("\"'") if inside == "in4" else value[inside]
        bare_word = inside == "in6" and head["sep"].startswith(":") and head["name"].lower() in _PROSE
        # A member of its own, on the next line: `auth:`, and below it `user: x`.
        if inside == "in6" and secret.endswith(":") and "\n" in head["sep"]:
            continue
        if is_no_secret(secret, head["name"]) or (bare_word and len(secret) < _PROSE_CHARS):
            continue
        parts += [text[at : value.start(inside)], blank(head["name"], secret)]
        at = value.end(inside)
    return "".join((*parts, text[at:])) if parts else text


def _without_known(value: Any, secrets: frozenset[str], key: str = "") -> Any:
    """``value`` without ``secrets``, but for keys, ids and states, which are words of ours."""
    if isinstance(value, str):
        return value if key in _OUR_WORDS else without(value, secrets)
    if isinstance(value, dict):
        return {k: _without_known(v, secrets, str(k)) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_known(part, secrets, key) for part in value]
    return value
