"""Make the tiny random-weight model of the real-vLLM demo; run it with the engine's interpreter.

    $ENGINE_PYTHON scripts/make_tiny_model.py DIRECTORY

Two layers of Qwen3 and a tokenizer whose every token is a word of its own (``t17``), so that each
streamed event has text. There are no weights: vLLM fills them in with ``--load-format dummy``.
"""

import json
import sys
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast, Qwen3Config

VOCABULARY = 512


def main(folder: Path) -> None:
    if (folder / "config.json").is_file():
        return
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(WordLevel({f"t{i}": i for i in range(VOCABULARY)}, unk_token="t0"))
    tokenizer.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="t0", eos_token="t1").save_pretrained(
        folder
    )
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=65536,
        eos_token_id=1,
        bos_token_id=None,
        tie_word_embeddings=True,
    )
    config.architectures = ["Qwen3ForCausalLM"]
    # Written last: its presence says that the folder is whole.
    (folder / "config.json").write_text(json.dumps({**config.to_dict(), "dtype": "float32"}, indent=2))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
