"""The commands of the documents: copied exactly, each once, and none is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import document_commands
import documents
from document_commands import PROGRAMS, Part, commands, others, parts, printed_commands

COUNTS = {"muddformer": 5, "tokenformer": 3, "mu_transformer": 4, "jax_lm": 2, "mlperf_moe": 5}
_NO_COMMAND = re.compile(r"\s*(#.*|(export )?[A-Z_]+=\S*(\s+#.*)?|EOF|\"|)$")


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_command_is_printed_in_its_document(name: str) -> None:
    found = commands(name)
    assert len(found) == COUNTS[name]
    pieces = "\n".join(part.text for part in parts(name))
    for command in found:
        assert command.printed in pieces or command.printed.endswith(" --wb_enabled=True")
        assert command.program in ("launch.py", "mudd_core.train", "mudd_core.preprocess")
        assert not any("$" in word for word in command.words), command


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_line_of_a_document_is_a_command_or_has_its_replacement(name: str) -> None:
    known = [theirs.removesuffix(" ...") for theirs, _ in others(name)]
    for part in parts(name):
        for note in part.notes:
            theirs, arrow, ours = note.partition(" -> ")
            assert (
                (theirs.removesuffix(" ...") in part.text and ours)
                if arrow
                else note.split()[0] in ("program", "option", "python")
            )
        assert printed_commands(name, part.text) == [] or any(n.startswith("program") for n in part.notes)
        for line in _lines(part):
            taken = printed_commands(name, line) or any(theirs in line for theirs in known)
            assert taken or _NO_COMMAND.match(line), line


def _lines(part: Part) -> list[str]:
    """Return the shell lines; a line that ends with a backslash is joined with the next."""
    shell = not any(note == "python" or note.startswith("option") for note in part.notes)
    return part.text.replace("\\\n", " ").splitlines() if shell else []


def test_values_that_a_document_leaves_open_and_its_own_variables() -> None:
    open_, again, example, _, gpu = commands("muddformer")
    assert open_.words[1:] == ("run_name=output", "dataset_path=/data/", "model_name=Llama2Medium")
    assert again.printed == open_.printed and again.words != open_.words
    assert example.words[1] == "run_name=/home/xxx/projects/muddformer/jax//output/"
    assert example.theirs[0] == "MaxText/train.py" and "=1" in gpu.words
    assert commands("mlperf_moe")[0].words == ("clm", "+experiment=gbs256_tpu")
    assert commands("mu_transformer")[0].theirs[0] == "mu_transformer/jax_impl/launch.py"
    assert commands("jax_lm")[1].theirs[:3] == ("-m", "jax_lm.train", "--model-config-name")


def test_a_command_without_an_outcome_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (document_commands.FOLDER / "jax_lm.txt").read_text()
    assert documents.rewritten("jax_lm", text) == text
    monkeypatch.setattr(document_commands, "FOLDER", tmp_path)
    more = "=== program\npython -m jax_lm.train --model-config-name gpt2\n\n=== items"
    (tmp_path / "jax_lm.txt").write_text(text.replace("=== items", more))
    assert [len(new) for _, new in document_commands.new_commands("jax_lm")] == [1, 0, 1, 1]
    with pytest.raises(ValueError, match="zip"):
        documents.kept("jax_lm")
    found = documents.rewritten("jax_lm", (tmp_path / "jax_lm.txt").read_text())
    assert found.count("==> ") == 2 and found.replace("\n==> ", "\n=== ").count("=== program") == 3
