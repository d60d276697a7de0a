"""Take optimizer steps of one config in turn with other programs (bench/turns.py); the last line has their seconds.

    python bench/race/step_in_turn.py STEPS CONFIG [section.field=value ...]

The parent process releases each step by a line on standard input.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]

WARMUP = 5


def main(count: int, config: str, arguments: list[str]) -> int:
    """Take WARMUP + count steps and print the seconds of the last `count` of them."""
    import mudd_core as mc
    from turns import turns

    ends = [f"train.steps={WARMUP + count + 1}", "optim.warmup_steps=0", "train.save_every=0"]
    settings = mc.load_config(config, [*arguments, *ends])
    seconds = []
    with tempfile.TemporaryDirectory() as folder, mc.Trainer(settings, folder) as trainer:
        for _ in turns(WARMUP + count, in_turn=True):
            begin = time.perf_counter()
            trainer.step()
            seconds.append(time.perf_counter() - begin)
    print(json.dumps({"seconds": seconds[WARMUP:]}))
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
