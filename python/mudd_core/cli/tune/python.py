"""mc.tune. python.pyi, which `./run docs` writes, has the types of its keywords."""

from __future__ import annotations

from pathlib import Path

from mudd_core.base.arguments.known import known_arguments
from mudd_core.cli.tune.tuned import Tuned, tuned
from mudd_core.config.keywords import completed
from mudd_core.config.replaced import Value
from mudd_core.run.opened.run import Run


@completed
@known_arguments("tune")
def tune(
    base: str | Path | Run,
    data: str | Path,
    workdir: str | Path,
    *,
    adapter: str | Path | None = None,
    loss: str = "tokens",
    progress: bool = True,
    **fields: Value,
) -> Tuned:
    """Fine-tune a model on conversations: `mc.tune("SmolLM2-135M", "chat.jsonl", "runs/mine", train_epochs=2)`.

    It chooses what the command `tune` chooses, prints these choices with reasons, and trains. The same call resumes a
    stopped run. base: a folder of Hugging Face or a run. data: a file of conversations: jsonl, Parquet or Arrow.
    workdir: the folder of the run. adapter: a folder of PEFT, whose adapters are trained further. loss: dpo or orpo for
    pairs of answers, records with prompt, chosen and rejected. progress: print the
    choices and show the progress, as Trainer.fit does. fields: fields of the config by section and name, such as
    lora_rank=8; they replace choices.
    Raise UserError for unusable data, fields, bases, and for a folder of another run; SaveError if a save failed.
    """
    return tuned(base, data, workdir, adapter, loss, progress, fields)
