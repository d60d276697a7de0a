"""What a run will cost before it starts: parameters, FLOPs, memory, time; and the table of parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mudd_core import memory
from mudd_core.assemble import book, resolved_model
from mudd_core.config import Config
from mudd_core.errors import FormatError
from mudd_core.flops import flops_per_token, matrix_weights
from mudd_core.metrics import read_rows
from mudd_core.progress import duration

MIB = memory.MIB
LOADED_LATER = 13 * MIB  # batches, logs, buffers of a save: what a running loop adds to the program, as seen
_KINDS = {
    "weights": "weights, fp32",
    "moments": "optimizer moments",
    "gradients": "gradients",
    "packed": "packed copies of the weights",
    "arena": "activations and scratch",
    "evaluation": "activations of validation",
}


def expected_vocabulary(config: Config) -> int:
    """The vocabulary as far as it is known without reading the corpus."""
    if config.model.vocab_size:
        return config.model.vocab_size
    if config.data.tokenizer == "bpe":
        return config.data.vocab_size
    if config.data.tokenizer == "bytes":
        return 257
    from mudd_core.data.tokenize import JsonTokenizer, read_tokenizer_json

    return JsonTokenizer(read_tokenizer_json(config.data.tokenizer), config.data.tokenizer).vocab_size


def _last_share(workdir: Path) -> tuple[float, str]:
    """Share of the measured peak of the last run in this work directory, else of the newest one beside it."""
    logs = [workdir / "metrics.jsonl"]
    beside = workdir.parent.glob("*/metrics.jsonl") if workdir.parent.is_dir() else ()
    logs += sorted(beside, key=lambda file: file.stat().st_mtime, reverse=True)
    for log in logs:
        try:
            found = [row.get("peak_share") for row in read_rows(log)]
        except (FormatError, OSError):  # a damaged log, perhaps a neighbour's, is no reason against a plan
            continue
        shares = sorted(share for share in found if isinstance(share, float) and share > 0)
        if shares:
            return shares[len(shares) // 2], f"the last run ({log.parent})"
    return 0.5, "nothing measured yet: half of the peak assumed"


def plan_text(config: Config, workdir: Path) -> str:
    """The text of --plan. Nothing is written, and next to no memory is used."""
    from mudd_core import _core

    train = config.train
    _core.set_num_threads(train.threads)
    program = memory.resident_bytes() + LOADED_LATER
    shape = resolved_model(config, expected_vocabulary(config))
    model, _, report = book(shape, config, only=True)
    peak = program + sum(report.values())
    flops = flops_per_token(shape, shape.vocab_size, train.seq_len)
    tokens = train.batch_size * train.seq_len
    rate = _core.peak_gflops(_core.num_threads()) * 1e9
    share, source = _last_share(workdir)
    seconds = flops * tokens / (rate * share)
    have, limit = memory.available_bytes()
    checkpoint = report["weights"] + report["moments"]
    lines = [
        f"plan of {config.name} ({shape.family}), vocabulary {shape.vocab_size:,}",
        f"  parameters    {model.n_parameters:,}, of them in products "
        f"{matrix_weights(shape, shape.vocab_size):,}",
        f"  FLOPs         {flops / 1e6:,.1f} MFLOP a token, {flops * tokens / 1e9:,.1f} GFLOP a step of "
        f"{tokens:,} tokens",
        f"  memory        {peak / MIB:,.0f} MiB at the peak; {have / MIB:,.0f} MiB left by {limit}",
        f"    {program / MIB:>10,.1f} MiB  program",
    ]
    lines += [f"    {report[kind] / MIB:>10,.1f} MiB  {text}" for kind, text in _KINDS.items()]
    lines += [
        f"  checkpoint    {checkpoint / MIB:,.1f} MiB each, {train.keep_last} kept",
        f"  time          about {seconds:.3g} s a step, {duration(seconds * train.steps)} in all:",
        f"                an estimate: FLOPs over {rate / 1e9:,.0f} GFLOP/s measured, {100 * share:.0f}%",
        f"                of peak, {source}; validation and saving come on top",
    ]
    return "\n".join(lines)


def parameter_table(config: Config) -> str:
    """Every parameter with shape, role, first values, learning rate and decay."""
    shape = resolved_model(config, expected_vocabulary(config))
    model, _, _ = book(shape, config, only=True)
    rows = [("parameter", "shape", "role", "init", "lr", "decay")]
    for name in model.store.names():
        rows.append(_table_row(name, model.store.describe(name), config))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows
    )


def _table_row(name: str, about: dict[str, Any], config: Config) -> tuple[str, str, str, str, str, str]:
    scale = f"({about['init_scale']:g})" if about["init"] in ("normal", "constant") else ""
    return (
        name,
        " x ".join(str(size) for size in about["shape"]),
        about["role"],
        about["init"] + scale,
        f"{config.optim.lr * about['lr_scale']:g}",
        f"{config.optim.weight_decay * about['decay_scale']:g}",
    )
