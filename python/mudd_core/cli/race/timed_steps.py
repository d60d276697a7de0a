"""The process that times the training steps of one config in turn with other programs (turns.py).

python -m mudd_core.cli.race.timed_steps COUNT CONFIG [section.field=value ...]
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence

from mudd_core.cli.race.turns import turns
from mudd_core.config import load_config
from mudd_core.run.loop.trainer import Trainer

WARMUP = 5  # steps before the timed ones


def main(argv: Sequence[str]) -> int:
    """Take WARMUP + COUNT steps and print the seconds of the last COUNT of them."""
    count, config, words = int(argv[0]), argv[1], list(argv[2:])
    steps = max(load_config(config, words).train.steps, WARMUP + count + 1)
    settings = load_config(
        config, [*words, f"train.steps={steps}", "train.save_every=0", "train.eval_every=0"]
    )
    seconds = []
    with tempfile.TemporaryDirectory() as folder, Trainer(settings, folder) as trainer:
        for _ in turns(WARMUP + count):
            begin = time.perf_counter()
            trainer.step()
            seconds.append(time.perf_counter() - begin)
    print(json.dumps({"seconds": seconds[WARMUP:]}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
