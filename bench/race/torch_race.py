"""Run a PyTorch model as a program of the race: arguments, training loop, validation, turns.

A program is called with --data, --steps and --seed, and with either --out or --in-turn (bench/race/README.md).
All programs have the sizes of configs/transformer_pp/small.py and compute in fp32.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from race_data import RaceData, read_data

from shapes import usable_cores
from turns import turns

WIDTH, LAYERS, HEADS = 192, 6, 3
VALIDATION_BATCH = 8
Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Plan:
    """The sizes and the length of a run. rate: factor of all published learning rates."""

    vocab_size: int
    seq_len: int
    batch_size: int
    steps: int
    rate: float


class Recipe(Protocol):
    """A model with its optimizer. model(inputs, targets) returns the mean loss in nats."""

    model: nn.Module

    def update(self, step: int) -> None:
        """Change the weights by the gradients, with the rates of the step."""

    def compile_update(self) -> None:
        """Compile the slow parts of `update` and warm them up; change no weights and no optimizer state."""


def short_warmup(published: int, steps: int) -> int:
    """Return the warm-up steps: the published count, but at most an eighth of the run."""
    return min(published, steps // 8)


def validate(model: nn.Module, data: RaceData) -> float:
    """Return the mean loss in nats over all targets of the validation."""
    total, count = 0.0, 0
    with torch.no_grad():
        for inputs, targets in data.validation(VALIDATION_BATCH):
            total += targets.numel() * float(model(inputs, targets).item())
            count += targets.numel()
    assert count == data.val_targets
    return total / count


def result(loss: float, data: RaceData, seconds: float) -> dict[str, float | None]:
    """Return the fields of the result file. loss: nats for each target."""
    bits = loss * data.val_targets / math.log(2)
    bits_per_byte = bits / data.val_bytes if data.val_bytes else None
    return {"val_bits_per_byte": bits_per_byte, "val_loss": loss, "seconds": seconds}


def gradients_of(run: nn.Module, model: nn.Module, batch: Batch) -> tuple[float, Tensor]:
    """Return the loss of a batch and all gradients as one vector; leave no gradients in the model."""
    loss = run(*batch)
    loss.backward()
    found = [p.grad.reshape(-1) for p in model.parameters() if p.grad is not None]
    model.zero_grad(set_to_none=True)
    return loss.item(), torch.cat(found)


def compiled_model(model: nn.Module, batch: Batch) -> nn.Module:
    """Return the compiled model, warmed up on a batch; loss and gradients are compared with eager mode.

    Inductor miscompiles masked loop tails on some CPUs (torch_step.compiled), so a wrong result leads to scalar tails.
    """
    # This imports the compiler, which only this function needs.
    sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "baselines"))
    from torch_step import compiled

    loss, gradients = gradients_of(model, model, batch)
    found = math.nan
    for scalar_tails in (False, True):
        torch._dynamo.reset()
        run = compiled(model, lambda run: run(*batch), scalar_tails)
        found, other = gradients_of(run, model, batch)
        difference = float((other - gradients).norm() / gradients.norm())
        if abs(found - loss) < 1e-3 and difference < 1e-3:
            return run
    raise SystemExit(
        f"[race] --compile: the loss of the first batch is {found:.4f}, but {loss:.4f} in eager mode,"
        f" and the gradients differ by {difference:.1e} of their norm; leave out --compile"
    )


def train(recipe: Recipe, run: nn.Module, data: RaceData, plan: Plan, a: argparse.Namespace) -> list[float]:
    """Take all steps of the plan and return their seconds. Raise SystemExit if the loss is not finite."""
    seconds: list[float] = []
    for step in turns(plan.steps, a.in_turn):
        start = time.perf_counter()
        loss = run(*data.batch(a.seed, step, plan.batch_size))
        loss.backward()
        recipe.update(step)
        recipe.model.zero_grad(set_to_none=True)
        value = loss.item()
        seconds.append(time.perf_counter() - start)
        if not math.isfinite(value):
            raise SystemExit(
                f"[race] step {step}: the loss is {value}; pass a smaller --rate than {plan.rate:g}"
            )
        if not a.in_turn and (step % max(1, plan.steps // 10) == 0 or step == plan.steps - 1):
            print(f"step {step}: loss {value:.4f}, {1e3 * seconds[-1]:.0f} ms", flush=True)
    return seconds


def _positive(kind: type[int] | type[float]) -> Callable[[str], float]:
    def positive(text: str) -> float:
        value = kind(text)
        if not 0 < value < math.inf:
            raise argparse.ArgumentTypeError(f"expected a positive number, got {text}")
        return value

    return positive


def parse(about: str | None, argv: list[str] | None) -> argparse.Namespace:
    """Parse the command line of a program."""
    p = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", type=Path, required=True, help="folder with train.bin, val.bin and data.json")
    p.add_argument("--steps", type=_positive(int), required=True, help="steps of the whole schedule")
    p.add_argument("--seed", type=int, default=0, help="of the weights and the batches")
    end = p.add_mutually_exclusive_group(required=True)
    end.add_argument("--out", type=Path, help="train, validate and write the result to this JSON file")
    end.add_argument("--in-turn", action="store_true", help="time each step after a line on standard input")
    p.add_argument(
        "--batch-size", type=_positive(int), help="sequences of a step; the default is in data.json"
    )
    p.add_argument(
        "--rate", type=_positive(float), default=1.0, help="factor of all published learning rates"
    )
    p.add_argument("--compile", action="store_true", help="use torch.compile; the default is eager mode")
    p.add_argument("--threads", type=_positive(int), default=usable_cores(), help="default: the usable cores")
    a = p.parse_args(argv)
    if a.seed < 0:
        p.error(f"--seed: expected 0 or more, got {a.seed}")
    if a.out is not None and not a.out.absolute().parent.is_dir():
        p.error(f"--out: expected a file in an existing folder, got {a.out}")
    return a


def main(about: str | None, make: Callable[[Plan], Recipe], argv: list[str] | None = None) -> int:
    """Run a program of the race. make: return the recipe of a plan, with weights from torch's generator."""
    a = parse(about, argv)
    data = read_data(a.data)
    torch.set_num_threads(a.threads)
    torch.manual_seed(a.seed)
    plan = Plan(data.vocab_size, data.seq_len, a.batch_size or data.batch_size, a.steps, a.rate)
    recipe = make(plan)
    run = recipe.model
    if a.compile:
        run = compiled_model(run, data.batch(a.seed, 0, plan.batch_size))
        recipe.compile_update()
    seconds = train(recipe, run, data, plan, a)
    if a.in_turn:
        print(json.dumps({"seconds": seconds}))
        return 0
    found = result(validate(recipe.model, data), data, sum(seconds))
    part = a.out.with_name(a.out.name + ".part")  # launch.py race takes a result file as the end of the run
    part.write_text(json.dumps(found) + "\n")
    part.replace(a.out)
    print(json.dumps(found))
    return 0
