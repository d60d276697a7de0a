"""The texts of `COMMAND --help`, one screen each, and the list of all config fields for --help=all."""

from __future__ import annotations

import shlex
import textwrap

from mudd_core.base.show.terminal import WIDTH, folded
from mudd_core.base.surroundings import typed_program
from mudd_core.cli.main_help import CODE, WRITING, example_lines, option_lines
from mudd_core.cli.names import OPTIONS, READING
from mudd_core.config import FAMILIES, Config
from mudd_core.config.describe import field_help, short_entry
from mudd_core.config.fields import walk
from mudd_core.programs.program import DEVICES, Program
from mudd_core.programs.row import Row

_ELSEWHERE = ("--mode", "--version", CODE)  # options that only the main help lists
_TEXT = {
    "train": """Trains the model of the config on its text. The same command resumes, with the same bits. Ctrl-C (or
SIGTERM, or a file STOP in the work directory) saves and exits with code 75.""",
    "validate": """Prints loss and bits per byte of a run's checkpoint on the held-out text. RUN is the folder of
the run or of a checkpoint; --workdir=RUN or --config=FILE also select a run. The saved config is used. Overrides
may set only fields that may change on resume.""",
    "sample": """Prints text that a run's checkpoint generates, token by token. RUN is the folder of the run or of a
checkpoint; --workdir=RUN or --config=FILE also select a run. Overrides may set only fields that may change on resume.
A sample ends with its document, before a --stop string, at sample.max_tokens, or at the model's longest sequence. Lines
of --- separate samples. With --interactive Ctrl-C ends an answer. Control characters are written as \\xNN.""",
    "chat": """Talks to a run's checkpoint or to the model in a Hugging Face folder. Each line is a message of the user;
the answer is printed token by token. The chat template is the run's or the folder's. /reset starts a new conversation,
/save FILE appends the conversation to a jsonl file that tune reads, and Ctrl-C ends an answer. In a pipe each line is a
message or a command, and each answer one line, with \\n for a line feed. Overrides may set only fields that may change
on resume.""",
    "data": """Builds the token cache of the config's text, if it is missing, and prints its hash, tokenizer and sizes.
With --workdir and without --config, it uses the text of that run.""",
    "report": """Prints a summary of a run: config, validation losses, the loss curve in characters, the last
entries of the metrics, checkpoints. RUN is its folder; --workdir=RUN or --config=FILE also select a run. --html
writes one page with curves, the time line and the config instead, which works without network. --spikes lists the steps
whose loss is far above the steps before, and the sequences of the worst one with the loss of each document. The run may
still be training.""",
}
_FIELDS = {
    "train": (
        "model.d_model",
        "model.n_layer",
        "data.path",
        "data.tokenizer",
        "train.steps",
        "train.batch_size",
        "train.seq_len",
        "train.precision",
        "train.save_every",
        "train.eval_every",
        "optim.lr",
    ),
    "validate": ("eval.max_batches", "eval.batch_size", "train.threads", "data.cache_dir"),
    "sample": (
        "sample.temperature",
        "sample.top_k",
        "sample.top_p",
        "sample.max_tokens",
        "sample.seed",
        "sample.window",
    ),
    "chat": (
        "sample.temperature",
        "sample.top_k",
        "sample.top_p",
        "sample.max_tokens",
        "sample.seed",
        "train.threads",
    ),
    "data": ("data.path", "data.tokenizer", "data.vocab_size", "data.cache_dir"),
    "report": (),
}
_EXAMPLES = {
    "train": (
        "--config=tiny.py",
        "--config=small.py --plan",
        "--config=small.py data.path=my_text train.steps=500 --workdir=runs/mine",
    ),
    "validate": ("validate --config=small.py", "validate runs/mine --step=500"),
    "sample": (
        WRITING,
        "sample runs/mine --temperature=0 --max-tokens=50",
        "sample runs/mine --prompt-lines=prompts.txt --num-samples=3 --stop=$'\\n\\n'",
        "sample runs/mine --interactive",
    ),
    "chat": (
        "chat SmolLM2-135M-Instruct",
        "chat SmolLM2-135M-Instruct --system='Be brief.' < questions.txt",
        "chat runs/mine --template=chatml",
    ),
    "data": ("data --config=small.py", "data --config=small.py data.path=my_text"),
    "report": (
        "report --config=small.py",
        "report runs/mine",
        "report runs/mine --html mine.html",
        "report runs/mine --spikes",
    ),
}
EXIT_CODES = {
    "sample": "0 written, 2 bad arguments, 65 damaged input, 74 output lost, 130 left by Ctrl-C",
    "chat": "0 ended, 2 bad arguments or a message without an answer in a pipe, 65 damaged input, 130 left by Ctrl-C, "
    "143 stopped by SIGTERM",
    "train": "0 finished, 2 bad arguments, 65 damaged, 74 save failed, 75 stopped, 76 diverged",
}


