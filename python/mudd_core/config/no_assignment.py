"""`config.train.steps = 3` says what to type: a config is frozen, and replace makes a changed one."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import TYPE_CHECKING, NoReturn, TypeAlias

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Assigned: TypeAlias = "bool | int | float | str | tuple[str, ...] | None"


def explain_assignment(cls: type, section: str) -> None:
    """Let the frozen dataclass of a section (empty: the config itself) refuse assignments by that message."""

    def refuse(self: DataclassInstance, name: str, value: Assigned) -> NoReturn:
        path = f"{section}.{name}" if section else name
        given = repr(value) if isinstance(value, bool | int | float | str) else "..."
        raise FrozenInstanceError(
            f"[config] {path}: a config is not changed in place; type config = config.replace('{path}', {given})"
        )

    type.__setattr__(cls, "__setattr__", refuse)
