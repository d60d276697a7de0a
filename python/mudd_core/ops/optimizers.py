"""Single optimizer updates as ops; training runs them inside its one sweep over all parameters."""

from __future__ import annotations

from typing import Any

from mudd_core.ops.call import apply, backward


def adamw(
    w: Any,
    gradient: Any,
    first: Any,
    second: Any,
    *,
    lr: float = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.95,
    eps: float = 1e-8,
    decay: float = 0.0,
    step: int = 1,
) -> Any:
    """One update of AdamW (as torch.optim.AdamW): (new w, new first, new second), float32 arrays of one shape.

    step: the number of the update, from 1. decay: the fraction of w that is taken away, lr weight_decay in torch.
    Training runs the same kernel over all parameters in one sweep; this is one update alone.
    """
    options = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps, "decay": decay, "step": step}
    return apply("adamw", [w, gradient, first, second], **options)


def adamw_backward(
    dw: Any,
    w: Any,
    gradient: Any,
    first: Any,
    second: Any,
    *,
    lr: float = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.95,
    eps: float = 1e-8,
    decay: float = 0.0,
    step: int = 1,
) -> Any:
    """Gradients of w, gradient, first and second; cpp/mudd/optim/adamw/adamw.h has the formula.

    dw: the gradient of the new weights, or a tuple (dw, dfirst, dsecond) with those of the new moments.
    """
    options = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps, "decay": decay, "step": step}
    return backward("adamw", dw, [w, gradient, first, second], **options)


def lion(
    w: Any,
    gradient: Any,
    moment: Any,
    *,
    lr: float = 1e-4,
    beta1: float = 0.9,
    beta2: float = 0.99,
    decay: float = 0.0,
) -> Any:
    """One update of Lion (Chen et al. 2023): (new w, new moment), float32 arrays of one shape.

    new w = w - lr sign(beta1 moment + (1 - beta1) gradient) - decay w,
    new moment = beta2 moment + (1 - beta2) gradient.
    Training runs the same kernel over all parameters in one sweep; this is one update alone.
    """
    return apply("lion", [w, gradient, moment], lr=lr, beta1=beta1, beta2=beta2, decay=decay)


def lion_backward(
    dw: Any,
    w: Any,
    gradient: Any,
    moment: Any,
    *,
    lr: float = 1e-4,
    beta1: float = 0.9,
    beta2: float = 0.99,
    decay: float = 0.0,
) -> Any:
    """Gradients ((1 - decay) dw, (1 - beta2) dm, beta2 dm); the sign is flat.

    dw: the gradient of the new weights, or a pair (dw, dm) with that of the new moment.
    """
    return backward("lion", dw, [w, gradient, moment], lr=lr, beta1=beta1, beta2=beta2, decay=decay)


def sgd(
    w: Any, gradient: Any, moment: Any, *, lr: float = 1e-2, momentum: float = 0.9, decay: float = 0.0
) -> Any:
    """One update of SGD with Nesterov momentum (as torch.optim.SGD): (new w, new moment), float32 of one shape.

    new moment = momentum moment + gradient; new w = w - lr (gradient + momentum new moment) - decay w.
    Training runs the same kernel over all parameters in one sweep; this is one update alone.
    """
    return apply("sgd", [w, gradient, moment], lr=lr, momentum=momentum, decay=decay)


def sgd_backward(
    dw: Any,
    w: Any,
    gradient: Any,
    moment: Any,
    *,
    lr: float = 1e-2,
    momentum: float = 0.9,
    decay: float = 0.0,
) -> Any:
    """Gradients ((1 - decay) dw, dm - lr (1 + momentum) dw, momentum dm - lr momentum^2 dw).

    dw: the gradient of the new weights, or a pair (dw, dm) with that of the new moment.
    """
    return backward("sgd", dw, [w, gradient, moment], lr=lr, momentum=momentum, decay=decay)
