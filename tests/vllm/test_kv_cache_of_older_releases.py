"""Before 0.29 vLLM has no function that places the KV cache; the virtual GPU lays it out as the release's attention backend says."""

import json
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.vllm
PLUGINS = Path(__file__).parents[2] / "launch" / "plugins"
ASK = """
import json, torch
from types import SimpleNamespace as Thing
from virtual_gpu.kv_cache import allocate_by_place

class Backend:  # FlashAttention of 0.27 with the layout HND, of heads of 8, and of 0.11
    blocks_first = True
    def get_kv_cache_shape(self, blocks, size, heads, head, cache_dtype_str):
        return (blocks, heads, size, 2 * head) if self.blocks_first else (2, blocks, size, heads, head)
    def get_kv_cache_stride_order(self):
        return (0, 2, 1, 3) if self.blocks_first else (0, 1, 2, 3, 4)

spec = Thing(page_size_bytes=1024, block_size=16, num_kv_heads=2, head_size=8, dtype=torch.bfloat16)
groups = [Thing(layer_names=["full"], kv_cache_spec=spec), Thing(layer_names=["window"], kv_cache_spec=spec)]
place = Thing(size=5 * 1024, shared_by=["full", "window"])
config, backend, told = Thing(kv_cache_groups=groups, kv_cache_tensors=[place]), Backend(), []
for backend.blocks_first in (True, False):
    caches = allocate_by_place(config, backend, "auto")
    told.append([list(caches["full"].shape), list(caches["full"].stride()), str(caches["full"].dtype)])
    told[-1].append(caches["full"].data_ptr() == caches["window"].data_ptr())
place.block_stride = 2048
try:
    allocate_by_place(config, backend, "auto")
except RuntimeError as error:
    told.append(str(error))
print(json.dumps(told))
"""


def test_the_cache_has_the_shape_and_the_layout_of_the_releases_backend(engine_python: str) -> None:
    done = subprocess.run(
        [engine_python, "-c", ASK], cwd=PLUGINS, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    blocks_first, keys_first, packed = json.loads(done.stdout.splitlines()[-1])
    assert blocks_first == [[5, 2, 16, 16], [512, 16, 32, 1], "torch.bfloat16", True]
    assert keys_first == [[2, 5, 16, 2, 8], [1280, 256, 16, 8, 1], "torch.bfloat16", True]
    assert "packed block by block" in packed
