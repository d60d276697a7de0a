"""DPO and ORPO of a Hugging Face folder: targets, loss and all gradients equal the values of trl."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import mudd_core as mc
from chat_cases import template, write_jsonl
from chat_oracle import theirs
from hf_models import transformers
from mudd_core.config import LossConfig, load_config
from mudd_core.data.pipelines import prepare
from mudd_core.data.pipelines.pair_rows import thirds
from mudd_core.data.rows import RowShape
from tune_folders import write_given

trl = pytest.importorskip("trl", reason="an oracle of fine-tuning: pip install '.[tune-test]'")
pytestmark = pytest.mark.filterwarnings("ignore")  # trl and transformers warn about their own names
PAIRS, T = 6, 64
CLOSE = 1e-5  # float32 of both programs: logits of three layers in other orders, then sums over an answer
WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "the", "end", "of", "it", "was", "a", "red", "hat"]


def records() -> list[dict[str, str]]:
    """Return pairs of random strings, with answers of different lengths."""
    rng = np.random.default_rng(0)
    keys = ("prompt", "chosen", "rejected")
    return [{key: " ".join(rng.choice(WORDS, rng.integers(2, 12))) for key in keys} for _ in range(PAIRS)]


def batch_in(folder: Path, nll: str = "answer") -> dict[str, Any]:
    """Return the sequences of the records, chosen and rejected by turns. nll: the value of loss.nll."""
    write_jsonl(folder / "pairs.jsonl", records())
    fields = {
        "data.pipeline": "chat",
        "data.tokenizer": folder / "base",
        "data.path": folder / "pairs.jsonl",
        "data.eval_path": folder / "pairs.jsonl",
        "data.cache_dir": folder / "cache",
        "data.shuffle": "off",
        "loss.kind": "orpo",
        "loss.nll": nll,
        "train.seq_len": T,
        "train.logical_shards": 4,
    }
    words = [f"{name}={value}" for name, value in fields.items()]
    data = prepare(load_config("tiny.py", words))
    return dict(data.rows("train", RowShape(T, 2 * PAIRS, 0)).arrays(0, 2 * PAIRS))


def gradients_of(model: Any) -> dict[str, Any]:
    return {name: one.grad.numpy() for name, one in model.named_parameters()}


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Return a folder with a base and a policy whose weights differ a little, and the batch."""
    folder = write_given(tmp_path_factory.mktemp("trl"), 2)
    policy = transformers.LlamaForCausalLM.from_pretrained(folder / "base", dtype=torch.float32)
    torch.manual_seed(1)
    with torch.no_grad():
        for one in policy.parameters():
            one.add_(torch.randn_like(one) * 0.02)
    policy.save_pretrained(folder / "policy")
    return folder, batch_in(folder)


