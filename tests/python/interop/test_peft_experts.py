"""Adapters of experts that PEFT trains with transformers 5: refused with a reason, and read after a merge."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import mudd_core as mc
from mudd_core.base.errors import UserError
from mudd_core.cli import main
from mudd_core.interop.peft_folder import read_adapter
from peft_cases import IDS, from_peft, logits, near

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")

STACKS = ("mlp.experts.gate_up_proj", "mlp.experts.down_proj", "mlp.gate.weight")


@pytest.mark.parametrize("name", ["mixtral_plain", "qwen3_moe"])
def test_adapters_of_stacks_are_refused_and_the_merged_model_is_read(name: str, tmp_path: Path) -> None:
    adapted = from_peft(name, tmp_path, target_modules=["q_proj"], target_parameters=[*STACKS]).eval()
    trained = [key for key, one in adapted.named_parameters() if one.requires_grad and "experts" in key]
    assert trained
    base = mc.load(tmp_path / "base").model
    with pytest.raises(UserError) as found:
        read_adapter(tmp_path / "theirs", base.config, "[tune] --adapter")
    told = str(found.value)
    assert told.startswith("[tune] --adapter: ") and "target_parameters: expected none, as adapters" in told
    assert (
        STACKS[0] in told
        and "stacks of experts and routers have no adapters here: merge them in PEFT" in told
    )
    want = logits(adapted)
    adapted.merge_and_unload().save_pretrained(tmp_path / "merged")
    merged = mc.load(tmp_path / "merged").model
    assert near(merged.logits(IDS), want) and not near(base.logits(IDS), want)


def test_tune_refuses_experts_as_targets_and_says_that_they_stay_frozen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sizes = ["model.d_model=32", "model.n_layer=1", "model.n_head=2", "model.d_ff=16", "model.n_expert=4"]
    made = [
        "data.tokenizer=bytes",
        "train.seq_len=128",
        "train.batch_size=2",
        "train.steps=1",
        "train.threads=1",
    ]
    Path("text.txt").write_text("some text to read\n" * 200)
    run = ["--config=mixtral/tiny.py", "--workdir=moe", "data.path=text.txt", "eval.max_batches=1"]
    assert main([*run, *sizes, *made]) == 0
    lines = [json.dumps({"prompt": f"{n} + 1 = ", "completion": str(n + 1)}) for n in range(40)]
    Path("sums.jsonl").write_text("\n".join(lines))
    words = ["tune", "--base=moe", "--data=sums.jsonl", "--workdir=tuned", "data.template=chatml"]
    assert main([*words, "lora.targets=q,up_proj"]) == 2
    told = capsys.readouterr().err
    assert "got 'up_proj'; the model has q, k, v, o, with full names such as" in told
    assert "experts have no adapters and stay frozen, because a layer's experts are one op" in told
    assert main([*words, "--plan"]) == 0
    assert "experts and routers have no adapters and stay frozen" in capsys.readouterr().out
