"""optim.groups: the meaning of its strings, errors, whole steps against torch.optim, state and resume."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mudd_core as mc
from listed_names import files_that_list
from mudd_core.base.errors import UserError
from mudd_core.config import Config, OptimConfig, TrainConfig, check_config, config_hash, load_config, optim
from mudd_core.config.optim import OPTIMIZERS, SPECS, parse_groups
from mudd_core.engine.engine import Engine
from mudd_core.engine.optimizer_groups import optimizer_groups
from reference import numpy_updates
from reference import torch_models as tm
from reference import torch_training as tt
from small_models import CASES, make, make_batch, make_batches, state
from test_optimizers import clipped
from tiny_run import TinyRun

BATCH, LENGTH, LR, STEPS = 4, 9, 1e-2, 20
batches = partial(make_batches, samples=BATCH, length=LENGTH)


def config(case: str, groups: str = "", **optim: Any) -> Config:
    return Config(
        name="test",
        model=CASES[case][0],
        train=TrainConfig(steps=STEPS, batch_size=BATCH, seq_len=LENGTH),
        optim=OptimConfig(
            **{"groups": groups, "lr": LR, "weight_decay": 0.1, "clip": 0.5, "decay": "all", **optim}
        ),
    )


def trained(case: str, steps: int, groups: str = "", **optim: Any) -> Engine:
    model, _, _ = make(case)
    engine = Engine(config(case, groups, **optim), model)
    for step, batch in enumerate(batches(case, steps)):
        assert engine.train_step(step, LR, batch).finite
    return engine


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return set(one) == set(other) and all(np.array_equal(value, other[key]) for key, value in one.items())


# ---- strings -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "head",
            "expected groups like 'lion: head.*, or settings without an optimizer, as in 'head, lr_factor=0.1', "
            "got 'head'",
        ),
        ("adam: head", f"optimizers of {', '.join(OPTIMIZERS)} or FILE.py:NAME, got 'adam: head'"),
        ("lion", "expected groups like 'lion: head"),
        ("lion:", "expected patterns of names or role=<role> in the group 'lion:', got none"),
        ("lion: role=table", "expected a role of embedding, .*, got 'role=table'"),
        (
            "lion: head, lr=1",
            "expected settings of lr_factor, weight_decay, beta1, beta2 for lion, got 'lr=1'",
        ),
        ("sgd: head, beta1=0.5", "lr_factor, weight_decay, momentum for sgd, got 'beta1=0.5'"),
        ("sgd: head, momentum=1", "momentum: expected a number from 0 to below 1, got '1'"),
        ("sgd: head, lr_factor=nan", "lr_factor: expected a number of at least 0, got 'nan'"),
        ("sgd: head, lr_factor=1, lr_factor=2", "expected lr_factor once"),
        (
            "head, beta1=0.5",
            "expected settings of lr_factor, weight_decay for a group without an optimizer, got 'beta1=0.5'",
        ),
        ("lr_factor=2", "expected patterns of names or role=<role> in the group 'lr_factor=2', got none"),
        (": head, lr_factor=2", "expected groups like 'lion: head.*got ': head, lr_factor=2'"),
    ],
)
def test_strings_that_are_no_groups_are_refused(text: str, fault: str) -> None:
    with pytest.raises(UserError, match=r"\[config\] optim.groups: .*" + fault):
        check_config(config("llama_gqa", text))


def test_a_config_may_name_every_optimizer_of_the_core_and_no_other() -> None:
    with pytest.raises(ValueError, match=f"name: expected one of {', '.join(OPTIMIZERS)}, got 'adam'"):
        trained("llama_gqa", 0, name="adam")


def test_no_file_lists_optimizers_again() -> None:
    of_others = {"programs/maxtext/keys_training_values.py"}
    assert files_that_list(set(OPTIMIZERS)) - of_others == set()


def test_a_setting_that_the_config_does_not_declare_becomes_a_field(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(optim._SETTINGS, "warmth", [("fire", SPECS["lion"].settings[0])])

    @dataclasses.dataclass(frozen=True)
    @optim._with_new_settings
    class Section:
        lr: float = 1.0

    fields = {field.name: field for field in dataclasses.fields(Section)}
    assert (
        fields["warmth"].type is float
        and fields["warmth"].default == 0.9
        and fields["warmth"].metadata["later"]
    )
    assert fields["warmth"].metadata["text"] == "fire: weight of the moment in the direction"
    assert (fields["warmth"].metadata["low"], fields["warmth"].metadata["high"]) == (0.0, 1.0)


def test_a_group_has_selectors_and_settings() -> None:
    one, two = parse_groups("lion: head, lr_factor=0.5 ; sgd:role=gain,!final_norm.*, momentum = 0.8;")
    assert (one.optimizer, one.selectors, one.settings) == ("lion", ("head",), {"lr_factor": 0.5})
    assert (two.optimizer, two.selectors) == ("sgd", ("role=gain", "!final_norm.*"))
    assert two.settings == {"momentum": 0.8}
    (three,) = parse_groups("adam_pax: *, !role=gain, ! role = bias")
    assert (three.optimizer, three.selectors) == ("adam_pax", ("*", "!role=gain", "!role=bias"))
    (four,) = parse_groups("embed, role=gain, lr_factor=4")
    assert (four.optimizer, four.selectors, four.settings) == ("", ("embed", "role=gain"), {"lr_factor": 4.0})


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("lion: heads", "'heads' matches none; similar names: head "),
        (
            "lion: role=slots",
            "'role=slots' matches none; the model has the roles embedding, gain, head, matrix",
        ),
        (
            "lion: head; sgd: role=head",
            "expected 'head' in one group, got it in 'lion: head' and in 'sgd: role=head'; "
            "exclude it from one of them with '!head'",
        ),
        ("lion head, lr_factor=2", "'lion head' matches none"),
        (
            "lion: head; head, lr_factor=2",
            "expected 'head' in one group, got it in 'lion: head' and in 'head, lr_factor=2'; exclude it",
        ),
        (
            "head, lr_factor=2; head, weight_decay=0.5",
            "got it in 'head, lr_factor=2' and in 'head, weight_decay=0.5'; exclude it",
        ),
        (
            "head, !role=head, lr_factor=2",
            "expected parameters in 'head, !role=head, lr_factor=2', got none; leave",
        ),
        (
            "muon: embed",
            r"muon updates only matrices of blocks, got 'embed' of role embedding and shape \[.*; leave it out",
        ),
        (
            "muon: *.gain",
            "muon updates only matrices of blocks, got 'blocks.0.attn_norm.gain' of role gain|of role gain",
        ),
        (
            "row_adagrad: *embed, head",
            r"row_adagrad updates only tables of embeddings, got 'head' of role head and shape \[.*; leave it out with "
            r"'!head', or name it in a group of adamw, lion, sgd",
        ),
    ],
)
def test_groups_that_do_not_fit_the_model_are_refused(text: str, fault: str) -> None:
    model, _, _ = make("llama_gqa")
    with pytest.raises(UserError, match=r"\[config\] optim.groups: .*(" + fault + ")"):
        optimizer_groups(model.store, config("llama_gqa", text).optim)


def test_the_default_leaves_the_config_hash_alone() -> None:
    assert OptimConfig.__dataclass_fields__["groups"].metadata["later"]
    assert config_hash(config("llama_gqa")) != config_hash(config("llama_gqa", "lion: head"))


# ---- the rules muon and adamw ----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["llama_gqa", "mixtral", "tokenformer", "mudd"])
def test_muon_is_a_name_for_groups_and_adamw_for_one(case: str) -> None:
    model, _, _ = make(case)
    roles = {str(model.store.describe(name)["role"]) for name in model.store.names()}
    matrices = ", ".join(f"role={role}" for role in ("matrix", "slots") if role in roles)
    assert same(state(trained(case, 3, name="muon")), state(trained(case, 3, f"muon: {matrices}")))
    assert same(state(trained(case, 3)), state(trained(case, 3, "adamw: *", name="sgd")))


def test_factor_and_decay_of_a_group_are_those_of_the_whole_run() -> None:
    whole = trained("llama_gqa", 3, lr=LR / 2, weight_decay=0.3)
    groups = trained("llama_gqa", 3, "adamw: *, lr_factor=0.5, weight_decay=0.3")
    model, _, _ = make("llama_gqa")
    half = Engine(config("llama_gqa", weight_decay=0.3), model)
    for step, batch in enumerate(batches("llama_gqa", 3)):
        half.train_step(step, LR / 2, batch)
    assert same(state(half), state(groups)) and not same(state(whole), state(groups))


def test_a_group_without_an_optimizer_keeps_the_optimizers_of_its_parameters() -> None:
    """muon for its matrices, AdamW for its gains, and the same bits as groups that name both."""
    written = trained(
        "llama_gqa",
        3,
        "muon: blocks.0.*, !role=gain, lr_factor=2; adamw: blocks.0.*, !role=matrix, lr_factor=2; "
        "muon: role=matrix, !blocks.0.*",
    )
    kept = trained("llama_gqa", 3, "blocks.0.*, lr_factor=2", name="muon")
    assert same(state(written), state(kept)) and not same(
        state(kept), state(trained("llama_gqa", 3, name="muon"))
    )


@pytest.mark.parametrize("name", ["adamw", "lion", "sgd", "row_adagrad"])
def test_the_embedding_of_small_py_has_the_optimizer_of_the_run(name: str) -> None:
    groups = load_config("small.py").optim.groups
    model, _, _ = make("llama_gqa")
    factors = {
        group.names: (group.optimizer, group.lr_factor)
        for group in optimizer_groups(model.store, config("llama_gqa", groups, name=name).optim)
    }
    assert factors.pop(("embed",)) == (name, 4.0)
    assert set(factors.values()) == {("adamw" if name == "row_adagrad" else name, 1.0)}


def test_a_table_of_ngrams_keeps_the_settings_that_a_group_does_not_change() -> None:
    model = mc.Model(dataclasses.replace(CASES["llama_gqa"][0], ngram_rows=64), seed=1)
    groups = optimizer_groups(model.store, config("llama_gqa", "role=rows, lr_factor=3").optim)
    (rows,) = [group for group in groups if group.optimizer == "row_adagrad"]
    assert (rows.lr_factor, rows.weight_decay) == (3.0, OptimConfig().rows_weight_decay)


# ---- against torch ---------------------------------------------------------------------------------------------


# In llama_tied the embedding is also the head.
@pytest.mark.parametrize(
    ("case", "head"), [("llama_gqa", "head"), ("llama_tied", "embed"), ("mixtral", "head")]
)
def test_twenty_steps_equal_torch_with_sgd_for_the_head_and_adamw_for_the_rest(case: str, head: str) -> None:
    model, cfg, params = make(case, whole_batch=True)
    engine = Engine(config(case, f"sgd: {head}, lr_factor=2, weight_decay=0, momentum=0.8"), model)
    leaves = {key: torch.tensor(v, dtype=torch.float64, requires_grad=True) for key, v in params.items()}
    rest = [leaf for key, leaf in leaves.items() if key != head]
    optimizers = [
        torch.optim.SGD([leaves[head]], lr=2 * LR, momentum=0.8, nesterov=True),
        torch.optim.AdamW(rest, lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1),
    ]
    for step, batch in enumerate(batches(case, STEPS)):
        assert engine.train_step(step, LR, batch).finite
        targets = torch.from_numpy(batch["targets"].astype(np.int64))
        _, loss = tt.training_loss(leaves, tm.make_batch(batch["inputs"]), targets, cfg)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(leaves.values(), 0.5)
        for optimizer in optimizers:
            optimizer.step()
    for key, leaf in leaves.items():
        difference = np.abs(model.parameters[key] - leaf.detach().numpy())
        # AdamW's first steps have the size of the rate for any gradient; the sign may differ near zero.
        assert np.mean(difference) <= 1e-4 and difference.max() <= 2 * LR, key
    moved = np.abs(leaves[head].detach().numpy() - params[head])
    assert np.abs(model.parameters[head] - leaves[head].detach().numpy()).max() <= 0.01 * moved.max()


def test_lion_for_the_head_follows_the_formula_and_the_rest_is_adamw() -> None:
    model, cfg, params = make("llama_gqa")
    engine = Engine(config("llama_gqa", "lion: head, lr_factor=0.1, beta2=0.98"), model)
    want, moment = np.asarray(params["head"], np.float64), np.zeros(params["head"].shape)
    leaves = {key: torch.tensor(v, dtype=torch.float64) for key, v in params.items() if key != "head"}
    adamw = torch.optim.AdamW(leaves.values(), lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    for step, batch in enumerate(batches("llama_gqa", STEPS)):
        assert engine.train_step(step, LR, batch).finite
        grads = clipped({**{key: leaf.numpy() for key, leaf in leaves.items()}, "head": want}, cfg, batch)
        want, moment = numpy_updates.lion(
            want, grads["head"], moment, lr=0.1 * LR, beta1=0.9, beta2=0.98, decay=0.01 * LR
        )
        for key, leaf in leaves.items():
            leaf.grad = torch.tensor(grads[key])
        adamw.step()
    for key, leaf in leaves.items():
        # AdamW turns rounding of a small gradient into a fraction of a step.
        assert np.mean(np.abs(model.parameters[key] - leaf.numpy())) <= 1e-4, key
    # The sign of a gradient near zero may differ, as in test_steps_follow_the_formulas, for 2e-3 of the weights per
    # step.
    assert np.mean(np.abs(model.parameters["head"] - want) > 1e-5) <= STEPS * 2e-3


# ---- state -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["fp32", "bf16"])
def test_moments_follow_the_groups_through_a_checkpoint(moment: str) -> None:
    groups = "lion: head; muon: blocks.0.*, !*.gain; sgd: embed"
    engine = trained("llama_gqa", 2, groups, moment_dtype=moment)
    saved = state(engine)
    second = {key.partition("/")[2] for key in saved if key.startswith("second_moment/")}
    one_moment = {name for name in engine.model.store.names() if name in ("head", "embed")}
    one_moment |= {
        n for n in engine.model.store.names() if n.startswith("blocks.0.") and not n.endswith(".gain")
    }
    assert second == set(engine.model.store.names()) - one_moment
    model, _, _ = make("llama_gqa")
    resumed = Engine(config("llama_gqa", groups, moment_dtype=moment), model)
    resumed.load_state_tensors(saved)
    for one in (engine, resumed):
        one.train_step(2, LR, make_batch(61, BATCH, LENGTH, seed=9))
    assert same(state(engine), state(resumed))


def test_frozen_parameters_of_a_group_have_no_moments() -> None:
    model, _, _ = make("llama_gqa")
    cfg = config("llama_gqa", "lion: head")
    engine = Engine(dataclasses.replace(cfg, train=dataclasses.replace(cfg.train, trainable="!head")), model)
    before = np.array(model.parameters["head"])
    engine.train_step(0, LR, batches("llama_gqa", 1)[0])
    assert np.array_equal(before, model.parameters["head"]) and "first_moment/head" not in state(engine)


def test_a_resume_with_other_groups_is_refused_by_name(tmp_path: Path, tiny_text: Path) -> None:
    words = ("train.steps=4", "train.eval_every=0", "optim.groups=lion: head, lr_factor=0.3")
    broken = TinyRun(tmp_path / "run", tiny_text, (*words, "train.stop_at=2"))
    broken.stopped()
    other = TinyRun(tmp_path / "run", tiny_text, (*words[:2], "optim.groups=sgd: head"))
    assert other.finish() == 2 and "optim.groups" in other.output, other.tail
    table = TinyRun(tmp_path / "run", tiny_text, (*words, "--params"), log_suffix=".params.log")
    table.finished()
    rows = {line.split()[0]: line.split() for line in table.output.splitlines() if line.strip()}
    assert rows["head"][-3:] == ["lion", "0.0009", "0"] and rows["embed"][-3] == "adamw"
