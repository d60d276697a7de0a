"""Arguments of a MUDDFormer run that trains within a second on generated documents."""

from __future__ import annotations

from pathlib import Path


def tiny_words(folder: Path) -> list[str]:
    """Return the arguments after muddformer/tiny.py; documents and cache are in `folder`."""
    text = folder / "text"
    text.mkdir()
    for i in range(60):
        (text / f"{i}.txt").write_text(f"document {i} " * 12)
    return [
        "model.n_layer=2",
        "model.d_model=16",
        "model.n_head=2",
        "model.ffn_realloc=false",
        "model.d_ff=24",
        "train.batch_size=2",
        "train.seq_len=16",
        "data.tokenizer=bytes",
        f"data.path={text}",
        f"data.cache_dir={folder / 'cache'}",
        "train.eval_every=0",
    ]
