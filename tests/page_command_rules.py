"""Rules that decide how each command of the pages is tested (page_commands.py); `answer` applies them.

A command is executed as typed unless it is in SMALLER, names a command within a sentence, or is in ELSEWHERE. A new
command of a page is therefore executed. A command that takes long, or needs something a test lacks, gets a rule here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from page_commands import NAMES, Typed

RUN = "run"
NAMED = "names"
# Why a command is not executed, and what checks it instead. The list is closed: a new reason is a decision.
REASONS = {
    "clone": "clones this repository: the folder of the test is the clone",
    "installs": "installs or compiles for minutes; .ci/run and check_wheel.py type it, test_run_script.py reads it",
    "checks": "checks or writes parts of this repository; CI and its tests do so",
    "measures": "measures for minutes to hours",
    "hosts": "needs several hosts, Slurm or Kubernetes: test_deploy.py, test_slurm.py, soak_slurm.py",
    "bucket": "needs a bucket, the hub or a teacher: test_document_*, test_t*, test_folder_to_gguf have one",
    "debugger": "needs a process that hangs, and a debugger",
    "original": "of another program's document: executed with files of its kind by test_document_*.py",
    "theirs": "of another program; the page says what takes its place",
}
# Commands that a program's document quotes; mudd_core's own among them are executed as `original`.
_OURS = re.compile(r"\./launch\.py |launch\.py |python -m mudd_core\.\w+ ")
_FORM = re.compile(
    r"\.\.\. |<\w|\[\w+[ \].]|=(DIR|FILE|FIELD|PATH|NAME|FOLDER|FILES|VALUE|[A-Z])\b|\b(NAME|FILE|OUT)\b"
)
_SAME = " ... "  # in a block: the arguments of the previous command
_MENTION = re.compile(rf"(launch\.py|{'|'.join(NAMES)}) |python launch\.py \w+$|python -m mudd_core")


@dataclass(frozen=True)
class Rule:
    """Commands that match a pattern at their start, with arguments to add or replace (`A->B`), or a reason."""

    pattern: str
    does: str


# A run that trains longer than seconds has fewer steps; its parser, config and data are those of the command.
STEPS = "train.steps=2 eval.max_batches=1"
_MAXTEXT = (
    "base_emb_dim=16 base_num_query_heads=2 base_num_kv_heads=2 head_dim=8 base_num_decoder_layers=1 "
    "max_target_length=33 vocab_size=300 eval_per_device_batch_size=2"
)
_STREAMS = "dynamic_dense_hidden_expand=[4] learning_rate_schedule_steps=-1"
_MU = "d_model=16 d_base=16 d_head=8 qk_scale=0.125 n_layer=1 sequence_len=32 tokens_per_global_batch=128 train.steps=2"
SMALLER = (
    Rule(r"./run train", STEPS),
    Rule(
        r".*launch\.py bakeoff (--ranks=4|--equal=flops --seeds=5)",
        "--families=transformer_pp,mixtral --seeds=1 --tokens=2048 eval.max_batches=1",
    ),
    Rule(r".*launch\.py sweep", STEPS),
    Rule(
        r".*launch\.py race",
        "--recipes=tiny.py,gpt2/tiny.py --minutes=0.0001 --seeds=1 --timed-steps=3 eval.max_batches=1",
    ),
    Rule(r".*launch\.py bakeoff", "--seeds=1 --tokens=2048 eval.max_batches=1"),
    Rule(r".*launch\.py profile", "--steps=1 --warmup=1"),
    Rule(r".*launch\.py commbench", "--largest=1048576 --repeats=3"),
    Rule(r".*launch\.py evaluate", "--limit=2"),
    Rule(r".*launch\.py validate runs/mine --step=500", "--step=2 eval.max_batches=1"),
    Rule(r".*launch\.py validate", "eval.max_batches=1"),
    Rule(r".*launch\.py .*--mode=validation", f"{STEPS}"),
    Rule(r".*launch\.py .*--mode=sample", STEPS),
    Rule(
        r".*launch\.py MaxText/configs/base_v2",
        f"{_MAXTEXT} steps=2 train.batch_size=8 base_mlp_dim=128 dynamic_mlp_dim=False {_STREAMS}",
    ),
    Rule(
        r".*launch\.py MaxText/configs/tokenformer",
        f"steps=600000->steps=2 per_device_batch_size=32->per_device_batch_size=8 {_MAXTEXT}",
    ),
    Rule(r"python launch\.py --config=mu_transformer/configs/small", f"{_MU} data.tokenizer=bytes"),
    Rule(
        r"python -m mudd_core\.train --train-dataset",
        "model.d_model=16 model.n_layer=1 model.n_head=2 train.steps=2",
    ),
    Rule(r"\./launch\.py base_v2\.yml|sizes=", "steps=50->steps=2"),
    Rule(r"mkdir -p text small && cat docs/", "docs/*.md->docs/python.md"),
    Rule(r".*launch\.py grow --config=tokenformer/354m", "model.d_model=16 model.n_layer=1 model.n_head=2"),
    Rule(r"(python3? |\./)launch\.py --config=(?!.*--(plan|params|mode=(sample|validation)))", STEPS),
    Rule(r"mpirun -n 4 python launch\.py --config", STEPS),
)
ELSEWHERE = (
    Rule(r"git clone ADDRESS|git clone <this repository>", "clone"),
    Rule(r"\./run (setup|wheel|test)|pip install (\.|dist/|mlperf-logging)|ninja -C build/run", "installs"),
    Rule(
        r"\./run (lint|stubs|docs|site|fuzz|sanitize)|build/fuzz/|\.venv/bin/clang-format|(\.venv/bin/)?python tests/",
        "checks",
    ),
    Rule(
        r"\./run soak|python launch\.py --config=small\.py train\.seq_len=32768|python bench/|"
        r"mpirun .*build/run/bench/|python3 -m venv jax_env|export MUDD_BENCH",
        "measures",
    ),
    Rule(r".*--hosts?[ =]|sbatch |srun |kubectl |docker/build_image\.sh|mpirun --hostfile", "hosts"),
    Rule(
        r"python launch\.py clm model\.config_path=mixtral|python -m mlperf_logging|"
        r"python3 launch\.py (tune |teach |export |evaluate FOLDER |chat (SmolLM2|runs/mine( --temperature=0)?$)|"
        r"--config=small\.py data\.path=corpus loss\.teacher)",
        "bucket",
    ),
    Rule(r"py-spy |gdb ", "debugger"),
    Rule(
        r"helm |black |ssh-keygen |python (train|sample)\.py |"
        r"docker/tpu|pip install -r requirements|tensorboard |python run_clm|huggingface-cli|hf download|ollama ",
        "theirs",
    ),
)


def answer(typed: Typed) -> str:
    """Return what a test does with the command: run, run with added arguments, names, or the reason for neither."""
    for rule in ELSEWHERE:
        if re.match(rule.pattern, typed.text):
            return rule.does
    if typed.form == "original":
        return "original" if _OURS.match(typed.text) else "theirs"
    if typed.form == "block" and _SAME in typed.text:
        return RUN
    if _FORM.search(typed.text) or (typed.form == "span" and _MENTION.match(typed.text)):
        return NAMED
    return next((f"{RUN} + {rule.does}" for rule in SMALLER if re.match(rule.pattern, typed.text)), RUN)


def typed_line(typed: Typed, before: str) -> str:
    """Return the line to type: the command with the changes of its rule (`A->B`). before: the previous line."""
    line = _filled(typed.text, before)
    for word in answer(typed).partition(" + ")[2].split():
        old, replaces, new = word.partition("->")
        assert not replaces or old in line, (old, line)
        line = line.replace(old, new) if replaces else f"{line} {word}"
    return line


def _filled(text: str, before: str) -> str:
    """Return a command with ` ... ` replaced by the arguments of the previous one that it does not set itself."""
    first, same, rest = text.partition(_SAME)
    if not same:
        return text
    own = {word.partition("=")[0] for word in f"{first} {rest}".split()}
    kept = [word for word in before.split() if word.partition("=")[0] not in own]
    return " ".join([first, *kept, rest])
