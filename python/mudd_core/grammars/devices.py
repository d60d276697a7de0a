"""`--devices=N`: the devices whose per_device_* batches a run takes together; the product is stored in the run."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from mudd_core.base.errors import UserError
from mudd_core.base.surroundings import PROCESS_COUNTS, launcher_number
from mudd_core.config.values import whole

OPTION = "--devices"
GRAMMARS = ("maxtext", "hydra")  # that have sizes of one device
_MOST = 65_536


def devices_of(options: Mapping[str, str]) -> int:
    """The devices typed, 1 if none were; UserError for what is no number of devices."""
    return whole(f"[arguments] {OPTION}", options.get(OPTION, "1"), 1, _MOST)


def refuse_devices(grammar: str, options: Mapping[str, str]) -> None:
    """UserError where the option is typed in a grammar without sizes of one device."""
    if OPTION in options and grammar not in GRAMMARS:
        raise UserError(
            f"[arguments] {OPTION}: expected a command with per_device_* batch sizes (base_v2.yml, tokenformer.yml, "
            f"gpt2.yml, clm), got another one; its batch size is that of all devices: leave out {OPTION}"
        )


def ranks_of(options: Mapping[str, str], environment: Mapping[str, str]) -> int:
    """Ranks that the command asks for or that a launcher has started; 1 for a single process."""
    counts = (options.get("--ranks", ""), *(environment.get(name, "") for name in reversed(PROCESS_COUNTS)))
    return max(1, *map(launcher_number, counts))


def whole_batch(name: str, of_a_device: float, devices: int) -> int:
    """Sequences of all devices together; ValueError with the way out where that is no whole number from 1."""
    exact = Fraction(str(of_a_device)) * devices
    if exact >= 1 and exact.denominator == 1:
        return int(exact)
    text = f"{name}: expected a whole number of sequences from 1, got {of_a_device:g}"
    least = Fraction(str(of_a_device)).denominator
    if of_a_device <= 0 or least > _MOST:
        raise ValueError(text)
    on = f" on {devices} device{'s' * (devices > 1)}"
    raise ValueError(
        f"{text}{on}; {OPTION}={least} makes {sequences(int(Fraction(str(of_a_device)) * least))} of it"
    )


def sequences(count: int) -> str:
    """A number of sequences in words."""
    return f"{count:,} sequence{'s' * (count != 1)}"


def ranks_note(devices: int, ranks: int) -> str:
    """What a command for several ranks is told that gives one device's batch; empty where that is not so."""
    if devices > 1 or ranks == 1:
        return ""
    return f"{ranks} ranks share this batch; type {OPTION}={ranks} for the batch of {ranks} devices"
