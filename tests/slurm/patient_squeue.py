"""``squeue`` of the test cluster: Snakemake's plugin hears of a job's end when it ends.

The plugin asks 10 s later each time that no job has ended, which would make most of a test's time. So its question is answered when a job has
ended of which it was not told yet. The answer is squeue's own; whatever else is asked goes straight to it.
"""

import os
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"}
# The plugin gives up an answer after 60 s.
PATIENCE_S = 30.0


def main(squeue: str, folder: Path, arguments: list[str]) -> int:
    """
    Args:
        squeue: SLURM's own.
        folder: to remember in of whose ends was told.
    """
    if "--states=all" not in arguments or "--name" not in arguments:
        os.execv(squeue, [squeue, *arguments])
    begun = time.time()
    name = arguments[arguments.index("--name") + 1]
    told = folder / f"told_{name}"
    known = set(told.read_text().split()) if told.exists() else set()
    while True:
        jobs = _rows(squeue, name)
        ended = {job for job, (state, _) in jobs.items() if state in ENDED}
        new = ended - known
        # Of several that are cancelled together it is told at once.
        well = all(jobs[job][0] == "COMPLETED" for job in new)
        if (new and (well or len(ended) == len(jobs))) or time.time() > begun + PATIENCE_S:
            break
        time.sleep(0.2)
    done = subprocess.run([squeue, *arguments], capture_output=True, text=True)
    # One that was submitted while this question was on its way may not be among those that it is about.
    told.write_text("\n".join(known | {job for job in ended if jobs[job][1] < begun - 1}))
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return done.returncode


def _rows(squeue: str, name: str) -> dict[str, tuple[str, float]]:
    """Job -> its state and when it was submitted; none where squeue says nothing."""
    command = [squeue, "--noheader", "--states=all", "--name", name, "--format=%i %T %V"]
    rows = [
        row.split() for row in subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    ]
    return {job: (state, datetime.fromisoformat(at).timestamp()) for job, state, at in rows}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
