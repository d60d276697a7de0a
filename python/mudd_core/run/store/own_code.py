"""The user's files of a run: their copies and hashes in the work directory, and their use on resume.

A copy is `model_family.py` in the same folder as config.json. A command runs it only if it needs that code, the saved
config names it, and the user has allowed it. The user allows it in one of three ways: this user started the run on this
machine (known_code.py), the command names a file with the same bytes, or --trust-code (trust_code=True) is set.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.members import member
from mudd_core.base.regular_files import read_bytes
from mudd_core.base.types import Json, JsonObject
from mudd_core.config import Config, check_config
from mudd_core.config.families import in_family, named_family, own_family
from mudd_core.config.families.family import KEY as FAMILY
from mudd_core.config.fields import replace_path
from mudd_core.config.optim import own_in_groups
from mudd_core.config.overrides import named_in
from mudd_core.config.own_files import OwnFile, file_of, has_run, offer, pin, sha256_of, split_name
from mudd_core.config.own_optimizers import GROUPS, name_fault, named_optimizer, own_optimizer
from mudd_core.config.own_optimizers import KEY as OPTIMIZER
from mudd_core.config.pipelines import KEY as READER
from mudd_core.run.store.known_code import known_hashes, remember
from mudd_core.run.store.run_folder import RunFolder

MEMBER = "own_files"  # key in run.json
COPIES = {
    FAMILY: "model_family.py",
    OPTIMIZER: "optim_name.py",
    GROUPS: "optim_groups.py",
    READER: "data_pipeline.py",
}
ALL = frozenset(COPIES)
MODEL = frozenset({FAMILY})
TRUST = "--trust-code"


def _named(config: Config) -> dict[str, tuple[str, OwnFile]]:
    """Return, by field, the (first) FILE.py:NAME in a config, and the file that has run."""
    in_groups = next(iter(own_in_groups(config.optim.groups)), "")
    used = {
        FAMILY: own_family(config.model),
        OPTIMIZER: own_optimizer(config.optim.name),
        GROUPS: own_optimizer(in_groups),
    }
    found = {
        key: (one.name, one.file) for key, one in used.items() if one is not None and one.file is not None
    }
    reader = config.data.pipeline
    return found if split_name(reader) is None else {**found, READER: (reader, file_of(READER, reader))}


def run_named(key: str, name: str, text: bytes) -> None:
    """Run the bytes of a file as the FILE.py:NAME that a field names."""
    if key == FAMILY:
        named_family(name, text)
    elif key in (OPTIMIZER, GROUPS):
        named_optimizer(name, text, key)
    else:
        pin(key, name, text)


def facts_of(config: Config) -> JsonObject:
    """Return the facts for run.json about the user's files; empty for a run without them."""
    named: JsonObject = {}
    for key, (name, file) in _named(config).items():
        named[key] = {"name": name, "sha256": file.sha256}
    return {MEMBER: named} if named else {}


def copies_of(config: Config) -> dict[str, bytes]:
    """Return the copies for the work directory by name."""
    return {COPIES[key]: file.text for key, (_, file) in _named(config).items()}


def own_texts(config: Config) -> list[Json]:
    """Return [field, FILE.py:NAME, text (Latin-1)] of the user's files, for ranks that may not have them."""
    return [[key, name, file.text.decode("latin-1")] for key, (name, file) in _named(config).items()]


@dataclasses.dataclass(frozen=True)
class _Saved:
    """A saved file of a run: the value of its field, and the hash of its bytes."""

    name: str
    sha256: str


def _saved(facts: Mapping[str, Json], folder: RunFolder) -> dict[str, _Saved]:
    if MEMBER not in facts:
        return {}
    raw, file = facts[MEMBER], folder.run_file
    if not isinstance(raw, dict):
        raise FormatError(str(file), 0, f"key '{MEMBER}': expected an object")
    found = {}
    for key in raw.keys() & COPIES.keys():
        one = member(raw, key, dict, file, f"{MEMBER}: ")
        found[key] = _Saved(member(one, "name", str, file), member(one, "sha256", str, file))
    return found


def run_copies(folder: RunFolder, words: Sequence[str] = (), needs: Collection[str] = ALL) -> None:
    """Run the copies in a work directory that its config names and the caller needs. Without a run, do nothing.

    The copy of a reader runs later, when data are read. words: the arguments of the command; if they name a file, its
    copy is not used. needs: the fields whose code the caller needs.

    Raise UserError if a copy is missing or has changed since the start, and for untrusted code (_require_trust).
    """
    from mudd_core.run.store.json_files import read_facts

    if not folder.has_identity or not folder.holds_run:
        return
    facts = read_facts(folder)
    if not (saved := _saved(facts, folder)):
        return
    for key, value in _named_by(folder).items():
        one = saved.get(key)
        if one is None or one.name != value or named_in(words, key):
            continue
        if key == READER:
            offer(key, value, partial(_copy, folder, facts, key, one))
        elif key in needs:
            run_named(key, value, _copy(folder, facts, key, one))


