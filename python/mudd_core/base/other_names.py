"""Names from PyTorch and transformers, each with the mudd_core name to use instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, ClassVar, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_CPU = "mudd_core computes on the CPU; leave this call out"
_TUNE = 'type mc.tune("folder", "chat.jsonl", "runs/mine")'
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
    "add_callback": "type trainer.fit(callback=FUNCTION), called with the trainer after each step",
    "callback": "type trainer.fit(callback=FUNCTION), called with the trainer after each step",
    "callbacks": "type trainer.fit(callback=FUNCTION), called with the trainer after each step",
    "evaluate": "type trainer.validate()",
    "global_step": "type trainer.step_done",
    "learning_rate": "type trainer.lr",
    "load_state_dict": 'type mc.Trainer("runs/x"), which resumes a run',
    "loss": 'type trainer.history["loss"]',
    "lr_scheduler": "the schedule is in trainer.config.optim",
    "optimizer": "its settings are in trainer.config.optim; change them by config.replace before mc.Trainer(config)",
    "predict": "type trainer.model.generate(ids) or trainer.model.logits(ids)",
    "resume": 'type mc.Trainer("runs/x"), which resumes a run',
    "save_model": 'type trainer.save() for a checkpoint, or trainer.model.save("folder")',
    "summary": "type summary = trainer.fit()",
    "test": "type trainer.validate()",
    "train": "type trainer.fit()",
    "training_step": "type trainer.step(batch)",
}
RUN = {
    "evaluate": "type run.validations, or mc.Trainer(folder).validate()",
    "export": 'type mc.export(run, "folder")',
    "fit": "type mc.Trainer(folder).fit(), which resumes the run",
    "folder": "type run.path",
    "history": "type run.metrics",
    "logs": "type run.metrics and run.validations",
    "loss": 'type run.metrics["loss"]',
    "predict": "type run.generate(text), or run.model.logits(ids)",
    "push_to_hub": 'type mc.export(run, "folder"), and upload the folder',
    "resume": "type mc.Trainer(folder).fit(), which resumes the run",
    "sample": "type run.generate(text)",
    "save": 'type run.model.save("folder"), or mc.export(run, "folder") for other programs',
    "save_pretrained": 'type mc.export(run, "folder"), or run.model.save("folder")',
    "steps": 'type run.metrics["step"], or run.checkpoints for the saved steps',
    "summary": "type run.metrics and run.validations",
    "train": "type mc.Trainer(folder).fit(), which resumes the run",
    "validate": "type mc.Trainer(run.path).validate()",
    "weights": "type run.model.state_dict()",
    "workdir": "type run.path",
}
PACKAGE = {
    "AutoModel": 'type mc.load("folder")',
    "AutoModelForCausalLM": 'type mc.load("folder")',
    "AutoTokenizer": 'type model, tokenizer = mc.load("folder")',
    "compile": "a model is planned when it first runs; leave this call out",
    "cuda": _CPU,
    "device": _CPU,
    "evaluate": 'type mc.Trainer("runs/x").validate()',
    "fine_tune": _TUNE,
    "finetune": _TUNE,
    "fit": 'type mc.Trainer("tiny.py", "runs/x").fit()',
    "from_numpy": "type mc.Tensor(array)",
    "from_pretrained": 'type mc.load("folder"), or mc.load_run("folder")',
    "generate": 'type mc.load_run("runs/x").generate("text")',
    "get_peft_model": _TUNE,
    "LLM": 'type run = mc.load_run("folder"); run.generate("text")',
    "load_model": 'type mc.load("folder")',
    "lora": _TUNE,
    "LoraModel": _TUNE,
    "manual_seed": "type mc.Model(config, seed=1), or the field train.seed of a config",
    "no_grad": "NumPy arrays record no gradients: call ops and models on them and leave this call out",
    "ones": "type mc.Tensor(np.ones(shape, np.float32))",
    "optim": 'an optimizer is a field of the config: mc.load_config("tiny.py", ["optim.name=muon"])',
    "pipeline": 'type run = mc.load_run("folder"); run.generate("text")',
    "randn": "type mc.Tensor(rng.standard_normal(shape, np.float32))",
    "resume": 'type mc.Trainer("runs/x").fit(), which resumes a run',
    "report": 'type mc.load_run("runs/x"), whose metrics are arrays',
    "sample": 'type mc.load_run("runs/x").generate("text")',
    "save": 'type model.save("folder")',
    "save_pretrained": 'type mc.export("runs/x", "folder") for other programs, or model.save("folder")',
    "set_seed": "type mc.Model(config, seed=1), or the field train.seed of a config",
    "sft": _TUNE,
    "SFTTrainer": _TUNE,
    "summary": 'type mc.plan("tiny.py")',
    "tensor": "type mc.Tensor(x)",
    "Tokenizer": 'type mc.load_run("runs/x").tokenizer',
    "train": 'type mc.Trainer("tiny.py", "runs/x").fit()',
    "TrainingArguments": 'type mc.load_config("tiny.py", train_steps=50), whose fields are its settings',
    "utils": "data are fields of the config: data.path, data.pipeline, data.tokenizer",
    "validate": 'type mc.Trainer("runs/x").validate()',
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

_FIELD = 'set the field {0} of the config: config.replace("{0}", {1})'
_STEPS, _EPOCHS = _FIELD.format("train.steps", 100), _FIELD.format("train.epochs", 2)
_DATA = _FIELD.format("data.path", '"my_text.txt"')
_WORKDIR = 'type mc.Trainer(config, workdir="runs/x")'
# Keyword arguments of other libraries, by the function here.
ARGUMENTS: dict[str, dict[str, str]] = {
    "compare": {
        "html": 'type mc.compare(first, second).save("page.html")',
        "runs": "type mc.compare(*runs)",
    },
    "export": {
        "format": 'type mc.export(run, folder, system="hf")',
        "merged": 'type mc.export(run, folder, form="merged")',
        "out": "type mc.export(run, folder)",
        "overwrite": "type mc.export(run, folder, force=True)",
    },
    "plan": {
        "batch_size": _FIELD.format("train.batch_size", 8),
        "nodes": "type mc.plan(config, ranks=8, ranks_per_node=4)",
        "processes": "type mc.plan(config, ranks=2)",
        "steps": _STEPS,
        "world": "type mc.plan(config, ranks=2)",
        "world_size": "type mc.plan(config, ranks=2)",
    },
    "Trainer": {
        "args": "the settings are fields of a config: mc.Trainer(config)",
        "batch_size": _FIELD.format("train.batch_size", 8),
        "callbacks": "type callback=FUNCTION, called with the trainer after each step",
        "data": _DATA,
        "dataset": _DATA,
        "device": _CPU,
        "epochs": _EPOCHS,
        "learning_rate": _FIELD.format("optim.lr", 1e-3),
        "lr": _FIELD.format("optim.lr", 1e-3),
        "max_epochs": _EPOCHS,
        "max_steps": _STEPS,
        "num_train_epochs": _EPOCHS,
        "optimizer": _FIELD.format("optim.name", '"muon"'),
        "out_dir": _WORKDIR,
        "output_dir": _WORKDIR,
        "precision": _FIELD.format("train.precision", '"bf16"'),
        "resume_from_checkpoint": 'type mc.Trainer("runs/x"), which resumes a run',
        "save_dir": _WORKDIR,
        "seed": _FIELD.format("train.seed", 1),
        "steps": _STEPS + ", or type trainer.fit(steps=100)",
        "tokenizer": _FIELD.format("data.tokenizer", '"folder"'),
        "train_dataset": _DATA,
    },
    "fit": {
        "callbacks": "type callback=FUNCTION",
        "epochs": _EPOCHS,
        "max_epochs": _EPOCHS,
        "max_steps": "type fit(steps=100)",
        "n": "type fit(steps=100)",
        "num_steps": "type fit(steps=100)",
        "resume_from_checkpoint": 'type mc.Trainer("runs/x").fit(), which resumes a run',
        "train_dataset": _DATA,
        "verbose": "type fit(progress=False) for no output",
    },
    "generate": {
        "do_sample": "temperature=0 is greedy, any other temperature samples",
        "input_ids": "type run.model.generate(ids) for token ids",
        "length": "type generate(prompt, max_tokens=100)",
        "max_length": "type generate(prompt, max_tokens=100), which does not include the prompt",
        "max_new_tokens": "type generate(prompt, max_tokens=100)",
        "num_beams": "there is no beam search; type temperature=0 for greedy text",
        "num_return_sequences": "type [run.generate(prompt, seed=i) for i in range(4)]",
        "prompts": "type generate([first, second])",
        "streaming": "type for text in run.generate(prompt, stream=True)",
        "streamer": "type for text in run.generate(prompt, stream=True)",
        "temp": "type generate(prompt, temperature=0.8)",
    },
    "load_run": {
        "checkpoint": "type load_run(path, step=100)",
        "device": _CPU,
        "trust_remote_code": "type load_run(path, trust_code=True)",
    },
}


def known_arguments(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator whose TypeError for an unknown keyword argument has the hint of ARGUMENTS[name]."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            require_known(name, function, kwargs)
            return function(*args, **kwargs)

        return checked

    return decorate


def public_signature(function: Callable[P, R], hidden: str, **annotations: str) -> Signature:
    """Return the signature of a constructor without self and the hidden parameters (names with blanks between).

    annotations: replacements for annotations with names that are not public.
    """
    shown = [
        parameter.replace(annotation=annotations.get(name, parameter.annotation))
        for name, parameter in signature(function).parameters.items()
        if name != "self" and name not in hidden.split()
    ]
    return Signature(shown, return_annotation=Parameter.empty)


def require_known(name: str, function: Callable[P, R], given: Iterable[str]) -> None:
    """Raise TypeError for the first keyword argument in `given` that a function does not have."""
    while wrapped := getattr(function, "__wrapped__", None):
        function = wrapped
    code = function.__code__
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    for argument in given:
        if argument not in known:
            names = ", ".join(each for each in known if each != "self")
            listed = f"the arguments are {names}" if names else "it has positional arguments only"
            hint = ARGUMENTS[name].get(argument, listed)
            raise TypeError(f"[{name}] there is no argument '{argument}'; {hint}")


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
