"""verify names every file of every form of an export, after a change, without it, and next to an added one."""

from __future__ import annotations

from pathlib import Path

import pytest

from provenance_cases import WORDS, copied, exported, verified
from tiny_run import TinyRun

FORMS = {
    "Hugging Face": (),
    "one file per tensor": ("--shard-mb=0",),
    "mudd_core's names": ("--system=own",),
    "GGUF": ("--gguf", "--type=f32"),
    "adapters": ("--adapter",),
    "merged adapters": ("--merged",),
    "GGUF of adapters": ("--gguf", "--adapter", "--type=f32"),
}
# Their owner may edit the card, and the statement contains the hashes of the others.
NOT_COVERED = {"README.md", "provenance.json"}


@pytest.fixture(scope="module")
def runs(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[TinyRun, TinyRun]:
    """Return a run, and a run of adapters that started from it."""
    folder = tmp_path_factory.mktemp("forms")
    words = (*WORDS, "data.tokenizer=bpe", "data.vocab_size=300")
    base = TinyRun(folder / "base", tiny_text, words).trained()
    lora = ("tune.method=lora", "lora.rank=4", f"start.load_parameters_path={base.workdir}")
    exported(base, folder / "theirs")
    return base, TinyRun(folder / "adapted", tiny_text, (*words, *lora)).trained()


@pytest.mark.parametrize("form", FORMS)
def test_every_file_of_a_form_is_covered(
    form: str, runs: tuple[TinyRun, TinyRun], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runs["adapter" in form]
    base = (f"--base={run.workdir.parent / 'theirs'}",) if "--adapter" in FORMS[form] else ()
    folder = exported(run, tmp_path / "out", *FORMS[form], *base)
    code, out, _ = verified(capsys, folder)
    assert code == 0 and "provenance.json" not in out, out
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert "provenance.json" in names and ("README.md" in names) == (form != "mudd_core's names")
    assert len(names - NOT_COVERED) > 1
    for number, name in enumerate(sorted(names - NOT_COVERED)):
        copy = copied(folder, tmp_path / f"changed-{number}")
        file = copy / name
        data = file.read_bytes()
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        code, out, _ = verified(capsys, copy)
        assert code == 1 and f"differs: {name}: expected SHA-256" in out, (name, out)
        file.unlink()
        code, out, _ = verified(capsys, copy)
        assert code == 1 and f"differs: {name}: the file is missing" in out, (name, out)


@pytest.mark.parametrize("gone", ["", "model.Modelfile"])
def test_a_single_gguf_file_has_its_own_statement(
    gone: str, runs: tuple[TinyRun, TinyRun], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "model.gguf"
    exported(runs[0], file, "--gguf")
    assert {path.name for path in tmp_path.iterdir()} == {
        "model.gguf",
        "model.Modelfile",
        "model.provenance.json",
    }
    for place in (file, tmp_path / "model.provenance.json"):
        assert verified(capsys, place)[0] == 0
    changed = tmp_path / (gone or "model.gguf")
    changed.write_bytes(changed.read_bytes() + b"\n")
    code, out, _ = verified(capsys, file)
    assert code == 1 and f"differs: {changed.name}: expected SHA-256" in out


ADDED = (
    "chat_template.jinja",
    "additional_chat_templates/tool_use.jinja",
    "added_tokens.json",
    "adapter_config.json",
    "model.safetensors.index.json",
    "Modelfile",
    "vocab.txt",
    "weights.pkl",
    "model.onnx",
)


@pytest.mark.parametrize("name", ADDED)
def test_an_added_file_that_changes_a_model_is_named(
    name: str, runs: tuple[TinyRun, TinyRun], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = exported(runs[0], tmp_path / "out")
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("{}")
    (folder / "results.json").write_text("{}")  # no program loads it
    code, out, _ = verified(capsys, folder)
    assert code == 1 and out.startswith(f"differs: {name}: the statement does not name this file\nshown"), out
