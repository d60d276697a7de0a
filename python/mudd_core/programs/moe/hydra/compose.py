"""Compose a config: the root config, the groups of its defaults list, and the overrides of the command line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from mudd_core.base.errors import UserError
from mudd_core.config.arguments import argument
from mudd_core.config.foreign import SETTINGS
from mudd_core.config.suggest import nearest
from mudd_core.programs.moe.hydra.files import Folders, HydraFile, config_error, read_file
from mudd_core.programs.moe.hydra.tree import deep_copy, delete_at, known_paths, merge, put_at, value_at
from mudd_core.programs.moe.hydra.values import Node
from mudd_core.programs.moe.hydra.words import HydraWord
from mudd_core.programs.moe.keys import ROWS


@dataclass
class Composed:
    """A composed tree whose interpolations are not resolved yet.

    files, `words`: the file or argument that set a leaf, by path. deleted: arguments that deleted a key.
    choices: options of groups. read: all files that were read.
    """

    name: str
    tree: dict[str, Node]
    files: dict[str, str] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    choices: dict[str, str] = field(default_factory=dict)
    deleted: dict[str, str] = field(default_factory=dict)
    read: list[str] = field(default_factory=list)


@dataclass
class _Entry:
    """A line of a defaults list: an option of a group, a plain config (no group), or the file itself."""

    group: str
    option: str | None
    optional: bool = False


class _Composer:
    """Walks over defaults lists. chosen: the option of each group, from overrides on the command line or in a list."""

    def __init__(self, folders: Folders, name: str, chosen: dict[str, str | None], deleted: set[str]) -> None:
        self.folders, self.chosen, self.deleted = folders, chosen, deleted
        self.found = Composed(name, {})
        self.used: set[str] = set()
        self._open: list[str] = []

    def add(self, group: str, name: str) -> None:
        """Merge a config and every config of its defaults list."""
        path = self.folders.find(group, name)
        if str(path) in self._open:
            raise config_error(path, "its defaults list leads back to itself")
        self._open.append(str(path))
        file = read_file(path)
        entries = [self._entry(file, line, group) for line in file.defaults]
        entries = [entry for entry in entries if entry is not None]
        if not any(entry and entry.group == "" and entry.option == "_self_" for entry in entries):
            entries.append(_Entry("", "_self_"))
        for entry in entries:
            assert entry is not None
            if entry.option == "_self_" and not entry.group:
                self._merge(file, group)
            else:
                self._add_entry(entry)
        self._open.pop()

    def _add_entry(self, entry: _Entry) -> None:
        if not entry.group:
            assert entry.option is not None
            at, _, name = entry.option.rpartition("/")
            self.add(at, name)
            return
        self.used.add(entry.group)
        if entry.group in self.deleted:
            return
        option = self.chosen.get(entry.group, entry.option)
        if option is None or (
            entry.optional
            and option.removesuffix(".yaml") not in self.folders.options(entry.group)
            and entry.group not in self.chosen
        ):
            return
        self.found.choices[entry.group] = option
        self.add(entry.group, option)

    def _merge(self, file: HydraFile, group: str) -> None:
        package = file.package if file.package is not None else group.replace("/", ".")
        package = "" if package == "_global_" else package.replace("_group_", group.replace("/", "."))
        branch: dict[str, Node] = deep_copy(file.content)
        for key in reversed(package.split(".") if package else []):
            branch = {key: branch}
        merge(self.found.tree, branch)
        self.found.files.update(dict.fromkeys(known_paths(branch), str(file.path)))
        self.found.read.append(str(file.path))

    def _entry(self, file: HydraFile, line: Node, parent: str) -> _Entry | None:
        """Parse a line of a defaults list; return None for `override`, which is added to chosen."""
        if isinstance(line, str):
            if line == "_self_":
                return _Entry("", line)
            at = line.removeprefix("/") if line.startswith("/") or not parent else f"{parent}/{line}"
            return _Entry("", at)
        if not isinstance(line, dict) or len(line) != 1:
            raise config_error(file.path, f"defaults: expected '- group: option', got {line!r}")
        ((key, option),) = line.items()
        if not (option is None or isinstance(option, str)):
            raise config_error(file.path, f"defaults: {key}: expected one option, got {option!r}")
        *flags, name = key.split() or [""]
        if not name:
            raise config_error(file.path, f"defaults: expected '- group: option', got {line!r}")
        if "@" in name or not set(flags) <= {"override", "optional"}:
            raise config_error(
                file.path, f"defaults: '{key}' is not supported; expected group, optional or override"
            )
        group = name.removeprefix("/") if name.startswith("/") or not parent else f"{parent}/{name}"
        if "override" in flags:
            self.chosen.setdefault(group, option)
            return None
        return _Entry(group, option, "optional" in flags)


def _collect_overrides(folders: Folders, group: str, name: str, into: dict[str, str | None]) -> None:
    """Collect the `override` lines of an appended config's defaults list; they apply to groups before it."""
    file = read_file(folders.find(group, name))
    for line in file.defaults:
        if isinstance(line, dict) and len(line) == 1:
            ((key, option),) = line.items()
            flags = key.split()
            if "override" in flags and (option is None or isinstance(option, str)):
                into.setdefault(flags[-1].removeprefix("/"), option)


