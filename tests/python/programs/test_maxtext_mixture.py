"""MaxText's spelling of a mixture: FILES,WEIGHT;FILES,WEIGHT in grain_train_files."""

from __future__ import annotations

import pytest

from maxtext_cases import field, refusal, resolved
from mudd_core.config.mix_sources import source_config, weights_by_sample

WORDS = ("run_name=r", "dataset_type=grain", "grain_eval_files=v*", "tokenizer_path=bytes")


def test_weights_after_files_make_a_mixture() -> None:
    found = resolved("tokenformer.yml", *WORDS, "grain_train_files=a*,0.7;b*,0.3")
    assert (field(found, "data.mix"), field(found, "data.path")) == ("files1:0.7,files2:0.3", "")
    assert weights_by_sample(found.config) == [(0, [7, 3])]
    second = source_config(found.config, "files2").data
    assert (second.path, second.eval_path, second.pipeline) == ("b*", "v*", "pack")
    assert field(found, "data.eval_path") == ""
    plain = resolved("tokenformer.yml", *WORDS, "grain_train_files=a*,b*")
    assert (field(plain, "data.mix"), field(plain, "data.path")) == ("", "a*,b*")


def test_a_number_of_passes_ends_the_run_with_the_first_source() -> None:
    found = resolved("tokenformer.yml", *WORDS, "grain_train_files=a*,0.7;b*,0.3", "epoch=2")
    assert (field(found, "data.mix_until"), field(found, "data.epochs")) == ("first", 0)
    assert source_config(found.config, "files1").data.epochs == 2


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ("a*;b*,0.3", "expected FILES,WEIGHT;FILES,WEIGHT"),
        ("a*,x;b*,1", "expected a finite weight"),
        ("a*,0;b*,0", "above 0"),
    ],
)
def test_a_malformed_mixture_is_refused(files: str, reason: str) -> None:
    assert reason in refusal("tokenformer.yml", *WORDS, f"grain_train_files={files}")
