"""A SLURM cluster of one machine with two fake GPUs, in a folder of its own: munged, slurmctld and slurmd as this user (root).

Nothing outside the folder is written. Commands that Snakemake and its jobs call find the cluster through small scripts in
``bin``, which have to come first in PATH: a job's environment loses SLURM_CONF.
"""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd")
COMMANDS = ("sbatch", "srun", "squeue", "scancel", "scontrol", "sinfo")
PLUGIN = "snakemake_executor_plugin_slurm"
# Where `make plugins` installs both.
PLUGINS = Path(__file__).parents[2] / ".plugins"
# For schedulers that have none of their own.
GENERIC = "snakemake_executor_plugin_cluster_generic"
# What stands for a card: any character device does, and these need not be made.
DEVICES = ("/dev/null", "/dev/zero")
PATIENT_SQUEUE = Path(__file__).with_name("patient_squeue.py")
UP_WITHIN_S = 30.0
CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldPort={port}
SlurmdPort={node_port}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
GresTypes=gpu
KillWait=10
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=4000 Gres=gpu:2 State=UNKNOWN
PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def lacking() -> str | None:
    """What this machine lacks for it; None where it is all there."""
    if os.geteuid() != 0:
        return "slurmd wants to be root"
    missing = [name for name in (*DAEMONS, *COMMANDS) if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} missing: apt-get install slurm-wlm munge"
    return lacking_plugin(PLUGIN)


def lacking_plugin(name: str) -> str | None:
    return None if _spec(name) else f"{name} missing: make plugins"


def plugin_folder(name: str) -> Path:
    """Where the plugin is installed, which need not be the environment's own folder."""
    spec = _spec(name)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parents[1]


def _spec(name: str) -> ModuleSpec | None:
    return find_spec(name) or PathFinder.find_spec(name, [str(PLUGINS)])


class NotUp(Exception):
    """SLURM's daemons take no job on this machine; the text is the controller's."""


@dataclass(frozen=True)
class Cluster:
    """``environment`` is what commands and Snakemake are started with."""

    folder: Path
    host: str

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}

    def ask(self, *command: str) -> str:
        env = {**os.environ, **self.environment}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=60).stdout

    def jobs(self) -> list[str]:
        """Ids of those that wait or run. One whose slurmstepd was killed is being completed for minutes more."""
        return self.ask("squeue", "--noheader", "--states=PENDING,RUNNING", "--format=%i").split()

    def state(self, job: str) -> str:
        return self.ask("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T").strip()

    def drain(self, drained: bool) -> None:
        state = ("State=DRAIN", "Reason=test") if drained else ("State=RESUME",)
        self.ask("scontrol", "update", f"NodeName={self.host}", *state)


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """One that takes jobs; its daemons end with the body.

    Raises:
        NotUp: it takes none within ``UP_WITHIN_S``.
    """
    found = Cluster(folder, socket.gethostname().split(".")[0])
    _write(found)
    conf = str(folder / "slurm.conf")
    munged = [
        "munged",
        "--foreground",
        "--force",
        f"--socket={folder}/munge.socket",
        f"--key-file={folder}/munge.key",
    ]
    munged += [
        f"--pid-file={folder}/munged.pid",
        f"--log-file={folder}/munged.log",
        f"--seed-file={folder}/munge.seed",
    ]
    with ExitStack() as stack:
        for command in (
            munged,
            ["slurmctld", "-D", "-c", "-f", conf],
            ["slurmd", "-D", "-f", conf, "-N", found.host],
        ):
            stack.enter_context(_daemon(command, folder))
        deadline = time.monotonic() + UP_WITHIN_S
        while (
            subprocess.run(
                ["sinfo", "-h", "-t", "idle", "-o", "%N"],
                env={**os.environ, **found.environment},
                capture_output=True,
            ).stdout.strip()
            == b""
        ):
            if time.monotonic() > deadline:
                raise NotUp((folder / "slurmctld.out").read_text()[-2000:])
            time.sleep(0.5)
        yield found


def _write(found: Cluster) -> None:
    folder = found.folder
    for name in ("state", "spool", "bin"):
        (folder / name).mkdir(parents=True)
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o400)
    port, node_port = _free_ports()
    text = CONF.format(host=found.host, folder=folder, port=port, node_port=node_port, cpus=os.cpu_count())
    (folder / "slurm.conf").write_text(text)
    (folder / "gres.conf").write_text(
        "".join(f"NodeName={found.host} Name=gpu File={device}\n" for device in DEVICES)
    )
    for name in COMMANDS:
        script = folder / "bin" / name
        own = shutil.which(name)
        command = f"{sys.executable} {PATIENT_SQUEUE} {own} {folder}" if name == "squeue" else own
        script.write_text(f'#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec {command} "$@"\n')
        script.chmod(0o755)


def _free_ports() -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(2)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


@contextmanager
def _daemon(command: list[str], folder: Path) -> Iterator[None]:
    env = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    with (folder / f"{command[0]}.out").open("wb") as out:
        process = subprocess.Popen(command, env=env, stdout=out, stderr=out)
    time.sleep(1)  # munged makes its socket, slurmctld its state, before the next one asks for it
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)
