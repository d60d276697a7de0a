"""jax-lm-training: the flags of its two commands (docs/coming-from/jax_lm.md)."""

from __future__ import annotations

from mudd_core.config.keys.row import Row, mapped

PREPROCESS_GRAMMAR = "jax_lm_preprocess"


def _flag(name: str, default: str | int, text: str) -> Row:
    return mapped(PREPROCESS_GRAMMAR, name, default, text=text)


# The options of tools/preprocess: they make files of rows, so they decide no field of a config.
PREPROCESS: tuple[Row, ...] = (
    _flag("tokenizer_model", "gpt2", "tokenizer: a folder, a tokenizer.json or a name of the hub"),
    _flag(
        "min_sequence_length", 128, "shortest window that is kept, in tokens, the reserved ones counted in"
    ),
    _flag("max_sequence_length", 256, "length of every row, in tokens"),
    _flag("num_special_token_reserved", 2, "tokens of a row that are kept free for BOS and EOS"),
    _flag("ignore_label", -100, "label of a slot whose target is padding"),
    _flag("stride", 128, "tokens between the starts of two windows of a document"),
    _flag("dataset_name", "wikitext", "documents: a file, a folder or a data set of the hub"),
    _flag("dataset_sub_name", "wikitext-103-v1", "configuration of that data set"),
    _flag("dataset_split_type", "test", "split of that data set"),
    _flag("output_path", "data/wikitext", "beginning of the names of the Parquet files"),
    _flag("direct_running_mode", "in_memory", "in_memory, multi_threading or multi_processing"),
    _flag("direct_num_workers", 1, "processes that make rows; 0 = one for each core"),
)
