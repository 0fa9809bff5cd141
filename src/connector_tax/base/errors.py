"""Errors, one class per person who can act on them.

Every message says what is wrong, where, what was found, and what would do. Doors (``scripts/``)
print it without a traceback and exit with status 2; anything else is a bug and keeps its traceback.
"""

import errno

# What a file system says where a file lies in a folder's place, or a folder in a file's.
IN_THE_WAY = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR)
# What a disk says that takes nothing more, whatever was to be written.
OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)


class ConnectorTaxError(Exception):
    """Base of everything a person can act on; never raised itself."""


class ConfigError(ConnectorTaxError):
    """The person editing YAML can act."""


class EngineError(ConnectorTaxError):
    """The person running the machine can act; carries the root cause from the engine's log."""


class ArtifactError(ConnectorTaxError):
    """Whoever moved, edited or ran out of room for files can act."""


class AnalysisError(ConnectorTaxError):
    """The analyst can act."""


class NotComparable(AnalysisError):
    """Two measurements differ in something that must be equal; the message names it."""
