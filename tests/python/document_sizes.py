"""Commands from the documents at sizes that train within a second, with data for them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet

from mudd_core.base.framing import framed
from mudd_core.data.formats.example import encoded

_TINY = """
    vocab_size=257 base_emb_dim=16 base_num_query_heads=2 base_num_kv_heads=2 head_dim=8 base_num_decoder_layers=1
    max_target_length=33 steps=4 eval_interval=4 checkpoint_period=2
"""
OF_TOKENFORMER = f"""
    {_TINY} grain_train_files=train* grain_eval_files=validation* grain_worker_count=2
    tokenizer_path=bytes per_device_batch_size=4 eval_per_device_batch_size=4
"""
OF_MUDDFORMER = f"""
    {_TINY} dataset_path=records base_mlp_dim=128 per_device_batch_size=2 eval_per_device_batch_size=2
    eval_loop_num_batches=1 learning_rate_schedule_steps=-1
"""
STREAMS = "dynamic_mlp_dim=False dynamic_dense_hidden_expand=[4]"  # for classes with MUDD's connections
OF_MU_TRANSFORMER = """
    d_model=16 d_base=16 d_head=8 qk_scale=0.125 n_layer=1 sequence_len=32 tokens_per_global_batch=128
    n_pretrain_step=4 n_warmup_step=1 n_print_step=2 n_save_step=2 n_eval_step=1 sampling_max_len=40
"""
MIXTRAL = {
    "model_type": "mixtral",
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "vocab_size": 257,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_local_experts": 2,
    "num_experts_per_tok": 1,
    "max_position_embeddings": 64,
    "router_aux_loss_coef": 0.02,
}
GPT2 = {"model_type": "gpt2", "n_layer": 1, "n_embd": 8, "n_head": 2, "n_positions": 64, "vocab_size": 257}


def with_keys(words: tuple[str, ...], text: str) -> list[str]:
    """Return the arguments with some keys replaced; every key may occur only once."""
    keys = dict(word.split("=", 1) for word in text.split())
    kept = [word for word in words if word.partition("=")[0] not in keys]
    return [*kept, *(f"{name}={value}" for name, value in keys.items())]


def texts(count: int, seed: int = 5) -> list[str]:
    """Return reproducible documents of a few letters."""
    rng = random.Random(seed)
    return ["".join(rng.choices("abc ", k=rng.randint(5, 40))) for _ in range(count)]


def write_lines(file: Path, documents: list[str]) -> Path:
    """Write a jsonl file of documents."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents), encoding="utf-8")
    return file


def write_records(folder: Path) -> None:
    """Write files in the Pile's format, with records of ids."""
    rng = np.random.default_rng(3)
    folder.mkdir()
    for name, count in (("pile.tfrecord.b0", 9), ("pile.tfrecord.b1", 9), ("pile.tfrecord.valid", 4)):
        rows = [rng.integers(1, 257, 33, np.int64) for _ in range(count)]
        (folder / name).write_bytes(b"".join(framed(encoded({"input_ids": row})) for row in rows))


def write_rows(folder: Path, length: int) -> None:
    """Write rows.train* and rows.test*, Parquet files of ids as in jax-lm-training, and model/ with a GPT-2."""
    rng = random.Random(3)
    for split, count in (("train", 12), ("test", 4)):
        ids = [[rng.randrange(1, 40) for _ in range(length)] for _ in range(count)]
        columns = {"input_ids": ids, "attention_mask": [[1.0] * length] * count, "labels": ids}
        pyarrow.parquet.write_table(pyarrow.table(columns), folder / f"rows.{split}-00000-of-00001")
    (folder / "model").mkdir()
    shape = {
        "model_type": "gpt2",
        "n_layer": 1,
        "n_embd": 16,
        "n_head": 2,
        "n_positions": 32,
        "vocab_size": 257,
    }
    (folder / "model/config.json").write_text(json.dumps(shape))
