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
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any
from urllib.parse import quote

from connector_tax.secret_looks import (
    AUTH_SCHEME,
    FLAG,
    HINTS,
    IN_URL,
    INSIDES,
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
from connector_tax.secret_names import WORDS, is_secret_name

BLANKED = "<redacted>"
# (name, secret) -> what is put in its place; the name is empty where only the look told.
Blank = Callable[[str, str], str]
# The checked config of a campaign, for the processes that launch its engines; see ``config/secrets.py``.
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
# Shorter values stand in any log as words or numbers, so they are blanked where their name stands, and nowhere else.
MIN_KNOWN_CHARS = 6
MIN_KNOWN_PLAIN_CHARS = 8
# Words are told from a passphrase by their length: `mooncake` and `lmcache_only` stand in any text of this pipeline.
MIN_KNOWN_WORDS_CHARS = 16
# What was drawn by chance and is this long is no part of a word, so it is a secret also inside of one.
MIN_INSIDE_CHARS = 12

# No secret under any name: settings, and what vLLM's documentation gives for a key that nobody asks for.
_PLAIN = re.compile(r"|0|1|auto|default|disabled|empty|enabled|false|no|none|null|off|on|true|yes")
_SAID_ALREADY = re.compile(rf"(?:{AUTH_SCHEME}\s+)?(?:\$\{{\w+\}}|{BLANKED}|{AUTH_SCHEME})", re.IGNORECASE)
REFERENCE = re.compile(r"\$\{(\w+)\}")
# A word of prose before a colon: "unexpected token: foo".
_PROSE = frozenset({"auth", "bearer", "cookie", "pass", "token"})
_PROSE_CHARS = 12

# A longer text is looked at line by line.
_WHOLE_CHARS = 1 << 16


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
    lines = text.splitlines(keepends=True)
    return "".join(_redacted_part(line, name, blank) if _is_suspect(line) else line for line in lines)


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


def without(text: str, secrets: frozenset[str]) -> str:
    """``text`` without any of ``secrets``, also where it writes them as JSON, Python or a URL does, or line by line."""
    pattern = _any_of(secrets)
    return pattern.sub(BLANKED, text) if pattern is not None else text


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


def _is_suspect(text: str) -> bool:
    lower = text.lower()
    return any(hint in lower for hint in HINTS) or ("token" in lower and TOKEN.search(lower) is not None)


_is_suspect_key = lru_cache(maxsize=4096)(_is_suspect)


def _redacted_part(text: str, name: str, blank: Blank) -> str:
    def tagged(match: re.Match[str]) -> str:
        if not is_secret_name(match["name"]) or _is_no_secret(match["value"], match["name"]):
            return match[0]
        return f"<{match['name']}>{blank(match['name'], match['value'])}"

    def tail(match: re.Match[str]) -> str:
        if NO_BEARER.match(match["value"]):
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
    return any(len(part) >= 16 or (len(part) >= 7 and _is_mixed(part)) for part in parts)


def _is_mixed(text: str) -> bool:
    """Of digits and letters, as what was drawn by chance is."""
    return any(map(str.isdigit, text)) and any(map(str.isalpha, text))


def _secrets_here() -> frozenset[str]:
    return _secrets_of_items(tuple(os.environ.items()))


@lru_cache(maxsize=4)
def _secrets_of_items(items: tuple[tuple[str, str], ...]) -> frozenset[str]:
    return secrets_of(dict(items))


def _taken(value: Any, walk: Callable[[Any, Blank], Any]) -> frozenset[str]:
    found: set[str] = set()

    def take(name: str, secret: str) -> str:
        found.update((secret, *_parts(secret)))
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
    """Arguments of a command among them: what follows a flag that names a secret, up to the next flag."""
    values = list(values)
    pair = len(values) == 2 and isinstance(values[0], str) and values[0].replace("-", "_").isidentifier()
    flag = values[0] if pair and is_secret_name(values[0]) else ""
    found = []
    for index, item in enumerate(values):
        if isinstance(item, str) and item.startswith("-"):
            named = item.lstrip("-")
            flag = named if "=" not in named and is_secret_name(named) else ""
        elif flag and (index or not pair):
            found.append(_all_blanked(item, flag, blank))
            continue
        found.append(redacted(item, "", blank))
    return found


def _all_blanked(value: Any, name: str, blank: Blank) -> Any:
    """Every text and number in ``value``, which stands under a secret's name."""
    if isinstance(value, dict):
        return {key: _all_blanked(part, str(key) or name, blank) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_all_blanked(part, name, blank) for part in value]
    if isinstance(value, bool) or value is None or _is_no_secret(str(value), name):
        return value
    return blank(name, str(value))


def _is_no_secret(text: str, name: str) -> bool:
    word = text.strip().lower()
    if _PLAIN.fullmatch(word) or _SAID_ALREADY.fullmatch(word):
        return True
    last = (WORDS.findall(name) or [""])[-1].lower()
    # The number of a piece of text; the current folder, which every shell keeps in PWD.
    return (last in ("token", "tokens", "pass") and len(word) < 8 and word.isdigit()) or (
        last == "pwd" and word.startswith("/")
    )


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
        if _is_no_secret(secret, head["name"]) or (bare_word and len(secret) < _PROSE_CHARS):
            continue
        parts += [text[at : value.start(inside)], blank(head["name"], secret)]
        at = value.end(inside)
    return "".join((*parts, text[at:])) if parts else text


def _parts(secret: str) -> Iterable[str]:
    """What of a secret is one by itself: a URL's password, what follows ``Bearer``, the members of a JSON."""
    if ":" in secret and " " not in secret and not secret.startswith("{"):
        yield secret.partition(":")[2]
    elif " " in secret and re.fullmatch(AUTH_SCHEME, secret.split()[0], re.IGNORECASE):
        yield secret.split()[-1]
    elif secret.startswith(("{", "[")):
        try:
            members = json.loads(secret)
        except (ValueError, RecursionError):
            return
        yield from _leaves(members)


def _leaves(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _leaves(part)


@lru_cache(maxsize=64)
def _any_of(secrets: frozenset[str]) -> re.Pattern[str] | None:
    forms = sorted(set(chain.from_iterable(map(_forms, secrets))), key=lambda form: (-len(form), form))
    return re.compile("|".join(map(_whole, forms))) if forms else None


def _forms(secret: str) -> Iterable[str]:
    """How texts write ``secret``; none where it is too short to be told from other words and numbers."""
    secret = secret.strip()
    if len(secret) < _least_chars(secret) or _is_no_secret(secret, ""):
        return
    yield from (
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
        quote(secret, safe="", errors="replace"),
    )
    if "\n" in secret:
        yield from (line for line in secret.splitlines() if len(line) >= 16 and not line.startswith("-----"))


def _least_chars(secret: str) -> int:
    """How long ``secret`` has to be to be taken for itself wherever it stands."""
    if re.fullmatch(r"[A-Za-z]+(?:[_-][A-Za-z]+)*", secret):
        return MIN_KNOWN_WORDS_CHARS
    return MIN_KNOWN_CHARS if _is_mixed(secret) else MIN_KNOWN_PLAIN_CHARS


def _whole(form: str) -> str:
    """A pattern of ``form`` where it is no part of a longer word; an escape such as ``\\n`` or ``%3A`` may stand before it."""
    pattern = re.escape(form)
    if len(form) >= MIN_INSIDE_CHARS and _is_mixed(form):
        return pattern
    if form[0].isalnum():
        pattern = r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))" + pattern
    return pattern + (r"(?![A-Za-z0-9_])" if form[-1].isalnum() else "")


def _without_known(value: Any, secrets: frozenset[str], key: str = "") -> Any:
    """``value`` without ``secrets``, but for keys, ids and states, which are words of ours."""
    if isinstance(value, str):
        return value if key in _OUR_WORDS else without(value, secrets)
    if isinstance(value, dict):
        return {k: _without_known(v, secrets, str(k)) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_known(part, secrets, key) for part in value]
    return value
