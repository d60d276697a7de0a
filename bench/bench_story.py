"""Time the commands of docs/from-folder-to-gguf.md on a shape of tune_shapes.py with random bf16 weights.

    python bench/bench_story.py --shape SmolLM2-135M --folder /tmp/story --prepare
    python bench/bench_story.py --shape SmolLM2-135M --folder /tmp/story --steps 6

500 conversations are made from the pages of docs, and a byte-level BPE is trained on them. `tune` takes --steps steps
of its three epochs. The table has its real seconds, and the seconds of all steps at the median time of a step. The
answer of llama.cpp (the package xllamacpp) is compared with the answer of `chat`.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shapes import commit, cpu_name
from tune_shapes import TUNE_SHAPES, TuneShape

ROOT = Path(__file__).resolve().parents[1]
CONVERSATIONS, ASKED, ANSWERED = 500, 25, 60  # the number, and the length of a question and of an answer
QUESTION = "Name the page about memory."
TOKENS = 32  # of the answer
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Run a command. The last line has its CPU seconds, and the peak of its resident memory in MiB.
METER = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
sys.exit(code)
"""
LLAMA_CPP = """
import sys, xllamacpp
p = xllamacpp.CommonParams()
p.model.path, p.n_ctx, p.n_parallel, p.warmup, p.fit_params, p.verbosity = sys.argv[1], 256, 1, False, False, 0
p.cache_type_k = p.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
p.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 2
p.use_jinja = True
found = xllamacpp.Server(p).handle_chat_completions(
    {"messages": [{"role": "user", "content": sys.argv[2]}], "temperature": 0, "max_tokens": int(sys.argv[3])}
)
print(repr(found["choices"][0]["message"]["content"]))
"""


def prepare(s: TuneShape, folder: Path) -> None:
    """Write FOLDER/base with random weights and a tokenizer, and FOLDER/chat.jsonl."""
    import tokenizers
    import torch
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    words = iter(
        itertools.cycle(" ".join(p.read_text() for p in sorted((ROOT / "docs").glob("*.md"))).split())
    )
    with (folder / "chat.jsonl").open("w") as file:
        for _ in range(CONVERSATIONS):
            texts = (" ".join(itertools.islice(words, count)) for count in (ASKED, ANSWERED))
            roles = zip(("user", "assistant"), texts, strict=True)
            file.write(json.dumps({"messages": [{"role": r, "content": t} for r, t in roles]}) + "\n")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=8192,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train([str(folder / "chat.jsonl")], trainer)
    torch.manual_seed(0)
    config = getattr(transformers, f"{s.kind}Config")(**s.fields)
    model = transformers.AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    model.save_pretrained(folder / "base")
    made.save(str(folder / "base" / "tokenizer.json"))
    names = {
        "bos_token": "<|endoftext|>",
        "eos_token": "<|im_end|>",
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (folder / "base" / "tokenizer_config.json").write_text(json.dumps({**names, "chat_template": CHATML}))


@dataclass(frozen=True)
class Spent:
    """The seconds of a command, the CPU seconds of its threads, and the peak of its resident memory in MiB."""

    seconds: float
    cpu: float
    peak: float

    def row(self, name: str, note: str = "") -> str:
        """Return a row of the table."""
        return f"| {name} | {self.seconds:.1f} | {self.cpu:.1f} | {self.peak:.0f} | {note} |"


def measured(argv: list[str], typed: str = "") -> tuple[str, Spent]:
    """Run a command. Return its output and what it needed."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-S", "-c", METER, *argv], input=typed, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"{argv}\n{done.stdout}\n{done.stderr}")
    text, _, used = done.stdout.rstrip().rpartition("\n")
    cpu, peak = map(float, used.split())
    return text, Spent(seconds, cpu, peak)


def launch(*words: str) -> list[str]:
    """Return the argument list of a command of mudd_core."""
    return [sys.executable, str(ROOT / "launch.py"), *words]


def step_seconds(run: Path) -> list[float]:
    """Return the seconds between the steps of a run's log, without the first."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    times: list[float] = [row["seconds"] for row in rows if "loss" in row]
    return [later - first for first, later in itertools.pairwise(times)]


def tuned(run: Path, words: tuple[str, ...], steps: int) -> Iterator[str]:
    """Yield the rows of the plan and of `steps` steps of tune."""
    plan, spent = measured(launch(*words, "--plan"))
    yield spent.row("tune --plan")
    found = re.search(r"train\.steps=(\d+)", plan)
    assert found, plan
    count = int(found[1])
    _, spent = measured(launch(*words, f"train.steps={steps}", "train.log_every=1"))
    each = statistics.median(step_seconds(run))
    whole = spent.seconds + (count - steps) * each
    yield spent.row("tune", f"{steps} of {count} steps, {each:.2f} s each; all steps: {whole:.0f} s")


def answered(run: Path, out: Path) -> Iterator[str]:
    """Yield the rows of chat, and of export and llama.cpp for each type."""
    greedy = ("--temperature=0", f"sample.max_tokens={TOKENS}")
    said, spent = measured(launch("chat", str(run), *greedy), typed=QUESTION + "\n")
    yield spent.row("chat", f"{TOKENS} tokens")
    for kind in ("f32", "f16"):
        to = f"{out}-{kind}"
        _, spent = measured(launch("export", f"--workdir={run}", f"--to={to}", "--gguf", f"--type={kind}"))
        yield spent.row(f"export --gguf --type={kind}")
        argv = [sys.executable, "-c", LLAMA_CPP, f"{to}/model.gguf", QUESTION, str(TOKENS)]
        answer, spent = measured(argv)
        same = said.rstrip("\n").replace("\\n", "\n") == ast.literal_eval(answer.splitlines()[-1])
        yield spent.row(f"llama.cpp, {kind}", "the answer of chat" if same else "another answer")


def parse() -> argparse.Namespace:
    """Parse the command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shape", choices=TUNE_SHAPES, default="SmolLM2-135M")
    p.add_argument("--folder", type=Path, required=True, help="of the base, the data and the run")
    p.add_argument("--prepare", action="store_true", help="write the base and the data, and exit")
    p.add_argument("--steps", type=int, default=6, help="train.steps of tune")
    return p.parse_args()


def main() -> int:
    """Prepare, or measure and print the table."""
    a = parse()
    s = TUNE_SHAPES[a.shape]
    if a.prepare:
        prepare(s, a.folder)
        return 0
    print(f"{s.name}, {CONVERSATIONS} conversations, random bf16 weights; {cpu_name()}, commit {commit()}\n")
    print("| command | seconds | CPU seconds | peak RSS MiB | |\n|---|---|---|---|---|")
    base, data, run, out = (a.folder / name for name in ("base", "chat.jsonl", "run", "gguf"))
    words = ("tune", f"--base={base}", f"--data={data}", f"--workdir={run}")
    for row in itertools.chain(tuned(run, words, a.steps), answered(run, out)):
        print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
