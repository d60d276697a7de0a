"""The forms of an export: adapters for PEFT, the merged model, or whole weights for another program."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mudd_core.base.types import Float32
from mudd_core.checkpoint.stored import StoredTensor
from mudd_core.config import Config, ModelConfig
from mudd_core.config.fields import replace_path
from mudd_core.data.tokenizers.tokenizer import Tokenizer
from mudd_core.engine.lora import merged_tensors
from mudd_core.engine.model import Model
from mudd_core.interop.imported import base_source, carrier, changed_since
from mudd_core.run.build.planned_model import spread_of
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.tools.export_weights.adapter import (
    adapted_model,
    base_tensors,
    base_types,
    rounded_weights,
    write_adapter,
)
from mudd_core.tools.export_weights.asked import Asked
from mudd_core.tools.export_weights.folder import Beside, carried_files, loaded_logits, write_theirs
from mudd_core.tools.export_weights.held_model import Alive, Held, held_model, take_weights
from mudd_core.tools.export_weights.model_card import NAME as CARD
from mudd_core.tools.export_weights.model_card import model_card
from mudd_core.tools.export_weights.probe import NEAR, difference, probe_logits, surely_routed
from mudd_core.tools.export_weights.record import Record
from mudd_core.tools.export_weights.template import trained_template


@dataclass(frozen=True)
class Outcome:
    """The result of an export as a sentence. system: the program that reads the folder.

    differs: True if the folder was removed, because its logits differ from the run's. loading: the line of Python that
    loads the folder.
    """

    text: str
    system: str
    step: int
    loading: str = ""
    differs: bool = False


@dataclass(frozen=True)
class Export:
    """An export of a step's checkpoint. Each method writes a folder, compares the logits, and returns the outcome.

    weights: the run's weights by name, on disk. is_cut: the model is sharded across ranks. alive: the heartbeat of a
    rank, called for each tensor. Only one model is in memory at a time.
    """

    asked: Asked
    config: Config
    run: RunFolder
    step: int
    ranks: Ranks
    weights: Mapping[str, StoredTensor]
    is_cut: bool
    alive: Alive

    def adapter(self, held: Held, base: str) -> Outcome:
        """Export only the adapters, for PEFT. base: the name of their base."""
        shape = held.model.config
        beside = self.beside(shape, {}, f"an adapter ({_lora_text(held.model)}) for PEFT", base, "peft")

        def write() -> int:
            files = {**carried_files(beside, shape), CARD: beside.card}
            last = beside.record.last("peft")
            return write_adapter(self.asked.folder, held.model, base, files, self.weights, last)

        tensors = self.ranks.from_first(write)
        want, kept = probe_logits(held.model), base_tensors(held.model.store, self.weights)
        held.drop()
        spread = spread_of(shape, self.config, self.ranks)
        again = adapted_model(self.asked.folder, shape, kept, spread, self.alive)
        far, largest = self._difference(again, want)
        if not far <= NEAR * largest:  # true for NaN too
            return self._differs(far, "peft")
        if Path(base).is_absolute() and not Path(base).is_dir():  # a hub name is not checked
            text = (
                f"PEFT reads the base from {base}, which does not exist; name another base with --base=FOLDER"
            )
            self.note(text)
        else:
            self.note_changes(base)
        text = f"{tensors} tensors in {self.asked.folder}, adapters of {base} for PEFT; {_same(largest)}"
        loads = self.loading("peft", "AutoPeftModelForCausalLM.from_pretrained({folder})")
        return Outcome(text, "peft", self.step, loads)

    def note_changes(self, base: str) -> None:
        """Print a note if the base of the adapters has changed since the tuning."""
        place = Path(base)
        if self.asked.args.base is None and (
            changed := changed_since(RunFolder(self.run.base_folder), place)
        ):
            self.note(
                f"{', '.join(changed)} in {base} changed after the tuning started; the adapters "
                "belong to the base as it was: name a copy of the old base with --base=FOLDER, or "
                "use --merged"
            )

    def merged(self, held: Held, systems: Sequence[str]) -> Outcome:
        """Export the whole model.

        Adapters are added in fp32, and the sums are rounded once to the types of the base.
        """
        shape, want = held.model.config, probe_logits(held.model)
        plain, weights = self.plain(held)
        far, largest = self._difference(plain.model, want)
        if not far <= NEAR * largest:  # true for NaN too
            return self._differs(far, systems[0])
        kinds = base_types(carrier(self.run, self.config), shape) if systems == ("hf",) else {}
        if narrow := sorted(set(kinds.values()) - {"F32"}):
            rounded = rounded_weights(shape, weights, kinds)
            self.ranks.together(lambda: take_weights(plain.model, rounded, self.alive))
            weights |= rounded
            moved, _ = difference(probe_logits(plain.model), want)
            self.note(
                f"rounded once to {', '.join(narrow)}, as the base has it: logits move by at most {moved:.2g}"
            )
        return self.whole(plain, systems, weights, kinds)

    def plain(self, held: Held) -> tuple[Held, dict[str, StoredTensor]]:
        """Replace the run's model by one with merged adapters; return it with its weights."""
        shape, weights = held.model.config, merged_tensors(self.weights, held.model.store)
        held.drop()
        spread = spread_of(shape, without_adapters(self.config), self.ranks)
        return Held(held_model(shape, weights, spread, self.alive)), weights

    def whole(
        self,
        held: Held,
        systems: Sequence[str],
        weights: Mapping[str, StoredTensor],
        kinds: Mapping[str, str],
    ) -> Outcome:
        """Export all weights with another program's names. weights: by mudd_core's names. kinds: as in write_theirs."""
        asked, base, shape = self.asked, base_source(self.run), held.model.config
        cut = weights if self.is_cut else None
        library = "transformers" if "hf" in systems else "mudd_core"
        beside = self.beside(shape, kinds, f"a model of the family {shape.family}", base, library)
        size = asked.args.shard_mb << 20
        system, tensors = self.ranks.from_first(
            lambda: write_theirs(
                asked.folder, held.model, systems, cut, beside, shard_bytes=size, alive=self.alive
            )
        )
        want = probe_logits(held.model)
        held.drop()
        config = without_adapters(self.config)
        far, largest = difference(loaded_logits(system, asked.folder, config, self.ranks, self.alive), want)
        program = "" if asked.args.system or system == "hf" else f" for {system}"
        changes = f" with {shlex.join(asked.changes)}" if asked.changes else ""
        call = "transformers", "AutoModelForCausalLM.from_pretrained({folder})"
        if system != "hf":
            call = "mudd_core.interop", f"load_original('{system}', {{folder}}, {{folder}})"
        text = f"{tensors} tensors in {asked.folder}{program}; {_same(largest, changes)}"
        return self.compared(text, far, system, *call)

    def compared(self, text: str, far: float, system: str, module: str, call: str) -> Outcome:
        """Return the text, or remove the folder if its logits differ from the model's. call: as for `loading`."""
        if far != 0.0:
            return self._differs(far, system)
        return Outcome(text, system, self.step, self.loading(module, call))

    def loading(self, module: str, call: str) -> str:
        """Return the line of Python that loads the folder. call: of a function in the module, with {folder}."""
        return f"import {module}; model = {module}.{call.format(folder=repr(str(self.asked.folder)))}"

    def _difference(self, model: Model, want: Float32) -> tuple[float, float]:
        """Return (largest difference, largest logit) between a model and `want`, whose sums have another order.

        Tokens for which rounding decides between two experts are not compared.
        """
        got = probe_logits(model)
        far, largest = difference(got, want)
        if far <= NEAR * largest or (sure := surely_routed(model)) is None or not sure.any():
            return far, largest
        far, largest = difference(got[sure], want[sure])
        if far <= NEAR * largest:
            self.note(
                f"compared at {sure.sum()} of {sure.size} tokens: at or before the others, the "
                "scores of two experts differ only by rounding, so either may be selected"
            )
        return far, largest

    def beside(
        self, model: ModelConfig, kinds: Mapping[str, str], kind: str, base: str, library: str
    ) -> Beside:
        """Return the files of the export. kinds: as in write_theirs. kind, base, library: as in model_card."""
        given, config, run = self.asked.args.tokenizer, self.config, self.run
        tokenizer = self.ranks.together(lambda: run_tokenizer(given, config, run, model.vocab_size))
        card = model_card(run, config, self.step, base, self.asked.words, kind, library)
        trained = None if tokenizer is None or given else trained_template(config, run, tokenizer)
        record, came = Record(self.asked, run, config, self.step, self.alive), carrier(run, config)
        return Beside(came, tokenizer, given is None, kinds, card, record, trained)

    def _differs(self, far: float, system: str) -> Outcome:
        """Remove the folder and return the reason."""
        if self.ranks.first:
            shutil.rmtree(self.asked.folder, ignore_errors=True)
        text = f"[export] logits of {self.asked.folder} differ by {far:.3e}; it was removed"
        return Outcome(text, system, self.step, differs=True)

    def note(self, text: str) -> None:
        """Print a note for the user."""
        if self.ranks.first:
            print(f"note: {text}", file=sys.stderr)


def without_adapters(config: Config) -> Config:
    """Return the config of a model whose adapters are merged into its weights."""
    return replace_path(config, "tune.method", "full") if config.tune.method == "lora" else config


def _same(largest: float, changes: str = "") -> str:
    return f"loaded again, its logits are the run's{changes} (largest {largest:.4g})"


def _lora_text(model: Model) -> str:
    assert model.lora is not None
    return f"LoRA, rank {model.lora.rank}, alpha {model.lora.alpha:g}"


def run_tokenizer(asked: str | None, config: Config, run: RunFolder, vocab_size: int) -> Tokenizer | None:
    """Return the tokenizer to export; print a note if there is none."""
    from mudd_core.run.build.run_tokenizer import asked_tokenizer, own_tokenizer

    if asked is not None:
        return asked_tokenizer(asked, config, vocab_size)
    found = own_tokenizer(config, run)
    if found is None:
        print(
            f"note: no tokenizer is exported: {run} has none (its data are ids, or its token cache is gone); "
            "--tokenizer=PATH adds one",
            file=sys.stderr,
        )
    return found
