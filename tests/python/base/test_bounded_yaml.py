"""YAML that is not a valid config is refused at once, with file, line and bound, by both readers."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mudd_core.base.bounded_yaml import DEEPEST, MOST_NODES, parse_yaml
from mudd_core.base.errors import UserError
from mudd_core.cli import main
from mudd_core.programs.moe.hydra.interpolation import resolved
from mudd_core.programs.moe.hydra.values import Node
from yaml_bombs import BOMB, NODES

MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}\n" for i in range(1, 60))
LEVELS = f"at most {DEEPEST} levels"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (BOMB, f"expected {NODES}"),
        (MERGES, NODES),
        ("a: &a [*a]", "line 1: expected an alias (*NAME) of another value"),
        ("a: " + "[" * 5000, LEVELS),
        ("x: 1\n" * 1 + "".join(f"k{i}: 1\n" for i in range(MOST_NODES)), NODES),
        ('a: !!int ""', "line 1: expected a value of !!int, got ''"),
        ('a: !!float ""', "expected a value of !!float, got ''"),
        ("a: !!bool q", "expected a value of !!bool, got 'q'"),
        ("a: !!timestamp q", "got the tag !!timestamp"),
        ("a: !!omap [b: 1]", "got the tag !!omap"),
        ("a: !!set {b}", "got the tag !!set"),
        ("? [a, b]\n: x", "expected a string as key"),
        ("a: 1" + "0" * 400, "at most 64 bits"),
        ("a: 1" + "0" * 5000, "expected a value of !!int"),
        ("\ta: 1", "line 1: found character"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_the_loader_names_the_line_and_the_bound(text: str, told: str) -> None:
    begin = time.process_time()
    with pytest.raises(UserError) as error:
        parse_yaml("[place] file.yml", text)
    assert str(error.value).startswith("[place] file.yml") and told in str(error.value)
    assert time.process_time() - begin < 20


def test_dates_are_strings_and_1e_5_is_a_number() -> None:
    assert parse_yaml("x", "a: 2020-01-01\nb: 1e-5\nc: [&d {e: null}, *d]") == {
        "a": "2020-01-01",
        "b": 1e-5,
        "c": [{"e": None}, {"e": None}],
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (BOMB, NODES),
        ('defaults:\n- "": x', "x.yaml: defaults: expected '- group: option'"),
        ("a: !!timestamp q", "x.yaml, line 1"),
        ("a: '${b.c}'\nb: ${a}", "depends on itself"),
        (f"defaults:\n- {'n' * 5000}", "names of at most 255 bytes"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_a_bad_hydra_file_is_2_in_one_line(
    text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").write_text(text)
    assert main(["clm", "--config-path=.", "--config-name=x", "--cfg", "job", "--resolve"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line and len(line) < 400


def chained(first: Node, form: str, count: int) -> dict[str, Node]:
    """Return {a0: first, a1: ...}; later values are `form` with @ replaced by the name of the previous key."""
    return {"a0": first, **{f"a{i}": form.replace("@", f"a{i - 1}") for i in range(1, count)}}


@pytest.mark.parametrize(
    ("tree", "told"),
    [
        (chained("x", "${@}${@}", 40), "expected at most"),
        (chained("x" * 9000, "${@}${@}", 6), "letters"),
        (dict(reversed(chained("x", "${@}", 3000).items())), "at most 64 interpolations in one another"),
        (chained(3, "${multiply:${@},${@}}", 40), "64 bits"),
        ({"a": "${multiply:" * 3000 + "1" + ",1}" * 3000}, "interpolations in one another"),
        ({"a": "${int_div:inf,1}"}, "int_div"),
    ],
    ids=["doubling", "letters", "chain", "squares", "arguments", "infinity"],
)
def test_interpolations_are_bounded(tree: dict[str, Node], told: str) -> None:
    with pytest.raises(UserError) as error:
        resolved(tree)
    assert told in str(error.value) and len(str(error.value)) < 2000


@pytest.mark.parametrize(
    "words",
    [
        ["clm", "a=" + "[" * 3000],
        ["clm", "max_steps=1" + "0" * 5000],
        ["clm", "--config-name=" + "n" * 5000],
        ["clm", "model.config_path=" + "n" * 5000],
        ["n" * 5000 + ".yml"],
        ["jax_lm.train", "--batch_size", "1" + "0" * 400],
        ["--config=tiny.py", "data.tokenizer=" + "n" * 5000, "--plan"],
        ["data", "show", "--config=tiny.py", "--step=1" + "0" * 400],
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_arguments_of_any_size_are_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert "Traceback" not in capsys.readouterr().err
