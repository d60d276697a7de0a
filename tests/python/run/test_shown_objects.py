"""Objects at a prompt and in a notebook: no address, the most useful values, escaped HTML."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import mudd_core as mc
from mudd_core.base.show.tables import html_table
from mudd_core.data.tokenizers.tokenizer import ByteTokenizer

SIZES = [
    "model.n_layer=3",
    "model.d_model=16",
    "model.d_ff=32",
    "model.vocab_size=257",
    "model.max_seq_len=8",
]
RUN = [
    *SIZES,
    "train.steps=2",
    "train.seq_len=8",
    "train.batch_size=2",
    "data.tokenizer=bytes",
    "eval.max_batches=1",
]


class Checked(HTMLParser):
    """A parser that rejects tags that are not closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_model_is_a_tree_with_one_entry_for_blocks_that_are_alike() -> None:
    model = mc.Model(mc.load_config("tiny.py", RUN).model)
    lines = repr(model).splitlines()
    assert lines[0] == f"Model(transformer_pp, fp32): {model.n_parameters:,} parameters, all trained"
    assert [line.split() for line in lines if "0-2" in line] == [["0-2", "3", "x", "2,592"]]
    assert lines[-1].split() == ["head", "[257", "x", "16]", "4,112"] and len(lines) == 17
    model.train_only(["embed", "head"])
    assert repr(model).splitlines()[0].endswith(f"{model.n_parameters:,} parameters, 8,224 (51.3 %) trained")
    assert repr(model).count("frozen") == 10


def test_blocks_of_other_shapes_have_a_line_each() -> None:
    text = repr(mc.Model(mc.load_config("muddformer/tiny.py")))
    assert len(re.findall(r"^ {4}\d .* \.\.\.$", text, flags=re.MULTILINE)) == 3
    assert text.count("w2 [") == 1


def test_the_sizes_of_the_tree_add_up() -> None:
    for name in ("gpt2/tiny.py", "mixtral/tiny.py", "muddformer/tiny.py", "tokenformer/tiny.py"):
        model = mc.Model(mc.load_config(name))
        top = [line for line in repr(model).splitlines() if re.match(r"  \S", line)]
        assert sum(int(re.split(r"\s{2,}", line)[-1].split(",  ")[0].replace(",", "")) for line in top) == (
            model.n_parameters
        ), name


def test_parameters_list_names_and_shapes() -> None:
    model = mc.Model(mc.load_config("tiny.py", RUN).model)
    lines = repr(model.parameters).splitlines()
    assert lines[0] == f"{len(model.parameters)} names, {model.n_parameters:,} parameters, all trained:"
    assert [line.split()[0] for line in lines[1:]] == [*model.parameters]


def test_a_tokenizer_shows_its_ids() -> None:
    assert repr(ByteTokenizer()) == "ByteTokenizer(vocab_size=257, bos_id=256, eos_id=256)"


def test_a_config_marks_what_was_changed() -> None:
    html = mc.Config(name="<b>", train={"steps": 7})._repr_html_()  # type: ignore[arg-type]
    Checked(html)
    assert "2 of " in html and "<b>&#x27;" not in html
    some, everything = html.split("all fields")
    for part, steps in ((some, "td"), (everything, "th")):
        assert re.search(rf"<{steps}[^>]*>train.steps</{steps}><{steps}[^>]*>7<", part)
    assert "train.seed" not in some and re.search("<td[^>]*>train.seed<", everything)


def test_a_table_is_escaped() -> None:
    html = html_table([("<a>", "b & c")], title="<t>", head=("x", "y"))
    Checked(html)
    assert "&lt;a&gt;" in html and "b &amp; c" in html and "&lt;t&gt;" in html


def test_a_trainer_its_summary_and_its_run_say_where_they_are(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("some words of a text " * 400)
    config = mc.load_config("tiny.py", [*RUN, f"data.path={text}"])
    with mc.Trainer(config, tmp_path / "run") as trainer:
        assert repr(trainer).startswith("Trainer('tiny': model transformer_pp, ")
        assert f"step 0 of 2; folder {tmp_path}/run)" in repr(trainer)
        summary = trainer.fit()
        assert re.search(r"step 2 of 2; loss \d\.\d{4} nats; ", repr(trainer))
        pages = [trainer._repr_html_(), summary._repr_html_(), mc.load_run(tmp_path / "run")._repr_html_()]
    for html in pages:
        Checked(html)
        assert "2 of 2" in html and f"{summary.loss:.4f}"[:5] in html
    assert summary.final_hash in pages[1]


@pytest.mark.parametrize("ids", [True, False])
def test_a_trainer_without_a_folder_has_none_in_its_text(ids: bool) -> None:
    config = mc.load_config("tiny.py", RUN)
    trainer = mc.Trainer(config, model=mc.Model(config.model))
    if ids:
        trainer.step({"inputs": [[1] * 8] * 2, "targets": [[2] * 8] * 2})  # type: ignore[dict-item]
    assert "folder" not in repr(trainer) and ("loss" in repr(trainer)) is ids
