"""A model: parameters in the core's store, the graphs planned over them, and what users ask of both."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mudd_core import _core
from mudd_core.base.in_use import InUse, alone
from mudd_core.base.other_names import MODEL, Hinted
from mudd_core.base.types import Array, Float32
from mudd_core.config import Config, LoraConfig, ModelConfig
from mudd_core.config.schema import lora_of
from mudd_core.dist import Comm
from mudd_core.engine.argument_check import require_model_config
from mudd_core.engine.batch_check import checked_ids
from mudd_core.engine.cut import Cut
from mudd_core.engine.generate import Generator, check_sampling, make_generator, ring_positions, sampler
from mudd_core.engine.inside import InForce
from mudd_core.engine.lora import adapters_for, trained_of
from mudd_core.engine.losses import Losses
from mudd_core.engine.model_folder import read_model, require_shapes, take_saved, write_model
from mudd_core.engine.model_shape import expected_vocabulary, resolved_model
from mudd_core.engine.parameter_tree import counted, lines_of
from mudd_core.engine.parameters import Parameters
from mudd_core.engine.planned import Planned, declare_parameters
from mudd_core.graph import scopes
from mudd_core.graph.parameters import Store

if TYPE_CHECKING:
    from mudd_core.data.tokenizers.tokenizer import Tokenizer


class Model(Parameters, Losses, Hinted):
    """A language model of any family; for one thread at a time (RuntimeError in the other).

    config: a model config with vocab_size and max_seq_len filled in, or a whole Config, whose tokenizer and train
    section then fill in these, seed and precision. seed: of the initial weights; None is 0.
    booked_only: for planning, of any size: takes no memory and cannot run.
    precision: "fp32" (None), or "bf16" for activations and operands of matmuls in bf16; weights themselves stay fp32.
    comm: of the ranks that train together: those of a node share one copy of the weights. All make the same calls.
    stored: "bfloat16" or "float16" for each matrix to be frozen for good and stored so, in half the memory.
    held: elements [begin, end), whole rows, of the parameters of which this rank has only a part. cut: how the ranks
    cut weights, gradients and state among them; where it holds slices, all of them run every graph together. experts:
    the ranks that hold the experts between them, which then run every graph together, too. lora: adapters beside the
    linear layers, which alone train; a whole Config brings its own. lent: arrays of the caller that some of `stored`
    lie in, such as a mapped file; uint16 words of bfloat16.
    """

    _other_names = MODEL

    def __init__(
        self,
        config: ModelConfig | Config,
        *,
        seed: int | None = None,
        initialize: bool = True,
        booked_only: bool = False,
        precision: str | None = None,
        comm: Comm | None = None,
        stored: Mapping[str, str] | None = None,
        held: Mapping[str, tuple[int, int]] | None = None,
        experts: _core.ExpertGroup | None = None,
        cut: Cut | None = None,
        lora: LoraConfig | None = None,
        lent: Mapping[str, Array] | None = None,
    ) -> None:
        if isinstance(config, Config):
            seed = config.train.seed if seed is None else seed
            precision = precision or config.train.precision
            lora = lora or lora_of(config)
            config = resolved_model(config, config.model.vocab_size or expected_vocabulary(config))
        require_model_config(config)
        seed, precision = index(seed or 0), precision or "fp32"
        self.config = config
        self.in_use = InUse("model")  # its Trainer holds it too
        self.normalize = "valid"  # the denominator of loss and gradients, as loss.normalize
        if precision not in scopes.COMPUTE:
            raise ValueError(
                f"[model] precision: expected one of {', '.join(scopes.COMPUTE)}, got {precision!r}"
            )
        self.precision = precision
        self.evaluated_at_once = 0  # most sequences in a run of the evaluation graph; 0: a whole batch
        self.store = Store(scopes.COMPUTE[precision])
        self.lora = lora
        if lora is not None:
            self.store.adapters = adapters_for(config, lora)
        self._plans: dict[tuple[Hashable, ...], Planned] = {}
        self._generator: Generator | None = None
        self._in_force = InForce()
        declare_parameters(config, self.store, stored)
        self._trained = self._chosen_to_train(stored or {})  # names; empty: all
        self.comm, self.experts, self.cut = comm, experts, cut
        self._deal_parts(held or {}, lent or {})
        shared = comm is not None and comm.node_size > 1 and not booked_only
        self.store.allocate(booked_only, _core.NodeMemory(comm.core) if comm and shared else None)
        if cut is not None and cut.holds_slices and comm is not None and not booked_only:
            self._source = _core.CutWeights(self.store, comm.core)
        if initialize and not booked_only:
            self.store.initialize(seed)

    def _chosen_to_train(self, stored: Mapping[str, str]) -> tuple[str, ...]:
        """Return the names of the parameters that train, and let adapters train alone. Empty: all train."""
        names = self.store.names()
        if self.lora is not None:
            trained = tuple(trained_of(names))
            self.store.train_only(list(trained))
        else:
            trained = tuple(name for name in names if name not in stored)
        return () if len(trained) == len(names) else trained

    def _deal_parts(self, held: Mapping[str, tuple[int, int]], lent: Mapping[str, Array]) -> None:
        """Tell the store which parts of the weights this rank has, and which are arrays of the caller."""
        for name, (begin, end) in held.items():
            self.store.hold(name, begin, end)
        if self.experts is not None:
            self.store.deal_experts(self.experts)
        if self.cut is not None:
            self.cut.apply(self.store)
        self.store.lent = lent
        for name, array in lent.items():
            self.store.lend(name, array)

    # ---- files ----------------------------------------------------------------------------------------------

    @alone
    def save(self, folder: str | Path, tokenizer: Tokenizer | None = None) -> Path:
        """Write config, weights and, where one is given, the tokenizer to a folder, and return its path.

        The folder appears whole or not at all, in the place of an earlier model.save() there. UserError for a folder
        with other files, SaveError where the disk refuses. Model.load or mc.load reads it.
        """
        return write_model(self, folder, tokenizer)

    @classmethod
    def load(cls, folder: str | Path) -> Model:
        """The model that model.save() wrote to a folder: the same logits, bit for bit.

        UserError for another folder (mc.load opens those of runs and of Hugging Face), FormatError for a damaged one.
        """
        saved = read_model(folder)
        require_shapes(
            Model(saved.config, booked_only=True, lora=saved.lora).store, saved, folder
        )  # before memory is taken
        model = Model(
            saved.config, initialize=False, precision=saved.precision, stored=saved.stored, lora=saved.lora
        )
        take_saved(model, saved)
        return model

    def __repr__(self) -> str:
        head = f"{type(self).__name__}({self.config.family}, {self.precision}): {counted(self._leaves())}"
        return "\n".join([head, *lines_of(self._leaves())])

    # ---- what users ask -------------------------------------------------------------------------------------

    @alone
    def logits(self, tokens: npt.ArrayLike | Mapping[str, npt.ArrayLike]) -> Float32:
        """Logits [B, T, V] (float32) of token ids [B, T], or [T, V] of [T]; row t predicts token t + 1.

        A batch (see loss_and_gradients) may stand in place of the ids.
        """
        arrays, optional = self.arrays_of(tokens)
        if self.inside.is_patched:
            result = self.inside.logits(arrays)
        else:
            planned = self.plan("logits", *arrays["inputs"].shape, optional=optional)
            planned.fill(arrays)
            planned.executor.run()
            result = np.array(planned.executor.get(planned.outputs[0]))
        return result[0] if not isinstance(tokens, Mapping) and np.ndim(tokens) == 1 else result

    def __call__(self, tokens: npt.ArrayLike | Mapping[str, npt.ArrayLike]) -> Float32:
        """The logits of token ids or of a batch: `model(ids)` is model.logits(ids)."""
        return self.logits(tokens)

    @alone
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
        window: str = "stop",
    ) -> Iterator[int]:
        """Yields the tokens that follow `tokens` [T], one by one, with a KV cache of their own.

        temperature 0 takes the likeliest token: exactly the argmax of `logits` at every position. top_k keeps the k
        likeliest (0: all), top_p the smallest set of at least that probability. ids_below: only ids below it (0: all),
        for a vocabulary that is larger than its tokenizer's. window="stop" ends early at max_seq_len tokens with the
        prompt, and one more; "ring" goes on: each token then takes the place of the oldest one in the cache, which
        needs rotary positions (docs/maths/mup.md). A Mixtral with a capacity_factor
        drops nothing here, so its tokens may differ from that argmax; a UserWarning says so.
        """
        ids = checked_ids(tokens, "tokens", self.config)
        if ids.shape[0] != 1:
            raise ValueError(f"[generate] tokens: expected one sequence, got {ids.shape[0]}")
        check_sampling(max_tokens=max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
        positions = ring_positions(self.config, ids.size + max_tokens, window)
        if self.inside.is_patched:
            sample = sampler(
                temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, ids_below=ids_below
            )
            return self.inside.tokens(ids[0], max_tokens, sample, positions)
        if self._generator is None or self._generator.positions != positions:
            self._generator = make_generator(self.config, self.store, self.in_use, positions)
            if note := self.config.decoding_note:
                warnings.warn(f"[generate] {note}", stacklevel=3)
        return self._generator.run(
            ids[0],
            max_tokens=max_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            ids_below=ids_below,
        )

    @contextmanager
    def brief_decoding(self) -> Iterator[None]:
        """Let generate() keep nothing after the block: its caches and packed weights are freed.

        For a text between two updates, each of which would otherwise refresh these packed weights too.
        """
        with self.in_use:
            requests, before = self.store.pack_requests, self._generator
            self._generator = None
            try:
                yield
            finally:
                self._generator = before
                self.store.drop_packs(requests)