def ours(folder: Path, rule: LossConfig, batch: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    """Return loss and gradients by names of Hugging Face."""
    model: Any = mc.load(folder).model
    model.adapt = lambda batch: batch  # the arrays of a batch of pairs are already in the form of mudd_core
    model.pairs = rule
    return model.loss_and_gradients(batch)


def compare(got: tuple[float, dict[str, Any]], loss: Any, gradients: dict[str, Any]) -> None:
    assert got[0] == pytest.approx(float(loss), abs=CLOSE) and set(got[1]) == set(gradients)
    for name, want in gradients.items():
        np.testing.assert_allclose(got[1][name], want, rtol=0, atol=CLOSE, err_msg=name)


@pytest.mark.parametrize("beta", [0.1, 0.5])
def test_dpo_equals_the_trainer_of_trl(given: tuple[Path, dict[str, Any]], beta: float) -> None:
    import datasets
    from trl.trainer.dpo_config import DPOConfig
    from trl.trainer.dpo_trainer import DPOTrainer

    folder, batch = given
    tokenizer: Any = theirs(folder / "base")
    tokenizer.chat_template, tokenizer.pad_token = template("chatml", marks=False), tokenizer.eos_token
    base, policy = (
        transformers.LlamaForCausalLM.from_pretrained(folder / name, dtype=torch.float32)
        for name in ("base", "policy")
    )
    roles = {"prompt": "user", "chosen": "assistant", "rejected": "assistant"}
    talks = [{key: [{"role": roles[key], "content": text}] for key, text in one.items()} for one in records()]
    settings = DPOConfig(
        str(folder / "out"), beta=beta, report_to=[], use_cpu=True, bf16=False, gradient_checkpointing=False
    )
    trainer = DPOTrainer(
        policy,
        base,
        args=settings,
        train_dataset=datasets.Dataset.from_list(talks),
        processing_class=tokenizer,
    )
    inputs = trainer.data_collator([trainer.train_dataset[at] for at in range(PAIRS)])
    for at in range(2 * PAIRS):  # trl has the chosen answers first
        row = at // 2 + at % 2 * PAIRS
        targets = inputs["input_ids"][row][inputs["completion_mask"][row] == 1].tolist()
        assert batch["targets"][at][batch["targets"][at] >= 0].tolist() == targets
    loss = trainer.compute_loss(policy, inputs)
    loss.backward()

    model: Any = mc.load(folder / "base").model
    model.pairs = LossConfig(kind="orpo", nll="answer")
    planned = model.plan("evaluate", 2 * PAIRS, T, optional=("positions", "segments"))
    planned.fill(batch)
    planned.executor.run()
    reference = thirds(planned.executor.get(planned.outputs[3]).tolist())
    rule = LossConfig(kind="dpo", beta=beta)
    compare(ours(folder / "policy", rule, {**batch, "reference": reference}), loss, gradients_of(policy))


def test_orpo_equals_the_odds_ratio_of_trl(given: tuple[Path, dict[str, Any]]) -> None:
    from trl.experimental.orpo import ORPOTrainer

    folder, batch = given
    policy = transformers.LlamaForCausalLM.from_pretrained(folder / "policy", dtype=torch.float32)
    ids, targets, positions = (
        torch.tensor(batch[name]).long() for name in ("inputs", "targets", "positions")
    )
    mask = torch.tensor(batch["segments"] > 0).long()
    logits = policy(ids, attention_mask=mask, position_ids=positions).logits.double()
    picked = torch.log_softmax(logits, -1).gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    means = (picked * (targets >= 0)).sum(1) / (targets >= 0).sum(1)
    trainer: Any = ORPOTrainer.__new__(ORPOTrainer)
    trainer.beta, trainer.accelerator = 0.2, torch.zeros(1)  # odds_ratio_loss reads their values and a device
    odds = trainer.odds_ratio_loss(means[0::2], means[1::2])[0]
    loss = -means[0::2].mean() - odds.mean()
    loss.backward()
    rule = LossConfig(kind="orpo", beta=0.2, nll="answer")
    compare(ours(folder / "policy", rule, batch), loss, gradients_of(policy))


def test_orpo_equals_the_trainer_of_trl(given: tuple[Path, dict[str, Any]]) -> None:
    from trl.experimental.orpo import ORPOTrainer

    folder, _ = given
    batch = batch_in(folder, "all")
    policy = transformers.LlamaForCausalLM.from_pretrained(folder / "policy", dtype=torch.float32)
    inputs: dict[str, Any] = {}
    for side, name in enumerate(("chosen", "rejected")):
        rows = range(side, 2 * PAIRS, 2)
        sizes = [int((batch["segments"][row] > 0).sum()) for row in rows]
        ids, labels = (torch.full((PAIRS, T + 1), fill) for fill in (0, -100))
        for at, (row, size) in enumerate(zip(rows, sizes, strict=True)):
            targets = batch["targets"][row, :size].tolist()
            assert side == 1 or min(targets) >= 0  # all tokens of a chosen conversation
            begin, end = batch["nll"][row, :2].astype(int).tolist()
            last = int(batch["targets"][row, end - 1])
            ids[at, : size + 1] = torch.tensor([*batch["inputs"][row, :size].tolist(), last])
            labels[at, begin + 1 : end + 1] = torch.tensor(targets[begin:end])
            assert end == size
        inputs[f"{name}_input_ids"], inputs[f"{name}_labels"] = ids, labels
        inputs[f"{name}_attention_mask"] = (torch.arange(T + 1) <= torch.tensor(sizes)[:, None]).long()
    trainer: Any = ORPOTrainer.__new__(ORPOTrainer)
    trainer.beta, trainer.is_encoder_decoder, trainer.aux_loss_enabled, trainer.padding_value = (
        0.2,
        False,
        False,
        0,
    )
    trainer.accelerator = SimpleNamespace(device=torch.device("cpu"), gather_for_metrics=lambda x: x)
    loss, _ = trainer.get_batch_loss_metrics(policy, inputs)
    loss.backward()
    compare(ours(folder / "policy", LossConfig(kind="orpo", beta=0.2), batch), loss, gradients_of(policy))
