"""Transfer of the learning rate (Yang et al. 2022).

Every width is trained at every rate of a grid of powers of two. The best rates are compared with the narrowest width's.
A finished run, whose folder contains done.txt, is not repeated. A stopped run resumes from its last checkpoint.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import shlex
from collections.abc import Sequence
from pathlib import Path

from mudd_core.base.errors import DivergedError, FormatError, StopRequestedError, UserError
from mudd_core.base.regular_files import read_text, write_text
from mudd_core.base.show.chart import COLORS, Chart, axis
from mudd_core.config import Config, config_hash

Losses = dict[
    tuple[int, int], float
]  # (width, exponent of the rate) -> validation loss; inf if the run diverged


def run_grid(members: Sequence[Config], exponents: Sequence[int], out: Path) -> Losses:
    """Train the runs that are not finished; print one line for each."""
    from mudd_core.run.loop import signals

    losses: Losses = {}
    with signals.handlers():
        for member in members:
            for exponent in exponents:
                optim = dataclasses.replace(member.optim, lr=2.0**exponent)
                width = member.model.d_model
                name = f"w{width}-a{exponent}"
                losses[width, exponent] = run_once(
                    dataclasses.replace(member, name=name, optim=optim), out / name
                )
    return losses


def run_once(config: Config, folder: Path) -> float:
    """Train one run and return its validation loss; read it from done.txt if the same config has finished."""
    from mudd_core import _core
    from mudd_core.run.loop.trainer import Trainer

    done = folder / "done.txt"
    mine = config_hash(config)
    if done.is_file():
        saved, text = _read_done(done)
        if saved != mine:
            raise UserError(f"[mup transfer] {done} belongs to another config; type another --out")
        print(f"{config.name:<14} loss {float(text):.4f}  (done before)", flush=True)
        return float(text)
    try:
        with Trainer(config, folder) as trainer:
            summary = trainer.fit(progress=False)
        if summary.stopped:
            raise StopRequestedError(
                f"[mup transfer] stopped by {summary.stopped}, saved; type the same command to resume"
            )
        loss = math.inf if summary.val_loss is None else summary.val_loss
    except DivergedError:
        loss = math.inf
    _core.replace_file(str(done), f"{mine} {loss!r}\n".encode())
    print(f"{config.name:<14} loss {loss:.4f}", flush=True)
    return loss


def _read_done(file: Path) -> tuple[str, str]:
    """Return (hash of the config, loss as a string) from the file; raise FormatError unless it has both."""
    try:
        config, text = read_text(file).split()
        float(text)
    except (OSError, ValueError) as error:
        raise FormatError(
            str(file), 0, f"expected a config's hash and a loss ({error}); delete it"
        ) from error
    return config, text


def best(losses: Losses, width: int, exponents: Sequence[int]) -> int:
    """Return the exponent of the rate with the smallest loss at a width.

    Among equal losses, the smaller rate is the best.
    """
    return min(exponents, key=lambda exponent: (losses[width, exponent], exponent))


def table(members: Sequence[Config], exponents: Sequence[int], losses: Losses) -> str:
    """Return a table: width, loss at every rate, best rate, and whether it equals the narrowest width's."""
    widths = [member.model.d_model for member in members]
    first = best(losses, widths[0], exponents)
    lines = ["  width" + "".join(f"{f'2^{e}':>9}" for e in exponents) + "   argmin  transfer"]
    for width in widths:
        mine = best(losses, width, exponents)
        cells = "".join(f"{losses[width, e]:>9.4f}" for e in exponents)
        lines.append(f"{width:>7}{cells}{f'2^{mine}':>9}  {'yes' if mine == first else 'no'}")
    return "\n".join(lines)


def report(members: Sequence[Config], exponents: Sequence[int], losses: Losses, out: Path) -> str:
    """Write transfer.txt, transfer.json and transfer.svg; return the table and the result."""
    widths = [member.model.d_model for member in members]
    found = {width: best(losses, width, exponents) for width in widths}
    transfers = len(set(found.values())) == 1
    text = table(members, exponents, losses) + f"\nthe best rate transfers: {'yes' if transfers else 'no'}"
    write_text(out / "transfer.txt", text + "\n")
    rows = [
        {
            "width": width,
            "best_log2_lr": found[width],
            "losses": {
                str(e): losses[width, e] if math.isfinite(losses[width, e]) else None for e in exponents
            },
        }
        for width in widths
    ]
    write_text(out / "transfer.json", json.dumps({"transfers": transfers, "rows": rows}, indent=2) + "\n")
    write_text(out / "transfer.svg", picture(widths, exponents, losses))
    return text + f"\n{out / 'transfer.txt'}  {out / 'transfer.json'}  {out / 'transfer.svg'}"


def picture(widths: Sequence[int], exponents: Sequence[int], losses: Losses) -> str:
    """Plot loss against log2 of the rate, one curve for each width, with a dot at its best rate."""
    finite = [loss for loss in losses.values() if math.isfinite(loss)]
    chart = Chart(
        "Transfer of the learning rate", axis(exponents, "log2 rate"), axis(finite, "validation loss, nats")
    )
    for place, width in enumerate(widths):
        color = COLORS[place % len(COLORS)]
        points = [(float(e), losses[width, e]) for e in exponents if math.isfinite(losses[width, e])]
        chart.line(points, color)
        mine = best(losses, width, exponents)
        chart.dots([(float(mine), losses[width, mine])], color)
        chart.legend(f"width {width}", color)
    return chart.finish()


def large_command(
    args: argparse.Namespace, overrides: Sequence[str], losses: Losses, exponents: Sequence[int], target: int
) -> str:
    """Return the arguments that train the large model at the best rate of the narrowest width."""
    narrowest = min(width for width, _ in losses)
    rate = best(losses, narrowest, exponents)
    config = (args.config or [args.default_config])[-1]
    words = ["python3", "launch.py", "train", f"--config={config}", *overrides, f"model.d_model={target}"]
    return "the large model at this rate:\n  " + shlex.join(
        [*words, f"optim.lr={2.0**rate:g}", f"name=mup-w{target}"]
    )
