"""ff_act_name: the elementwise functions of jax.nn; an error names any other function."""

from __future__ import annotations

from pathlib import Path

import pytest

from document_sizes import OF_MU_TRANSFORMER
from mu_commands import resolved
from mudd_core.base.errors import UserError
from mudd_core.cli import main
from mudd_core.config import MupConfig, check_config
from mudd_core.config.families.mup import POINTWISE


def test_an_activation_of_jax_nn_trains_validates_and_samples(
    tiny_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "--config=mu_transformer/configs/small.py",
        "--config.ff_act_name=mish",
        *(f"--config.{word}" for word in OF_MU_TRANSFORMER.split()),
        f"data.path={tiny_text}",
        "data.tokenizer=bytes",
        f"data.cache_dir={tiny_text.parent / 'cache'}",
        f"--workdir={tmp_path}",
        "train.threads=1",
    ]
    for mode in ("train", "validation", "sample"):
        assert main([*words, f"--mode={mode}"]) == 0, capsys.readouterr().err
    assert "ff_act_name: mish\n" in capsys.readouterr().out
    (run,) = tmp_path.iterdir()
    assert "_nmish_" in run.name


def test_every_activation_of_jax_nn_on_one_element_is_taken() -> None:
    ours = {name: name for name in ("relu", "sqrelu", "swiglu", "gelu", "silu", *POINTWISE)}
    ours |= {"swish": "silu", "hard_swish": "hard_silu", "celu": "elu"}
    for name, field in ours.items():
        config = resolved(f"--config.ff_act_name={name}").config
        check_config(config)
        assert isinstance(config.model, MupConfig) and config.model.ff_act_name == field


@pytest.mark.parametrize("name", ["sinc", "softmax", "none", "gelu_tanh"])
def test_another_name_is_refused_with_the_list(name: str) -> None:
    with pytest.raises(
        UserError, match=rf"ff_act_name: expected one of swiglu, relu, .*, mish.*, got '{name}'"
    ):
        resolved(f"--config.ff_act_name={name}")
