"""Interchange with Hugging Face: transformers' own random models, files, losses, gradients, and the way back."""

from __future__ import annotations

import errno
import json
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import mudd_core as mc
from checkpoint_cases import faults
from mudd_core import interop
from mudd_core.base.errors import FormatError, SaveError, UserError
from mudd_core.cli import main
from mudd_core.config import Config, MUDDFormerConfig, OptimConfig, TrainConfig, TransformerPPConfig
from mudd_core.interop import export_command, hf_settings, import_command

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore:.*not a checkpoint of mudd_core")

V, D, F, L, H = 257, 16, 24, 2, 4
SHARED = {"vocab_size": V, "hidden_size": D, "intermediate_size": F, "num_hidden_layers": L, "num_attention_heads": H,
          "num_key_value_heads": 2, "max_position_embeddings": 32, "attn_implementation": "eager",
          "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}  # fmt: skip
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {**SHARED, "rope_theta": 500.0}),
    "llama_tied": ("Llama", {**SHARED, "tie_word_embeddings": True, "num_key_value_heads": H}),
    "llama_biases": ("Llama", {**SHARED, "head_dim": 6, "attention_bias": True, "mlp_bias": True}),
    "gpt2": ("GPT2", {"vocab_size": V, "n_embd": D, "n_layer": L, "n_head": H, "n_inner": F, "n_positions": 32,
                      "attn_implementation": "eager", "bos_token_id": None, "eos_token_id": None}),
    "gpt2_other": ("GPT2", {"vocab_size": V, "n_embd": D, "n_layer": L, "n_head": H, "n_positions": 32,
                            "activation_function": "gelu", "scale_attn_weights": False,
                            "scale_attn_by_inverse_layer_idx": True, "attn_implementation": "eager",
                            "bos_token_id": None, "eos_token_id": None}),
    "mixtral": ("Mixtral", {**SHARED, "num_local_experts": 5, "num_experts_per_tok": 2, "output_router_logits": True,
                            "router_aux_loss_coef": 0.3}),
    "mixtral_plain": ("Mixtral", {**SHARED, "num_local_experts": 4, "num_experts_per_tok": 1}),
}  # fmt: skip


def make(name: str, folder: Path, **save: Any) -> Any:
    """A random model of transformers, in evaluation mode, saved in the folder."""
    kind, settings = MODELS[name]
    torch.manual_seed(3)
    config = getattr(transformers, f"{kind}Config")(**settings)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for key, p in model.named_parameters():
            p.normal_(1.0 if p.dim() == 1 and "bias" not in key else 0.0, 0.15)
    model.eval().save_pretrained(folder, **save)
    return model


def batch(seed: int = 0, mask: bool = True) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, V, (3, 12))
    labels = np.where(rng.random((3, 12)) < 0.2, -100, tokens)
    labels[0, 3] = -100
    out = {"tokens": tokens, "labels": labels, "attention_mask": np.ones((3, 12), np.int64)}
    if mask:
        out["attention_mask"][1, 9:] = 0
        out["labels"][1, 9:] = -100
    return out


def theirs(model: Any, data: dict[str, Any]) -> Any:
    given = {k: torch.tensor(v) for k, v in data.items()}
    return model(input_ids=given["tokens"], labels=given["labels"], attention_mask=given["attention_mask"])


def close(got: Any, want: Any, name: str, scale: float = 3e-5) -> None:
    want = np.asarray(want)
    assert got.shape == want.shape, name
    assert np.abs(got - want).max() <= scale * max(1e-3, np.abs(want).max()), name


