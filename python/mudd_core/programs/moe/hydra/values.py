"""Values in the syntax of Hydra's command line: null, booleans, numbers, quoted and bare strings, lists, objects."""

from __future__ import annotations

import re
from collections.abc import Callable

Node = None | bool | int | float | str | list["Node"] | dict[str, "Node"]

DEEPEST = 64  # deepest nesting of lists, objects and interpolations
_MOST_DIGITS = 40
_INT = re.compile(r"[+-]?(0|[1-9](_?[0-9])*)")
_FLOAT = re.compile(
    r"[+-]?((([0-9](_?[0-9])*)\.([0-9](_?[0-9])*)?|\.[0-9](_?[0-9])*)(e[+-]?[0-9](_?[0-9])*)?"
    r"|[0-9](_?[0-9])*e[+-]?[0-9](_?[0-9])*|inf|nan)",
    re.IGNORECASE,
)
_ESCAPED = re.compile(r"\\([\\()\[\]{}:=, \t])")
_BARE = re.compile(r"[\w/\-\\+.$%*@?|: \t]", re.ASCII)
_CALL = re.compile(r"[A-Za-z_]\w*\(")


def typed(text: str) -> Node:
    """Convert an unquoted value that looks like null, a boolean or a number; return any other value as a string."""
    word = text.lower()
    if word == "null":
        return None
    if word in ("true", "false"):
        return word == "true"
    if _INT.fullmatch(text):
        return _whole(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"expected a number of at most {_MOST_DIGITS} characters, got {len(text)}")
    return int(text)


def parse_choices(text: str) -> list[Node]:
    """Parse `a,b,c` into its values; without a comma there is one value. Raise ValueError for a syntax error."""
    return _Reader(text).elements("")


def split_choices(text: str) -> list[str]:
    """Split `a,b,c` at its commas without parsing the values."""
    reader = _Reader(text)
    return reader.spans()


class _Reader:
    """Parses consecutive elements in a string."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._depth = text, 0, 0

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _blanks(self) -> None:
        while self._peek() in (" ", "\t"):
            self._at += 1

    def spans(self) -> list[str]:
        """Return the source of each element."""
        found = list[str]()

        def one(end: str) -> Node:
            begin = self._at
            self._element(end)
            found.append(self._text[begin : self._at].strip(" \t"))
            return None

        self._several("", one)
        return found

    def elements(self, end: str) -> list[Node]:
        """Parse elements between commas up to the closing character `end`; empty: up to the end of the string."""
        return self._several(end, self._element)

    def _several(self, end: str, one: Callable[[str], Node]) -> list[Node]:
        found: list[Node] = []
        self._blanks()
        if end and self._peek() == end:
            self._at += 1
            return found
        while True:
            found.append(one(end))
            self._blanks()
            mark = self._peek()
            self._at += 1
            if mark == end:
                return found
            if mark != ",":
                raise ValueError(f"expected a comma{f' or {end}' if end else ''} at character {self._at}")

    def _element(self, end: str) -> Node:
        self._blanks()
        mark = self._peek()
        if mark in ("'", '"'):
            return self._quoted(mark)
        if mark in ("[", "{"):
            return self._nested(mark)
        if call := _CALL.match(self._text, self._at):
            raise ValueError(
                f"Hydra's functions ({call.group()}...)) are not supported; type the values themselves"
            )
        return self._bare(end, ",")

    def _nested(self, mark: str) -> Node:
        if self._depth == DEEPEST:
            raise ValueError(f"expected at most {DEEPEST} levels of lists and objects, got more")
        self._at += 1
        self._depth += 1
        found: Node = self.elements("]") if mark == "[" else self._object()
        self._depth -= 1
        return found

    def _object(self) -> Node:
        found: dict[str, Node] = {}

        def member(end: str) -> Node:
            self._blanks()
            key = self._quoted(self._peek()) if self._peek() in ("'", '"') else self._bare(end, ",:")
            self._blanks()
            if self._peek() != ":":
                raise ValueError(f"expected 'key: value' at character {self._at + 1}")
            self._at += 1
            found[str(key)] = self._element(end)
            return None

        self._several("}", member)
        return found

    def _quoted(self, mark: str) -> str:
        """Parse a quoted string. A backslash escapes a quote, and a backslash before a quote."""
        self._at += 1
        parts = []
        while True:
            letter = self._peek()
            if not letter:
                raise ValueError(f"the closing {mark} is missing")
            run = len(self._text[self._at :]) - len(self._text[self._at :].lstrip("\\"))
            if run and self._text[self._at + run : self._at + run + 1] == mark:
                parts.append("\\" * (run // 2))
                self._at += run
                if run % 2:
                    parts.append(mark)
                    self._at += 1
                continue
            self._at += max(1, run)
            if letter == mark:
                return "".join(parts)
            parts.append("\\" * run if run else letter)

    def _bare(self, end: str, stops: str) -> Node:
        begin, parts, escaped = self._at, list[str](), False
        while (letter := self._peek()) and letter not in stops and letter != end:
            if found := _ESCAPED.match(self._text, self._at):
                parts.append("\\" + found.group(1))
                escaped, self._at = True, found.end()
            elif self._text.startswith("${", self._at):
                stop = closing(self._text, self._at)
                parts.append(self._text[self._at : stop])
                self._at = stop
            elif _BARE.match(letter):
                parts.append(letter)
                self._at += 1
            else:
                raise ValueError(f"expected quotes around a value that contains {letter}")
        text = "".join(parts)
        if begin == self._at:
            if end or stops != "," or self._text.strip():
                raise ValueError(f"expected a value at character {begin + 1}")
            return ""
        if escaped:
            return _ESCAPED.sub(r"\1", text.strip(" \t") if not text.endswith("\\ ") else text.lstrip(" \t"))
        return typed(text.strip(" \t"))


def closing(text: str, at: int) -> int:
    """Return the offset after the interpolation at `at`; raise ValueError if its closing brace is missing."""
    depth = 0
    i = at
    while i < len(text):
        if text.startswith("${", i) or (text[i] == "{" and depth):
            depth += 1
            if depth > DEEPEST:
                raise ValueError(f"expected at most {DEEPEST} interpolations in one another, got more")
            i += 2 if text[i] == "$" else 1
            continue
        if text[i] == "}":
            depth -= 1
            if depth == 0:
                return i + 1
        i += 1
    raise ValueError(f"the closing brace of '{text[at:]}' is missing")
