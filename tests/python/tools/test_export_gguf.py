"""The form --gguf of the command export: runs trained here, adapters, places of files, and failures."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from chat_cases import turns, write_jsonl
from gguf_cases import LlamaCpp, farthest, imported, lines, make, write_sentencepiece, write_tokenizer
from hf_models import transformers
from mudd_core.base.errors import SaveError, UserError
from mudd_core.cli import main
from mudd_core.interop.gguf import tensors
from tiny_run import write_text

gguf = pytest.importorskip("gguf")
pytestmark = pytest.mark.filterwarnings("ignore:.*not a checkpoint of mudd_core")
PROMPTS = [np.random.default_rng(n).integers(4, 290, n).tolist() for n in (1, 7, 30)]
SMALL = ("model.n_layer=2", "train.steps=2", "train.batch_size=2", "train.seq_len=64", "train.threads=1")


def trained(folder: Path, config: str, *words: str) -> Path:
    """Return a run of two steps on generated text, with a vocabulary of 300."""
    text = folder / "text"
    if not text.exists():
        text.mkdir()
        write_text(text)
    data = [f"data.path={text}", f"data.cache_dir={folder / 'cache'}", "data.vocab_size=300"]
    run = folder / "run"
    assert main([f"--config={config}", f"--workdir={run}", *SMALL, *data, *words]) == 0
    return run


@pytest.mark.parametrize("config", ["transformer_pp/tiny.py", "gpt2/tiny.py", "mixtral/tiny.py"])
def test_a_run_trained_here_answers_in_llama_cpp(config: str, tmp_path: Path) -> None:
    # llama.cpp treats models named phi-3 in another way.
    run, file = trained(tmp_path, config, "name=my-phi-3-try"), tmp_path / "mine.gguf"
    changes = ["model.capacity_factor=0"] if config.startswith("mixtral") else []
    assert main(["export", f"--workdir={run}", f"--to={file}", "--gguf", "--type=f32", *changes]) == 0
    found, server = mc.load_run(run), LlamaCpp(file)
    far = farthest(server, found.model.logits, PROMPTS)
    assert far <= (
        5e-3 if config.startswith("gpt2") else 1e-4
    )  # llama.cpp reads gelu from a table of fp16 values
    assert found.tokenizer is not None
    for line in lines(100, 3):
        assert server.ids(line) == list(found.tokenizer.encode(line)), line
    assert "FROM ./mine.gguf\n" in (tmp_path / "mine.Modelfile").read_text()


def test_a_run_with_a_sentencepiece_model_has_its_ids(tmp_path: Path) -> None:
    model = write_sentencepiece(tmp_path)
    run, file = trained(tmp_path, "tiny.py", f"data.tokenizer={model}"), tmp_path / "mine.gguf"
    mc.export(run, file, "gguf", type="f32")
    found, server = mc.load_run(run), LlamaCpp(file)
    assert found.tokenizer is not None
    # A space in front is one more piece here, in sentencepiece and in llama.cpp.
    for line in [*lines(100, 3), "  two", " one"]:
        assert server.ids(line) == list(found.tokenizer.encode(line)), line
    fields = gguf.GGUFReader(file).fields
    assert fields["tokenizer.ggml.token_type"].contents()[:4] == [2, 3, 3, 6]
    assert fields["tokenizer.ggml.scores"].contents()[300] < -1
    # The run adds no BOS to its prompts.
    assert fields["tokenizer.ggml.add_bos_token"].contents() is False


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("llama", []),
        ("qwen3", ["lora.init=pissa"]),
        ("gpt2", ["lora.targets=up,blocks.*.attn.o"]),
        ("qwen3_moe", ["lora.targets=all,gate_up,down"]),
        ("mixtral", ["lora.targets=blocks.1.ffn.gate_up,down"]),
    ],
)
def test_adapters_compute_the_same_merged_and_apart(
    name: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    base = imported(name, tmp_path)
    write_jsonl(tmp_path / "chat.jsonl", [{"messages": turns(f"the cat {n}", f"end {n}")} for n in range(12)])
    steps = [
        "train.threads=1",
        "train.seq_len=64",
        "train.steps=2",
        "train.batch_size=2",
        "sample.max_tokens=1",
    ]
    steps += ["optim.lr=0.05", "optim.warmup_steps=0"]
    assert main(["tune", "--base=hf", "--data=chat.jsonl", "--workdir=tuned", *steps, *words]) == 0
    mc.export(base, "base.gguf", "gguf", type="f32")
    mc.export("tuned", "merged", "gguf", type="f32")
    apart = mc.export("tuned", "apart", "gguf_adapter", type="f32")
    assert "CommonAdapterLoraInfo('apart/adapter.gguf', 1.0)" in apart.loading
    logits = mc.load_run("tuned").model.logits
    bound = 5e-3 if name == "gpt2" else 1e-4  # as above
    assert farthest(LlamaCpp(Path("base.gguf")), logits, PROMPTS) > 100 * bound
    assert farthest(LlamaCpp(Path("merged/model.gguf")), logits, PROMPTS) <= bound
    adapted = LlamaCpp(Path("base.gguf"), Path("apart/adapter.gguf"))
    assert farthest(adapted, logits, PROMPTS) <= bound
    fields = gguf.GGUFReader("apart/adapter.gguf").fields
    assert fields["general.type"].contents() == "adapter" and fields["adapter.type"].contents() == "lora"
    assert "ADAPTER ./adapter.gguf\n" in Path("apart/Modelfile").read_text()
    names = ["Modelfile", "README.md", "adapter.gguf", "provenance.json"]
    assert sorted(one.name for one in Path("apart").iterdir()) == names
    for form in ("apart", "merged"):
        again = ["--base=hf", "--data=chat.jsonl", "--train", f"--workdir={form}-again"]
        assert main(["verify", form, *again]) == 0, name
    assert "library_name: gguf" in Path("apart", "README.md").read_text()
    # The template of the base is rendered as transformers renders it.
    talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi, über?"}]
    theirs = transformers.AutoTokenizer.from_pretrained("hf")
    want = theirs.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
    assert adapted.rendered(talk) == want
    assert 'PARAMETER stop "<|im_end|>"' in Path("merged/Modelfile").read_text()


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run of an imported llama."""
    return imported("llama", tmp_path_factory.mktemp("llama"))


