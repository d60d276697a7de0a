"""Facts in run.json: the fingerprint of the data, the vocabulary, and properties that determine the bits.

In addition to the config, the bits depend on the order of fp32 sums and, for bf16, on the instructions of the CPU. With
mesh.wire=bf16 they depend on the number of hosts.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

from mudd_core import _core
from mudd_core.base.types import Json, JsonObject

# The number of lanes of fp32 sums, the same on every x86-64 CPU. Runs of earlier versions do not have it.
FP32_ORDER = "fp32_order"
BF16_UNIT = "bf16_unit"  # the bf16 instructions of a bf16 run: none, avx512_bf16 or amx_bf16
WIRE_HOSTS = "wire_hosts"  # the hosts that round gradients, with mesh.wire=bf16
AVERAGED = "averaged_steps"  # the steps of the checkpoints whose mean a folder of `average` has
SINCE = "bits_since"  # the step since which these facts apply, if the run started with others


def unit_of(level: str) -> str:
    """Return the bf16 instructions of a level: the level itself, or `none`, which means fp32 arithmetic."""
    return level if level.endswith("_bf16") else "none"


def bf16_unit() -> str:
    """Return the bf16 instructions of this process, emulated or not."""
    return unit_of(os.environ.get("MUDD_EMULATE", "").removeprefix("emu_") or _core.isa())


def bits_facts(precision: str, wire: str = "fp32", hosts: int = 1) -> JsonObject:
    """Return the facts of a run that starts now. precision: value of train.precision. wire: value of mesh.wire."""
    facts: JsonObject = {FP32_ORDER: _core.fp32_order()}
    if precision == "bf16":
        facts[BF16_UNIT] = bf16_unit()
    if wire == "bf16":
        facts[WIRE_HOSTS] = hosts
    return facts


def change_of_bits(saved: Mapping[str, Json], now: Mapping[str, Json], step: int) -> tuple[JsonObject, str]:
    """Return run.json for a start after this step, and a note if the bits change at this step, else ''.

    saved: the saved run.json. now: the result of bits_facts.
    """
    changed = {name for name, value in now.items() if saved.get(name) != value}
    if step == 0 or not changed:
        return {**bits_back_at(saved, step), **now}, ""
    if BF16_UNIT in changed and BF16_UNIT in saved:
        why = f"its bf16 matmuls used another unit ({saved[BF16_UNIT]}, now {now[BF16_UNIT]})"
    elif WIRE_HOSTS in changed and WIRE_HOSTS in saved:
        why = f"mesh.wire=bf16 rounds on each host ({saved[WIRE_HOSTS]} then, {now[WIRE_HOSTS]} now)"
    elif FP32_ORDER in saved:
        why = f"its fp32 sums had another order ({saved[FP32_ORDER]} lanes, now {now[FP32_ORDER]})"
    else:
        why = "it was started with an earlier version, whose bits depend on the CPU's instruction set level"
    return {**saved, **now, SINCE: step}, f"the bits of this run change after step {step}: {why}"


def bits_back_at(saved: Mapping[str, Json], step: int) -> JsonObject:
    """Return run.json for a run that returns to this step. All later steps have the current bits."""
    facts = dict(saved)
    since = facts.pop(SINCE, None)
    if not isinstance(since, int) or step == 0:
        return facts
    return {**facts, SINCE: min(since, step)}


def bits_text(facts: Mapping[str, Json]) -> str:
    """Return a description of the bits in run.json for users."""
    if FP32_ORDER not in facts:
        return "bits of an earlier version: they depend on the instruction set level"
    unit = f", bf16 unit {facts[BF16_UNIT]}" if BF16_UNIT in facts else ""
    hosts = f", gradients in bf16 between {facts[WIRE_HOSTS]} hosts" if WIRE_HOSTS in facts else ""
    since = f", since step {facts[SINCE]}" if SINCE in facts else ""
    return f"fp32 order {facts[FP32_ORDER]}{unit}{hosts}{since}"


DATA_FACT = "data"  # the fingerprint of the token cache
SEAL_FACT = "data_seal"  # the SHA-256 of the token cache's content (data/cache/file.py)


def data_fingerprint(facts: Mapping[str, Json]) -> str:
    """Return the fingerprint of the token cache; empty if the facts have none."""
    found = facts.get(DATA_FACT)
    return found if isinstance(found, str) else ""


WINDOW = 10  # logged updates whose mean loss is compared with the loss of guessing
MODEL_VOCABULARY = "vocab_size"  # key in run.json for the vocabulary size of the model
VOCABULARY = "vocab_size_in_use"  # key in run.json for the vocabulary size of the tokenizer, if it is smaller


def vocabulary_facts(of_model: int, of_text: int) -> JsonObject:
    """Return the facts for run.json about the vocabularies of a model and its text."""
    return {MODEL_VOCABULARY: of_model, **({VOCABULARY: of_text} if 0 < of_text < of_model else {})}


def vocabulary_in_use(facts: Mapping[str, Json]) -> int:
    """Return the number of tokens that may occur in a run; 0 if run.json does not have it."""
    found = facts.get(VOCABULARY, facts.get(MODEL_VOCABULARY))
    return found if isinstance(found, int) else 0


def guessing_loss(vocabulary: int) -> float:
    """Return the loss (nats) of a uniform distribution over all tokens; infinity if the vocabulary size is unknown."""
    return math.log(vocabulary) if vocabulary > 1 else math.inf


def guessing_text(vocabulary: int) -> str:
    """Return the loss of guessing for a message."""
    return f"{guessing_loss(vocabulary):.4f} (ln {vocabulary:,}), the loss of guessing"
