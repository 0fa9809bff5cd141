"""Step timing for a vLLM that is about to be imported. No file of vLLM is changed.

``install()`` watches for the import of two vLLM modules. Once one was executed, ``_step_profile.py`` wraps
the class that it defines. ``launch/plugins/vllm_serve.py`` calls it before it imports vLLM: a spawned
engine process imports that module again, and a forked one inherits the watch. Nothing happens unless
AGENTIC_STEP_LOG_PATH is set.

    python patches/scheduler_step_timing.py --engine-python /path/to/venv/bin/python [--status | --revert]

reports from vLLM's source files whether the wrappers fit that release, as one JSON object. The exit status
is 0 even if they do not, since a campaign continues without step records. ``--revert`` removes what earlier
versions of connector-tax wrote into vLLM's files (``written_blocks.py``), ``--status`` looks for it. Standard
library only; runs in every Python that vLLM runs in.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

PROFILE = Path(__file__).with_name("_step_profile.py")
PROFILE_MODULE = "_connector_tax_step_profile"
# Marks the line of an interpreter's answer: it may print a banner of its own.
ANSWER = "connector-tax-vllm:"
# Module -> its class, the function that wraps the class, and the methods that it requires.
TARGETS = {
    "vllm.v1.core.sched.scheduler": (
        "Scheduler",
        "install_scheduler",
        ("schedule", "update_from_output", "get_request_counts"),
    ),
    "vllm.distributed.kv_transfer.kv_connector.factory": (
        "KVConnectorFactory",
        "install_factory",
        ("create_connector",),
    ),
}


class DoesNotFit(Exception):
    """Step timing cannot work with this vLLM, or vLLM cannot be found; the text says why."""


class Watch:
    """A finder that delegates targets to the other finders, and hooks the module's execution."""

    def find_spec(self, name, path=None, target=None):
        if name not in TARGETS:
            return None
        for finder in sys.meta_path:
            # Python skips finders without it, as `six` before 1.16 installs.
            find_spec = getattr(finder, "find_spec", None)
            spec = find_spec(name, path, target) if find_spec is not None and finder is not self else None
            if spec is not None:
                follow(spec, name)
                return spec
        return None


def follow(spec, name):
    """Wrap the target's class after its module was executed; log it if the loader does not allow that."""
    try:
        spec.loader.exec_module = followed(name, spec.loader.exec_module)
    except AttributeError as error:
        say("no step records: %s comes from a loader that cannot be followed (%s)" % (name, error))


def followed(name, execute):
    """Return a loader's ``exec_module`` that also wraps the target's class."""

    def exec_module(module):
        execute(module)
        if module.__name__ == name:
            wrap(module)

    return exec_module


def wrap(module):
    """Wrap the class of a target module; if it does not fit, log that: the engine serves without records."""
    cls_name, install_name, methods = TARGETS[module.__name__]
    cls = getattr(module, cls_name, None)
    missing = [m for m in methods if not hasattr(cls, m)]
    if missing:
        said = "no step records: %s.%s has no %s" % (module.__name__, cls_name, " and no ".join(missing))
    else:
        getattr(profile(), install_name)(cls)
        said = "step timing wraps %s.%s" % (module.__name__, cls_name)
    say(said)


def say(what):
    print("connector-tax: %s (process %d)" % (what, os.getpid()), file=sys.stderr, flush=True)


def profile():
    """Return ``_step_profile.py`` as a module, the same one for both targets."""
    module = sys.modules.get(PROFILE_MODULE)
    if module is None:
        spec = importlib.util.spec_from_file_location(PROFILE_MODULE, str(PROFILE))
        module = importlib.util.module_from_spec(spec)
        sys.modules[PROFILE_MODULE] = module
        spec.loader.exec_module(module)
    return module


def install():
    """Watch for the targets, once, if this process records steps."""
    if os.environ.get("AGENTIC_STEP_LOG_PATH") and not any(type(f) is Watch for f in sys.meta_path):
        sys.meta_path.insert(0, Watch())


def find_vllm(engine_python):
    """Return the folder of that interpreter's package ``vllm``, without importing vLLM.

    Raises:
        DoesNotFit: the interpreter does not run, or has no vLLM.
    """
    # A folder named vllm in the current folder, or one without code, is no installation.
    code = (
        "import sys; sys.path[:] = [p for p in sys.path if p]; import importlib.util as u; s ="
        " u.find_spec('vllm'); print(); print(sys.argv[1] + (s.submodule_search_locations[0] if s and"
        " s.origin else ''))"
    )
    try:
        found = subprocess.run(
            [engine_python, "-c", code, ANSWER], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DoesNotFit("%s cannot be run (%s)" % (engine_python, error)) from error
    answers = [line[len(ANSWER) :] for line in found.stdout.splitlines() if line.startswith(ANSWER)]
    if found.returncode != 0 or not answers:
        said = (found.stderr or found.stdout).strip()[-200:] or "it says nothing"
        raise DoesNotFit(
            "%s does not run Python code (exit status %d: %s)" % (engine_python, found.returncode, said)
        )
    if not answers[-1].strip():
        raise DoesNotFit("%s has no vllm" % engine_python)
    return Path(answers[-1].strip())


def check(vllm):
    """Look for the wrapped classes and methods in vLLM's source.

    Raises:
        DoesNotFit: this release lacks one of them.
    """
    for module, (cls_name, _, methods) in TARGETS.items():
        path = vllm / (module.partition(".")[2].replace(".", "/") + ".py")
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise DoesNotFit("%s does not exist" % path) from error
        wanted = ["class %s" % cls_name, *("def %s(" % m for m in methods)]
        missing = [w for w in wanted if w not in text]
        if missing:
            raise DoesNotFit("%s has no %s" % (path, " and no ".join(map(repr, missing))))


def run(revert, engine_python=None, vllm=None):
    """Return what is printed.

    ``state`` is that of vLLM's files: ``unpatched``, ``patched`` or ``half``; null if there are no files.
    """
    import written_blocks

    report = {"step_timing_available": False, "reason": None, "state": None, "vllm": None}
    try:
        folder = vllm or find_vllm(engine_python)
        report["vllm"] = str(folder)
        report["state"] = written_blocks.status(folder)
        if revert:
            try:
                written_blocks.remove(folder)
            finally:
                report["state"] = written_blocks.status(folder)
        check(folder)
        report["step_timing_available"] = report["state"] == "unpatched"
        if not report["step_timing_available"]:
            report["reason"] = written_blocks.IN_THE_WAY % folder
    except (DoesNotFit, written_blocks.Refused, OSError) as error:
        report["reason"] = str(error)
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--engine-python", default=os.environ.get("ENGINE_PYTHON") or sys.executable)
    parser.add_argument(
        "--vllm", type=Path, help="the package's folder, instead of asking an interpreter for it"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--revert", action="store_true")
    what.add_argument("--status", action="store_true")
    args = parser.parse_args()
    report = run(args.revert, args.engine_python, args.vllm)
    print(json.dumps(report, indent=2))
    # Blocks that stay in vLLM's files, or could not be looked for, must fail loudly.
    return 1 if args.revert and report["state"] != "unpatched" else 0


if __name__ == "__main__":
    sys.exit(main())
