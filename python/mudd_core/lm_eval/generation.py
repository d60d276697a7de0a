"""Generated answers for the harness: greedy or sampled tokens until a stop string."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

from mudd_core.base.errors import UserError
from mudd_core.data.tokenizers.tokenizer import Tokenizer
from mudd_core.engine.generate import sampler
from mudd_core.engine.model import Model
from mudd_core.engine.prefix_cache import PrefixCache
from mudd_core.engine.together import Asked, Together
from mudd_core.lm_eval.opened import special_ids
from mudd_core.run.report.sample import StopTexts

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


class _Answer:
    """The tokens of an answer, up to the first stop string."""

    def __init__(self, tokenizer: Tokenizer, ends: Set[int], hidden: Set[int], settings: Settings) -> None:
        self._tokenizer, self._ends, self._hidden = tokenizer, ends, hidden
        self._stops = settings.stops
        self._text_of, self._stop = tokenizer.stream(), StopTexts(settings.stops)
        self._ids: list[int] = []

    def take(self, token: int) -> bool:
        """Append a token, unless it is special; return whether the answer continues."""
        if token in self._ends:
            return False
        if token not in self._hidden:
            self._ids.append(token)
            self._stop.take(self._text_of(token))
        return not self._stop.found

    def text(self) -> str:
        """Return the text before the first stop string."""
        # As in the class hf, the decoder gets all ids at once, and stop strings are removed in the task's order.
        text = self._tokenizer.decode(self._ids)
        for stop in self._stops:
            text = text.partition(stop)[0]
        return text


class Answers:
    """Generates answers, several at a time if the model decodes with a KV cache.

    The ids that a prompt has in common with an earlier one are not computed again. most: sequences of a graph run; 0:
    as many as run fastest.
    """

    def __init__(self, model: Model, tokenizer: Tokenizer, longest: int, most: int = 0) -> None:
        self._model, self._tokenizer, self._longest = model, tokenizer, longest
        self._together = Together(model, most)
        self._cache = PrefixCache(model)
        self._hidden = special_ids(tokenizer)
        self._ends = {tokenizer.eos_id, *tokenizer.stop_ids}
        self._noted = False

    @property
    def steps(self) -> int:
        """The graph runs after the prompts so far."""
        return self._together.steps

    def room(self, max_tokens: int) -> int:
        """Return the most ids of a prompt: half of the model's longest sequence if max_tokens leaves no more."""
        return max(self._longest - max_tokens, self._longest // 2)

    def texts(
        self, prompts: Sequence[tuple[Sequence[int], Settings]], done: Callable[[int, str], None]
    ) -> None:
        """Generate the text after each prompt, up to the first stop string. done: called with number and text."""
        answers = [_Answer(self._tokenizer, self._ends, self._hidden, settings) for _, settings in prompts]
        asked = [self._asked(*one, answer) for one, answer in zip(prompts, answers, strict=True)]
        run = self._together.run if Together.can_run(self._model) else self._one_by_one
        run(asked, lambda at: done(at, answers[at].text()))

    def _asked(self, prompt: Sequence[int], settings: Settings, answer: _Answer) -> Asked:
        room = self.room(settings.max_tokens)
        if len(prompt) > room and not self._noted:
            self._noted = True
            log.warning("a prompt has %d tokens; its oldest are left out, because %d fit", len(prompt), room)
        kept = [*prompt[-room:]]
        sample = sampler(
            temperature=settings.temperature,
            top_k=settings.top_k,
            top_p=settings.top_p,
            seed=settings.seed,
            ids_below=self._tokenizer.ids_below,
        )
        return Asked(kept, sample, min(settings.max_tokens, self._longest - len(kept)), answer.take)

    def _one_by_one(self, asked: Sequence[Asked], ended: Callable[[int], None]) -> None:
        # In sorted order prompts follow those with which they share the most.
        for at in sorted(range(len(asked)), key=lambda at: asked[at].prompt):
            one = asked[at]
            for token in self._cache.tokens(one.prompt, one.sample, one.max_tokens):
                if not one.take(token):
                    break
            ended(at)
