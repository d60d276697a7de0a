"""Rules of data.mix and its fields. Each broken rule gives one message, with the line to type."""

from __future__ import annotations

from mudd_core.base.errors import UserError
from mudd_core.config.mix import MIX, OWN, PHASES, SOURCES, parse_phases, parse_sources, parse_weights
from mudd_core.config.mix_sources import source_config, source_names, weights_by_sample
from mudd_core.config.pipelines import PIPELINES, listed, spec_of
from mudd_core.config.schema import Sections
from mudd_core.config.suggest import nearest


def mix_faults(config: Sections) -> list[str]:
    """Return the broken rules of a mixture; none without one."""
    data = config.data
    if not data.mix:
        return _without_mix(config)
    faults = []
    for path, text, parse in (
        (MIX, data.mix, parse_weights),
        (PHASES, data.mix_phases, parse_phases),
        (SOURCES, data.sources, parse_sources),
    ):
        try:
            parse(text)
        except ValueError as fault:
            faults.append(f"{path}: {fault}")
    return faults or _source_faults(config) or _run_faults(config)


def _without_mix(config: Sections) -> list[str]:
    return [
        f"{MIX}: expected weights, such as web:0.7,code:0.3, because {path} is set"
        for path in config.of_mixture[:1]
    ]


def _source_faults(config: Sections) -> list[str]:
    names, known, faults = source_names(config), parse_sources(config.data.sources), list[str]()
    for name in names:
        if name not in known:
            near = nearest(name, known) or f"; set data.sources.{name}.path=FILES"
            faults.append(f"{MIX}: the source {name} has no files{near}")
        elif not (known[name].get("path") or known[name].get("dataset")):
            faults.append(f"{SOURCES}.{name}.path: expected the files of the source {name}, got none")
        else:
            try:
                source_config(config, name)
            except UserError as fault:
                faults.append(str(fault).removeprefix("[config] "))
    for phase in parse_phases(config.data.mix_phases):
        for name in phase.weights:
            if name not in names:
                near = nearest(name, names) or f"; add {name}:0 to {MIX}"
                faults.append(f"{PHASES}: the source {name} is not in {MIX}{near}")
    if not faults:
        try:
            weights_by_sample(config)
        except ValueError as fault:
            faults.append(f"{MIX}: {fault}")
    return faults


def _run_faults(config: Sections) -> list[str]:
    """Return the faults of fields that a mixture excludes."""
    data, faults, first = config.data, list[str](), source_names(config)[0]
    for name in OWN:
        if getattr(data, name):
            faults.append(
                f"data.{name}: expected none with data.mix, because each source has its own; set "
                f"data.sources.{first}.{name}"
            )
    if not spec_of(data.pipeline).mixes:
        can = listed((one for one in PIPELINES.values() if one.mixes), "or")
        faults.append(f"data.pipeline: expected {can} with data.mix, got {data.pipeline}")
    if config.loss.of_pairs:
        faults.append(f"{MIX}: expected one source for loss.kind={config.loss.kind}, whose rows are pairs")
    if config.loss.teacher:
        faults.append("loss.teacher: expected no teacher with data.mix")
    if config.train.epochs and data.mix_until == "steps":
        faults.append(
            "train.epochs: expected an end of data.mix; set data.mix_until=first or data.mix_until=all, or "
            "set train.steps"
        )
    if data.cache == "stream" and data.mix_until != "steps":
        faults.append(
            f"data.mix_until: {data.mix_until} needs the sizes of the sources, which data.cache=stream does not "
            "know; set data.cache=full or data.mix_until=steps"
        )
    return faults
