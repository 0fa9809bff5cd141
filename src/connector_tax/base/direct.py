"""HTTP straight to an engine: no proxy, no ``~/.netrc``, whatever the environment names.

``httpx`` goes by ``http_proxy``, ``HTTPS_PROXY`` and ``ALL_PROXY`` unless it is told not to. A proxy does not
reach this host's loopback addresses, or reaches another engine there; and the load itself goes through bare
sockets, past any proxy. The engine's own environment keeps these variables: it may need them for the model
hub.
"""

import ssl
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from time import monotonic

import httpx

Headers = Mapping[str, str] | None
# No list of models and no metrics are longer.
MOST_ANSWER_BYTES = 16 << 20
# Engines speak plain HTTP. httpx would otherwise load the system's certificates for each client, which takes
# 30 to 100 ms.
_NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class Client(httpx.Client):
    """Keeps its connection from one question to the next."""

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
    """
    Raises:
        httpx.HTTPError: no answer; or none that is whole in that time.
    """
    with Client(timeout_s=timeout_s) as asking:
        return whole(asking, "GET", url, within_s=timeout_s)


def whole(
    client: httpx.Client, method: str, url: str, *, within_s: float, json: object = None
) -> httpx.Response:
    """An answer with all of its body. httpx's own time-out is of each read, so that an answer may trickle, or
    flow, for ever.

    Raises:
        httpx.HTTPError: no answer; or one without an end after ``within_s`` or ``MOST_ANSWER_BYTES``.
    """
    found: Future[httpx.Response] = Future()

    def ask() -> None:
        try:
            found.set_result(_whole(client, method, url, within_s, json))
        except BaseException as error:  # noqa: BLE001 - a thread's outermost frame; raised where it is waited for
            found.set_exception(error)

    # A handshake or a head that trickles is waited for inside of httpx, and nothing else ends that.
    threading.Thread(target=ask, daemon=True).start()
    try:
        return found.result(within_s)
    except TimeoutError as error:
        raise httpx.ReadTimeout(f"an answer without an end after {within_s:g} s") from error


def _whole(client: httpx.Client, method: str, url: str, within_s: float, json: object) -> httpx.Response:
    deadline_s = monotonic() + within_s
    body = bytearray()
    with client.stream(method, url, json=json) as answer:
        if len(codings := answer.headers.get_list("Content-Encoding", split_commas=True)) > 1:
            # A read of 64 KiB becomes 64 MiB at most, and 64 GiB where it was compressed twice.
            raise httpx.DecodingError(f"an answer that is compressed {len(codings)} times")
        for piece in answer.iter_bytes():
            body += piece
            if len(body) > MOST_ANSWER_BYTES:
                raise httpx.ReadError(f"an answer without an end after {MOST_ANSWER_BYTES >> 20} MiB")
            if monotonic() > deadline_s:
                raise httpx.ReadTimeout(f"an answer without an end after {within_s:g} s")
    # What was compressed is not any more. And a text is UTF-8, whatever its charset: some names are none
    # (hex, zip), and raise.
    headers = [
        (k, v)
        for k, v in answer.headers.multi_items()
        if k.lower() not in ("content-encoding", "content-type")
    ]
    return httpx.Response(answer.status_code, headers=headers, content=bytes(body), request=answer.request)


def served_models(answer: httpx.Response) -> list[str] | None:
    """What an answer to ``/v1/models`` names; None where it is no such answer, whatever else it is."""
    if answer.status_code != 200:
        return None
    try:
        cards = answer.json()["data"]
        return [str(card["id"]) for card in cards]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
