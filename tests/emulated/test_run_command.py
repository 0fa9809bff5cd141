"""``connector-tax run FILE``: what a person hears of a campaign, and of one that cannot be measured."""

import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
from checkout import Project

pytestmark = pytest.mark.emulated
SNAKEMAKE = (
    "DAG",
    "Provided cores",
    "Complete log",
    "RuleException",
    "Error in rule",
    "WorkflowError",
    "profile",
)


def run(project: Project, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "connector_tax", "run", "test", *words]
    return subprocess.run(command, cwd=project.root, env=project.environment, capture_output=True, text=True)


def small(config: dict[str, Any]) -> None:
    config["connectors"] = ["plain"]
    config["phase_a"]["rates_per_s"] = [10]
    config["phase_b"] = {"input_tokens": [], "output_tokens": []}
    config["phase_b_prime"] = {}
    config["accuracy"] = {"prompts": 0}


def test_a_campaign_begins_with_how_long_and_ends_with_what_came_out(project: Project) -> None:
    project.configure(small)
    done = run(project)
    heard = done.stdout + done.stderr
    assert done.returncode == 0, heard[-3000:]
    assert [word for word in SNAKEMAKE if word in heard] == []
    assert done.stdout.startswith("test: about ")
    assert [line[:7] for line in done.stdout.splitlines()[-3:]] == ["report:", "says:  ", "next:  "]
    again = run(project)
    assert again.returncode == 0 and again.stdout.splitlines() == done.stdout.splitlines()[-3:]
    wrong = run(project, "figure")
    assert wrong.returncode == 2 and wrong.stderr.endswith("Did you mean figures?\n")
    assert len(wrong.stderr.splitlines()) == 1
    loud = run(project, "--verbose")
    assert "Nothing to be done" in loud.stderr


def test_ctrl_c_while_jobs_run_ends_with_130_and_the_command_that_goes_on(project: Project) -> None:
    project.configure(small)
    command = [sys.executable, "-m", "connector_tax", "run", "test"]
    with subprocess.Popen(
        command, cwd=project.root, env=project.environment, stderr=subprocess.PIPE, text=True, process_group=0
    ) as running:
        deadline = time.monotonic() + 120
        while not list(project.root.glob("results/test/logs/preflight.log")) and time.monotonic() < deadline:
            time.sleep(0.05)
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does
        _, heard = running.communicate(timeout=60)
    assert running.returncode == 130, heard
    assert heard.endswith("Go on: connector-tax run test\n")
    assert [word for word in SNAKEMAKE if word in heard] == []
