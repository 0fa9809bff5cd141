"""The embedded engine: takes vLLM's command line and serves the cost model in real time.

CONNECTOR_TAX_ENGINE_MODEL names the cost model (YAML). AGENTIC_STEP_LOG_PATH turns step records on.
CONNECTOR_TAX_ENGINE_SEED fixes the step jitter, which otherwise differs between launches, as a real engine's
does. CONNECTOR_TAX_FAULT makes it fail, see ``faults.py``.
"""

import argparse
import asyncio
import json
import os
import secrets
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import uvloop

from connector_tax.base.errors import ConnectorTaxError
from connector_tax.base.units import token_count
from connector_tax.base.vllm_model.costs import connector_members, costs_together, load_cost_model
from connector_tax.base.vllm_model.model import EngineModel
from connector_tax.run.emulator.faults import Faults, parse_faults
from connector_tax.run.emulator.server import PrefixCache, RealTimeEngine, Server
from connector_tax.run.emulator.steplog import StepLog

# Used if the command line leaves it to the engine.
MAX_MODEL_LEN = 4096


def _length(text: str) -> int:
    return token_count(text) or MAX_MODEL_LEN


def main() -> None:
    parser = argparse.ArgumentParser(prog="connector_tax.run.emulator", description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--served-model-name")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--max-model-len", type=_length, default=MAX_MODEL_LEN)
    parser.add_argument("--max-num-batched-tokens", type=int, default=2048)
    parser.add_argument("--max-num-seqs", type=int)
    parser.add_argument("--kv-transfer-config", type=json.loads)
    parser.add_argument("--api-key", default=os.environ.get("VLLM_API_KEY") or None)
    args, ignored = parser.parse_known_args()
    folder = Path("/proc/self/fd/1").resolve().parent  # its log lies in the launch's folder
    faults = parse_faults(os.environ.get("CONNECTOR_TAX_FAULT", ""), folder)
    print(f"INFO [emulator] arguments: {vars(args)}; not used here: {ignored}", flush=True)
    if faults.die_at_start:
        raise RuntimeError("this engine was told to die at start")
    if faults.degraded:
        print(
            "WARNING [emulator] no supported connector found, running in degraded mode (recompute)",
            flush=True,
        )
    time.sleep(faults.slow_start)
    uvloop.run(serve(args, faults))


async def serve(args: argparse.Namespace, faults: Faults) -> None:
    """Serve until SIGTERM.

    Raises:
        OSError: the step log cannot be written.
    """
    loop = asyncio.get_running_loop()
    cost_model = Path(os.environ["CONNECTOR_TAX_ENGINE_MODEL"])
    costs, connectors = load_cost_model(cost_model)
    members = connector_members(connectors, args.kv_transfer_config, cost_model)
    model = EngineModel(
        costs,
        costs_together(members),
        max_num_batched_tokens=args.max_num_batched_tokens,
        max_num_seqs=args.max_num_seqs,
        seed=int(os.environ.get("CONNECTOR_TAX_ENGINE_SEED") or secrets.randbits(32)),
    )
    step_log = None
    if path := os.environ.get("AGENTIC_STEP_LOG_PATH"):
        step_log = StepLog(
            Path(path),
            costs,
            members,
            flush_s=float(os.environ.get("CONNECTOR_TAX_STEP_FLUSH_S", "0.5")),
        )
    server = Server(
        args.served_model_name or args.model,
        args.max_model_len,
        faults,
        PrefixCache(costs.block_size, costs.kv_blocks),
        members=members,
        api_key=args.api_key,
    )
    stop = asyncio.Event()
    log_errors: list[OSError] = []

    def end_without_log(error: OSError) -> None:
        log_errors.append(error)
        stop.set()

    server.engine = RealTimeEngine(loop, model, step_log, server.on_tokens, end_without_log)
    # As vLLM does: a second engine on the port is then no error.
    listener = await loop.create_server(server.exchange, args.host, args.port, reuse_port=True)
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    print(f"INFO [emulator] serving on http://{args.host}:{args.port}", flush=True)
    while not stop.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), 0.1)
        # Flush also the last steps' rows before the engine goes idle.
        if step_log is not None:
            step_log.flush_if_due()
    listener.close()
    if log_errors:
        raise log_errors[0]
    if step_log is not None:
        step_log.flush()


if __name__ == "__main__":
    try:
        main()
    except ConnectorTaxError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(2)
