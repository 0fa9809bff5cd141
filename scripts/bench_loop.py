"""Load any OpenAI-compatible server: one cell per rate, or per shape. The same as ``connector-tax load``.

bench_loop.py --base-url http://127.0.0.1:8000 --model m --rates 0.5,1,2 --shape 4096,256 --out out/
"""

import sys

from connector_tax.cli import main

if __name__ == "__main__":
    main(["load", *sys.argv[1:]])
