"""The sources of a mixture: their configs, and their weights by sample."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from mudd_core.config.fields import replace_path, walk, with_defaults
from mudd_core.config.mix import (
    OWN,
    SOURCES,
    integer_weights,
    parse_phases,
    parse_sources,
    parse_weights,
)
from mudd_core.config.overrides import parse_value
from mudd_core.config.pipelines import spec_of
from mudd_core.config.schema import Sections

AnyConfig = TypeVar("AnyConfig", bound="Sections")
_OF_MIX = ("mix", "mix_phases", "mix_until", "sources")


def source_names(config: Sections) -> tuple[str, ...]:
    """Return the names of the sources in the order of data.mix; empty without a mixture."""
    return tuple(parse_weights(config.data.mix)) if config.data.mix else ()


def source_config(config: AnyConfig, name: str) -> AnyConfig:
    """Return the config of a run on this source alone: its own options, else the ones of the section `data`.

    Raise UserError for a value of another type.
    """
    given = parse_sources(config.data.sources).get(name, {})
    data = with_defaults(config.data, (*OWN, *_OF_MIX))
    if config.data.mix_until != "steps" and spec_of(data.pipeline).mixes_epochs:
        # Else its order would mix the passes that train.steps needs, of which the run reads only the first part.
        data = dataclasses.replace(data, epochs=max(1, config.train.epochs))
    config = dataclasses.replace(config, data=data)
    infos = {info.path: info for info in walk(data, "data.")}
    for option, text in given.items():
        info = infos[f"data.{option}"]
        shown = dataclasses.replace(info, path=f"{SOURCES}.{name}.{option}")
        config = replace_path(config, info.path, parse_value(shown, text))
    return config


def weights_by_sample(config: Sections) -> list[tuple[int, list[int]]]:
    """Return (first sample, integer weights in the order of source_names) of each phase, for _core.MixSchedule."""
    names = source_names(config)
    first = parse_weights(config.data.mix)
    later = [
        (phase.step * config.train.batch_size, phase.weights)
        for phase in parse_phases(config.data.mix_phases)
    ]
    return [(sample, integer_weights(names, weights)) for sample, weights in [(0, first), *later]]
