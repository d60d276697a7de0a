"""Pairs of English sentences that differ in one token, of which one is ungrammatical."""

from __future__ import annotations

import random
from typing import TypeAlias

from datasets import Dataset

Pair: TypeAlias = tuple[str, str]  # grammatical, ungrammatical

_TEST, _TRAIN = 400, 32
_NOUNS = (
    ("dog", "dogs"), ("teacher", "teachers"), ("child", "children"), ("river", "rivers"), ("window", "windows"),
    ("friend", "friends"), ("city", "cities"), ("woman", "women"), ("book", "books"), ("doctor", "doctors"),
)  # fmt: skip
_PLACES = ("near", "behind", "next to", "in front of")
_ADJECTIVES = ("old", "quiet", "new", "famous", "small", "important", "strange")
_PARTICIPLES = (
    ("eaten", "ate"), ("written", "wrote"), ("seen", "saw"), ("taken", "took"), ("broken", "broke"), ("begun", "began"),
)  # fmt: skip
_WITH_AN = ("apple", "idea", "old house", "engine", "answer", "umbrella", "island")
_WITH_A = ("book", "plan", "new house", "car", "question", "hat", "river")


def _agreement(draw: random.Random) -> Pair:
    """The verb agrees with the subject, not with the nearer noun of the other number."""
    number = draw.randrange(2)
    subject, other = draw.choice(_NOUNS)[number], draw.choice(_NOUNS)[1 - number]
    verbs = ("is", "are") if draw.randrange(2) else ("was", "were")
    start, end = f"The {subject} {draw.choice(_PLACES)} the {other}", f"{draw.choice(_ADJECTIVES)}."
    return f"{start} {verbs[number]} {end}", f"{start} {verbs[1 - number]} {end}"


def _determiner(draw: random.Random) -> Pair:
    """A determiner agrees with its noun."""
    number, noun = draw.randrange(2), draw.choice(_NOUNS)
    words = ("this", "these") if draw.randrange(2) else ("that", "those")
    start, end = f"Everyone talks about {words[number]}", draw.choice(_ADJECTIVES)
    return f"{start} {end} {noun[number]}.", f"{start} {end} {noun[1 - number]}."


def _article(draw: random.Random) -> Pair:
    """The indefinite article depends on the next sound."""
    vowel = draw.randrange(2)
    phrase = draw.choice((_WITH_A, _WITH_AN)[vowel])
    start = f"The {draw.choice(_NOUNS)[draw.randrange(2)]} talked about"
    articles = ("a", "an")
    return f"{start} {articles[vowel]} {phrase}.", f"{start} {articles[1 - vowel]} {phrase}."


def _participle(draw: random.Random) -> Pair:
    """The perfect tense needs the participle."""
    participle, past = draw.choice(_PARTICIPLES)
    number = draw.randrange(2)
    start = f"The {draw.choice(_NOUNS)[number]} {('has', 'have')[number]}"
    end = f"the {draw.choice(_ADJECTIVES)} {draw.choice(_NOUNS)[0]}."
    return f"{start} {participle} {end}", f"{start} {past} {end}"


_KINDS = (_agreement, _determiner, _article, _participle)


def _pairs(count: int, seed: int) -> Dataset:
    draw = random.Random(seed)
    found = [(kind.__name__.strip("_"), kind(draw)) for _ in range(count // len(_KINDS)) for kind in _KINDS]
    return Dataset.from_list([{"kind": kind, "good": good, "bad": bad} for kind, (good, bad) in found])


def minimal_pairs(**_: str | float) -> dict[str, Dataset]:
    """Return the pairs by split: kind, good, bad."""
    return {"test": _pairs(_TEST, 1), "train": _pairs(_TRAIN, 2)}
