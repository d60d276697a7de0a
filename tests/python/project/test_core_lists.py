"""The core's tables are the only list of the names in them: no file of the package lists them again."""

from __future__ import annotations

from listed_names import files_that_list
from mudd_core import _core


def test_no_file_lists_roles_again() -> None:
    words = {"embedding", "matrix", "gain", "bias", "head", "mix"}  # also the names of other things
    roles = {role.name for role in _core.roles()}
    assert files_that_list(roles, words) == {"nn.py"}  # it has functions bias, embedding and head


def test_no_file_lists_instruction_set_levels_again() -> None:
    assert files_that_list(set(_core.isa_levels())) == set()


def test_no_file_lists_phases_again() -> None:
    # Names of other libraries, and the parts of a step in its record.
    of_others = {"base/other_names.py", "fingerprint/lines.py"}
    assert files_that_list(set(_core.phases())) - of_others == set()


def test_no_file_lists_schedules_or_warmups_again() -> None:
    of_others = {
        "cli/foreign_values.py",
        "programs/moe/keys_values.py",
        "programs/maxtext/keys_training_values.py",
    }
    assert files_that_list(set(_core.schedules())) - of_others == set()
    assert files_that_list(set(_core.warmups()), {"next", "zero"}) == set()


def test_no_file_lists_ops_again() -> None:
    words = {"activation", "add", "attention", "dropout", "embedding", "linear", "layer_norm", "rms_norm"}
    optimizers = {spec.name for spec in _core.optimizer_specs()}
    assert files_that_list({spec.name for spec in _core.op_specs()} - optimizers, words) == {"nn.py"}
