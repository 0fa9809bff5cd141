"""Make a model's folder without weights from its shape; run it with the engine's interpreter.

    $ENGINE_PYTHON scripts/make_model_folder.py config/models/Qwen3-Coder-30B-A3B-Instruct.json DIRECTORY

The shape is a model's own ``config.json``. The tokenizer has one word per entry of the vocabulary, each one
token (``t17``), so that each streamed event has text.
"""

import argparse
import json
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("shape", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    shape = args.shape.read_text()
    written = args.folder / "config.json"
    if written.is_file() and written.read_text() == shape:
        return
    args.folder.mkdir(parents=True, exist_ok=True)
    words = {f"t{i}": i for i in range(json.loads(shape)["vocab_size"])}
    tokenizer = Tokenizer(WordLevel(words, unk_token="t0"))
    tokenizer.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="t0", eos_token="t1").save_pretrained(
        args.folder
    )
    # Written last: its presence means that the folder is complete.
    written.write_text(shape)


if __name__ == "__main__":
    main()
