"""HTTP straight to an engine: no proxy and no ``~/.netrc``, whatever the environment says.

``httpx`` follows ``http_proxy``, ``HTTPS_PROXY`` and ``ALL_PROXY`` by default. A proxy cannot reach this
host's loopback addresses, or reaches another engine there. The load itself uses bare sockets, past any proxy.
The engine's own environment keeps these variables, since it may need them for the model hub.
"""

import ssl
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from time import monotonic

import httpx

Headers = Mapping[str, str] | None
# Lists of models and metrics are shorter.
MOST_ANSWER_BYTES = 16 << 20
# Engines speak plain HTTP. By default each httpx client loads the system's certificates, in 30 to 100 ms.
_NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class Client(httpx.Client):
    """A client that keeps its connection between requests."""

    def __init__(
        self,
        *,
        timeout_s: float,
        base_url: str = "",
        headers: Headers = None,
        verify: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(
            base_url=base_url,
            timeout=timeout_s,
            headers=headers,
            trust_env=False,
            verify=verify or _NO_CERTIFICATES,
        )


def get(url: str, *, timeout_s: float) -> httpx.Response:
    """Send one GET request and return the whole answer.

    Raises:
        httpx.HTTPError: no whole answer within ``timeout_s``.
    """
    with Client(timeout_s=timeout_s) as asking:
        return whole(asking, "GET", url, within_s=timeout_s)


def whole(
    client: httpx.Client, method: str, url: str, *, within_s: float, json: object = None
) -> httpx.Response:
    """Return an answer with its whole body.

    httpx's own time-out applies per read, so that an answer may trickle forever.

    Raises:
        httpx.HTTPError: no answer, or one that does not end within ``within_s`` or ``MOST_ANSWER_BYTES``.
    """
    response: Future[httpx.Response] = Future()

    def fetch() -> None:
        try:
            response.set_result(_whole(client, method, url, within_s, json))
        except BaseException as error:  # noqa: BLE001 - a thread's outermost frame; raised where it is waited for
            response.set_exception(error)

    # A thread, since httpx offers no other way to end a handshake or header that trickles in.
    threading.Thread(target=fetch, daemon=True).start()
    try:
        return response.result(within_s)
    except TimeoutError as error:
        raise httpx.ReadTimeout(f"an answer without an end after {within_s:g} s") from error


def _whole(client: httpx.Client, method: str, url: str, within_s: float, json: object) -> httpx.Response:
    deadline_s = monotonic() + within_s
    body = bytearray()
    with client.stream(method, url, json=json) as response:
        if len(codings := response.headers.get_list("Content-Encoding", split_commas=True)) > 1:
            # A read of 64 KiB unpacks to at most 64 MiB, but to 64 GiB if it was compressed twice.
            raise httpx.DecodingError(f"an answer that is compressed {len(codings)} times")
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > MOST_ANSWER_BYTES:
                raise httpx.ReadError(f"an answer without an end after {MOST_ANSWER_BYTES >> 20} MiB")
            if monotonic() > deadline_s:
                raise httpx.ReadTimeout(f"an answer without an end after {within_s:g} s")
    # The body is unpacked by now. Text is read as UTF-8, since some charsets (hex, zip) raise.
    headers = [
        (name, value)
        for name, value in response.headers.multi_items()
        if name.lower() not in ("content-encoding", "content-type")
    ]
    return httpx.Response(
        response.status_code, headers=headers, content=bytes(body), request=response.request
    )


def served_models(response: httpx.Response) -> list[str] | None:
    """Return the models in an answer to ``/v1/models``; None for any other answer."""
    if response.status_code != 200:
        return None
    try:
        cards = response.json()["data"]
        return [str(card["id"]) for card in cards]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
