"""Step records from inside vLLM: the cost of each scheduler step and each connector hook.

Runs inside the engine's processes, loaded by ``scheduler_step_timing.py``; standard library only. Does
nothing unless AGENTIC_STEP_LOG_PATH is set when vLLM imports its scheduler. If it is ``x.jsonl``, the
scheduler process writes ``x.scheduler.<pid>.jsonl`` and each worker process ``x.worker.<pid>.jsonl``:
headers, and lists of raw rows. ``base/steptime/share.py`` later turns them into the rows of
``docs/formats.md``, since formatting in here would hold the GIL.

On the scheduler's thread a record is one tuple appended to a deque; a daemon thread writes. A write error
ends the recording, never the engine. All clocks are CLOCK_MONOTONIC.

While a file ``x.jsonl.off`` exists, nothing is wrapped: the same server then shows the instrument's cost.
"""

import atexit
import contextlib
import functools
import hashlib
import json
import os
import random
import sys
import threading
import time
from collections import deque

SCHEMA = 2
CPU_EVERY = 16  # steps on average; reading CPU time takes a system call
# Writing a list holds the GIL; short lists keep the engine's longest pause near 0.1 ms.
BATCH_ROWS = 50
STEP_ATTRIBUTE = "_connector_tax_step_id"
SCHEDULER_HOOKS = """
on_new_request get_num_new_matched_tokens update_state_after_alloc build_connector_meta
update_connector_output request_finished request_finished_all_groups take_events get_kv_connector_stats
get_loaded_kv_cache_group_ids get_external_cache_hit_sources register_finished_partial_tail
has_pending_block_frees has_pending_push_work reset_cache
""".split()
WORKER_HOOKS = """
handle_preemptions bind_connector_metadata start_load_kv wait_for_layer_load save_kv_layer finish_forward
wait_for_save get_transfer_results get_finished get_block_ids_with_load_errors get_kv_connector_stats
get_kv_connector_kv_cache_events build_connector_worker_meta clear_connector_metadata
""".split()
SETTINGS = """
model_config.dtype model_config.max_model_len model_config.enforce_eager model_config.seed
cache_config.block_size cache_config.num_gpu_blocks cache_config.cache_dtype
cache_config.enable_prefix_caching cache_config.gpu_memory_utilization scheduler_config.max_num_batched_tokens
scheduler_config.max_num_seqs scheduler_config.enable_chunked_prefill scheduler_config.async_scheduling
scheduler_config.policy scheduler_config.disable_hybrid_kv_cache_manager compilation_config.mode
compilation_config.backend compilation_config.cudagraph_mode parallel_config.tensor_parallel_size
parallel_config.pipeline_parallel_size parallel_config.data_parallel_size
parallel_config.distributed_executor_backend
""".split()

now_ns = time.monotonic_ns
cpu_ns = time.thread_time_ns
draw = random.Random(16).random  # not vLLM's, whose samples it would shift


class Meter:
    """Self time and calls of one process's wrapped hooks since the last ``take``.

    ``values[0]`` is the time in hooks so far. Its growth during a hook is the time of hooks called from it (a
    MultiConnector's children), and counts for those only. Nanoseconds and calls per hook follow, in the order
    of ``names``. ``cpu`` holds whether CPU time is measured now, then the total CPU time in hooks, then each
    hook's own.
    """

    def __init__(self):
        self.names, self.wrapped = [], []
        self.values, self.zeros, self.cpu = [0], [0], [False, 0]

    def wrap(self, connector, hooks, prefix=""):
        """Wrap the connector's methods among ``hooks``, then its children's, under ``0:Class/`` and so on."""
        for hook in hooks:
            method = getattr(connector, hook, None)
            if method is not None:
                slot = len(self.values)
                self.names.append(prefix + hook)
                self.values += [0, 0]
                self.zeros += [0, 0]
                self.cpu.append(0)
                put(self.wrapped, connector, hook, timed(method, self.values, slot, self.cpu))
        for index, child in enumerate(getattr(connector, "_connectors", None) or ()):
            self.wrap(child, hooks, "%s%d:%s/" % (prefix, index, type(child).__name__))

    def take(self):
        taken = tuple(self.values)
        self.values[:] = self.zeros
        return taken

    def take_cpu(self):
        """Return each hook's CPU nanoseconds since the last ``take``; None if not measured throughout."""
        if self.cpu[0]:
            taken = tuple(self.cpu[2:])
            self.cpu[:] = [False] + [0] * (len(self.cpu) - 1)
            return taken
        return None

    def measure_cpu(self):
        """Measure CPU time until ``take_cpu``.

        Does nothing if hooks have already run since the last ``take``, since their CPU time is unknown.
        """
        self.cpu[0] = self.cpu[0] or bool(self.names) and not self.values[0]


