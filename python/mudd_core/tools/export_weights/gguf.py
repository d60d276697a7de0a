"""Export a run as a GGUF file for llama.cpp and Ollama: the whole model, or its adapters."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.types import JsonObject
from mudd_core.checkpoint.gguf_file import (
    STORED,
    GgufTensor,
    Stored,
    float32,
    string,
    strings,
    uint32,
    write_gguf,
)
from mudd_core.checkpoint.stored import StoredTensor
from mudd_core.config import Config, ModelConfig
from mudd_core.data.chat.templates import BUILT_IN
from mudd_core.data.tokenizers.files import name_of
from mudd_core.data.tokenizers.tokenizer import Tokenizer
from mudd_core.interop.gguf.tensors import adapter_tensors, model_tensors, stack_tensors
from mudd_core.interop.gguf.tokenizer import Vocabulary, special_fields, vocabulary_of
from mudd_core.interop.gguf.types import GgufType, gguf_type
from mudd_core.interop.hf import SYSTEM
from mudd_core.interop.hf_rows import HfModel
from mudd_core.interop.imported import base_source
from mudd_core.interop.peft_experts import stacks_of
from mudd_core.interop.peft_written import adapter_tensors as peft_tensors
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.tools.export_weights.adapter import plain_adapters
from mudd_core.tools.export_weights.asked import Asked
from mudd_core.tools.export_weights.end_tokens import end_ids
from mudd_core.tools.export_weights.folder import Beside, first_exported, hugging_face_files
from mudd_core.tools.export_weights.forms import Export, Outcome, run_tokenizer
from mudd_core.tools.export_weights.gguf_place import SUFFIX, GgufPlace, modelfile, names_file
from mudd_core.tools.export_weights.held_model import Held
from mudd_core.tools.export_weights.model_card import WRITTEN
from mudd_core.tools.export_weights.template import templates_in

_PLACE = "[export] --gguf"
# llama.cpp changes the attributes of tokens for a model with one of these names, or fails to load it without them.
_TREATED = re.compile(r"(?<=phi)-?(?=3)|(?<=jina)-(?=v2)", re.IGNORECASE)
_QUANTIZATION = 2  # version of ggml's quantized types
# Templates of Ollama that render the same text as a Jinja template.
_OF_OLLAMA = {
    BUILT_IN["chatml"]: "{{ range .Messages }}<|im_start|>{{ .Role }}\n{{ .Content }}<|im_end|>\n{{ end }}"
    "<|im_start|>assistant\n"
}


@contextmanager
def _what_llama_cpp_has() -> Iterator[None]:
    """Raise UserError for a ValueError, the refusal of a model or tokenizer."""
    try:
        yield
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{_PLACE}: {error}; leave --gguf out to write a folder for transformers") from error


@dataclass(frozen=True)
class GgufPlan:
    """The parts of an export that need no weights: type, settings of transformers, vocabulary.

    vocabulary: None for an adapter.
    """

    kind: GgufType
    settings: JsonObject
    vocabulary: Vocabulary | None = None

    @classmethod
    def of(cls, asked: Asked, config: Config, run: RunFolder) -> GgufPlan:
        """Return the plan. Raise UserError for a model or tokenizer that llama.cpp does not have."""
        model = config.model
        if not isinstance(model, HfModel):
            raise UserError(
                f"{_PLACE}: expected a model of {', '.join(SYSTEM.families)}, got {model.family}, which llama.cpp "
                "does not have; leave --gguf out, or train another model, such as configs/transformer_pp/small.py"
            )
        with _what_llama_cpp_has():
            settings = SYSTEM.original_config(model)
            kind = gguf_type(settings)
            if asked.args.adapter:
                return cls(kind, settings)
            return cls(kind, settings, vocabulary_of(_tokenizer(asked, config, run, model)))

    def notes(self) -> list[str]:
        """Return the differences of llama.cpp, for the user."""
        length, longest = self.kind.context_length(self.settings)
        found = list(self.vocabulary.notes) if self.vocabulary else []
        if length < longest:
            found.append(
                f"llama.cpp has no sliding window for {self.kind.model_type}: the context in the file is the "
                f"window's {length:,} tokens instead of {longest:,}"
            )
        return found


def _tokenizer(asked: Asked, config: Config, run: RunFolder, model: ModelConfig) -> Tokenizer:
    # 0 in the config of a run whose tokenizer was trained for it
    found = run_tokenizer(asked.args.tokenizer, config, run, model.vocab_size or sys.maxsize)
    if found is None:
        raise UserError(f"{_PLACE}: expected a run with a tokenizer, got one without; add --tokenizer=PATH")
    return found


def export_gguf(out: Export, held: Held, plan: GgufPlan, base: str) -> Outcome:
    """Write a GGUF file and its Modelfile. base: the name of an adapter's base."""
    stem = "adapter" if out.asked.args.adapter else "model"
    place = GgufPlace(out.asked.folder, names_file(out.asked.args.to), stem)
    for note in plan.notes():
        out.note(note)
    if not out.asked.args.adapter and held.model.lora is not None:
        held, weights = out.plain(held)
    else:
        weights = dict(out.weights)
    stored = STORED[out.asked.args.type or "f16"]
    what = f"an adapter of {plan.kind.model_type}" if base else f"a model of {plan.kind.model_type}"
    beside = out.beside(held.model.config, {}, f"{what} for llama.cpp", base or base_source(out.run), "gguf")

    def write() -> int:
        if out.asked.args.adapter:
            return _write_adapter(out, held, plan, place, stored, beside, base)
        return _write_model(out, held, plan, place, stored, beside, weights if out.is_cut else None)

    tensors = out.ranks.from_first(write)
    if base:
        out.note_changes(base)
    name = place.to.stem if place.is_file else place.to.name
    text = (
        f"{tensors} tensors in {place.file} ({stored.name}) for llama.cpp; for Ollama: ollama create {name} -f "
        f"{place.modelfile}"
    )
    return Outcome(text, "llama.cpp", out.step, _loading(place.file, base))


