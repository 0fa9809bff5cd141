"""Step records from inside vLLM: what each scheduler step and each connector hook costs.

Runs inside the engine's processes (copied there by ``scheduler_step_timing.py``); standard library
only. Does nothing unless AGENTIC_STEP_LOG_PATH is set when vLLM imports its scheduler. With
``x.jsonl`` there, the scheduler process writes ``x.scheduler.<pid>.jsonl`` and each worker process
``x.worker.<pid>.jsonl``; the form of a line is in ``docs/formats.md``.

On the scheduler's thread a record is one tuple appended to a deque; a daemon thread formats and
writes. A file that cannot be written ends the recording, never the engine. All clocks are
CLOCK_MONOTONIC.
"""

import atexit
import functools
import hashlib
import json
import os
import sys
import threading
import time
from collections import deque

SCHEMA = 1
# Formatting holds the GIL; small batches keep the longest pause of the engine near 0.1 ms.
BATCH_ROWS = 100
STEP_ATTRIBUTE = "_connector_tax_step_id"

now_ns = time.monotonic_ns


class Recorder:
    """Rows of one process on their way to one file."""

    def __init__(self, process, header):
        base = os.environ["AGENTIC_STEP_LOG_PATH"]
        stem = base[: -len(".jsonl")] if base.endswith(".jsonl") else base
        self.process = process
        self.pid = os.getpid()
        self.path = "%s.%s.%d.jsonl" % (stem, process, self.pid)
        self.rows = deque()
        self.lock = threading.Lock()
        try:
            self.file = open(self.path, "a", encoding="utf-8")
            self._write_header(header)
        except OSError as error:
            self._give_up(error)
            return
        self.interval_s = float(os.environ.get("CONNECTOR_TAX_STEP_FLUSH_S", "0.5"))
        atexit.register(self.flush)
        threading.Thread(target=self._run, name="connector-tax-steps", daemon=True).start()

    def _write_header(self, header):
        line = {
            "kind": "header",
            "schema": SCHEMA,
            "process": self.process,
            "pid": self.pid,
            "monotonic_ns": now_ns(),
            "utc_ns": time.time_ns(),
            "engine_version": engine_version(),
            "patch_sha256": own_sha256(),
            "source": "patch",
            **header,
        }
        self.file.write(json.dumps(line, separators=(",", ":")) + "\n")
        self.file.flush()

    def _give_up(self, error):
        """Record nothing from now on; an engine must not end because its step log cannot be written."""
        self.rows = deque(maxlen=0)
        print("connector-tax: no step records: %s: %s" % (self.path, error.strerror), file=sys.stderr)

    def _run(self):
        while self.rows.maxlen is None:
            time.sleep(self.interval_s)
            self.flush()

    def flush(self):
        with self.lock:
            while self.rows:
                lines = []
                while self.rows and len(lines) < BATCH_ROWS:
                    lines.append(self.format(self.rows.popleft()))
                try:
                    self.file.write("".join(lines))
                    self.file.flush()
                except OSError as error:
                    self._give_up(error)
                    return
                time.sleep(0)

    def format(self, row):
        if self.process == "worker":
            return (
                '{"kind":"worker_step","process":"worker","pid":%d,"step_id":%s,"t_ns":%d,'
                '"start_load_kv_us":%.3f,"get_finished_us":%.3f}\n'
            ) % (self.pid, "null" if row[0] is None else row[0], row[1], row[2] / 1e3, row[3] / 1e3)
        (step_id, t_ns, schedule_ns, t_update_ns, update_ns, duration_ns, interval_ns, build_meta_ns) = row[
            :8
        ]
        return (
            '{"kind":"step","process":"scheduler","pid":%d,"step_id":%d,"t_ns":%d,"schedule_us":%.3f,'
            '"t_update_ns":%d,"update_us":%.3f,"step_duration_us":%.3f,"step_interval_us":%s,'
            '"round_trip_us":%.3f,"build_meta_us":%.3f,"get_finished_us":null,"start_load_kv_us":null,'
            '"num_running":%d,"num_waiting":%d,"prefill_tokens":%d,"decode_tokens":%d}\n'
        ) % (
            self.pid,
            step_id,
            t_ns,
            schedule_ns / 1e3,
            t_update_ns,
            update_ns / 1e3,
            duration_ns / 1e3,
            "null" if interval_ns is None else "%.3f" % (interval_ns / 1e3),
            (duration_ns - schedule_ns - update_ns) / 1e3,
            build_meta_ns / 1e3,
            *row[8:],
        )