def cost_of_asking_ns():
    """Return the CPU time that asking adds: two readings with only two clock readings between."""
    costs = []
    for _ in range(99):
        start_ns = cpu_ns()
        now_ns(), now_ns()
        costs.append(cpu_ns() - start_ns)
    return min(costs)


def timed(hook, values, slot, cpu):
    # Closure variables are faster than globals.
    calls, own, clock, asking_ns = slot + 1, slot // 2 + 2, now_ns, cost_of_asking_ns()

    @functools.wraps(hook)
    def call(*args, **kwargs):
        before_ns, cpu_before_ns = values[0], cpu[1]
        cpu_start_ns = cpu_ns() if cpu[0] else None
        start_ns = clock()
        try:
            return hook(*args, **kwargs)
        finally:
            spent_ns = clock() - start_ns
            values[slot] += spent_ns - (values[0] - before_ns)
            values[calls] += 1
            values[0] = before_ns + spent_ns
            if cpu_start_ns is not None:
                cpu_spent_ns = max(0, cpu_ns() - cpu_start_ns - asking_ns)
                cpu[own] += cpu_spent_ns - (cpu[1] - cpu_before_ns)
                cpu[1] = cpu_before_ns + cpu_spent_ns

    return call


def put(wrapped, owner, name, replacement):
    """Set an attribute, and record how to undo it: an instance's attribute only hides its class's."""
    wrapped.append((owner, name, owner.__dict__.get(name), replacement))
    setattr(owner, name, replacement)


def switch(wrapped, on):
    """Install all wrappers, or remove them in reverse order."""
    for owner, name, before, replacement in wrapped if on else reversed(wrapped):
        if on:
            setattr(owner, name, replacement)
        elif before is not None:
            setattr(owner, name, before)
        elif name in owner.__dict__:
            delattr(owner, name)


class Recorder:
    """Writes the rows of one process to one file."""

    def __init__(self, process, meter, facts):
        base = os.environ["AGENTIC_STEP_LOG_PATH"]
        stem = base[: -len(".jsonl")] if base.endswith(".jsonl") else base
        self.process, self.meter, self.facts, self.pid = process, meter, facts, os.getpid()
        self.path = "%s.%s.%d.jsonl" % (stem, process, self.pid)
        self.off_path = base + ".off"
        self.on, self.rows, self.lock, self.n_names = True, deque(), threading.Lock(), -1
        try:
            self.file = open(self.path, "a", encoding="utf-8")
            self._write_header()
        except OSError as error:
            self._give_up(error)
            return
        self.interval_s = float(os.environ.get("CONNECTOR_TAX_STEP_FLUSH_S", "0.5"))
        atexit.register(self.flush)
        threading.Thread(target=self._run, name="connector-tax-steps", daemon=True).start()

    def _write_header(self):
        self.n_names = len(self.meter.names)
        line = {"kind": "header", "schema": SCHEMA, "process": self.process, "pid": self.pid}
        version = getattr(sys.modules.get("vllm.version"), "__version__", None)
        line |= {"monotonic_ns": now_ns(), "utc_ns": time.time_ns(), "engine_version": version}
        line |= {"patch_sha256": own_sha256(), "source": "patch", "hooks": self.meter.names, **self.facts()}
        self.file.write(json.dumps(line, separators=(",", ":")) + "\n")
        self.file.flush()

    def _give_up(self, error):
        """Stop recording: an engine must not end because its step log cannot be written."""
        self.rows = deque(maxlen=0)
        print("connector-tax: no step records: %s: %s" % (self.path, error.strerror), file=sys.stderr)

    def _run(self):
        while self.rows.maxlen is None:
            time.sleep(self.interval_s)
            self.flush()
            wanted = not os.path.exists(self.off_path)
            if wanted != self.on:
                self.on = wanted
                switch(self.meter.wrapped, wanted)

    def flush(self):
        with self.lock:
            while self.rows:
                try:
                    if self.n_names != len(self.meter.names):
                        self._write_header()
                    rows = [self.rows.popleft() for _ in range(min(len(self.rows), BATCH_ROWS))]
                    self.file.write(json.dumps(rows, separators=(",", ":")) + "\n")
                    self.file.flush()
                except OSError as error:
                    self._give_up(error)
                    return
                time.sleep(0)


