"""Generated answers for the harness: greedy or sampled tokens until a stop string."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mudd_core.base.errors import UserError
from mudd_core.data.tokenizers.tokenizer import Tokenizer
from mudd_core.engine.generate import sampler
from mudd_core.engine.model import Model
from mudd_core.engine.prefix_cache import PrefixCache
from mudd_core.lm_eval.opened import special_ids

Setting = str | float | int | bool | list[str] | None
MAX_TOKENS = 256  # the harness's default
_LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")  # the first one is used
_SAMPLING = ("do_sample", "temperature", "top_k", "top_p", "seed")
# Settings that are accepted with the value that has no effect.
_NEUTRAL = {"min_p": 0.0, "repetition_penalty": 1.0, "num_beams": 1, "length_penalty": 1.0}

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Settings:
    """The settings of a generation. stops: strings that end it."""

    stops: tuple[str, ...]
    max_tokens: int
    temperature: float
    top_k: int
    top_p: float
    seed: int

    @classmethod
    def of(cls, given: Mapping[str, Setting]) -> Settings:
        """Return the settings of a task's generation_kwargs. Raise UserError for those that have no equal here."""
        known = {"until", *_LENGTHS, *_SAMPLING}
        for name, value in given.items():
            if name not in known and not (name in _NEUTRAL and value == _NEUTRAL[name]):
                raise UserError(
                    f"[evaluate] generation_kwargs: expected {', '.join(sorted(known))}, got {name}={value}; delete it "
                    "from the task"
                )
        until = given.get("until")
        stops = [until] if isinstance(until, str) else until if isinstance(until, list) else []
        lengths = [given[name] for name in _LENGTHS if given.get(name) is not None]
        greedy = given.get("do_sample") is False or not given.get("temperature")
        return cls(
            stops=tuple(stop for stop in stops if stop),
            max_tokens=int(_number(lengths[0])) if lengths else MAX_TOKENS,
            temperature=0.0 if greedy else _number(given.get("temperature")),
            top_k=int(_number(given.get("top_k"))),
            top_p=_number(given.get("top_p"), 1.0),
            seed=int(_number(given.get("seed"))),
        )


def _number(value: Setting, default: float = 0.0) -> float:
    return default if value is None or isinstance(value, (str, list)) else float(value)


class Answers:
    """Generates answers, and reuses the KV cache for the ids that a prompt has in common with the previous one."""

    def __init__(self, model: Model, tokenizer: Tokenizer, longest: int) -> None:
        self._model, self._tokenizer, self._longest = model, tokenizer, longest
        self._cache = PrefixCache(model)
        self._special = special_ids(tokenizer)
        self._ends = {tokenizer.eos_id, *tokenizer.stop_ids}
        self._noted = False

    def room(self, max_tokens: int) -> int:
        """Return the most ids of a prompt: half of the model's longest sequence if max_tokens leaves no more."""
        return max(self._longest - max_tokens, self._longest // 2)

    def text(self, prompt: Sequence[int], settings: Settings) -> str:
        """Return the text after a prompt, up to the first stop string, without special tokens."""
        room = self.room(settings.max_tokens)
        if len(prompt) > room and not self._noted:
            self._noted = True
            log.warning("a prompt has %d tokens; its oldest are left out, because %d fit", len(prompt), room)
        prompt = prompt[-room:]
        sample = sampler(
            temperature=settings.temperature,
            top_k=settings.top_k,
            top_p=settings.top_p,
            seed=settings.seed,
            ids_below=self._tokenizer.vocab_size,
        )
        found: list[int] = []
        text = ""
        for token in self._cache.tokens(
            prompt, sample, min(settings.max_tokens, self._longest - len(prompt))
        ):
            if token in self._ends:
                break
            if token in self._special:
                continue
            found.append(token)
            text = self._tokenizer.decode(found)
            if any(stop in text for stop in settings.stops):
                break
        for stop in settings.stops:
            text = text.partition(stop)[0]
        return text
