"""model.save and Model.load: the same bits for every family, whole folders, damage found."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mudd_core as mc
from mudd_core.base.errors import FormatError
from mudd_core.config import FAMILIES
from mudd_core.data.tokenizers.tokenizer import ByteTokenizer
from small_models import CASES

SHAPE = mc.TransformerPPConfig(vocab_size=8, max_seq_len=8, d_model=4, n_layer=1, n_head=2, d_ff=6)
OF_FAMILY = {config.family: config for config, _ in reversed(CASES.values())}


def test_there_is_a_case_for_every_family() -> None:
    assert set(OF_FAMILY) == {name for name, family in FAMILIES.items() if family.given is None}


@pytest.mark.parametrize("family", OF_FAMILY)
def test_saved_and_loaded_twice_the_logits_have_the_same_bits(family: str, tmp_path: Path) -> None:
    model = mc.Model(OF_FAMILY[family], seed=3)
    ids = np.random.default_rng(0).integers(0, model.config.vocab_size, (2, 17))
    want = model(ids)
    for name in ("one", "two"):
        model = mc.Model.load(model.save(tmp_path / name))
        assert model.config == OF_FAMILY[family] and np.array_equal(model(ids), want)
    code = (
        "import sys, numpy as np, mudd_core as mc; ids = np.load('ids.npy'); model, tokenizer = mc.load('two'); "
        "assert tokenizer is None and np.array_equal(model(ids), np.load('want.npy')); print(mc.load_run('two'))"
    )
    np.save(tmp_path / "ids.npy", ids)
    np.save(tmp_path / "want.npy", want)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "" and family in done.stdout


def test_precision_loss_types_and_tokenizer_are_kept(tmp_path: Path) -> None:
    model = mc.Model(SHAPE, precision="bf16", stored={"embed": "float16", "head": "bfloat16"})
    model.normalize = "all_slots"
    saved = model.save(tmp_path / "model", ByteTokenizer())
    again = mc.Model.load(str(saved))
    assert (again.precision, again.normalize) == ("bf16", "all_slots")
    assert [again.store.describe(name)["stored"] for name in ("embed", "head", "final_norm.gain")] == [
        "float16",
        "bfloat16",
        "float32",
    ]
    assert np.array_equal(again(np.arange(8)), model(np.arange(8)))
    tokenizer = mc.load(tmp_path / "model").tokenizer
    assert tokenizer is not None and tokenizer.encode("hé") == ByteTokenizer().encode("hé")
    assert tokenizer.eos_id == ByteTokenizer().eos_id


def test_the_hash_is_that_of_a_run(tmp_path: Path) -> None:
    config = mc.load_config("tiny.py", {"train.batch_size": 1, "train.seq_len": 4, "model": vars(SHAPE)})
    with mc.Trainer(config, model=mc.Model(SHAPE)) as trainer:
        folder = trainer.model.save(tmp_path / "model")
        assert json.loads((folder / "config.json").read_text())["hash"] == trainer.final_hash()


def test_a_saved_model_is_replaced_and_other_files_are_not(tmp_path: Path) -> None:
    one, other = mc.Model(SHAPE, seed=1), mc.Model(SHAPE, seed=2)
    one.save(tmp_path / "model", ByteTokenizer())
    other.save(tmp_path / "model")
    assert np.array_equal(mc.Model.load(tmp_path / "model")([1]), other([1]))
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == ["config.json", "model.safetensors"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model"]
    (tmp_path / "notes").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes" / "config.json").write_text("{}")
    with pytest.raises(
        ValueError, match=r"\[Model\.save\] folder: .* which contains other files; name another folder"
    ):
        one.save(tmp_path / "notes")
    assert (tmp_path / "notes" / "config.json").read_text() == "{}"
    assert np.array_equal(mc.Model.load(one.save(tmp_path / "empty"))([1]), one([1]))


def test_what_is_no_saved_model_is_named_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="which does not exist"):
        mc.Model.load(tmp_path / "nothing")
    with pytest.raises(ValueError, match=re.escape(f"mc.load('{tmp_path}') opens work directories")):
        mc.Model.load(tmp_path)


def test_damage_is_found(tmp_path: Path) -> None:
    folder = mc.Model(SHAPE).save(tmp_path / "model")
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(FormatError, match="the weights are not those that were saved"):
        mc.Model.load(folder)
    (folder / "model.safetensors").write_bytes(whole)
    settings = json.loads((folder / "config.json").read_text())
    for size in (8, 1 << 30):  # no memory is allocated for the larger one
        settings["model"]["d_ff"] = size
        (folder / "config.json").write_text(json.dumps(settings))
        with pytest.raises(FormatError, match=r"weight 'blocks\.0\.ffn\.\w+\.w': expected shape"):
            mc.Model.load(folder)
    settings["model"] |= {"d_ff": "wide"}
    (folder / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=r"model\.d_ff: expected a whole number, got 'wide'"):
        mc.Model.load(folder)
    del settings["precision"]
    (folder / "config.json").write_text(json.dumps(settings))
    with pytest.raises(FormatError, match="key 'precision' is missing"):
        mc.Model.load(folder)
