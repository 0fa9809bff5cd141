"""The part of a vLLM installation that step timing reads and wraps, and blocks of earlier versions."""

import hashlib
import re
from pathlib import Path

SCHEDULER = "v1/core/sched/scheduler.py"
FACTORY = "distributed/kv_transfer/kv_connector/factory.py"
SOURCES = {
    SCHEDULER: """
class Scheduler:
    def schedule(self):
        import __main__
        out = __main__.Output()
        if self.connector is not None:
            out.meta = self.connector.build_connector_meta(out)
        return out
    def update_from_output(self, scheduler_output, model_runner_output): ...
    def get_request_counts(self): return 2, 1
""",
    # No line end at the end of the file: a revert must not leave one behind.
    FACTORY: """
import time
class Connector:
    def build_connector_meta(self, out):
        import __main__
        return __main__.Meta()
    def bind_connector_metadata(self, meta): ...
    def clear_connector_metadata(self): ...
    def start_load_kv(self): time.sleep(0.002)
    def get_finished(self): time.sleep(0.004)
    def get_transfer_results(self): self.get_finished()
class KVConnectorFactory:
    @classmethod
    def create_connector(cls, config, role): return Connector()""",
}
EMITTER = "_connector_tax_step_profile.py"
# The block as the version before wrote it.
BLOCK = """# CONNECTOR_TAX_PATCH begin original_sha256={sha} newline_added={newline}
try:
    from vllm import _connector_tax_step_profile as _connector_tax_profile
except ImportError:
    pass
else:
    _connector_tax_profile.{install}({cls})
# CONNECTOR_TAX_PATCH end
"""
BLOCKS = {
    SCHEDULER: ("install_scheduler", "Scheduler"),
    FACTORY: ("install_factory", "KVConnectorFactory"),
}


def stand_in(root: Path) -> Path:
    """Write the package at ``root``."""
    for name, text in SOURCES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for folder in (root, *(root / f for f in Path(name).parents)):
            (folder / "__init__.py").touch()
    return root


def write_blocks(root: Path, *names: str) -> None:
    """Patch it as the version before did; only ``names`` if given."""
    (root / EMITTER).write_text("def install_scheduler(cls): ...\ndef install_factory(cls): ...\n")
    for name, (install, cls) in BLOCKS.items():
        if names and name not in names:
            continue
        text = (root / name).read_text()
        added = "" if text.endswith("\n") else "\n"
        sha = hashlib.sha256(text.encode()).hexdigest()
        block = BLOCK.format(sha=sha, newline=len(added), install=install, cls=cls)
        (root / name).write_text(text + added + block)


def tree(root: Path) -> dict[str, str]:
    """Return relative path -> SHA-256 of each file but byte code, or a symbolic link's target."""
    return {
        str(p.relative_to(root)): str(p.readlink())
        if p.is_symlink()
        else hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(root.rglob("*"))
        if (p.is_file() or p.is_symlink()) and not re.search(r"__pycache__", str(p))
    }