@pytest.mark.parametrize("name", MODELS)
def test_logits_loss_and_gradients_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    model = make(name, tmp_path / "hf", **({"max_shard_size": "8KB"} if name == "mixtral" else {}))
    assert (tmp_path / "hf" / "model.safetensors.index.json").exists() == (name == "mixtral")
    ours = interop.load_original("hf", tmp_path / "hf", tmp_path / "hf")
    data = batch()
    out = theirs(model, data)
    seen = data["attention_mask"].astype(bool)
    close(ours.logits(data)[seen], out.logits.detach().numpy()[seen], "logits")
    loss, gradients = ours.loss_and_gradients(data)
    assert loss == pytest.approx(out.loss.item(), abs=5e-6) and loss == pytest.approx(
        ours.loss(data), abs=5e-6
    )
    out.loss.backward()
    stored = interop.export_original("hf", ours)[1]
    assert set(gradients) == set(stored) and all(gradients[k].shape == v.shape for k, v in stored.items())
    want = {k: p.grad.numpy() for k, p in model.named_parameters() if p.grad is not None}
    if name.startswith("mixtral"):  # transformers fuses in memory what the files hold one by one
        fused = {k: p.detach().numpy() for k, p in model.named_parameters()}
        gradients = interop.load_original("hf", model.config.to_dict(), fused).loss_and_gradients(data)[1]
        assert set(gradients) == set(want)
    for key, gradient in want.items():
        close(gradients[key], gradient, key, 1e-4)


def test_three_steps_are_those_of_torch(tmp_path: Path) -> None:
    model = make("mixtral", tmp_path / "hf")
    ours = interop.load_original("hf", tmp_path / "hf", tmp_path / "hf")
    cfg = Config(
        train=TrainConfig(steps=5, batch_size=3, seq_len=12),
        optim=OptimConfig(lr=1e-3, schedule="constant", decay="no_norm_no_bias"),
    )
    trainer = mc.Trainer(cfg, model=ours)
    groups = [
        {"params": [p for p in model.parameters() if (p.dim() > 1) == big], "weight_decay": 0.1 * big}
        for big in (1, 0)
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95))
    for step in range(3):
        data = batch(step, mask=step == 1)
        optimizer.zero_grad()
        loss = theirs(model, data).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        assert trainer.step(data).loss == pytest.approx(loss.item(), abs=2e-5)
    model.save_pretrained(tmp_path / "after")
    after = interop.load_original("hf", tmp_path / "after", tmp_path / "after").parameters
    for key, view in ours.parameters.items():
        assert np.abs(view - after[key]).max() <= 5e-5, key


def test_greedy_tokens_are_those_of_transformers(tmp_path: Path) -> None:
    model = make("mixtral", tmp_path / "hf")
    ours = interop.load_original("hf", tmp_path / "hf", tmp_path / "hf")
    prompt = batch()["tokens"][:1, :7]
    want = model.generate(torch.tensor(prompt), max_new_tokens=10, do_sample=False)[0, 7:]
    assert list(ours.generate(prompt[0], max_tokens=10)) == want.tolist()


