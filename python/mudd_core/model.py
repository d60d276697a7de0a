"""A model: parameters in the core's store, and the graphs that were planned over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mudd_core import _core, tape
from mudd_core.generate import Generator
from mudd_core.models import Batch, model_function
from mudd_core.recording import Immediate, Recorder, running
from mudd_core.tape import shards as shard_cuts

Array = npt.NDArray[Any]

_OPTIONAL = ("positions", "segments", "key_mask")


class Planned:
    """A planned graph for one shape: fill(), run(), read."""

    def __init__(
        self,
        executor: Any,
        inputs: tuple[str, ...],
        outputs: tuple[int, ...],
        aux: int = -1,
        figures: tuple[int, ...] = (),
    ) -> None:
        self.executor = executor
        self.inputs = inputs
        self.outputs = outputs  # logits, or the loss and the count
        self.aux, self.figures = aux, figures  # of Hidden.aux; -1: none

    def fill(self, batch: Mapping[str, Array]) -> None:
        """Copies the arrays of a batch into the graph's inputs."""
        for name in self.inputs:
            self.executor.set(name, batch[name])

    def sums(self) -> tuple[float, float]:
        """(summed nats, the auxiliary ones included; counted targets) of the last run of a graph with a loss."""
        loss, count = (_tree(self.executor.get(number)) for number in self.outputs)
        return loss + (_tree(self.executor.get(self.aux)) if self.aux >= 0 else 0.0), count


