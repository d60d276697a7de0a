"""The error of gradients in float32, here and in transformers: the distance of both from float64.

The norms of Gemma amplify rounding, so gradients of both programs differ by up to 4e-5. Seen at AVX-512: 2.8e-5 from
float64 here and 2.5e-5 in transformers (draw 3 of gemma3_text), 1.9e-5 and 2.1e-5 (draw 4). Neither is the nearer one.
The bits of PyTorch depend on the CPU: draw 1 of qwen3_moe agrees within 1e-5 on a Zen 4, and is 3.2e-5 and 1.7e-5 from
float64 on a Zen 5. Its exact gradient changes by 1.5e-5 if the weights change by half a unit in the last place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from hf_models import transformers

NEAR = 1e-5  # of the largest gradient of a tensor
_TIMES = 1.5  # both errors are the largest of some thousand roundings
# A computation in float32 rounds every value in between, too, not only the weights.
_TIMES_ROUNDED_WEIGHTS = 3


def require_near(model: Any, data: Mapping[str, Any], gradients: Mapping[str, Any], names: list[str]) -> None:
    """Require gradients within NEAR of transformers' float32, or as near to float64 as these.

    model: of transformers, with gradients. names: of the tensors to compare. The padding of the data is at the end.
    """
    theirs = {name: p.grad.numpy() for name, p in model.named_parameters() if name in names}
    if _farthest(gradients, theirs) <= NEAR:
        return
    weights = {name: value.double() for name, value in model.state_dict().items()}
    found = _exact(model, weights, data)
    want = {name: found[name] for name in names}
    ours, other = (_farthest(one, want) for one in (gradients, theirs))
    if ours <= max(NEAR, _TIMES * other):
        return
    rounded = max(_farthest(_exact(model, _moved(weights, seed), data), want) for seed in range(6))
    assert ours <= _TIMES_ROUNDED_WEIGHTS * rounded, (
        f"from float64: {ours:.1e} here, {other:.1e} in transformers, {rounded:.1e} by rounded weights"
    )


def _moved(weights: Mapping[str, torch.Tensor], seed: int) -> dict[str, torch.Tensor]:
    """Return the weights, each moved by at most half a unit in the last place of float32."""
    draw = torch.Generator().manual_seed(seed)
    return {
        name: value * (1 + 2.0**-24 * (2 * torch.rand(value.shape, generator=draw, dtype=value.dtype) - 1))
        for name, value in weights.items()
    }


def _farthest(gradients: Mapping[str, Any], want: Mapping[str, Any]) -> float:
    """Return the largest distance of a tensor, relative to its largest gradient."""
    return max(
        float(np.abs(gradients[name] - one).max() / max(1e-3, np.abs(one).max()))
        for name, one in want.items()
    )


@contextmanager
def _float64() -> Iterator[None]:
    """Let transformers compute in float64 what it always computes in float32: norms, softmax, rotary angles."""
    names = torch.float32, torch.float, torch.Tensor.float, torch.get_default_dtype()
    torch.float32 = torch.float = torch.float64  # type: ignore[misc]
    torch.Tensor.float = torch.Tensor.double  # type: ignore[method-assign, assignment]
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = names[:3]  # type: ignore[misc, method-assign]
        torch.set_default_dtype(names[3])


def _exact(model: Any, weights: Mapping[str, torch.Tensor], data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the gradients in float64, without the mask: no target depends on padding at the end.

    model: of transformers, with the config. weights: in float64.
    """
    with _float64():
        # PyTorch's grouped matmul of experts has no float64.
        twin = transformers.AutoModelForCausalLM.from_config(
            model.config, attn_implementation="eager", experts_implementation="eager"
        ).double()
        twin.load_state_dict(weights)
        ids, labels = (torch.tensor(data[name]) for name in ("tokens", "labels"))
        twin.eval()(input_ids=ids, labels=labels).loss.backward()
    found = {name: p.grad.numpy() for name, p in twin.named_parameters()}
    assert all(one.dtype == np.float64 for one in found.values())
    return found