def test_spellings_of_gpt2(tmp_path: Path) -> None:
    make("gpt2", tmp_path / "hf")
    settings = json.loads((tmp_path / "hf" / "config.json").read_text())
    plain = interop.load_original("hf", tmp_path / "hf", tmp_path / "hf")
    weights = plain.original_weights()
    assert all(name.startswith("transformer.") for name in weights)
    old = {name.removeprefix("transformer."): array for name, array in weights.items()}
    old |= {
        "h.0.attn.bias": np.ones((1, 1, 32, 32)),
        "h.1.attn.masked_bias": np.array(-1e4),
    }  # the hub's buffers
    bare = interop.load_original("hf", settings, {**old, "lm_head.weight": old["wte.weight"]})
    assert np.array_equal(bare.logits([1, 2, 3]), plain.logits([1, 2, 3]))
    assert set(bare.original_weights()) == {*old, "lm_head.weight"} - {
        "h.0.attn.bias",
        "h.1.attn.masked_bias",
    }
    with pytest.raises(ValueError, match="tied"):
        interop.load_original("hf", settings, {**old, "lm_head.weight": old["wte.weight"] + 1})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "falcon"}, "model_type"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"attention_bias": True}, "q_proj.bias. is missing"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rope_parameters"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "rope_parameters"),
        ({"model_type": "mixtral", "sliding_window": 8}, "sliding_window"),
        ({"hidden_size": None}, "hidden_size"),
        ({"hidden_size": True}, "hidden_size"),
    ],
)
def test_settings_that_we_do_not_compute_are_refused(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    make("llama", tmp_path / "hf")
    settings = {**json.loads((tmp_path / "hf" / "config.json").read_text()), **change}
    with pytest.raises(ValueError, match=words):
        interop.load_original("hf", settings, tmp_path / "hf")


def test_old_and_new_config_files_say_the_same() -> None:
    new = {**SHARED, "model_type": "mixtral", "rope_parameters": {"rope_theta": 7e4, "rope_type": "default"}}
    old = {**SHARED, "model_type": "mixtral", "rope_theta": 7e4, "torch_dtype": "bfloat16", "head_dim": None}
    config = hf_settings.model_config(new)
    assert config == hf_settings.model_config(old)
    assert config.rope_base == 7e4 and config.aux_coef == 0 and config.d_head == 0
    back = hf_settings.original_config(config)
    again = hf_settings.model_config(back)
    assert again.d_model == config.d_model and again.n_expert == config.n_expert and again.rope_base == 7e4


@pytest.mark.parametrize("name", ["llama_tied", "gpt2", "mixtral"])
def test_import_train_export_and_back_to_transformers(name: str, tmp_path: Path, capsys: Any) -> None:
    make(name, tmp_path / "hf")
    run = str(tmp_path / "run")
    text = tmp_path / "text.txt"
    text.write_text("".join(f"line {i} of a text\n" for i in range(400)))
    words = [f"data.path={text}", f"data.cache_dir={tmp_path / 'cache'}", "train.steps=2", "train.batch_size=2",
             "train.seq_len=16"]  # fmt: skip
    assert import_command.main([str(tmp_path / "hf"), f"--workdir={run}", *words]) == 0
    assert ("resid_pdrop of 0.1 is left out" in capsys.readouterr().err) == (name == "gpt2")
    with pytest.raises(UserError, match="holds checkpoints already"):
        import_command.main([str(tmp_path / "hf"), f"--workdir={run}"])
    assert export_command.main([f"--workdir={run}", f"--to={tmp_path / 'same'}"]) == 0
    first = mc.load_config(f"{run}/config.json")
    with mc.Trainer(first, run) as trainer:
        assert trainer.fit().step == 2
        ids = np.arange(20)[None] * 7 % V
        want = trainer.model.logits(ids)
    extra = ["--shard-mb=0"] if name == "mixtral" else []
    assert export_command.main([f"--workdir={run}", f"--to={tmp_path / 'out'}", *extra]) == 0
    assert "its logits are the run's" in capsys.readouterr().out
    for folder, equal in ((tmp_path / "out", True), (tmp_path / "same", False)):
        loaded = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
        logits = loaded(torch.tensor(ids)).logits.detach().numpy()
        assert (np.abs(logits - want).max() <= 1e-4) == equal
    with pytest.raises(UserError, match="exists already"):
        export_command.main([f"--workdir={run}", f"--to={tmp_path / 'out'}"])


@pytest.mark.parametrize("asked", ["stored", "fp32", "fp16"])
def test_frozen_matrices_keep_the_type_of_the_folder(asked: str, tmp_path: Path, capsys: Any) -> None:
    original = make("llama", tmp_path / "made")
    if asked != "fp16":  # of which bf16 numbers of this size are some
        original = original.to(torch.bfloat16)
    original.save_pretrained(tmp_path / "hf")
    run = tmp_path / "run"
    words = ["--tokenizer=bytes", "train.trainable=*.gain,*.q.w,head", f"train.frozen_dtype={asked}"]
    assert import_command.main([str(tmp_path / "hf"), f"--workdir={run}", *words]) == 0
    assert ("frozen weights were rounded" in capsys.readouterr().out) == (asked == "fp16")
    found = mc.checkpoint.load_step(run / "checkpoints", 0)
    names = [name for name, kind in found.types.items() if "/" not in name and kind != "F32"]
    kind = {"stored": "BF16", "fp32": "F32", "fp16": "F16"}[asked]
    assert found.types["embed"] == kind and found.types["head"] == found.types["final_norm.gain"] == "F32"
    assert bool(names) == (asked != "fp32") and not any(name.endswith((".q.w", "gain")) for name in names)
    with mc.Trainer(mc.load_config(f"{run}/config.json"), run) as trainer:
        assert trainer.model.store.describe("embed")["stored"] == {"F32": "float32", "F16": "float16"}.get(
            kind, "bfloat16"
        )
        table = trainer.model.parameters["embed"]
    want = original.model.embed_tokens.weight.detach().float().numpy()
    assert np.array_equal(table, want if asked != "fp16" else want.astype(np.float16))


def test_a_folder_with_a_tokenizer_is_imported_with_it(tmp_path: Path) -> None:
    make("llama", tmp_path / "hf")
    vocab = {letter: i for i, letter in enumerate("abc</s>")} | {"</s>": V - 1}
    tokenizer = json.dumps({"model": {"type": "BPE", "vocab": vocab, "merges": []}, "added_tokens": []})
    (tmp_path / "hf" / "tokenizer.json").write_text(tokenizer)
    run = tmp_path / "run"
    words = [str(tmp_path / "hf"), f"--workdir={run}"]
    with pytest.raises(UserError, match="stepz"):
        import_command.main([*words, "train.stepz=3"])
    assert not run.exists()
    assert import_command.main(words) == 0
    assert (run / "tokenizer.json").read_text() == tokenizer
    assert mc.load_config(str(run / "config.json")).data.tokenizer == str(run / "tokenizer.json")


def test_an_import_without_its_tokenizer_is_refused(tmp_path: Path, capsys: Any) -> None:
    settings, weights = interop.export_original(
        "hf",
        mc.Model(TransformerPPConfig(vocab_size=300, max_seq_len=8, d_model=8, n_layer=1, n_head=2, d_ff=8)),
    )
    export_command.write_folder(tmp_path / "hf", settings, weights, shard_bytes=1 << 20)
    words = ["import", str(tmp_path / "hf"), f"--workdir={tmp_path / 'run'}"]
    large = tmp_path / "large.json"
    vocab = {"a": 0, "</s>": 300}
    large.write_text(json.dumps({"model": {"type": "BPE", "vocab": vocab, "merges": []}, "added_tokens": []}))
    for more, says in (
        ([], "has no tokenizer.json; give --tokenizer=FILE"),
        ([f"--tokenizer={large}"], "expected at most the model's 300 ids, got 301"),
        ([f"--tokenizer={tmp_path / 'none.json'}"], "No such file"),
    ):
        assert main([*words, *more]) == 2
        assert says in capsys.readouterr().err and not (tmp_path / "run").exists()
    assert main([*words, "--tokenizer=bytes"]) == 0
    assert mc.load_config(str(tmp_path / "run" / "config.json")).data.tokenizer == "bytes"
    words[2] = f"--workdir={tmp_path / 'other'}"
    assert main([*words, "data.tokenizer=bpe", "data.vocab_size=280"]) == 0  # as asked


def test_the_name_of_a_model_is_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["import", "gpt2", "--workdir=run"]) == 2
    told = capsys.readouterr().err
    assert "expected a folder with config.json" in told and "hf download gpt2 --local-dir FOLDER" in told
    assert not list(tmp_path.iterdir())