def compose(folders: Folders, name: str, words: Sequence[HydraWord]) -> Composed:
    """Compose the tree of a config and overrides; raise UserError that names a wrong override and the nearest key."""
    groups, values = _sorted_words(folders, words)
    chosen: dict[str, str | None] = {}
    deleted, added = set[str](), list[tuple[str, str]]()
    for word in groups:
        option = word.value
        if word.kind == "delete":
            deleted.add(word.key)
        elif not (option is None or isinstance(option, str)):
            raise UserError(f"[hydra] {word.word}: expected the name of an option of the group {word.key}")
        elif word.kind == "change":
            chosen[word.key] = option
        elif option is not None:
            added.append((word.key, option))
    for group, option in added:
        _collect_overrides(folders, group, option, chosen)
    composer = _Composer(folders, name, chosen, deleted)
    composer.add("", name)
    for group, option in added:
        if group in composer.used:
            raise UserError(
                f"[hydra] +{group}={option}: the group is in the defaults list; write {group}={option}"
            )
        composer.found.choices[group] = option
        composer.add(group, option)
    _require_used(groups, composer)
    composer.found.words = {word.key: word.word for word in groups}
    for word in values:
        _apply(composer.found, word)
    return composer.found


def _sorted_words(folders: Folders, words: Sequence[HydraWord]) -> tuple[list[HydraWord], list[HydraWord]]:
    """Split the overrides into groups and values. Raise UserError for a repeated key, or a key with several values."""
    seen: dict[str, str] = {}
    groups, values = list[HydraWord](), list[HydraWord]()
    for word in words:
        if word.key in seen:
            raise UserError(f"[hydra] {word.key} is given twice: {seen[word.key]} and {word.word}")
        seen[word.key] = word.word
        if len(word.choices) > 1:
            raise UserError(f"[hydra] {word.word}: several values are for --multirun; write [a,b] for a list")
        is_group = folders.has_group(word.key) and not isinstance(word.value, dict)
        if is_group and word.kind == "force":
            raise UserError(
                f"[hydra] {word.word}: a group is chosen by {word.key}=OPTION or +{word.key}=OPTION"
            )
        (groups if is_group else values).append(word)
    return groups, values


def _require_used(groups: Sequence[HydraWord], composer: _Composer) -> None:
    for word in groups:
        if word.kind == "add" or word.key in composer.used:
            continue
        hint = f"; to add it: +{word.key}={word.value}" if word.kind == "change" else ""
        raise UserError(f"[hydra] {word.word}: the group is not in the defaults list{hint}")


def _apply(found: Composed, word: HydraWord) -> None:
    """Set, add or delete a value."""
    path = tuple(word.key.split("."))
    there, old = value_at(found.tree, path)
    if word.kind in ("change", "delete") and not there:
        raise UserError(f"[hydra] {word.word}: {missing_key(word, found)}")
    if word.kind == "add" and there and not (isinstance(old, dict) and isinstance(word.value, dict)):
        raise UserError(
            f"[hydra] {word.word}: the key is there already; write {word.key}=... or ++{word.key}=..."
        )
    if word.kind == "delete":
        if word.choices and word.value != old:
            raise UserError(
                f"[hydra] {word.word}: the value is {old!r}; type ~{word.key} to delete the key with any "
                "value"
            )
        delete_at(found.tree, path)
        found.deleted[word.key] = word.word
        return
    try:
        put_at(found.tree, path, word.value)
    except ValueError as error:
        raise UserError(f"[hydra] {word.word}: {error}") from None
    leaves = known_paths({word.key: word.value}) or [word.key]
    found.words.update(dict.fromkeys(leaves, word.word))


def missing_key(word: HydraWord, found: Composed) -> str:
    """Return the error text for a key that the config does not have."""
    if word.kind == "change" and any(row.name == word.key for row in ROWS):
        return f"there is no key '{word.key}' in these files; +{word.key}=... adds it"
    return f"there is no key '{word.key}'{instead_of(word.key, word.word, known_paths(found.tree, branches=True))}"


def instead_of(key: str, word: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown key: the mesh field of that name in another program, else a similar key.

    word: the argument that sets the key. known: existing keys; refused ones are never suggested.
    """
    ours = SETTINGS.get(key, "")
    if ours.startswith("mesh."):
        return f"; type +{ours}={argument(word).value or ''}"
    refused = {row.name for row in ROWS if row.fate == "refused"}
    return nearest(key, [name for name in known if name not in refused])