def test_force_replaces_exports_and_nothing_else(llama: Path, tmp_path: Path) -> None:
    for to in (tmp_path / "folder", tmp_path / "one.gguf"):
        mc.export(llama, to, "gguf")
        with pytest.raises(UserError, match="force=True"):
            mc.export(llama, to, "gguf")
        mc.export(llama, to, "gguf", type="q8_0", force=True)
        file = to if to.is_file() else to / "model.gguf"
        assert gguf.GGUFReader(file).fields["general.file_type"].contents() == 7
    mc.export(llama, f"{tmp_path}/slash.gguf/", "gguf")
    assert (tmp_path / "slash.gguf" / "model.gguf").is_file()
    (tmp_path / "other.gguf").write_bytes(b"GGUF of another program")
    with pytest.raises(UserError, match=r"expected a new file or an export, got .*other\.gguf"):
        mc.export(llama, tmp_path / "other.gguf", "gguf", force=True)
    (tmp_path / "new.Modelfile").write_text("FROM mine\n")
    with pytest.raises(UserError, match=r"got .*new\.Modelfile"):
        mc.export(llama, tmp_path / "new.gguf", "gguf", force=True)
    (tmp_path / "mine.provenance.json").write_text("{}")
    with pytest.raises(UserError, match=r"got .*mine\.provenance\.json"):
        mc.export(llama, tmp_path / "mine.gguf", "gguf", force=True)
    names = ["folder", "mine.provenance.json", "new.Modelfile", "one.Modelfile", "one.gguf"]
    names += ["one.provenance.json", "other.gguf", "slash.gguf"]
    assert sorted(one.name for one in tmp_path.iterdir()) == names
    for place in ("folder", "one.gguf", "slash.gguf"):
        assert main(["verify", str(tmp_path / place)]) == 0
    data = (tmp_path / "one.gguf").read_bytes()
    (tmp_path / "one.gguf").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert main(["verify", str(tmp_path / "one.gguf")]) == 1


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Fail writes beyond a size of files, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("name", ["folder", "one.gguf"])
def test_a_stopped_export_leaves_nothing(
    name: str, llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with largest_file(100_000), pytest.raises(SaveError, match="could not be written: File too large"):
        mc.export(llama, tmp_path / name, "gguf")
    assert list(tmp_path.iterdir()) == []
    calls: list[str] = []

    def stopped(place: Any, *others: Any) -> Any:
        calls.append(place.name)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return real(place, *others)

    real = tensors._made
    monkeypatch.setattr(tensors, "_made", stopped)
    with pytest.raises(KeyboardInterrupt):
        mc.export(llama, tmp_path / name, "gguf")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    mc.export(llama, tmp_path / name, "gguf")
    before = {one: one.read_bytes() for one in tmp_path.rglob("*.gguf")}
    with largest_file(100_000), pytest.raises(SaveError):
        mc.export(llama, tmp_path / name, "gguf", type="f32", force=True)
    assert before and {one: one.read_bytes() for one in tmp_path.rglob("*.gguf")} == before


def test_the_next_export_removes_the_files_of_a_killed_one(llama: Path, tmp_path: Path) -> None:
    to = tmp_path / "one.gguf"
    code = (
        "import os, mudd_core as mc; from mudd_core.interop.gguf import tensors; "
        "tensors._reordered = lambda *others: os.kill(os.getpid(), 9); "
        f"mc.export({str(llama)!r}, {str(to)!r}, 'gguf')"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert [one.name.startswith("one.gguf.tmp-") for one in tmp_path.iterdir()] == [True]
    mc.export(llama, to, "gguf")
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "one.Modelfile",
        "one.gguf",
        "one.provenance.json",
    ]


def test_values_beyond_fp16_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "hf"
    make("llama", source)
    write_tokenizer(source, "gpt-2")
    model = transformers.LlamaForCausalLM.from_pretrained(source)
    model.model.layers[1].mlp.up_proj.weight.data[3, 4] = 1e6
    model.save_pretrained(source)
    assert main(["import", str(source), f"--workdir={tmp_path / 'run'}"]) == 0
    message = r"weights that f16 can hold, got 1e\+06 in 'blk\.1\.ffn_up\.weight'; write type=\"bf16\""
    with pytest.raises(UserError, match=message):
        mc.export(tmp_path / "run", tmp_path / "out", "gguf")
    assert not (tmp_path / "out").exists()
    mc.export(tmp_path / "run", tmp_path / "out", "gguf", type="bf16")


@pytest.mark.parametrize(
    ("config", "words", "message"),
    [
        (
            "muddformer/tiny.py",
            [],
            "got muddformer, which llama.cpp does not have; leave --gguf out, or train another model, such as "
            "configs/transformer_pp/small.py",
        ),
        ("mup/tiny.py", [], "got mup, which llama.cpp does not have"),
        ("tokenformer/tiny.py", [], "got tokenformer, which llama.cpp does not have"),
        ("tiny.py", ["data.tokenizer=bytes"], "got bytes, which llama.cpp lacks"),
    ],
)
def test_models_and_tokenizers_that_llama_cpp_lacks_are_refused_by_name(
    config: str, words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained(tmp_path, config, *words)
    assert main(["export", f"--workdir={run}", f"--to={tmp_path / 'out'}", "--gguf"]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_wrong_arguments_are_refused(llama: Path, tmp_path: Path) -> None:
    to = tmp_path / "out"
    with pytest.raises(UserError, match="type: expected form="):
        mc.export(llama, to, type="f32")
    with pytest.raises(UserError, match="type: expected f32, f16, bf16, q8_0 or None, got 'q4_0'"):
        mc.export(llama, to, "gguf", type="q4_0")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="only has models of transformers"):
        mc.export(llama, to, "gguf", system="own")
    with pytest.raises(UserError, match="expected one file with"):
        mc.export(llama, to, "gguf", shard_mb=10)
    with pytest.raises(UserError, match="expected a run that trained adapters"):
        mc.export(llama, to, "gguf_adapter")
    assert not to.exists()


def test_the_name_of_a_file_needs_gguf(
    llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["export", f"--workdir={llama}", f"--to={tmp_path / 'model.gguf'}"]
    assert main(words) == 2
    assert (
        f"[export] --to: expected --gguf with the file {tmp_path / 'model.gguf'}, got none; add --gguf, or / for a "
        "folder of this name"
    ) in capsys.readouterr().err
    assert not (tmp_path / "model.gguf").exists()
    assert main([*words[:2], f"{words[2]}/"]) == 0 and (tmp_path / "model.gguf").is_dir()


def test_a_window_limits_the_context(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = imported("mistral", tmp_path)
    mc.export(run, tmp_path / "out", "gguf")
    assert "the context in the file is the window's 32 tokens instead of 64" in capsys.readouterr().err
    fields = gguf.GGUFReader(tmp_path / "out" / "model.gguf").fields
    assert fields["llama.context_length"].contents() == 32


def test_chatml_is_a_template_of_ollama_too(tmp_path: Path) -> None:
    from mudd_core.data.chat.templates import BUILT_IN

    source = tmp_path / "hf"
    make("qwen2", source)
    write_tokenizer(source, "qwen2")
    config = json.loads((source / "tokenizer_config.json").read_text())
    (source / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": BUILT_IN["chatml"]}))
    assert main(["import", str(source), f"--workdir={tmp_path / 'run'}"]) == 0
    mc.export(tmp_path / "run", tmp_path / "out", "gguf")
    text = (tmp_path / "out" / "Modelfile").read_text()
    assert 'TEMPLATE """{{ range .Messages }}<|im_start|>{{ .Role }}\n{{ .Content }}<|im_end|>\n' in text


@pytest.mark.parametrize(
    ("config", "library"), [("tiny.py", "transformers"), ("muddformer/tiny.py", "mudd_core")]
)
def test_the_card_of_a_folder_names_the_library_that_loads_it(
    config: str, library: str, tmp_path: Path
) -> None:
    run = trained(tmp_path, config)
    assert main(["export", f"--workdir={run}", f"--to={tmp_path / 'out'}"]) == 0
    assert f"library_name: {library}" in (tmp_path / "out" / "README.md").read_text()
