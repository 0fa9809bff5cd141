"""What other load generators found, read for comparison: a file of theirs -> ``ForeignResult``.

A tool's numbers are taken as they stand in its file, in milliseconds and seconds; what it does not say is None and never computed in
its place. Where a name means something else elsewhere, it is entered under what it means, by this project's definitions:

============  ====================================================  ===================================  ============================
what it is    vllm bench serve                                      guidellm                             aiperf
============  ====================================================  ===================================  ============================
``ttft_ms``   ``ttft``                                              ``time_to_first_token_ms``           ``time_to_first_token``
``tpot_ms``   ``tpot``: (last - first token) / (tokens - 1)         ``inter_token_latency_ms``           ``inter_token_latency``
``itl_ms``    ``itl``: every gap between events                     none                                 ``inter_chunk_latency``
``e2e_ms``    ``e2el``                                              ``request_latency``                  ``request_latency``
============  ====================================================  ===================================  ============================

guidellm's ``time_per_output_token_ms`` has the first token's time in it: the whole answer's, divided by its tokens. It is left out.
Seen in files of vLLM 0.32.0, guidellm 0.8.1 and aiperf 0.13.0.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from connector_tax.base.errors import ConfigError
from connector_tax.base.opening import shown
from connector_tax.load.foreign_aiperf import read_aiperf, read_aiperf_records
from connector_tax.load.foreign_guidellm import read_guidellm
from connector_tax.load.foreign_own import read_own
from connector_tax.load.foreign_result import Document, ForeignResult, read_documents
from connector_tax.load.foreign_vllm import read_vllm


def read_results(path: Path) -> tuple[ForeignResult, ...]:
    """Every result in a file: guidellm writes one for each rate of a sweep, ``vllm bench serve --append-result`` one a line.

    Beside aiperf's ``profile_export_aiperf.json`` its ``profile_export.jsonl`` is read, too, if it is there.

    Raises:
        ConfigError: no such file, of no tool that is known, or not of the form that its tool writes; names what is wrong and where.
    """
    documents = read_documents(path)
    for keys, read in READERS:
        if all(keys <= document.members.keys() for document in documents):
            return read(path, documents)
    found = shown(", ".join(documents[0].members))
    raise ConfigError(
        f"{path}: a result of no tool that is known; it has the keys {found}. Known are vllm bench serve (--save-result, better with "
        "--save-detailed), guidellm (--output kind=json), aiperf (profile_export_aiperf.json, profile_export.jsonl) and connector-tax load "
        "(summary.json)."
    )


Reader = Callable[[Path, Sequence[Document]], tuple[ForeignResult, ...]]
# Keys that every document of a tool has and no other tool's, and who reads such documents. A further tool is a further line.
READERS: tuple[tuple[frozenset[str], Reader], ...] = (
    (frozenset({"burstiness", "completed", "duration", "request_throughput"}), read_vllm),
    (frozenset({"metadata", "benchmarks"}), read_guidellm),
    (frozenset({"aiperf_version", "input_config"}), read_aiperf),
    (frozenset({"metadata", "metrics"}), read_aiperf_records),
    (frozenset({"schema", "cells", "nonce"}), read_own),
)
