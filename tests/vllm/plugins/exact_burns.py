"""The no-op connector with a cost that is known in virtual time.

    "kv_connector_extra_config": {"hook": "build_connector_meta", "us": 200, "how": "cpu"}

``cpu`` burns that much CPU time of the thread that calls the hook; ``jump`` moves virtual time on by it and burns nothing: the truth. ``sleep`` sleeps
so long.
"""

import time
from time import thread_time_ns
from typing import Any

import virtual_gpu.clock
from noop_connector import NoOpConnector

# Some 5 us.
LOOPS = 200


class ExactBurns(NoOpConnector):
    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any = None) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        told = vllm_config.kv_transfer_config.kv_connector_extra_config
        us, jumps, hook = told["us"], told["how"] == "jump", getattr(self, told["hook"])
        sleeps = told["how"] == "sleep"

        def burn() -> None:
            if jumps:
                virtual_gpu.clock.source.busy(us)
                return
            if sleeps:
                time.sleep(us / 1e6)
                return
            now_ns, piece_ns = thread_time_ns(), 0
            until_ns = now_ns + round(us * 1e3)
            # To the nearer end of a piece: to the next one would be half a piece too much in the mean.
            while until_ns - now_ns > piece_ns / 2:
                # A system call empties predictors, and hundreds make what comes after a burn dearer.
                for _ in range(LOOPS):
                    pass
                now_ns, begun_ns = thread_time_ns(), now_ns
                piece_ns = now_ns - begun_ns

        def call(*args: Any, **kwargs: Any) -> Any:
            burn()
            return hook(*args, **kwargs)

        setattr(self, told["hook"], call)
