"""The server under load, and the form of its requests."""

import re
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from connector_tax.base.errors import ConfigError
from connector_tax.base.records.bounds import Foreign

Api = Literal["completions", "chat"]
ENDPOINTS: dict[Api, str] = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
_SCHEMES = {"http": 80, "https": 443}
# RFC 9110: a header's name is a token, and its value has no control character.
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# Written by the client itself; a second one would contradict it.
_OWN_HEADERS = frozenset({"host", "content-length", "transfer-encoding", "connection", "x-request-id"})


class RequestForm(msgspec.Struct, frozen=True, omit_defaults=True):
    """The form of every request of a cell.

    Attributes:
        api: the endpoint. A chat prompt is text, since no chat endpoint takes token ids.
        stream: False asks for answers in one piece, which have no TTFT and no TPOT.
        honor_eos: answers end where the model ends them; otherwise each has the requested length
            (``ignore_eos``).
        body: further members of the request's JSON, such as sampling parameters; they replace members of the
            same name.
        timeout_s: a request that takes longer, from its send, ends as ``timeout``; None waits until the drain
            is over.
        words: prompts of completions are words instead of token ids, for servers that take only text. Chat
            prompts always are.
        tokens_per_word, template_tokens: prompt tokens that this server makes of a word, and adds to every
            prompt.
    """

    api: Api = "completions"
    stream: bool = True
    honor_eos: bool = False
    body: Foreign = {}
    timeout_s: float | None = None
    words: bool = False
    tokens_per_word: float = 1.0
    template_tokens: float = 0.0


class Target(msgspec.Struct, frozen=True, array_like=True):
    """An OpenAI-compatible server.

    Attributes:
        prefix: of every path, as a gateway may require: ``/llm``; empty for none.
        tls: speak TLS.
        headers: further headers of every request, including the server's key.
        ca_file: certificates to verify the server's with; None: the system's.
        verify: False accepts any certificate.
        client_cert, client_key: files of the client's certificate and key; no key if both are in one file.
    """

    host: str
    port: int
    model: str
    prefix: str = ""
    tls: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    ca_file: str | None = None
    verify: bool = True
    client_cert: str | None = None
    client_key: str | None = None

    @property
    def authority(self) -> str:
        """For the ``Host`` header: IPv6 in brackets, and the port unless it is the scheme's default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _SCHEMES[self._scheme] else f"{host}:{self.port}"

    @property
    def base_url(self) -> str:
        return f"{self._scheme}://{self.authority}{self.prefix}"

    @property
    def _scheme(self) -> str:
        return "https" if self.tls else "http"


def target_of(
    base_url: str,
    model: str,
    *,
    headers: tuple[tuple[str, str], ...] = (),
    ca_file: str | None = None,
    verify: bool = True,
    client_cert: str | None = None,
    client_key: str | None = None,
) -> Target:
    """Parse ``https://host:8443/llm/v1``, with or without ``/v1`` at the end.

    Raises:
        ConfigError: no such URL, or a header that cannot be sent.
    """
    for name, value in headers:
        _check_header(name, value)
    try:
        url = urlsplit(base_url.strip())
        port = url.port
    except ValueError as error:
        raise ConfigError(f"base URL {base_url!r}: {error}. {_WANTED}") from error
    if url.scheme not in _SCHEMES or not url.hostname:
        raise ConfigError(f"base URL {base_url!r}: {_WANTED}")
    if url.username is not None or url.password is not None:
        raise ConfigError(
            "base URL: it holds a user or a password. Give a key by --api-key-env or a --header."
        )
    if url.query or url.fragment or _CONTROL.search(base_url) or " " in url.path:
        raise ConfigError(f"base URL {base_url!r}: it has more than a path behind its host. {_WANTED}")
    prefix = url.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return Target(
        host=url.hostname,
        port=port or _SCHEMES[url.scheme],
        model=model,
        prefix=prefix,
        tls=url.scheme == "https",
        headers=headers,
        ca_file=ca_file,
        verify=verify,
        client_cert=client_cert,
        client_key=client_key,
    )


def bearing(authorization: str | None) -> tuple[tuple[str, str], ...]:
    return () if authorization is None else (("Authorization", authorization),)


def _check_header(name: str, value: str) -> None:
    if not _HEADER_NAME.fullmatch(name):
        raise ConfigError(f"header {name!r}: that is no header's name.")
    if name.lower() in _OWN_HEADERS:
        raise ConfigError(f"header {name}: the client writes that one itself.")
    if _CONTROL.search(value) or not value.isascii():
        raise ConfigError(f"header {name}: its value holds a control character or what is not ASCII.")


_WANTED = (
    "Give http://host:port or https://host:port of an OpenAI-compatible server, with a path before /v1 if it"
    " has one."
)
