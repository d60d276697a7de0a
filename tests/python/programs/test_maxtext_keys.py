"""Keys in MaxText's grammar: the effect of each, and the keys that cause a note or an error."""

from __future__ import annotations

import pytest

from maxtext_cases import LLAMA, MUDD, TOKENS, WORDS, field, refusal, resolved
from mudd_core.engine.optimizer_groups import learning_rate


@pytest.mark.parametrize(
    ("command", "word"),
    [
        *(
            (LLAMA, word)
            for word in ("use_untrainable_positional_embedding=False", "trainable_position_size=-1")
        ),
        *(
            ((file, *WORDS), word)
            for file in ("tokenformer.yml", "gpt2.yml")
            for word in ("num_experts=1", "num_experts_per_tok=1", "rope_max_timescale=10000")
        ),
        *((LLAMA, word) for word in ("dense_conn=True", "dynamic_dense_type=qkvm", "mudd_prenorm=True")),
    ],
)
def test_a_key_that_the_model_does_not_read_is_noted(command: tuple[str, ...], word: str) -> None:
    plain, found = resolved(*command), resolved(*command, word)
    assert found.config == plain.config
    assert [note for note in found.notes if note not in plain.notes and note.startswith(f"{word}: ")]


@pytest.mark.parametrize(
    ("command", "word"),
    [
        (LLAMA, "trainable_position_size=128"),
        (LLAMA, "use_untrainable_positional_embedding=True"),
        (("gpt2.yml", *WORDS), "rope_max_timescale=500000"),
        (("tokenformer.yml", *WORDS), "dense_conn=True"),
        (("gpt2.yml", *WORDS), "slot_num=768"),
    ],
)
def test_another_value_of_such_a_key_is_refused(command: tuple[str, ...], word: str) -> None:
    assert f"{word}: " in refusal(*command, word) and "has no such key" in refusal(*command, word)


@pytest.mark.parametrize(("interval", "off"), [("-1", True), ("0", True), ("None", True), ("5", False)])
def test_an_interval_of_no_steps_validates_nothing(interval: str, off: bool) -> None:
    for command in (LLAMA, ("tokenformer.yml", *WORDS)):
        found = resolved(*command, f"eval_interval={interval}").config
        assert found.eval.off is off and (found.train.eval_every == 0) is off


def test_rates_after_the_schedule_follow_each_program() -> None:
    short = ("steps=20", "learning_rate_schedule_steps=10")
    token, mudd = resolved("tokenformer.yml", *TOKENS, *short), resolved("base_v2.yml", *MUDD, *short)
    assert [learning_rate(token.config, t) > 0 for t in (1, 9, 10, 19)] == [True, True, False, False]
    assert learning_rate(mudd.config, 10) == learning_rate(mudd.config, 19) == pytest.approx(3e-5)
    assert (
        field(resolved("tokenformer.yml", *TOKENS), "optim.after_schedule") == "final"
    )  # no steps come after the schedule
    assert learning_rate(resolved("gpt2.yml", *TOKENS, *short, "use_constant_lr=True").config, 19) == 6e-4


def test_sgd_has_momentum_and_no_decay() -> None:
    found = resolved("tokenformer.yml", *TOKENS, "opt_type=sgd", "momentum=0.8", "nesterov=False")
    assert field(found, "optim.weight_decay") == 0.0 and field(found, "optim.momentum") == 0.8
    assert field(found, "optim.nesterov") is False and field(found, "optim.name") == "sgd"
    assert field(resolved("tokenformer.yml", *TOKENS, "opt_type=sgd"), "optim.nesterov") is True
    assert field(resolved("base_v2.yml", *MUDD, "adam_eps_root=1e-9"), "optim.eps_root") == 1e-9


def test_a_full_state_continues_at_its_step() -> None:
    found = resolved("base_v2.yml", *MUDD, "load_full_state_path=w")
    assert field(found, "start.keep_optimizer") is True and field(found, "start.keep_step") is True
    assert field(resolved("base_v2.yml", *MUDD, "load_parameters_path=w"), "start.keep_step") is False


def test_keys_that_do_nothing_here_are_noted_when_typed() -> None:
    quiet = resolved("base_v2.yml", *MUDD)
    assert len(quiet.notes) == 1 and "8 devices had 256" in quiet.notes[0]
    assert "16 devices had 512" in resolved("tokenformer.yml", *TOKENS, "per_device_batch_size=32").notes[0]
    loud = resolved("base_v2.yml", *MUDD, "remat_policy=minimal", "ici_data_parallelism=-1", "hardware=cpu")
    assert len(loud.notes) == 2


@pytest.mark.parametrize(("runs", "size"), [("1", 1), ("4", 8), ("3", 1)])
def test_accumulation_cuts_the_batch_into_runs(runs: str, size: int) -> None:
    found = resolved("base_v2.yml", *MUDD, f"gradient_accumulation_steps={runs}")
    assert field(found, "train.micro_batch_size") == size
    assert any("gradient_accumulation" in note for note in found.notes) == (runs == "3")