sides = []  # of this process


class Side:
    """Shared state of the wrappers of one side of a process. vLLM has one scheduler per process."""

    def __init__(self, process):
        self.process, self.meter, self.recorder = process, Meter(), None
        sides.append(self)

    def rows(self, facts):
        """Return the recorder's rows; created on first use, since the importer may not run the scheduler."""
        if self.recorder is None:
            self.recorder = Recorder(self.process, self.meter, facts)
        return self.recorder.rows


class Steps:
    """State of the scheduler's steps.

    ``cpu_step`` is the next step with CPU time, ``cpu_open`` the number of those whose update is pending.
    """

    step_id, last_entry_ns, last_exit_ns, cpu_step, cpu_open = 0, None, 0, 1, 0


def next_cpu_step(step_id):
    """Draw the next step at random: fixed intervals would always or never hit a connector's periodic work."""
    return step_id + 1 + int(draw() * (2 * CPU_EVERY - 1))


scheduler_side = Side("scheduler")


def install_scheduler(cls):
    """Wrap ``schedule`` and ``update_from_output`` of vLLM's Scheduler class, once."""
    if not os.environ.get("AGENTIC_STEP_LOG_PATH") or "_connector_tax" in cls.__dict__:
        return
    cls._connector_tax = True
    steps, meter, pending = Steps, scheduler_side.meter, {}
    schedule, update = cls.schedule, cls.update_from_output

    def arm():
        """Measure CPU time right after a ``take``: some hooks run before their step (``on_new_request``)."""
        if steps.cpu_open or steps.step_id + 1 >= steps.cpu_step:
            meter.measure_cpu()

    @functools.wraps(schedule)
    def timed_schedule(self, *args, **kwargs):
        step_id = steps.step_id = steps.step_id + 1
        wants_cpu = step_id >= steps.cpu_step
        if wants_cpu:
            steps.cpu_step = next_cpu_step(step_id)
            meter.measure_cpu()
        entry_ns = now_ns()
        output = schedule(self, *args, **kwargs)
        schedule_ns = now_ns() - entry_ns
        per_request = output.num_scheduled_tokens
        total = output.total_num_scheduled_tokens
        simple = total == len(per_request) and not output.scheduled_new_reqs
        prefill = 0 if simple else prefill_tokens(self.requests, per_request)
        last_ns, steps.last_entry_ns = steps.last_entry_ns, entry_ns
        if len(pending) > 64:  # outputs that never came back, as after an aborted step
            pending.clear()
            steps.cpu_open = 0
        opened = (
            *(step_id, entry_ns, schedule_ns, None if last_ns is None else entry_ns - last_ns),
            meter.take() if meter.names else (),
            *self.get_request_counts(),
            *(prefill, total - prefill),
        )
        taken_cpu = meter.take_cpu()
        pending[id(output)] = opened, (cpu := taken_cpu if wants_cpu else None)
        steps.cpu_open += cpu is not None
        arm()
        return output

    @functools.wraps(update)
    def timed_update(self, scheduler_output, *args, **kwargs):
        opened, earlier_cpu = pending.pop(id(scheduler_output), (None, None))
        steps.cpu_open -= earlier_cpu is not None
        entry_ns = now_ns()
        result = update(self, scheduler_output, *args, **kwargs)
        exit_ns = now_ns()
        if opened is not None:
            # From the later of this step's start and the previous step's end, so that overlapping steps do
            # not count time twice.
            began_ns = max(opened[1], steps.last_exit_ns)
            hooks = meter.take() if meter.names else ()
            cpu = sum_of(earlier_cpu, meter.take_cpu())
            row = (opened, entry_ns, exit_ns - entry_ns, exit_ns - began_ns, hooks, cpu)
            scheduler_side.rows(lambda: settings_of(self)).append(row)
            arm()
        steps.last_exit_ns = exit_ns
        return result

    put(scheduler_side.meter.wrapped, cls, "schedule", timed_schedule)
    put(scheduler_side.meter.wrapped, cls, "update_from_output", timed_update)