class Model:
    """A language model of any family.

    config: a model config with vocab_size and max_seq_len filled in. seed: of the initial weights. admit: called with
    the number of weights before memory is taken for them; it may raise.
    booked_only: for planning, of any size: takes no memory and cannot run.
    precision: "fp32", or "bf16" for activations and operands of products in bf16 (weights themselves stay fp32).
    """

    def __init__(
        self,
        config: Any,
        *,
        seed: int = 0,
        initialize: bool = True,
        admit: Callable[[int], None] | None = None,
        booked_only: bool = False,
        precision: str = "fp32",
    ) -> None:
        if config.vocab_size <= 0 or config.max_seq_len <= 0:
            raise ValueError(
                "[model] vocab_size and max_seq_len: expected positive numbers; fill in the zeros first"
            )
        self.config = config
        self.normalize = "valid"  # the denominator of loss and gradients, as loss.normalize
        if precision not in tape.COMPUTE:
            raise ValueError(
                f"[model] precision: expected one of {', '.join(tape.COMPUTE)}, got {precision!r}"
            )
        self.precision = precision
        self.store = _core.ParamStore(tape.COMPUTE[precision])
        self._plans: dict[tuple[Any, ...], Planned] = {}
        self._generator: Generator | None = None
        recorder = Recorder(self.store, training=False, samples=1, shards=1)
        with running(recorder):
            model_function(config)(config, Batch(recorder.input("inputs", (1, 1))), None)
        if admit is not None:
            admit(self.n_parameters)
        self.store.allocate(booked_only)
        if initialize and not booked_only:
            self.store.initialize(seed)

    # ---- parameters -----------------------------------------------------------------------------------------

    @property
    def parameters(self) -> dict[str, Array]:
        """Name to read-only view of the master weights (contracts 13); write through set_parameter."""
        return {name: self.store.view(0, name) for name in self.store.names()}

    def set_parameter(self, name: str, value: Array) -> None:
        """Replaces the weights of one parameter (float32, same shape) and repacks them."""
        try:
            self.store.set(0, name, value)
        except KeyError:
            raise KeyError(f"[model] parameter: there is no '{name}'") from None

    @property
    def n_parameters(self) -> int:
        """Number of weights."""
        return int(self.store.elements)

    # ---- graphs ---------------------------------------------------------------------------------------------

    def plan(
        self,
        mode: str,
        samples: int,
        length: int,
        *,
        shards: int = 1,
        optional: tuple[str, ...] = (),
        **options: Any,
    ) -> Planned:
        """The graph of a mode (train, evaluate, logits) for [samples, length] ids, planned on first use and kept.

        shards: logical shards of one run. options: of the executor (runs_per_step, reuse, recompute, shift, poison,
        check_finite, gradient_rows).
        """
        key = (mode, samples, length, shards, optional, tuple(sorted(options.items())))
        if key not in self._plans:
            self._plans[key] = self._record(mode, samples, length, shards, optional, options)
        return self._plans[key]

    def _record(
        self,
        mode: str,
        samples: int,
        length: int,
        shards: int,
        optional: tuple[str, ...],
        options: dict[str, Any],
    ) -> Planned:
        recorder = Recorder(self.store, training=mode == "train", samples=samples, shards=shards)
        shape = (samples, length)
        names = ("inputs", *optional) if mode == "logits" else ("inputs", "targets", *optional)
        batch = Batch(**{name: recorder.input(name, shape) for name in names})
        with running(recorder):
            hidden = model_function(self.config)(self.config, batch, None)
            outputs = (hidden.logits(),) if mode == "logits" else hidden.loss(batch.targets)
            further = hidden.aux if mode != "logits" else None
            aux = further.loss(batch.targets).number if further else -1
        numbers = tuple(value.number for value in outputs)
        figures = tuple(value.number for value in further.figures) if further else ()
        kept = [*numbers, *([aux] if further else []), *figures]
        losses = [numbers[0], *([aux] if further else [])] if mode == "train" else []
        executor = _core.Executor(recorder.graph, self.store, losses=losses, keep=kept, **options)
        return Planned(executor, names, numbers, aux, figures)

    # ---- what users ask -------------------------------------------------------------------------------------

    def adapt(self, batch: Mapping[str, npt.ArrayLike]) -> Mapping[str, npt.ArrayLike]:
        """A caller's batch as inputs, targets and the optional parts; a model of an original takes its own."""
        return batch

    def logits(self, tokens: npt.ArrayLike | Mapping[str, npt.ArrayLike]) -> Array:
        """Logits [B, T, V] (float32) of token ids [B, T], or [T, V] of [T]; row t predicts token t + 1.

        A batch (see loss_and_gradients) may stand in place of the ids.
        """
        if isinstance(tokens, Mapping):
            arrays, optional = self.checked(self.adapt(tokens))
            planned = self.plan("logits", *arrays["inputs"].shape, optional=optional)
            planned.fill(arrays)
        else:
            ids = self._ids(tokens, "tokens")
            planned = self.plan("logits", *ids.shape)
            planned.fill({"inputs": ids})
        planned.executor.run()
        result = np.array(planned.executor.get(planned.outputs[0]))
        return result[0] if not isinstance(tokens, Mapping) and np.ndim(tokens) == 1 else result

    def evaluate(self, batch: Mapping[str, Array]) -> tuple[float, int]:
        """Summed nats and counted targets of a batch of inputs and targets int32 [B, T], taken as they are."""
        planned = self.plan("evaluate", *batch["inputs"].shape)
        planned.fill(batch)
        planned.executor.run()
        loss, count = (_tree(planned.executor.get(number)) for number in planned.outputs)
        return loss, int(count)

    def loss(self, batch: Mapping[str, npt.ArrayLike], *, shards: int = 1) -> float:
        """Loss in nats of a batch, over its counted targets or all its slots as `normalize` says.

        As in training: a mixture's auxiliary losses are in it (evaluate leaves them out).
        """
        arrays, optional = self.checked(self.adapt(batch))
        planned = self.plan("evaluate", *arrays["inputs"].shape, shards=shards, optional=optional)
        planned.fill(arrays)
        planned.executor.run()
        loss, count = planned.sums()
        return loss / self._denominator(count, arrays)

    def loss_and_gradients(
        self, batch: Mapping[str, npt.ArrayLike], *, shards: int = 1, **options: Any
    ) -> tuple[float, dict[str, Array]]:
        """Loss in nats and its gradient by every parameter, over the denominator that `normalize` names.

        batch: inputs and targets int32 [B, T] (a negative target is ignored), optional positions, segments, key_mask.
        options: of the executor, for tests.
        """
        arrays, optional = self.checked(self.adapt(batch))
        planned = self.plan("train", *arrays["inputs"].shape, shards=shards, optional=optional, **options)
        planned.fill(arrays)
        planned.executor.run()
        loss, count = planned.sums()
        denominator = self._denominator(count, arrays)
        scale = np.float32(1.0 / denominator)
        gradients = {name: planned.executor.gradient(name) * scale for name in self.store.names()}
        return loss / denominator, gradients

    def loss_and_gradients_immediate(
        self, batch: Mapping[str, npt.ArrayLike], *, shards: int = 1
    ) -> tuple[float, dict[str, Array]]:
        """The same through the immediate executor and its tape: same numbers, bit for bit."""
        arrays, _ = self.checked(self.adapt(batch))
        scope = Immediate(self.store)
        cuts = shard_cuts(arrays["inputs"].shape[0], shards)
        with running(scope), cuts, tape.precision(self.precision):
            hidden = model_function(self.config)(self.config, Batch(**arrays), None)
            loss, count = hidden.loss(arrays["targets"])
            aux = [hidden.aux.loss(arrays["targets"])] if hidden.aux else []
            tape.backward(loss, *aux)
        denominator = self._denominator(_tree(count.data), arrays)
        scale = np.float32(1.0 / denominator)
        gradients = {name: leaf.grad * scale for name, leaf in scope.leaves.items() if leaf.grad is not None}
        total = _tree(loss.data)
        for further in aux:
            total += _tree(further.data)
        return total / denominator, gradients

    def _denominator(self, count: float, arrays: Mapping[str, Array]) -> float:
        if self.normalize == "all_slots":
            return float(arrays["targets"].size)
        return max(1.0, count)

    def generate(
        self,
        tokens: npt.ArrayLike,
        *,
        max_tokens: int = 100,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        ids_below: int = 0,
    ) -> Iterator[int]:
        """Yields the tokens that follow `tokens` [T], one by one, with a KV cache.

        temperature 0 takes the likeliest token: exactly the argmax of `logits` at every position. top_k keeps the k
        likeliest (0: all), top_p the smallest set of at least that probability. ids_below: only ids below it (0: all),
        for a vocabulary that is larger than its tokenizer's.
        """
        if self._generator is None:
            self._generator = Generator(self.config, self.store)
        ids = self._ids(tokens, "tokens")
        if ids.shape[0] != 1:
            raise ValueError(f"[generate] tokens: expected one sequence, got {ids.shape[0]}")
        return self._generator.run(
            ids[0],
            max_tokens=max_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            ids_below=ids_below,
        )

    def _ids(self, tokens: npt.ArrayLike, name: str) -> Array:
        given = np.asarray(tokens)
        if given.dtype.kind not in "iu":
            raise TypeError(f"[model] {name}: expected integers, got {given.dtype}")
        ids = np.atleast_2d(given)
        if ids.ndim != 2 or ids.size == 0:
            raise ValueError(
                f"[model] {name}: expected [B, T] or [T] with at least one id, got shape {given.shape}"
            )
        if ids.shape[1] > self.config.max_seq_len:
            raise ValueError(
                f"[model] {name}: expected at most {self.config.max_seq_len} positions, got {ids.shape[1]}"
            )
        high = int(ids.max())
        if high >= self.config.vocab_size or (name != "targets" and int(ids.min()) < 0):
            raise ValueError(
                f"[model] {name}: expected ids in [0, {self.config.vocab_size}), got up to {high}"
            )
        return np.ascontiguousarray(ids, dtype=np.int32)

    def checked(self, batch: Mapping[str, npt.ArrayLike]) -> tuple[dict[str, Array], tuple[str, ...]]:
        """(int32 arrays [B, T] of a batch, names of its optional parts); ValueError or TypeError for a bad one."""
        unknown = set(batch) - {"inputs", "targets", *_OPTIONAL}
        if unknown or not {"inputs", "targets"} <= set(batch):
            raise ValueError(
                f"[model] batch: expected inputs, targets and optionally {', '.join(_OPTIONAL)}; "
                f"got {', '.join(sorted(batch))}"
            )
        arrays = {name: self._ids(batch[name], name) for name in ("inputs", "targets")}
        optional = tuple(name for name in _OPTIONAL if batch.get(name) is not None)
        for name in optional:
            arrays[name] = np.ascontiguousarray(np.atleast_2d(np.asarray(batch[name])), dtype=np.int32)
        for name, array in arrays.items():
            if array.shape != arrays["inputs"].shape:
                raise ValueError(
                    f"[model] {name}: expected shape {arrays['inputs'].shape}, got {array.shape}"
                )
        return arrays, optional


def _tree(values: Array) -> float:
    return float(_core.tree_sum(values))
