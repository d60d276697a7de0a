"""per_device_* batch sizes times --devices."""

from __future__ import annotations

import pytest

from mudd_core.base.errors import UserError
from mudd_core.cli import main
from mudd_core.programs import detect
from mudd_core.programs.program import CommandLine
from mudd_core.programs.resolved import Resolved

MUDD = ("run_name=r", "dataset_path=d", "model_name=MUDDLlama2Medium")
TOKENS = ("run_name=r", "dataset_type=grain", "grain_train_files=f*")


def resolved(*words: str, devices: str = "", file: str = "base_v2.yml", **environment: str) -> Resolved:
    options = {"--devices": devices} if devices else {}
    found = detect.resolve(CommandLine(config=file, words=words, options=options, environment=environment))
    assert found is not None
    return found


def test_both_batches_are_those_of_all_devices() -> None:
    config = resolved(*MUDD, devices="8").config
    assert (config.train.batch_size, config.eval.batch_size, config.eval.max_batches) == (256, 256, 162)
    assert (config.train.logical_shards, config.train.micro_batch_size) == (256, 1)
    plain = resolved(*MUDD).config
    assert (plain.train.batch_size, plain.eval.batch_size) == (32, 32)
    typed = resolved(*MUDD, "per_device_batch_size=4", "eval_per_device_batch_size=2", devices="2").config
    assert (typed.train.batch_size, typed.eval.batch_size) == (8, 4)


def test_an_evaluation_follows_a_typed_batch_of_several_devices() -> None:
    """Check that the evaluation still has the program's records: 162 batches of 256."""
    found = resolved(*MUDD, "per_device_batch_size=256")
    evaluation = found.config.eval
    assert (found.config.train.batch_size, evaluation.batch_size * evaluation.max_batches) == (256, 41_472)
    assert found.notes[0] == (
        "per_device_batch_size=256: one device here, so an update has 256 sequences, 8 times the 32 "
        "of class MUDDLlama2Medium; an evaluation batch is scaled in the same way to 256; set "
        "eval_per_device_batch_size for another size"
    )
    assert found.origins["eval.batch_size"].word == "per_device_batch_size=256"
    assert resolved(*MUDD, M_PER_DEVICE_BATCH_SIZE="64").config.eval.batch_size == 64
    medium = [word.replace("MUDDLlama2Medium", "LlamaMedium") for word in MUDD]
    assert (
        resolved(*medium, "dataset_type=pile", "per_device_batch_size=64").config.eval.batch_size == 8
    )  # the class evaluates one sequence for every eight that a device trains on


@pytest.mark.parametrize(
    ("words", "devices", "size"),
    [
        (["per_device_batch_size=256", "eval_per_device_batch_size=32"], "", 32),
        (["per_device_batch_size=2"], "", 32),  # smaller for this machine, so the records stay the same
        (["per_device_batch_size=64"], "8", 256),  # per device, as in the program
        (["per_device_batch_size=256"], "1", 32),
    ],
)
def test_an_evaluation_keeps_its_batch_elsewhere(words: list[str], devices: str, size: int) -> None:
    found = resolved(*MUDD, *words, devices=devices)
    assert found.config.eval.batch_size == size and "follows" not in " ".join(found.notes)


def test_less_than_one_sequence_a_device_is_taken_where_the_whole_is() -> None:
    found = resolved(*MUDD, "per_device_batch_size=0.5", devices="8")
    assert found.config.train.batch_size == 4 and "an update has 4 sequences" in found.notes[0]
    assert resolved(*MUDD, "per_device_batch_size=1.5", devices="2").config.train.batch_size == 3
    for words, devices, way_out in (
        ("per_device_batch_size=0.25", "2", "type --devices=4 for a batch of 1 sequence"),
        ("per_device_batch_size=1.5", "1", "type --devices=2 for a batch of 3 sequences"),
        ("eval_per_device_batch_size=0.5", "", "eval_per_device_batch_size: expected a whole number"),
    ):
        with pytest.raises(UserError, match=way_out):
            resolved(*MUDD, words, devices=devices)
    with pytest.raises(UserError, match=r"from 1, got 0$"):
        resolved(*MUDD, "per_device_batch_size=0", devices="2")


def test_notes_on_the_batch_name_the_way_to_the_programs_own() -> None:
    assert resolved(*MUDD).notes[0] == (
        "per_device_batch_size=32: one device here, so an update has 32 sequences; the authors' 8 devices had 256: "
        "--devices=8 sets their batch"
    )
    assert "authors'" not in resolved(*MUDD, devices="8").notes[0]
    with_ranks = resolved(*MUDD, OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_RANK="0").notes[0]
    assert with_ranks.endswith("2 ranks share this batch; type --devices=2 for the batch of 2 devices")
    assert "ranks share" not in resolved(*MUDD, devices="2", OMPI_COMM_WORLD_SIZE="2").notes[0]
    assert "an update has 1 sequence;" in resolved(*MUDD, "per_device_batch_size=1").notes[0]


def test_the_note_on_evaluation_comes_only_where_its_key_is_typed() -> None:
    def notes(*words: str) -> list[str]:
        found = resolved(*TOKENS, *words, file="tokenformer.yml").notes
        return [note for note in found if note.startswith("eval_per_device")]

    assert notes() == [] and len(notes("eval_per_device_batch_size=32")) == 1


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--config=tiny.py", "--devices=2"], "leave out --devices"),
        (["base_v2.yml", *MUDD, "--devices=0"], "expected a whole number from 1"),
        (["sample", "base_v2.yml", *MUDD, "--devices=2"], "--devices: expected the command train"),
    ],
)
def test_what_the_option_refuses(words: list[str], part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert part in capsys.readouterr().err


def test_clm_multiplies_its_batches_too() -> None:
    def sizes(*words: str, devices: str) -> tuple[int, int]:
        options = {"--devices": devices}
        found = detect.resolve(
            CommandLine(command="clm", words=("model.config_path=mixtral80.json", *words), options=options)
        )
        assert found is not None
        return found.config.train.batch_size, found.config.eval.batch_size

    assert sizes("per_device_train_batch_size=4", devices="2") == (8, 8)
    assert sizes("per_device_eval_batch_size=2", devices="8") == (8, 16)
    assert sizes("global_train_batch_size=4", devices="8")[0] == 4  # a typed global size is used unchanged