def test_an_import_of_what_we_do_not_compute_is_the_users_error(tmp_path: Path) -> None:
    make("llama", tmp_path / "hf")
    file = tmp_path / "hf" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "hidden_act": "gelu"}))
    with pytest.raises(UserError, match="hidden_act"):
        import_command.main([str(tmp_path / "hf"), f"--workdir={tmp_path / 'run'}"])
    assert not (tmp_path / "run").exists()


def test_an_export_that_fails_at_any_file_call_leaves_nothing(tmp_path: Path) -> None:
    weights = {name: np.ones(3, np.float32) for name in "ab"}
    (tmp_path / "tokenizer.json").write_text("{}")
    for nth in range(1, 99):
        with faults(fail_at=(nth, errno.ENOSPC)) as files:
            try:
                export_command.write_folder(
                    tmp_path / "to" / "out", {}, weights, shard_bytes=0, tokenizer=tmp_path / "tokenizer.json"
                )
            except SaveError as error:
                assert "No space left" in str(error)
        left = sorted(path.name for path in (tmp_path / "to").glob("*"))
        assert left in ([], ["out"]), nth
        if left:  # committed: whole, even where the last sync reported an error
            assert len(list((tmp_path / "to" / "out").iterdir())) == 5
            shutil.rmtree(tmp_path / "to" / "out")
        if nth > files.count:
            return
    pytest.fail("an export makes fewer than 99 calls")


