"""As much of a vLLM installation as the patcher looks at."""

from pathlib import Path

SCHEDULER = "v1/core/sched/scheduler.py"
FACTORY = "distributed/kv_transfer/kv_connector/factory.py"
SOURCES = {
    SCHEDULER: "class Scheduler:\n    def schedule(self): ...\n    def update_from_output(self, o, m): ...\n"
    "    def get_request_counts(self): ...\n",
    # No line end at the end of the file: the revert must not leave one behind.
    FACTORY: "class KVConnectorFactory:\n    @classmethod\n    def create_connector(cls, config, role): ...",
}


def stand_in(root: Path) -> Path:
    """Write it at ``root``."""
    for name, text in SOURCES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root
