"""Secrets that are known: what opens nothing, what of a secret is one by itself, and how texts write it.

Standard library only, as the redactor.
"""

import base64
import json
import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
from typing import Any
from urllib.parse import quote

from connector_tax.base.secret_looks import AUTH_SCHEME
from connector_tax.base.secret_names import WORDS

BLANKED = "<redacted>"
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
# Behind the first sign of `PyJWT==2.10.1`, as lists of packages have it.
_RELEASE = re.compile(r"=\d{1,4}(?:\.\d{1,8}){1,3}(?:\.?(?:post|dev|rc|a|b)\d{1,3})?")
# What stands between references: "${USER}:${PASSWORD}".
_REFERENCES = re.compile(rf"(?:\$\{{\w+\}}|{BLANKED}|[^\w<>$]){{1,200}}", re.IGNORECASE)


def is_no_secret(text: str, name: str) -> bool:
    word = text.strip().lower()
    if _PLAIN.fullmatch(word) or _SAID_ALREADY.fullmatch(word) or _RELEASE.fullmatch(word):
        return True
    if ("${" in word or BLANKED in word) and _REFERENCES.fullmatch(word):
        return True
    last = (WORDS.findall(name) or [""])[-1].lower()
    # The number of a piece of text; the current folder, which every shell keeps in PWD.
    return (last in ("token", "tokens", "pass") and len(word) < 8 and word.isdigit()) or (
        last == "pwd" and word.startswith("/")
    )


def is_mixed(text: str) -> bool:
    """Of digits and letters, as what was drawn by chance is."""
    return any(map(str.isdigit, text)) and any(map(str.isalpha, text))


def is_login(text: str) -> bool:
    """Whether ``text`` behind ``Basic`` is a user and a password, in base64, and no word of prose."""
    text = text.rstrip("=")
    try:
        inside = base64.b64decode(
            text[: len(text) // 4 * 4], altchars=b"-_" if set("-_") & set(text) else None
        )
        return b":" in inside and inside.decode(errors="ignore").isprintable()
    except ValueError:
        return False


def parts_of(secret: str) -> Iterable[str]:
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
def any_of(secrets: frozenset[str]) -> re.Pattern[str] | None:
    forms = sorted(set(chain.from_iterable(map(_forms, secrets))), key=lambda form: (-len(form), form))
    return re.compile("|".join(map(_whole, forms))) if forms else None


def _forms(secret: str) -> Iterable[str]:
    """How texts write ``secret``; none where it is too short to be told from other words and numbers."""
    secret = secret.strip()
    if len(secret) < _least_chars(secret) or is_no_secret(secret, ""):
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
    return MIN_KNOWN_CHARS if is_mixed(secret) else MIN_KNOWN_PLAIN_CHARS


def _whole(form: str) -> str:
    """A pattern of ``form`` where it is no part of a longer word; an escape such as ``\\n`` or ``%3A`` may stand before it."""
    pattern = re.escape(form)
    if len(form) >= MIN_INSIDE_CHARS and is_mixed(form):
        return pattern
    if form[0].isalnum():
        pattern = r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))" + pattern
    return pattern + (r"(?![A-Za-z0-9_])" if form[-1].isalnum() else "")
