"""The long form of the tests of tuning: ./run soak tune [conversations]; a log in bench/results.

Random conversations (500) for each template of the tests, with and without generation marks. Text, ids and refusals
must equal those of transformers, masks those of its templates with marks, and labels those of trl's SFTTrainer with
assistant_only_loss. Then tune_learns.py: adapters and whole weights learn 2,000 pairs with three seeds.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("tests", "tests/python", "python", "bench")]

from chat_cases import FORMS, Turn, template, write_folder  # noqa: E402
from chat_oracle import chats, compare, theirs  # noqa: E402
from soak_log import END, Log  # noqa: E402
from tune_learns import BASE_STEPS, learns  # noqa: E402


def labels_of_trl(folder: Path, form: str, conversations: list[list[Turn]]) -> list[list[int]]:
    """Return the labels of each conversation, as SFTTrainer prepares them with assistant_only_loss."""
    import datasets
    from transformers import LlamaConfig, LlamaForCausalLM
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    tokenizer: Any = theirs(folder)
    tokenizer.chat_template = template(form, marks=True)
    tokenizer.pad_token = tokenizer.eos_token
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=8,
            intermediate_size=8,
            num_hidden_layers=1,
            num_attention_heads=1,
            num_key_value_heads=1,
        )
    )
    settings = SFTConfig(
        str(folder / "trl"), assistant_only_loss=True, max_length=None, use_cpu=True, report_to=[], bf16=False
    )
    rows = datasets.Dataset.from_list([{"messages": turns} for turns in conversations])
    trainer = SFTTrainer(model=model, args=settings, train_dataset=rows, processing_class=tokenizer)
    found: list[list[int]] = []
    for row in cast("list[dict[str, list[int]]]", trainer.train_dataset):
        batch = trainer.data_collator([row])
        found.append(batch["labels"][0].tolist())
    return found


def same_texts(conversations_of_each: int, log: Log) -> bool:
    """Return True if rendered text, masks and labels equal those of the stock libraries for all conversations."""
    good = True
    with tempfile.TemporaryDirectory() as work:
        for form in FORMS:
            begin = time.monotonic()
            conversations = chats(17 + FORMS.index(form), conversations_of_each)
            folder = Path(work) / form
            kept: list[tuple[list[Turn], list[int]]] = []
            for marks in (True, False):
                try:
                    found = compare(write_folder(folder, form), form, conversations, marks=marks, kept=kept)
                except AssertionError as error:
                    good = False
                    log.say(f"{form}, marks {marks}: DIFFER: {error}")
                    continue
                log.say(
                    f"{form}, {'with' if marks else 'without'} marks: {found.equal} equal to "
                    f"transformers, {found.refused} refused by both, {found.uncertain} refused here "
                    "for the start or end of a turn inside a token"
                )
            labels = labels_of_trl(folder, form, [turns for turns, _ in kept])
            same = labels == [wanted for _, wanted in kept]
            good = good and same
            log.say(
                f"{form}: labels of {len(kept)} conversations {'equal to' if same else 'DIFFER from'} trl's, "
                f"{time.monotonic() - begin:.0f} s"
            )
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("conversations", nargs="?", type=int, default=500, help="of each template; 0: none")
    parser.add_argument(
        "--pairs", type=int, default=2000, help="that adapters and whole weights learn; 0: none"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--base-steps", type=int, default=BASE_STEPS, help="of configs/tiny.py, before anything is tuned"
    )
    day = datetime.datetime.now(datetime.UTC).date()
    parser.add_argument("--log", type=Path, default=ROOT / f"bench/results/soak_tune_{day}.log")
    asked = parser.parse_args()
    base = f"--base-steps={asked.base_steps}"
    log = Log(
        asked.log, f"soak tune {asked.conversations} --pairs={asked.pairs} --seeds={asked.seeds} {base}"
    )
    good = same_texts(asked.conversations, log) if asked.conversations else True
    if asked.pairs:
        with tempfile.TemporaryDirectory() as work:
            good = learns(Path(work), asked.pairs, asked.seeds, asked.base_steps, log.say) and good
    log.say(f"{END}{'all equal, all learned' if good else 'FAILED'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