def _loading(file: Path, base: str) -> str:
    """Return the line of Python that loads a file. base: of an adapter, whose own GGUF file is needed."""
    model = f"{Path(base).name}{SUFFIX}" if base else str(file)
    load = f"import xllamacpp; p = xllamacpp.CommonParams(); p.model.path = {model!r}; "
    if base:
        load += f"p.lora_adapters = [xllamacpp.CommonAdapterLoraInfo({str(file)!r}, 1.0)]; "
    return f"{load}model = xllamacpp.Server(p)"


def _write_model(
    out: Export,
    held: Held,
    plan: GgufPlan,
    place: GgufPlace,
    stored: Stored,
    beside: Beside,
    cut: Mapping[str, StoredTensor] | None,
) -> int:
    """Write the whole model; return the number of tensors. cut: as in write_theirs."""
    model, vocabulary, tokenizer = held.model.config, plan.vocabulary, beside.tokenizer
    assert vocabulary is not None and tokenizer is not None
    if len(vocabulary.pieces) > model.vocab_size:
        raise UserError(
            f"{_PLACE}: expected a tokenizer of at most the model's {model.vocab_size:,} ids, got "
            f"{len(vocabulary.pieces):,}; add --tokenizer=PATH"
        )
    _, settings, weights = first_exported(("hf",), held.model, cut)
    _, files = hugging_face_files(settings, model, beside)
    ends = end_ids(files, tokenizer, beside.trained)
    templates = templates_in(files)
    with _what_llama_cpp_has():
        fields = {
            **_general(out, plan, stored, "model"),
            **plan.kind.encoded(settings),
            **vocabulary.fields(model.vocab_size),
            **special_fields(tokenizer, ends, vocabulary.unknown()),
            **_chat(templates),
        }
        tensors = model_tensors(plan.kind, settings, weights, stored, out.alive)
    template = _OF_OLLAMA.get(templates.get("default", ""), "")
    stops = [name_of(tokenizer, one) for one in ends] if templates else []
    _write(place, fields, tensors, modelfile(place, template, stops), beside)
    return len(tensors)


def _write_adapter(
    out: Export, held: Held, plan: GgufPlan, place: GgufPlace, stored: Stored, beside: Beside, base: str
) -> int:
    """Write the adapters; return the number of tensors. base: the name of their base."""
    lora, plain = plain_adapters(held.model, out.weights)
    fields = {
        **_general(out, plan, stored, "adapter"),
        "adapter.type": string("lora"),
        "adapter.lora.alpha": float32(lora.alpha),
    }
    with _what_llama_cpp_has():
        # llama.cpp has one alpha, so the rank must be the same everywhere.
        model = held.model.config
        of_experts = {f"{one.layer}.lora_{factor}" for one in stacks_of(model) for factor in "ab"}
        linear = {name: value for name, value in plain.items() if name not in of_experts}
        theirs = peft_tensors(model, linear, has_patterns=False)
        tensors = adapter_tensors(plan.kind, plan.settings, theirs, stored)
        tensors += stack_tensors(plan.kind, model, plain, stored)
    _write(place, fields, tensors, modelfile(place, "", [], base), beside)
    return len(tensors)


def _write(
    place: GgufPlace,
    fields: Mapping[str, bytes],
    tensors: Sequence[GgufTensor],
    modelfile: bytes,
    beside: Beside,
) -> None:
    write = partial(write_gguf, fields=fields, tensors=tensors)
    place.write(write, modelfile, beside.card, beside.record.last("gguf"))


def _general(out: Export, plan: GgufPlan, stored: Stored, kind: str) -> dict[str, bytes]:
    return {
        "general.architecture": string(plan.kind.architecture),
        "general.type": string(kind),
        "general.name": string(_TREATED.sub("_", out.config.name)),
        "general.description": string(f"step {out.step}, {WRITTEN}"),
        "general.file_type": uint32(stored.file_type),
        "general.quantization_version": uint32(_QUANTIZATION),
    }


def _chat(templates: Mapping[str, str]) -> dict[str, bytes]:
    """Return the encoded fields of chat templates; `default` is the one without a name."""
    named = {name: text for name, text in templates.items() if name != "default"}
    found = {"tokenizer.chat_template": string(templates["default"])} if "default" in templates else {}
    if named:
        found["tokenizer.chat_templates"] = strings([*named])
    return found | {f"tokenizer.chat_template.{name}": string(text) for name, text in named.items()}
