"""Which code made a measurement.

The load generator's version is recorded in each cell. It is not part of the hash that decides
whether a cell is measured again: an edit there warns, it does not throw GPU hours away.
"""

from functools import cache

from connector_tax import __version__
from connector_tax.base.documents.identity import CodeVersion
from connector_tax.base.imports import closure, sha256_of_code

# What sends, stamps and samples; what else belongs to it follows from what these import and start.
LOAD_ENTRIES = (
    "connector_tax.run.loadgen.cell",
    "connector_tax.run.loadgen.worker",
    "connector_tax.run.loadgen.outputs",
    "connector_tax.run.sampler.sampler",
)


@cache
def loadgen_sha256() -> str:
    """SHA-256 over names and contents of all that makes, times and samples the load."""
    return sha256_of_code(closure(*LOAD_ENTRIES))


def code_version() -> CodeVersion:
    return CodeVersion(connector_tax=__version__, loadgen_sha256=loadgen_sha256())
