"""The commands in the document of the mixture-of-experts benchmark: each resolves to a committed config."""

from __future__ import annotations

import sys

import pytest

from mudd_core.programs.detect import program_of
from mudd_core.programs.program import CommandLine, program_named
from places import TESTS

sys.path.insert(0, str(TESTS))
import documents

NAME = "mlperf_moe"
COMMANDS = documents.commands(NAME)


def test_every_command_resolves_to_the_committed_config() -> None:
    found, wanted = documents.outcomes(NAME), documents.kept(NAME)
    assert len(found) == len(wanted) == 5
    for one, other in zip(found, wanted, strict=True):
        assert one == other


@pytest.mark.parametrize("number", range(len(COMMANDS)))
def test_without_its_command_a_line_is_still_of_this_grammar(number: int) -> None:
    assert COMMANDS[number].words[0] == "clm"
    assert program_of(CommandLine("", "", COMMANDS[number].words[1:])) is program_named("moe")


def test_both_dry_runs_mean_what_the_page_says() -> None:
    first, second = (found["config"] for found in documents.outcomes(NAME)[-2:])
    assert (first["train.steps"], first["train.batch_size"], first["train.seq_len"]) == (30, 4, 512)
    assert (first["optim.warmup_steps"], first["optim.lr"], first["train.eval_every"]) == (7, 2e-5, 3)
    assert (first["eval.documents"], first["model.family"], first["model.n_layer"]) == (100, "mixtral", 1)
    assert second["model.family"] == "gpt2" and "optim.warmup_steps" not in second
    assert second["model.scale_residual_init"] is True and second["log.mllog"] is True
    assert (second["train.micro_batch_size"], second["loss.normalize"]) == (2, "micro_mean")
    assert second["start.load_parameters_path"] == "runs/imported/gpt2"
