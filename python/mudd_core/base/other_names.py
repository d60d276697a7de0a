"""Names from PyTorch and transformers, each with the mudd_core name to use instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

_CPU = "mudd_core computes on the CPU; leave this call out"
_SAME = "training and evaluation need no switch; leave this call out"

MODEL = {
    "bfloat16": 'type mc.Model(config, precision="bf16")',
    "compile": _SAME,
    "cpu": _CPU,
    "cuda": _CPU,
    "device": _CPU,
    "eval": _SAME,
    "float": _CPU,
    "forward": "type model(ids) or model.logits(ids)",
    "from_pretrained": 'type mc.load("folder") for a folder of weights',
    "half": 'type mc.Model(config, precision="bf16")',
    "named_parameters": "type model.parameters.items()",
    "num_parameters": "type model.n_parameters",
    "requires_grad_": "type model.train_only(names) to freeze all others",
    "save_pretrained": 'type model.save("folder")',
    "to": _CPU,
    "train": "type mc.Trainer(config, model=model).fit(), or trainer.step(batch) for one update",
    "zero_grad": "type loss, gradients = model.loss_and_gradients(batch), which are new each time",
}
TENSOR = {
    "abs": "type abs(t)",
    "clone": "type mc.Tensor(t.data.copy())",
    "cpu": _CPU,
    "cuda": _CPU,
    "detach": "type np.asarray(t) for the numbers, or mc.Tensor(t.data) for a new leaf",
    "device": _CPU,
    "dim": "type t.ndim",
    "exp": "type np.exp(t)",
    "flatten": "type t.reshape(-1)",
    "log": "type np.log(t)",
    "matmul": "type a @ b",
    "permute": "type t.transpose(axes)",
    "pow": "type t ** 2",
    "relu": 'type mc.ops.activation(t, activation="relu")',
    "requires_grad_": "type mc.Tensor(x, requires_grad=True)",
    "sqrt": "type np.sqrt(t)",
    "squeeze": "type t.reshape(shape)",
    "tanh": "type np.tanh(t)",
    "to": "type mc.Tensor(x.astype(np.float32)); " + _CPU,
    "tolist": "type np.asarray(t).tolist()",
    "unsqueeze": "type t[None]",
    "view": "type t.reshape(shape)",
    "zero_grad": "type t.grad = None",
}
TRAINER = {
    "evaluate": "type trainer.validate()",
    "load_state_dict": 'type mc.Trainer("runs/x"), which resumes a run',
    "lr_scheduler": "the schedule is in trainer.config.optim",
    "optimizer": "its settings are in trainer.config.optim; change them by config.replace before mc.Trainer(config)",
    "predict": "type trainer.model.generate(ids) or trainer.model.logits(ids)",
    "resume": 'type mc.Trainer("runs/x"), which resumes a run',
    "save_model": 'type trainer.save() for a checkpoint, or trainer.model.save("folder")',
    "test": "type trainer.validate()",
    "train": "type trainer.fit()",
    "training_step": "type trainer.step(batch)",
}
PACKAGE = {
    "AutoModelForCausalLM": 'type mc.load("folder")',
    "AutoTokenizer": 'type model, tokenizer = mc.load("folder")',
    "LLM": 'type run = mc.load_run("folder"); run.generate("text")',
    "compile": "a model is planned when it first runs; leave this call out",
    "cuda": _CPU,
    "device": _CPU,
    "from_numpy": "type mc.Tensor(array)",
    "manual_seed": "type mc.Model(config, seed=1), or the field train.seed of a config",
    "no_grad": "NumPy arrays record no gradients: call ops and models on them and leave this call out",
    "ones": "type mc.Tensor(np.ones(shape, np.float32))",
    "optim": 'an optimizer is a field of the config: mc.load_config("tiny.py", ["optim.name=muon"])',
    "randn": "type mc.Tensor(rng.standard_normal(shape, np.float32))",
    "save": 'type model.save("folder")',
    "tensor": "type mc.Tensor(x)",
    "utils": "data are fields of the config: data.path, data.pipeline, data.tokenizer",
    "zeros": "type mc.Tensor(np.zeros(shape, np.float32))",
}
OPS = {
    **{
        name: f'type mc.ops.activation(x, activation="{name}")'
        for name in ("elu", "leaky_relu", "mish", "relu", "selu", "sigmoid", "silu", "softplus", "tanh")
    },
    "gelu": 'type mc.ops.activation(x, activation="gelu_erf")',
    "layernorm": "type mc.ops.layer_norm(x, gain, bias)",
    "matmul": "type a @ b, or mc.ops.linear(x, w)",
    "rmsnorm": "type mc.ops.rms_norm(x, gain)",
    "scaled_dot_product_attention": "type mc.ops.attention(q, k, v, n_head=8)",
    "softmax": "type np.exp(x) / np.exp(x).sum(-1, keepdims=True), or mc.ops.attention and mc.ops.cross_entropy",
    "swiglu": "type mc.ops.glu(gate, up)",
}
NN = {
    "Embedding": 'type mc.nn.embedding(ids, "name", vocab_size, width, std=0.02) in a model function',
    "LayerNorm": 'type mc.nn.layer_norm(x, "name", eps=1e-5) in a model function',
    "Linear": 'type mc.nn.linear(x, "name", width, std=0.02) in a model function',
    "Module": "a model is a function (config, batch, cache) -> Hidden; see docs/adding.md",
    "Parameter": 'type mc.nn.parameter("name", shape, role="matrix", ...) in a model function',
    "RMSNorm": 'type mc.nn.rms_norm(x, "name", eps=1e-5) in a model function',
}


def unknown(owner: str, name: str, hints: Mapping[str, str]) -> AttributeError:
    """Return the error for a missing attribute; for a name of another library, the message has the replacement."""
    hint = f"; {hints[name]}" if name in hints else ""
    return AttributeError(f"[{owner}] there is no '{name}'{hint}")


class _Hinted(type):
    """A metaclass that explains missing attributes of a class, such as Model.from_pretrained."""

    if not TYPE_CHECKING:  # type checkers report missing attributes themselves

        def __getattr__(cls, name):
            raise unknown(cls.__name__, name, type.__getattribute__(cls, "_other_names"))


class Hinted(metaclass=_Hinted):
    """A base class whose table `_other_names` explains missing attributes of the class and of its objects."""

    _other_names: ClassVar[Mapping[str, str]] = {}

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            raise unknown(type(self).__name__, name, type(self)._other_names)
