"""Errors, one class per person who can act on them.

Every message says what is wrong, where, what was found, and what to do. Entrypoints (``scripts/``) print it
without a traceback and exit with status 2; anything else is a bug and keeps its traceback.
"""

import errno

# A file lies in a folder's place, or a folder in a file's.
IN_THE_WAY = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR)
# The disk takes no more data.
OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)


class ConnectorTaxError(Exception):
    """Base of all errors that a person can act on; never raised itself."""


class ConfigError(ConnectorTaxError):
    """An error for the person who edits YAML."""


class EngineError(ConnectorTaxError):
    """An error for the person who runs the machine; carries the root cause from the engine's log."""


class ArtifactError(ConnectorTaxError):
    """An error for whoever moved, edited or ran out of room for files."""


class AnalysisError(ConnectorTaxError):
    """An error for the analyst."""


class NotComparable(AnalysisError):
    """Two measurements differ in something that must be equal, which the message names."""