class State:
    """What the wrappers of one process share. vLLM has one scheduler per process."""

    def __init__(self):
        self.pid = None
        self.recorder = None
        self.step_id = 0
        self.build_meta_ns = 0
        self.last_entry_ns = None
        self.last_exit_ns = 0
        self.pending = {}

    def recorder_of(self, process, header):
        # Made on first use, so that a process forked after the import gets a file of its own.
        if self.recorder is None or self.pid != os.getpid():
            self.pid = os.getpid()
            self.recorder = Recorder(process, header())
        return self.recorder


scheduler_state = State()


def install_scheduler(cls):
    """Wrap ``schedule`` and ``update_from_output`` of vLLM's Scheduler class, once."""
    if not os.environ.get("AGENTIC_STEP_LOG_PATH") or "_connector_tax" in cls.__dict__:
        return
    cls._connector_tax = True
    state = scheduler_state
    schedule, update = cls.schedule, cls.update_from_output

    @functools.wraps(schedule)
    def timed_schedule(self, *args, **kwargs):
        state.step_id += 1
        state.build_meta_ns = 0
        entry_ns = now_ns()
        output = schedule(self, *args, **kwargs)
        schedule_ns = now_ns() - entry_ns
        running, waiting = self.get_request_counts()
        prefill, decode = token_counts(self, output)
        interval_ns = None if state.last_entry_ns is None else entry_ns - state.last_entry_ns
        state.last_entry_ns = entry_ns
        if len(state.pending) > 64:  # outputs that never came back, as after an aborted step
            state.pending.clear()
        state.pending[id(output)] = (
            *(state.step_id, entry_ns, schedule_ns, interval_ns, state.build_meta_ns),
            *(running, waiting, prefill, decode),
        )
        return output

    @functools.wraps(update)
    def timed_update(self, scheduler_output, *args, **kwargs):
        entry_ns = now_ns()
        result = update(self, scheduler_output, *args, **kwargs)
        exit_ns = now_ns()
        opened = state.pending.pop(id(scheduler_output), None)
        if opened is not None:
            step_id, t_ns, schedule_ns, interval_ns, build_meta_ns, *counts = opened
            # From the later of "this step began" and "the one before ended": under asynchronous
            # scheduling two steps overlap, and counting both in full would count time twice.
            duration_ns = exit_ns - max(t_ns, state.last_exit_ns)
            recorder = state.recorder_of("scheduler", lambda: {"async_scheduling": is_async(self)})
            recorder.rows.append(
                (
                    step_id,
                    t_ns,
                    schedule_ns,
                    entry_ns,
                    exit_ns - entry_ns,
                    duration_ns,
                    interval_ns,
                    build_meta_ns,
                )
                + tuple(counts)
            )
        state.last_exit_ns = exit_ns
        return result

    cls.schedule = timed_schedule
    cls.update_from_output = timed_update


def token_counts(scheduler, output):
    """(prefill, decode) tokens of one step; schedule() has advanced num_computed_tokens by now."""
    per_request = output.num_scheduled_tokens
    total = output.total_num_scheduled_tokens
    if total == len(per_request) and not output.scheduled_new_reqs:
        return 0, total
    prefill = 0
    for request_id, tokens in per_request.items():
        request = scheduler.requests.get(request_id)
        if request is not None and request.num_computed_tokens - tokens < request.num_prompt_tokens:
            prefill += tokens
    return prefill, total - prefill