def test_an_export_that_does_not_read_back_is_no_success(
    tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    make("llama", tmp_path / "hf")
    run = str(tmp_path / "run")
    assert import_command.main([str(tmp_path / "hf"), f"--workdir={run}"]) == 0
    right = interop.export_original

    def wrong(system: str, model: Any) -> Any:
        settings, weights = right(system, model)
        weights["model.norm.weight"] = weights["model.norm.weight"] * np.float32(1.001)
        return settings, weights

    monkeypatch.setattr(interop, "export_original", wrong)
    assert export_command.main([f"--workdir={run}", f"--to={tmp_path / 'out'}"]) == 1
    assert "differ" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_folders_with_something_missing(tmp_path: Path) -> None:
    make("mixtral", tmp_path / "hf", max_shard_size="8KB")
    index = tmp_path / "hf" / "model.safetensors.index.json"
    first = sorted((tmp_path / "hf").glob("model-*.safetensors"))[0]
    first.rename(tmp_path / "gone")
    with pytest.raises(UserError, match="that is not in"):
        interop.load_original("hf", tmp_path / "hf", tmp_path / "hf")
    index.write_text("{}")
    with pytest.raises(FormatError, match="not an index"):
        interop.load_original("hf", tmp_path / "hf", tmp_path / "hf")
    (tmp_path / "pickled.bin").write_bytes(b"")
    with pytest.raises(UserError, match="pickle"):
        interop.load_original("hf", tmp_path / "hf", tmp_path / "pickled.bin")


PAGE = Path(__file__).parents[2] / "docs" / "orbax-to-safetensors.md"


def run_page(kind: str, words: list[Path], monkeypatch: Any) -> None:
    """The script of this kind in the page, with these words."""
    (script,) = re.findall(rf"```python {kind}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert 15 <= script.count("\n") <= 24
    monkeypatch.setattr("sys.argv", ["script.py", *map(str, words)])
    exec(compile(script, str(PAGE), "exec"), {})


def test_the_page_converts_torch_files(tmp_path: Path, monkeypatch: Any) -> None:
    model = make("llama", tmp_path / "hf")
    torch.save({"module": model.state_dict()}, tmp_path / "state.pt")
    run_page("torch", [tmp_path / "out.safetensors", tmp_path / "state.pt"], monkeypatch)
    ours = interop.load_original("hf", tmp_path / "hf", tmp_path / "out.safetensors")
    want = interop.load_original("hf", tmp_path / "hf", tmp_path / "hf")
    assert np.array_equal(ours.logits([1, 2, 3]), want.logits([1, 2, 3]))


def test_the_page_converts_orbax_folders(tmp_path: Path, monkeypatch: Any) -> None:
    """Orbax itself is not needed here: a stand-in restores the tree that a training state is."""
    plain = mc.Model(
        MUDDFormerConfig(vocab_size=31, max_seq_len=16, d_model=16, n_layer=2, n_head=2, d_ff=384), seed=1
    )
    settings, weights = interop.export_original("muddformer_jax", plain)
    tree: dict[str, Any] = {}
    for name, array in weights.items():
        *outer, last = name.split("/")
        node = tree
        for part in outer:
            node = node.setdefault(part, {})
        node[last] = array
    restored = {"step": np.array(3), "params": {"params": tree}, "opt_state": [1]}
    orbax = ModuleType("orbax")
    checkpoint = ModuleType("orbax.checkpoint")
    checkpoint.PyTreeCheckpointer = lambda: SimpleNamespace(restore=lambda folder: restored)  # type: ignore[attr-defined]
    orbax.checkpoint = checkpoint  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "orbax", orbax)
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", checkpoint)
    run_page("orbax", [tmp_path / "state", tmp_path / "out.safetensors"], monkeypatch)
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    ours = interop.load_original("muddformer_jax", tmp_path / "settings.json", tmp_path / "out.safetensors")
    assert np.array_equal(ours.logits(np.array([[1, 2, 3]])), plain.logits(np.array([[1, 2, 3]])))


def test_absent_settings_take_the_defaults_of_transformers() -> None:
    for kind, name in (("llama", "LlamaConfig"), ("mixtral", "MixtralConfig"), ("gpt2", "GPT2Config")):
        whole = getattr(transformers, name)().to_dict()
        whole["head_dim"] = None  # transformers fills in what follows from the rest
        assert hf_settings.model_config({"model_type": kind}) == hf_settings.model_config(whole), kind