def command_help(command: str, config: Config | None) -> str:
    """Return the help of one command. config: the config whose field values are shown; None: the defaults."""
    called = shlex.join(typed_program())
    fields = {info.path: info for info in walk(config or Config())}
    shown = [short_entry(fields[path], WIDTH) for path in _FIELDS[command] if path in fields]
    taken = [name for name, (_, _, takers) in OPTIONS.items() if command in takers or not takers]
    common = [name for name in taken if name not in _ELSEWHERE]
    about = "RUN|FOLDER" if command == "chat" else "RUN" if command in READING else "--config=FILE"
    lines = [
        f"usage: {called} {command} {about} [options] [section.field=value ...]",
        "",
        folded(_TEXT[command]),
        "",
        "options:",
        *option_lines(common),
        "",
    ]
    if shown:
        lines += ["fields that are often set (all of them: --help=all):", *shown, ""]
    lines += ["examples:", *example_lines(_EXAMPLES[command])]
    lines += ["", folded(f"Exit codes: {EXIT_CODES[command]}.")] if command in EXIT_CODES else []
    return "\n".join(lines)


def original_help(program_asked: Program, command: str) -> str:
    """Return the help of an original program's command: its keys with their defaults, and the options of launch.py."""
    flags = program_asked.flags
    called = shlex.join(typed_program()) + (".train" if flags else f" {program_asked.config or command}")
    keys = "--flag value ..." if flags else "key=value ..."
    taken = [name for name, (_, _, takers) in OPTIONS.items() if "train" in takers or not takers]
    refused = () if program_asked.of_device else (DEVICES,)
    return "\n".join(
        [
            f"usage: {called} {keys} [section.field=value ...]",
            "",
            folded(_TEXT["train"]),
            "",
            f"its {'flags' if flags else 'keys'}, with their defaults:",
            *(_key_entry(row, flags) for row in program_asked.rows()),
            "",
            "options of this program:",
            *option_lines(name for name in taken if name not in ("--config", *_ELSEWHERE, *refused)),
            "",
            folded(f"Exit codes: {EXIT_CODES['train']}."),
        ]
    )


def _key_entry(row: Row, flags: bool) -> str:
    default = "" if row.default in (None, "") else str(row.default)
    head = f"  --{row.name.replace('_', '-')} {default}" if flags else f"  {row.name}={default}"
    fields = ", ".join(name.strip("()") for name in row.fields)
    text = "; ".join(filter(None, (fields, row.meaning)))
    return textwrap.fill(text, WIDTH, initial_indent=f"{head:<31} ", subsequent_indent=" " * 32)


def all_fields(config: Config | None) -> str:
    """Return all config fields: with the values of this config, or the defaults of each family."""
    what = "default" if config is None else "value in this config"
    head = folded(
        f"config fields with their {what}; set one by section.field=value, --config.section.field=value or "
        "--field value:"
    )
    if config is not None:
        return f"{head}\n{field_help(config)}"
    lines = [head, field_help(Config(), without="model.")]
    for family in FAMILIES.values():
        model = family.config()
        lines += [
            "",
            f"fields of model, family {model.family}:",
            field_help(Config(model=model), only="model."),
        ]
    return "\n".join(lines)
