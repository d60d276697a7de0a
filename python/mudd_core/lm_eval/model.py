"""A model class of lm-evaluation-harness for runs and model folders of mudd_core. Needs the package lm_eval."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from lm_eval.api.model import TemplateLM
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from tqdm import tqdm

from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.base.types import Json, JsonObject
from mudd_core.engine.scoring.scorer import Scorer
from mudd_core.lm_eval.generation import MAX_TOKENS, Answers, Setting, Settings
from mudd_core.lm_eval.opened import Prompts, opened
from mudd_core.run.opened.run import Run
from mudd_core.run.ranks.ranks import Ranks

log = logging.getLogger(__name__)
SOURCE = "mudd_core"  # of the model, in the harness's results

Tokens = tuple[tuple[str, str] | None, list[int], list[int]]  # strings, ids of the context, ids to score


class TextPair(Protocol):
    """A request of the harness: a context and a continuation."""

    args: tuple[str, str]


class OneText(Protocol):
    """A request of the harness: a string."""

    args: tuple[str]


class Prompted(Protocol):
    """A request of the harness: a prompt and the settings of the generation."""

    args: tuple[str, dict[str, Setting]]


class Model(TemplateLM):
    """A run, a checkpoint, a folder of model.save() or a Hugging Face folder, as a model of the harness.

    The results equal the results of the harness's class `hf` up to rounding. The tokens of a continuation are the
    tokens of both strings together without the context's. Contexts that are too long lose their oldest tokens.

    pretrained: the folder, or a Run of mc.load_run. tokenizer: a file, folder or name, or bytes, for a run without one.
    step: of the checkpoint, or "best". batch_size: most sequences of a graph run; 0 or "auto": as many as run fastest.
    device: not used, because the CPU computes. max_length: tokens of a sequence; 0: the model's longest.

    add_bos_token: True to start strings with the BOS token; None: as the tokenizer does. prefix_token_id: the token
    before an empty context; None: BOS, else EOS. template: chatml or a file, for a model without a chat template.
    enable_thinking: a variable of the template.
    """

    def __init__(
        self,
        pretrained: str | Path | Run,
        *,
        tokenizer: str | None = None,
        step: int | str | None = None,
        batch_size: int | str | None = 0,
        max_batch_size: int | None = None,
        device: str | None = None,
        max_length: int = 0,
        add_bos_token: bool | None = None,
        prefix_token_id: int | None = None,
        template: str = "",
        enable_thinking: bool | None = None,
        trust_code: bool = False,
    ) -> None:
        super().__init__()
        self._opened = opened(pretrained, step=step, tokenizer=tokenizer, trust_code=trust_code)
        # The harness reads chat_template of an attribute `tokenizer`; chat_template() is overridden here.
        self._tokenizer, config = self._opened.tokenizer, self._opened.model.config
        _core.set_num_threads(Ranks().threads(self._opened.run.config.train.threads))
        if not 0 <= max_length <= config.max_seq_len:
            raise UserError(
                f"[evaluate] max_length: expected 1 to {config.max_seq_len}, the model's longest sequence, got "
                f"{max_length}"
            )
        self.max_length = max_length or config.max_seq_len
        self._add_bos, self._prefix = add_bos_token, prefix_token_id
        self._template, self._thinking = template, enable_thinking
        self._prompts: Prompts | None = None
        sequences = _sequences(batch_size)
        self.batch_size = sequences or "auto"
        most = min(sequences, max_batch_size or sequences)
        self.scorer = Scorer(self._opened.model, most)
        self.answers = Answers(self._opened.model, self._tokenizer, self.max_length, most)
        self.truncated = 0  # contexts that lost tokens so far

    @property
    def about(self) -> str:
        """A line about the model: family, parameters, precision and step."""
        model, step = self._opened.model, self._opened.run.step
        of_step = "" if step is None else f", step {step}"
        return f"{model.config.family}, {model.n_parameters:,} parameters, {model.precision}{of_step}"

    @property
    def eot_token_id(self) -> int:
        """The token that ends a document."""
        return self._tokenizer.eos_id

    @property
    def prefix_token_id(self) -> int:
        """The token before a continuation without context."""
        if self._prefix is not None:
            return self._prefix
        begin = self._tokenizer.bos_id
        return self._tokenizer.eos_id if begin is None else begin

    @property
    def max_gen_toks(self) -> int:
        """The most tokens of an answer, unless the task has another limit."""
        return MAX_TOKENS

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Json) -> list[int]:
        """Return the ids of a string.

        add_special_tokens: with BOS; None: as configured, but not for a string that starts with BOS.
        """
        bos = self._add_bos if add_special_tokens is None else add_special_tokens
        if add_special_tokens is None and string.startswith(self._tokenizer.decode([self.prefix_token_id])):
            bos = False
        ids = self._tokenizer.encode(string, bos=bos is not False)
        begin = self._tokenizer.bos_id
        if bos and begin is not None and ids[:1] != [begin]:
            ids = [begin, *ids]
        return ids

    def loglikelihood(
        self, requests: Sequence[TextPair], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """Return the summed log-probability of each continuation, and whether each of its tokens is the likeliest."""
        found: list[tuple[float, bool]] = super().loglikelihood(
            requests, disable_tqdm=disable_tqdm or not sys.stderr.isatty()
        )
        return found

    def _loglikelihood_tokens(
        self, requests: Sequence[Tokens], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        pairs = [self._fitting(*request) for request in requests]
        with tqdm(total=len(pairs), disable=disable_tqdm or None, desc="Log-likelihoods") as bar:
            scores = self.scorer.scores(pairs, bar.update)
        found = [(score.log_prob, score.greedy) for score in scores]
        for (strings, _, _), result in zip(requests, found, strict=True):
            if strings is not None:
                self.cache_hook.add_partial("loglikelihood", strings, result)
        return found

    def _fitting(
        self, strings: tuple[str, str] | None, context: list[int], targets: list[int]
    ) -> tuple[list[int], list[int]]:
        """Return the ids within the longest sequence. Raise UserError if the targets are none, or alone too long."""
        shown = "" if strings is None else f" ({strings[1][:60]!r})"
        if not targets:
            raise UserError(
                f"[evaluate] continuation: expected at least 1 token, got none{shown}, because the tokenizer joins it "
                "with its context; leave out the task"
            )
        if len(targets) > self.max_length:
            raise UserError(
                f"[evaluate] continuation: expected at most {self.max_length} tokens, the model's longest sequence, "
                f"got {len(targets)}{shown}; leave out the task or use a model with longer sequences"
            )
        kept = self.max_length + 1 - len(targets)
        if len(context) > kept:
            if not self.truncated:
                log.warning(
                    "a context and its continuation have %d tokens, and the model's longest sequence is %d; the "
                    "oldest tokens are left out",
                    len(context) + len(targets),
                    self.max_length,
                )
            self.truncated += 1
        return context[-kept:], targets

    def loglikelihood_rolling(self, requests: Sequence[OneText], disable_tqdm: bool = False) -> list[float]:
        """Return the summed log-probability of each string, in windows of max_length tokens."""
        windows: list[Tokens] = []
        counts = []
        for request in requests:
            rolling = get_rolling_token_windows(
                token_list=self.tok_encode(request.args[0]),
                prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length,
                context_len=1,
            )
            some = [(None, *make_disjoint_window(window)) for window in rolling]
            windows += some
            counts.append(len(some))
        scores = iter(self._loglikelihood_tokens(windows, disable_tqdm))
        totals = [sum(next(scores)[0] for _ in range(count)) for count in counts]
        for request, total in zip(requests, totals, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return totals

    def generate_until(self, requests: Sequence[Prompted], disable_tqdm: bool = False) -> list[str]:
        """Return the generated answer of each prompt, up to a stop string of the task or the end of the document."""
        prompts = [
            (self.tok_encode(text) or [self.prefix_token_id], Settings.of(settings))
            for text, settings in (request.args for request in requests)
        ]
        found = [""] * len(prompts)
        with tqdm(total=len(prompts), disable=disable_tqdm or None, desc="Answers") as bar:

            def done(at: int, text: str) -> None:
                found[at] = text
                self.cache_hook.add_partial("generate_until", requests[at].args, text)
                bar.update()

            self.answers.texts(prompts, done)
        return found

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Return the text of a conversation. Without add_generation_prompt the model continues the last message."""
        if self._prompts is None:
            variables: JsonObject = {} if self._thinking is None else {"enable_thinking": self._thinking}
            self._prompts = Prompts(self._opened.template(self._template), self.max_length, variables)
        return self._prompts.text(chat_history, asks=add_generation_prompt)

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """Return the Jinja source of the chat template; None for False."""
        if chat_template is False or chat_template is None:
            return None
        named = chat_template if isinstance(chat_template, str) else self._template
        return self._opened.template(named).source

    @property
    def tokenizer_name(self) -> str:
        """The name of the tokenizer in the harness's caches of requests."""
        return self._opened.name.replace("/", "__")

    def get_model_info(self) -> JsonObject:
        """Return the facts of the model for the harness's results."""
        model, step = self._opened.model, self._opened.run.step
        return {
            "model_source": SOURCE,
            "model_family": model.config.family,
            "model_num_parameters": model.n_parameters,
            "model_dtype": model.precision,
            "model_step": step,
        }


def _sequences(batch_size: int | str | None) -> int:
    """Return the number in a batch_size; 0 for auto."""
    text = str(batch_size or 0)
    if text.partition(":")[0] == "auto":
        return 0
    if not text.isdecimal():
        raise UserError(f"[evaluate] batch_size: expected a whole number or auto, got {batch_size!r}")
    return int(text)
