"""Find the characters of a rendered conversation that contribute to the loss, or the reason to reject the conversation.

child.py imports this module in a process without mudd_core, so it uses the standard library alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"
Message: TypeAlias = "dict[str, Plain]"

TOO_LONG = "a text that is too long"
TOO_MUCH_MEMORY = "too much memory"
REFUSES = "text that the template rejects"
CHANGES = "a turn that changes the text before it"
# later turns would change its text, so only the last answer has a loss
CHANGES_EARLIER = "an earlier answer that later turns change"
UNWRITTEN = "a tool call that the template does not write"
_PROBE = "\ue0f2"  # an answer that no data set contains
_SAID = ("thinking", "reasoning_content")


class RefusedError(Exception):
    """A conversation that cannot be trained on. texts: two renderings that contradict each other."""

    def __init__(self, kind: str, reason: str, texts: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.kind, self.reason, self.texts = kind, reason, list(texts)


@dataclass(frozen=True)
class Rendered:
    """A rendered text, and the spans [first, end) of the characters that {% generation %} marks."""

    text: str
    marks: list[tuple[int, int]]


Render: TypeAlias = Callable[[list[Message], bool], Rendered]


@dataclass(frozen=True)
class Counted:
    """The rendered text of a conversation, and the spans of its characters that contribute to the loss.

    changed: the number of earlier answers that the template rewrites once later turns follow. They have no loss,
    because the model would not have written the rendered text.
    """

    text: str
    spans: list[tuple[int, int]]
    changed: int = 0


def counted(
    render: Render,
    messages: list[Message],
    loss_on: str,
    marked: bool,
    untrained: Sequence[int] = (),
    eos: str = "",
) -> Counted:
    """Return the characters of a conversation that contribute to the loss.

    untrained: indices of the answers that the data exclude. eos: the string of EOS. marked: whether the template has
    generation marks. Without marks, an answer is the text up to its end minus the text before it with the generation
    prompt. Raise RefusedError if the mask of the last answer is ambiguous.
    """
    answers = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    whole = render(messages, False)
    if loss_on == "all":
        if untrained:
            raise RefusedError(
                "a weight of 0", "data.loss_on=all trains on every token; set assistant or last"
            )
        return Counted(whole.text, [(0, len(whole.text))])
    wanted = [number for number, at in enumerate(answers) if at not in untrained]
    if loss_on == "last":
        wanted = [number for number in wanted if number == len(answers) - 1]
    if marked:
        marks = [mark for mark in whole.marks if mark[0] < mark[1]]
        if len(marks) != len(answers) and (loss_on == "last" or untrained or not marks):
            reason = f"the template marks {len(marks)} parts, but the assistant has {len(answers)} turns"
            raise RefusedError("marks of other turns", reason, [whole.text])
        whole_marks = len(marks) != len(answers)
        return Counted(whole.text, marks if whole_marks else [marks[number] for number in wanted])
    try:
        return _by_turns(render, messages, answers, wanted, whole.text, eos)
    except RefusedError as error:
        # A later turn of the user may change the last answer. That later turn has no loss, so it can be dropped.
        if error.kind != CHANGES or answers[-1] + 1 == len(messages):
            raise
        messages = messages[: answers[-1] + 1]
        return _by_turns(render, messages, answers, wanted, render(messages, False).text, eos)


def _by_turns(
    render: Render, messages: list[Message], answers: list[int], wanted: list[int], whole: str, eos: str
) -> Counted:
    """Return the spans by rendering up to each answer; an earlier answer that later turns change has no loss."""
    spans, changed = [], 0
    for number in wanted:
        try:
            spans.append(_span_of(render, messages, answers[number], whole, eos))
        except RefusedError as error:
            if error.kind != CHANGES or number == len(answers) - 1:
                raise
            changed += 1
    if not spans and changed:
        raise RefusedError(CHANGES_EARLIER, "later turns change every answer that has a loss", [whole])
    return Counted(whole, spans, changed)


def _span_of(render: Render, messages: list[Message], at: int, whole: str, eos: str) -> tuple[int, int]:
    """Return the characters [first, end) of turn `at` in the whole text; raise RefusedError if they are ambiguous.

    A generation prompt may open thoughts that the answer does not have. The answer then starts at the first difference.
    """
    try:
        before = render(messages[:at], True).text
    except RefusedError as error:
        if at:
            raise
        reason = (
            "its first turn is the assistant's, and the template cannot render the text before it "
            f"({error.reason})"
        )
        raise RefusedError("a first turn of the assistant", reason) from None
    after = whole if at + 1 == len(messages) else render(messages[: at + 1], False).text
    reason = f"the text changes when turn {at + 1} or a later one is added, so its loss mask is ambiguous"
    if not whole.startswith(after) and eos:
        after = after.removesuffix(eos)  # Phi-3's template writes EOS after the last turn only
    if not whole.startswith(after):
        raise RefusedError(CHANGES, reason, [after, whole])
    if after.startswith(before):
        return len(before), len(after)
    without = render(messages[:at], False).text
    # The answer may start with the same characters that end the prompt. A probe answer shows the position where answers
    # start.
    other: Message = {
        **messages[at],
        **{name: _PROBE for name in _SAID if name in messages[at]},
        "content": _PROBE,
    }
    begins = _shared(after, render([*messages[:at], other], False).text)
    first = min(_shared(before, after), begins)
    if after.startswith(without) and first > len(without):
        return first, len(after)
    # An answer may remove the reasoning of earlier answers (gpt-oss). The answer starts after the last prompt in the
    # text.
    prompt = before[len(without) :] if before.startswith(without) else ""
    first = after.rfind(prompt, 0, begins) + len(prompt)
    asked = messages[at - 1].get("content")
    if not prompt or first < len(prompt) or (isinstance(asked, str) and asked.strip() in after[first:begins]):
        raise RefusedError(CHANGES, reason, [before, after])
    return first, len(after)


def _shared(first: str, second: str) -> int:
    """Return the length of the common prefix of two strings."""
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def require_parts(messages: list[Message], text: str) -> None:
    """Raise RefusedError if the template expects strings and either drops contents in parts or prints them as lists."""
    for number, message in enumerate(messages, 1):
        parts = message.get("content")
        if not isinstance(parts, list):
            continue
        said = [str(part["text"]).rpartition("</think>")[2] for part in parts if isinstance(part, dict)]
        as_lists = (str(parts), json.dumps(parts, ensure_ascii=False))
        if not all(one.strip() in text for one in said) or any(one in text for one in as_lists):
            reason = f"turn {number}: the template does not read content in parts; write it as one string"
            raise RefusedError("parts that the template does not read", reason, [text])


def require_calls(render: Render, messages: list[Message]) -> None:
    """Raise RefusedError if the template drops a tool call. Calls with probe names show which calls it writes."""
    other: list[Message] = []
    count = 0
    for message in messages:
        calls = message.get("tool_calls")
        named: list[Plain] = []
        for call in calls if isinstance(calls, list) else []:
            function = call.get("function", call) if isinstance(call, dict) else None
            if isinstance(call, dict) and isinstance(function, dict):
                renamed: Message = {**function, "name": f"{_PROBE}{count}{_PROBE}"}
                named.append({**call, "function": renamed} if "function" in call else renamed)
                count += 1
        other.append({**message, "tool_calls": named} if named else message)
    if not count:
        return
    try:
        text = render(other, False).text
    except RefusedError:  # the template accepts only known names
        return
    written = sum(f"{_PROBE}{number}{_PROBE}" in text for number in range(count))
    if written < count:
        reason = f"the template writes {written} of {count} tool calls; set another data.template"
        raise RefusedError(UNWRITTEN, reason, [text.replace(_PROBE, "")])


def head_of(render: Render, messages: list[Message], text: str) -> int:
    """Return the length of the system turn at the start of the text; -1 if it is not a separate prefix."""
    if messages[0]["role"] != "system":
        return 0
    try:
        head = render(messages[:1], False).text
    except RefusedError:
        return -1
    return len(head) if text.startswith(head) else -1