def sum_of(earlier, later):
    """Add per hook; None if either is unknown. A connector may have been created between the two."""
    known = earlier is not None and later is not None
    return [ns + (earlier[k] if k < len(earlier) else 0) for k, ns in enumerate(later)] if known else None


def prefill_tokens(requests, per_request):
    """Return one step's prompt tokens; schedule() has already advanced num_computed_tokens."""
    prefill = 0
    for request_id, tokens in per_request.items():
        request = requests.get(request_id)
        if request is not None and request.num_computed_tokens - tokens < request.num_prompt_tokens:
            prefill += tokens
    return prefill


def install_factory(cls):
    """Wrap the hooks of every connector that vLLM's KVConnectorFactory creates, and of its children.

    Instances are wrapped, not replaced: vLLM checks their class.
    """
    if not os.environ.get("AGENTIC_STEP_LOG_PATH") or "_connector_tax" in cls.__dict__:
        return
    cls._connector_tax = True
    create = cls.__dict__["create_connector"].__func__

    @functools.wraps(create)
    def create_timed(owner, config, role, *args, **kwargs):
        connector = create(owner, config, role, *args, **kwargs)
        (wrap_scheduler_side if getattr(role, "name", "") == "SCHEDULER" else wrap_worker_side)(connector)
        return connector

    cls.create_connector = classmethod(create_timed)


def wrap_scheduler_side(connector):
    scheduler_side.meter.wrap(connector, SCHEDULER_HOOKS)
    build = connector.build_connector_meta

    def named_build(*args, **kwargs):
        meta = build(*args, **kwargs)
        # vLLM's base class has no slots, so this works even if the connector's class is frozen or has slots.
        with contextlib.suppress(AttributeError, TypeError):
            object.__setattr__(meta, STEP_ATTRIBUTE, Steps.step_id)
        return meta

    put(
        scheduler_side.meter.wrapped, connector, "build_connector_meta", named_build
    )  # not timed: naming the step is not the connector's work


def wrap_worker_side(connector):
    """Wrap a worker's connector; its step lasts from binding the metadata to clearing it."""
    side = Side("worker")
    meter = side.meter
    meter.wrap(connector, WORKER_HOOKS)
    bind, clear = connector.bind_connector_metadata, connector.clear_connector_metadata
    step = {}
    ends = {"n": 0, "cpu": 0}  # from end to end, since some hooks are called before metadata are bound

    def end():
        if step:
            row = (step.pop("id"), step["t_ns"], now_ns() - step.pop("t_ns"), meter.take(), meter.take_cpu())
            side.rows(lambda: {"async_scheduling": None}).append(row)
            if ends["n"] >= ends["cpu"]:
                meter.measure_cpu()
                ends["cpu"] = next_cpu_step(ends["n"])
            ends["n"] += 1

    def noted_bind(metadata, *args, **kwargs):
        end()
        step["t_ns"] = now_ns()
        step["id"] = getattr(metadata, STEP_ATTRIBUTE, None)
        return bind(metadata, *args, **kwargs)

    def noted_clear(*args, **kwargs):
        result = clear(*args, **kwargs)
        end()
        return result

    put(meter.wrapped, connector, "bind_connector_metadata", noted_bind)
    put(meter.wrapped, connector, "clear_connector_metadata", noted_clear)


def settings_of(scheduler):
    """Return the engine's resolved settings; a name that this release lacks is null."""
    config = getattr(scheduler, "vllm_config", None)

    def ask(path):
        value = config
        for name in path.split("."):
            value = getattr(value, name, None)
        return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)

    settings = {path: ask(path) for path in SETTINGS}
    return {"async_scheduling": settings["scheduler_config.async_scheduling"], "settings": settings}


def own_sha256():
    with open(__file__, "rb") as source:
        return hashlib.sha256(source.read()).hexdigest()
