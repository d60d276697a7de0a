"""mc.export: a run's weights as a folder for another program."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from mudd_core.base.arguments.checks import path_text, require_flag, step_or_best
from mudd_core.base.arguments.known import known_arguments
from mudd_core.base.errors import UserError
from mudd_core.base.python_arguments import python_errors
from mudd_core.base.show.tables import html_table
from mudd_core.config.suggest import nearest
from mudd_core.interop import systems
from mudd_core.run.opened.run import Run, folder_named_by
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.tools.export_weights.command import export_run
from mudd_core.tools.export_weights.folder import OWN

Form = Literal["merged", "adapter", "gguf", "gguf_adapter"]
Type = Literal["f32", "f16", "bf16", "q8_0"]
_OPTIONS: dict[Form, list[str]] = {
    "merged": ["--merged"],
    "adapter": ["--adapter"],
    "gguf": ["--gguf"],
    "gguf_adapter": ["--gguf", "--adapter"],
}
_NAMES = {
    "[workdir] path:": "[export] run:",
    "[workdir]": "[export] run:",
    "--workdir": "run",
    "--to": "folder",
    "--merged": 'form="merged"',
    "--adapter": 'form="adapter"',
    "--gguf": 'form="gguf"',
    "--type": "type",
    "--force": "force=True",
}


@dataclass(frozen=True)
class Exported:
    """A folder that mc.export wrote. system: its program. step: of the checkpoint. text: the command's sentence.

    loading: the line of Python that loads the folder.
    """

    folder: Path
    system: str
    step: int
    text: str
    loading: str

    def __repr__(self) -> str:
        return f"Exported('{self.folder}': step {self.step:,}, for {self.system}; load it by {self.loading})"

    def _repr_html_(self) -> str:
        rows = [
            ("folder", str(self.folder)),
            ("for", self.system),
            ("step", f"{self.step:,}"),
            ("", self.text),
        ]
        return html_table(rows, title="Exported weights")


@known_arguments("export")
def export(
    run: str | Path | Run,
    folder: str | Path,
    form: Form | None = None,
    *,
    system: str | None = None,
    step: int | Literal["best"] | None = None,
    base: str | Path | None = None,
    tokenizer: str | Path | None = None,
    type: Type | None = None,
    shard_mb: int = 4096,
    force: bool = False,
    trust_code: bool = False,
) -> Exported:
    """Write a run's weights as a model folder of Hugging Face or an original program: `mc.export("runs/x", "x-hf")`.

    Every form except GGUF is loaded again: its logits equal the run's, or it is removed. folder: the folder to create.
    form: for a run of adapters, "merged" writes the whole model (the default), "adapter" only the adapters, in PEFT's
    format; "gguf" writes the whole model as GGUF for llama.cpp and Ollama, "gguf_adapter" the adapters, and `folder`
    may be FILE.gguf. type: of the matrices in GGUF; None is f16.
    system: "hf" for transformers, another program of mc.interop.systems(), or "own" for mc.load; None is hf, or the
    program of the family. step: the step of the checkpoint; None for the newest, "best" for the lowest validation loss.
    base: name of the base in an adapter's settings; None is the folder that was tuned. tokenizer: one to write instead
    of the run's. shard_mb: largest file in MiB; 0: a file for each tensor. force: replace the folder if an export
    wrote it. trust_code: as for mc.load_run.

    Raise UserError for a folder that exists, and for a form that the run or the program does not support. Raise
    RuntimeError if the logits differ.
    """
    programs = (*systems(), OWN)
    _require_one_of("form", form, get_args(Form), f'; type system="{form}"' if form in programs else "")
    _require_one_of("type", type, get_args(Type))
    for name, value in (("force", force), ("trust_code", trust_code)):
        require_flag("export", name, value)
    words = [f"--workdir={_path('run', run)}", f"--to={_path('folder', folder)}"]
    words += _OPTIONS[form] if form else []
    words += [f"--type={type}"] if type else []
    words += [] if system is None else [f"--system={_path('system', system)}"]
    words += [] if step is None else [f"--step={step_or_best('export', step)}"]
    words += [] if base is None else [f"--base={_path('base', base)}"]
    words += [] if tokenizer is None else [f"--tokenizer={_path('tokenizer', tokenizer)}"]
    words += [] if shard_mb == 4096 else [f"--shard-mb={shard_mb}"]
    words += ["--force"] if force else []
    words += ["--trust-code"] if trust_code else []
    with python_errors(_NAMES):
        outcome = export_run(words, Ranks())
    if outcome.differs:
        raise RuntimeError(outcome.text)
    return Exported(Path(folder), outcome.system, outcome.step, outcome.text, outcome.loading)


def _require_one_of(name: str, value: str | None, known: tuple[str, ...], hint: str = "") -> None:
    if value is not None and value not in known:
        hint = hint or (nearest(value, known) if isinstance(value, str) else "")
        raise UserError(f"[export] {name}: expected {', '.join(known)} or None, got {value!r}{hint}")


def _path(name: str, value: str | Path | Run) -> str:
    if isinstance(value, Run):
        return str(folder_named_by(value))
    return path_text("export", name, value)
