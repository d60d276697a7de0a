"""A model: parameters in the core's store, the graphs planned over them, and the user's calls."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Never, SupportsIndex

import numpy as np
import numpy.typing as npt

from mudd_core import _core
from mudd_core.base.arguments.known import Hinted, known_arguments
from mudd_core.base.errors import UserError
from mudd_core.base.in_use import InUse, alone
from mudd_core.base.other_names import MODEL
from mudd_core.base.types import Array, Float32
from mudd_core.config import Config, LoraConfig, LossConfig, ModelConfig
from mudd_core.config.schema import lora_of
from mudd_core.dist import Comm
from mudd_core.engine.argument_check import require_model_config
from mudd_core.engine.batch_check import checked_ids
from mudd_core.engine.cut import Cut
from mudd_core.engine.frozen import set_weight, weight_view
from mudd_core.engine.generate import Generator, check_sampling, make_generator, ring_positions, sampler
from mudd_core.engine.inside import InForce
from mudd_core.engine.lora import adapters_for, require_shards, trained_of
from mudd_core.engine.losses import Losses
from mudd_core.engine.model_folder import read_model, require_shapes, take_saved, write_model
from mudd_core.engine.model_shape import expected_vocabulary, resolved_model
from mudd_core.engine.parameter_tree import counted, lines_of
from mudd_core.engine.parameters import Parameters
from mudd_core.engine.planned import Planned, declare_parameters
from mudd_core.engine.teaching import Teaching
from mudd_core.graph import scopes
from mudd_core.graph.parameters import Store

if TYPE_CHECKING:
    from mudd_core.data.tokenizers.tokenizer import Tokenizer


class Model(Parameters, Losses, Hinted):
    """A language model of any family. Only one thread may use it at a time; another one gets RuntimeError.

    config: a model config with vocab_size and max_seq_len set, or a whole Config. The tokenizer and the train section
    of a Config set these sizes, the seed and the precision. seed: the seed of the initial weights; None is 0.
    booked_only: only plan a model of any size, without memory; it cannot run. precision: "fp32" (None), or "bf16" for
    bf16 activations and matmul operands; weights stay fp32. comm: communicator of ranks that train together; the ranks
    of a node share one copy of the weights. All ranks make the same calls. stored: "bfloat16" or "float16" for each
    matrix that stays frozen and is stored in half the memory. held: elements [begin, end) of the parameters of which
    this rank has only some rows. cut: the sharding of weights, gradients and state across ranks; if ranks store only
    slices, all ranks run every graph together. experts: the ranks that share the experts; they too run every graph
    together. lora: adapters of the linear layers, which are then the only parameters that train; a whole Config has
    this setting. lent: arrays of the caller, such as a mapped file, that contain some of `stored`; uint16 words for
    bfloat16.
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
        self.in_use = InUse("model")  # the Trainer of this model uses the same lock
        self.teaching: Teaching | None = None  # the teacher of the run that trains the model
        self.pairs: LossConfig | None = None  # the loss of pairs of answers, if the model trains on these
        self.regularized: LossConfig | None = (
            None  # the loss with label smoothing or a z-loss, if training has one
        )
        self.normalize = "valid"  # sets the denominator of loss and gradients; see loss.normalize
        if precision not in scopes.COMPUTE:
            raise ValueError(
                f"[model] precision: expected one of {', '.join(scopes.COMPUTE)}, got {precision!r}"
            )
        self.precision = precision
        self.evaluated_at_once = 0  # most sequences in one evaluation graph run; 0: a whole batch
        self.store = Store(scopes.COMPUTE[precision])
        self.lora = lora
        if lora is not None:
            self.store.adapters = adapters_for(config, lora)
        self._plans: dict[tuple[Hashable, ...], Planned] = {}
        self._generator: Generator | None = None
        self._in_force = InForce()
        declare_parameters(config, self.store, stored)
        self._trained = self._chosen_to_train(stored or {})  # names of the parameters that train; empty: all
        self.comm, self.experts, self.cut = comm, experts, cut
        self._deal_parts(held or {}, lent or {})
        shared = comm is not None and comm.node_size > 1 and not booked_only
        self.store.allocate(booked_only, _core.NodeMemory(comm.core) if comm and shared else None)
        if cut is not None and cut.holds_slices and comm is not None and not booked_only:
            self._source = _core.CutWeights(self.store, comm.core)
        if initialize and not booked_only:
            self.store.initialize(seed)

    def _chosen_to_train(self, stored: Mapping[str, str]) -> tuple[str, ...]:
        """Return the names of the parameters that train (empty: all); with adapters only these train."""
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
            require_shards(self.store, self.experts.ranks)
            self.store.deal_experts(self.experts)
        if self.cut is not None:
            self.cut.apply(self.store)
        self.store.lent = lent
        for name, array in lent.items():
            self.store.lend(name, array)

    # ---- files ----------------------------------------------------------------------------------------------

    @alone
    def save(self, folder: str | Path, tokenizer: Tokenizer | None = None) -> Path:
        """Write config, weights and the optional tokenizer to a folder; return its path.

        The folder appears complete or not at all, and replaces an earlier model.save(). Raise UserError for a folder
        with other files, SaveError if writing fails. Model.load and mc.load read it.
        """
        return write_model(self, folder, tokenizer)

    @classmethod
    def load(cls, folder: str | Path) -> Model:
        """Return the model in a folder of model.save(), with the same logits, bit for bit.

        Raise UserError for another folder (mc.load opens runs and Hugging Face folders), FormatError if it is damaged.
        """
        saved = read_model(folder)
        require_shapes(
            Model(saved.config, booked_only=True, lora=saved.lora).store, saved, folder
        )  # checked before memory is allocated
        model = Model(
            saved.config, initialize=False, precision=saved.precision, stored=saved.stored, lora=saved.lora
        )
        take_saved(model, saved)
        return model

    @alone
    def __deepcopy__(self, memo: dict[int, Model]) -> Model:
        """Return a model with copies of the weights: `copy.deepcopy(model)`. Raise UserError for a sharded model."""
        if self.comm is not None and self.comm.world > 1:
            raise UserError(
                "[model] deepcopy: expected a model of one process, got one that several ranks train; save the run and "
                "open it with mc.load(FOLDER)"
            )
        twin = memo[id(self)] = self._empty_twin()
        twin.normalize = self.normalize
        for name in self.store.names():
            set_weight(twin.store, name, weight_view(self.store, name))
        if self._trained:
            twin.train_only(self._trained)
        return twin

    def _empty_twin(self) -> Model:
        """Return a model of the same config and types without weights."""
        return Model(
            self.config,
            initialize=False,
            precision=self.precision,
            stored=self._stored_types(),
            lora=self.lora,
        )

    def _stored_types(self) -> dict[str, str]:
        """Return the type of each weight that is stored in 16 bits."""
        types = {name: self.store.describe(name)["stored"] for name in self.store.names()}
        return {name: kind for name, kind in types.items() if kind != "float32"}

    def __copy__(self) -> Never:
        raise TypeError(
            "[model] copy.copy: expected copy.deepcopy(model), because two models cannot share their weights"
        )

    def __reduce_ex__(self, protocol: SupportsIndex) -> Never:
        raise TypeError(
            "[model] pickle: expected no pickling of a model; type model.save(folder) and mc.Model.load(folder), or "
            "copy.deepcopy(model) for a copy in memory"
        )

    def __repr__(self) -> str:
        head = f"{type(self).__name__}({self.config.family}, {self.precision}): {counted(self._leaves())}"
        return "\n".join([head, *lines_of(self._leaves())])

    # ---- evaluation and generation --------------------------------------------------------------------------

    @known_arguments("Model.logits")
    @alone
    def logits(self, tokens: npt.ArrayLike | Mapping[str, npt.ArrayLike]) -> Float32:
        """Return logits [B, T, V] (float32) of token ids [B, T], or [T, V] of [T]; position t predicts token t + 1.

        tokens may also be a batch (see loss_and_gradients).
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

    @known_arguments("Model.logits")
    def __call__(self, tokens: npt.ArrayLike | Mapping[str, npt.ArrayLike]) -> Float32:
        """Return the logits of token ids or of a batch: `model(ids)` is model.logits(ids)."""
        return self.logits(tokens)

    @known_arguments("Model.generate")
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
        """Yield up to max_tokens tokens after `tokens` [T], one by one, with a separate KV cache.

        temperature=0 is greedy: exactly the argmax of `logits` at every position. top_k keeps the k likeliest tokens
        (0: all); top_p keeps the smallest set of tokens with at least that probability. ids_below: use only smaller ids
        (0: all), for a vocabulary that is larger than its tokenizer's. window="stop" ends one token after the prompt
        and the new tokens fill max_seq_len. "ring" continues: each new token replaces the oldest one in the cache,
        which needs rotary positions (docs/maths/mup.md). A Mixtral with capacity_factor drops no token here, so its
        tokens may differ from that argmax; a UserWarning says so.
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
        return self.generator(positions, stacklevel=5).run(
            ids[0],
            max_tokens=max_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            ids_below=ids_below,
        )

    def generator(self, positions: int = 0, stacklevel: int = 3) -> Generator:
        """Return the decoding graphs of the model. positions: as for Generator. stacklevel: of a UserWarning."""
        if self._generator is None or self._generator.positions != positions:
            self._generator = make_generator(self.config, self.store, self.in_use, positions)
            if note := self.config.decoding_note:
                warnings.warn(f"[generate] {note}", stacklevel=stacklevel)
        return self._generator

    @contextmanager
    def brief_decoding(self) -> Iterator[None]:
        """Free the caches and packed weights of generate() at the end of the block.

        Use this for a sample between two updates. Otherwise each update would also refresh these packed weights.
        """
        with self.in_use:
            requests, before = self.store.pack_requests, self._generator
            self._generator = None
            try:
                yield
            finally:
                self._generator = before
                self.store.drop_packs(requests)