def is_async(scheduler):
    config = getattr(getattr(scheduler, "vllm_config", None), "scheduler_config", None)
    value = getattr(config, "async_scheduling", None)
    return None if value is None else bool(value)


def install_factory(cls):
    """Wrap the hooks of every connector that vLLM's KVConnectorFactory creates.

    Instances are wrapped, not replaced: vLLM asks for their class. A MultiConnector builds its
    children itself, so only the outer instance is wrapped and nothing counts twice.
    """
    if not os.environ.get("AGENTIC_STEP_LOG_PATH") or "_connector_tax" in cls.__dict__:
        return
    cls._connector_tax = True
    create = cls.__dict__["create_connector"].__func__

    @functools.wraps(create)
    def create_timed(owner, config, role, *args, **kwargs):
        connector = create(owner, config, role, *args, **kwargs)
        if getattr(role, "name", "") == "SCHEDULER":
            wrap_scheduler_side(connector)
        else:
            wrap_worker_side(connector)
        return connector

    cls.create_connector = classmethod(create_timed)


def wrap_scheduler_side(connector):
    state = scheduler_state
    build = connector.build_connector_meta

    @functools.wraps(build)
    def timed_build(*args, **kwargs):
        start_ns = now_ns()
        meta = build(*args, **kwargs)
        state.build_meta_ns += now_ns() - start_ns
        try:
            setattr(meta, STEP_ATTRIBUTE, state.step_id)
        except AttributeError:
            pass  # a class with slots; the reader then joins by order
        return meta

    connector.build_connector_meta = timed_build


class WorkerStep:
    """Hook times of the step that the worker is in."""

    def __init__(self):
        self.state = State()
        self.open = False
        self.depth = 0

    def begin(self, metadata):
        self.end()
        self.open = True
        self.step_id = getattr(metadata, STEP_ATTRIBUTE, None)
        self.t_ns = now_ns()
        self.load_ns = 0
        self.finished_ns = 0

    def end(self):
        if not self.open:
            return
        self.open = False
        recorder = self.state.recorder_of("worker", lambda: {"async_scheduling": None})
        recorder.rows.append((self.step_id, self.t_ns, self.load_ns, self.finished_ns))


def wrap_worker_side(connector):
    step = WorkerStep()
    bind, clear = connector.bind_connector_metadata, connector.clear_connector_metadata

    @functools.wraps(bind)
    def noted_bind(metadata, *args, **kwargs):
        step.begin(metadata)
        return bind(metadata, *args, **kwargs)

    @functools.wraps(clear)
    def noted_clear(*args, **kwargs):
        step.end()
        return clear(*args, **kwargs)

    connector.bind_connector_metadata = noted_bind
    connector.clear_connector_metadata = noted_clear
    connector.start_load_kv = timed(step, connector.start_load_kv, "load_ns")
    for name in ("get_finished", "get_transfer_results"):
        if hasattr(connector, name):
            setattr(connector, name, timed(step, getattr(connector, name), "finished_ns"))


def timed(step, hook, field):
    """``hook``, adding its time to ``field``; a hook called from inside another is not counted again."""

    @functools.wraps(hook)
    def call(*args, **kwargs):
        if step.depth or not step.open:
            return hook(*args, **kwargs)
        step.depth = 1
        start_ns = now_ns()
        try:
            return hook(*args, **kwargs)
        finally:
            setattr(step, field, getattr(step, field) + now_ns() - start_ns)
            step.depth = 0

    return call


def own_sha256():
    with open(__file__, "rb") as source:
        return hashlib.sha256(source.read()).hexdigest()


def engine_version():
    try:
        from vllm.version import __version__
    except ImportError:
        return None
    return __version__