def _named_by(folder: RunFolder) -> dict[str, str]:
    """Return the (first) FILE.py:NAME by field from the saved config of a run."""
    from mudd_core.run.store.json_files import read_object

    config, found = read_object(folder.config_file), {}
    for key in COPIES:
        section, _, name = key.partition(".")
        values = config.get(section)
        value = values.get(name) if isinstance(values, dict) else None
        if isinstance(value, str) and key == GROUPS:
            value = next(iter(own_in_groups(value)), "")
        if isinstance(value, str) and split_name(value) is not None:
            found[key] = value
    return found


def _copy(folder: RunFolder, facts: Mapping[str, Json], key: str, one: _Saved) -> bytes:
    """Return the bytes of a copy that may run; raise UserError for any other copy."""
    copy = folder.path / COPIES[key]
    try:
        text = read_bytes(copy, links=False)
    except OSError as error:
        raise UserError(f"[resume] {copy}: {error.strerror}; name the file: {key}={one.name}") from error
    if (found := sha256_of(text)) != one.sha256:
        raise UserError(
            f"[resume] {copy}: expected the run's copy with SHA-256 {one.sha256}, got {found}; "
            "restore the old file, or name a file that has this hash: "
            f"{key}=FILE.py:{_leaf(one.name)}"
        )
    if not (folder.trusted or has_run(key, found) or _is_of_user(folder, facts, key, found)):
        raise UserError(
            f"[{key}] {copy}: expected the code of a run that you started on this machine, got a "
            "file that was copied here; read it, then add --trust-code (in Python trust_code=True), "
            f"or name a file of yours that has the same bytes: {key}=FILE.py:{_leaf(one.name)}"
        )
    return text


def _is_of_user(folder: RunFolder, facts: Mapping[str, Json], key: str, sha256: str) -> bool:
    """Return True if this user ran these bytes here in this run.

    Return False for a copy of a URL, because others may write there.
    """
    return not folder.is_copy and known_hashes(str(facts.get("run_id"))).get(key) == sha256


def remember_code(run_id: str, config: Config) -> str:
    """Record that this user runs the code of a config here; return the error message, or an empty string."""
    return remember(run_id, {key: file.sha256 for key, (_, file) in _named(config).items()})


def check_saved(config: Config, names: Mapping[str, str] | None = None) -> None:
    """Raise UserError for a saved config that breaks a rule, except for an optimizer whose code has not run.

    names: as in check_config.
    """
    if name_fault(config.optim.name):
        config = replace_path(config, OPTIMIZER, "adamw")
    if name_fault(config.optim.groups, GROUPS):
        config = replace_path(config, GROUPS, "")
    check_config(config, names or {})


def require_named_reader(config: Config, words: Sequence[str]) -> None:
    """Raise UserError if a saved config names the file of a reader but the command does not."""
    reader = config.data.pipeline
    if split_name(reader) is not None and not named_in(words, READER):
        raise UserError(
            f"[{READER}] this config needs the code in {reader}, and a command runs only the files "
            f"that its arguments name; add {READER}={reader}"
        )


def as_saved(asked: Config, folder: RunFolder, facts: Mapping[str, Json]) -> Config:
    """Return the requested config with the names that the run uses for its files.

    Raise UserError with both hashes if a file has changed since the start of the run.
    """
    now = _named(asked)
    for key, one in _saved(facts, folder).items():
        if key not in now or _leaf(now[key][0]) != _leaf(one.name):
            continue  # the comparison of fields reports it
        name, file = now[key]
        if file.sha256 != one.sha256:
            copy = f"{key}={folder.path / COPIES[key]}:{_leaf(name)}"
            raise UserError(
                f"[resume] {key}: {file.file} has changed since {folder} was started: SHA-256 {one.sha256[:16]}... "
                f"then, {file.sha256[:16]}... now; resume with the run's copy: {copy}, or start a new run in "
                "another --workdir"
            )
        if name != one.name:
            run_named(key, one.name, file.text)
            if key == GROUPS:
                groups = asked.optim.groups.replace(f"{_file_in(name)}:", f"{_file_in(one.name)}:")
                asked = replace_path(asked, key, groups)
            elif key == FAMILY:
                family = named_family(one.name, file.text)
                asked = dataclasses.replace(asked, model=in_family(asked.model, family))
            else:
                asked = replace_path(asked, key, one.name)
    return asked


def _file_in(name: str) -> str:
    found = split_name(name)
    return name if found is None else found[0]


def _leaf(name: str) -> str:
    found = split_name(name)
    return name if found is None else found[1]
