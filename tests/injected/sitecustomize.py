"""First on PYTHONPATH, it gives each Python process of a test a host with a fault; ``tests/host_faults.py`` sets the variables.

INJECTED_FULL     files of this pattern lie on a disk that is full: they can be made, and nothing can be written into them
INJECTED_READONLY files of this pattern lie on one that is read-only
INJECTED_SLOW_S   every file that is opened for writing, and every fsync, takes so long
INJECTED_STEP_S   the wall clock is so far ahead in every other reading: it is stepped back and forth
INJECTED_LIFTED   limits on the client, by name, that no cell exceeds
"""

import builtins
import errno
import fnmatch
import importlib.machinery
import io
import itertools
import os
import sys
import time

FULL, READONLY = os.environ.get("INJECTED_FULL"), os.environ.get("INJECTED_READONLY")
SLOW_S = float(os.environ.get("INJECTED_SLOW_S", "0"))
STEP_S = float(os.environ.get("INJECTED_STEP_S", "0"))
LIFTED, LIMITS = os.environ.get("INJECTED_LIFTED", "").split(), "connector_tax.run.loadgen.health"
_open, _fsync, _mkdir = builtins.open, os.fsync, os.mkdir


def _matches(path, pattern):
    return pattern is not None and not isinstance(path, int) and fnmatch.fnmatch(os.fsdecode(path), pattern)


def _opened(file, mode="r", *args, **kwargs):
    if not set(mode) & set("wax+"):
        return _open(file, mode, *args, **kwargs)
    time.sleep(SLOW_S)
    if _matches(file, READONLY):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), os.fspath(file))
    if _matches(file, FULL):
        _open(file, mode, *args, **kwargs).close()  # it is there, and empty
        file = "/dev/full"
    return _open(file, mode, *args, **kwargs)


class _FileIO(io.FileIO):
    def __init__(self, file, mode="r", *args, **kwargs):
        if set(mode) & set("wax+"):
            time.sleep(SLOW_S)
            if _matches(file, READONLY):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), os.fspath(file))
            if _matches(file, FULL):
                _open(file, "ab").close()
                file, mode = "/dev/full", "wb"
        super().__init__(file, mode, *args, **kwargs)


def _made(path, *args, **kwargs):
    if _matches(path, READONLY) and not os.path.isdir(path):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), os.fspath(path))
    return _mkdir(path, *args, **kwargs)


def _synced(descriptor):
    time.sleep(SLOW_S)
    if os.readlink(f"/proc/self/fd/{descriptor}") == "/dev/full":  # which says that it cannot be synced
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return _fsync(descriptor)


class _Lifted:
    """Finds the module of the limits as Python does, and lifts them when it has been loaded."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != LIMITS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            vars(module).update(dict.fromkeys(LIFTED, 1e9))

        spec.loader.exec_module = exec_module
        return spec


if LIFTED:
    sys.meta_path.insert(0, _Lifted)
if FULL or READONLY or SLOW_S:
    builtins.open = io.open = _opened
    io.FileIO = _FileIO
    os.fsync, os.mkdir = _synced, _made
if STEP_S:
    _time, _time_ns, _turns = time.time, time.time_ns, itertools.count()
    time.time = lambda: _time() + STEP_S * (next(_turns) % 2)
    time.time_ns = lambda: _time_ns() + int(STEP_S * 1e9) * (next(_turns) % 2)
