"""Meshes and devices of the original programs as fields of the config.

Their meshes cut weights, gradients and state over all devices. `--devices=N` says of how many devices the
per_device_* batches are taken together; the run stores the whole batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from mudd_core.base.errors import UserError
from mudd_core.base.surroundings import PROCESS_COUNTS, launcher_number
from mudd_core.config.fields import Scalar
from mudd_core.config.mesh import NOT_BUILT
from mudd_core.config.values import whole
from mudd_core.programs.program import DEVICES
from mudd_core.programs.row import Values

_MOST = 65_536
LEFT = -1  # a size of what the other axes leave
_NETWORKS = ("ici", "dcn")
# Axes of MaxText that cut a weight: on whichever axis, here its rows go to so many ranks.
_CUT = ("fsdp", "fsdp_transpose", "tensor")
AXES = ("data", *_CUT, "expert")
# Axes of it that are not built, and the figure of ours that says why.
REFUSED_AXES = {"sequence": "context", "autoregressive": "context", "pipeline": "pipeline"}


def axis_key(network: str, axis: str) -> str:
    """The key of a size: `ici_fsdp_parallelism`."""
    return f"{network}_{axis}_parallelism"


def without(axis: str, ranks: str) -> str:
    """Why an axis of another program is refused, and to leave it out. ranks: what its ranks do then."""
    return f"{NOT_BUILT[REFUSED_AXES.get(axis, axis)]}; leave it out: {ranks}"


def of_maxtext(values: Values) -> dict[str, Scalar]:
    """The fields of the sizes of ici_* and dcn_*; none where all of them are 1 or what is left."""
    data, expert = (_sizes(values, (axis,)) for axis in ("data", "expert"))
    if (
        all(_size(values, network, axis) in (1, LEFT) for network in _NETWORKS for axis in AXES)
        and expert == 1
    ):
        return {}
    if expert == LEFT:
        raise ValueError(
            f"{axis_key('ici', 'expert')}: expected the number of ranks, -1 is for data and fsdp alone"
        )
    fsdp = _sizes(values, _CUT)
    return _fields(data, fsdp, expert)


def of_rows(rows: int, cols: int) -> dict[str, Scalar]:
    """The fields of mu-Transformer's mesh: with columns, too, each weight is cut over all of its devices."""
    return _fields(1, rows * cols, 1) if rows * cols > 1 else {}


def of_tensor(values: Values) -> dict[str, Scalar]:
    """The fields of the benchmark's mesh, (devices / tensor) x tensor: all ranks cut each weight."""
    return {"mesh.zero": 3} if whole("tensor_parallelism", values["tensor_parallelism"], 1) > 1 else {}


def _fields(data: int, fsdp: int, expert: int) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {"mesh.data": data, "mesh.fsdp": fsdp if fsdp == LEFT else fsdp * expert}
    experts: dict[str, Scalar] = {"mesh.expert": expert} if expert > 1 else {}
    return found | experts | {"mesh.zero": 1 if fsdp == 1 else 3}


def note(before: str, fields: dict[str, Scalar], tensor: bool = False) -> str:
    """What a mesh was taken as, for the user; empty where it is none. tensor: an axis of it cuts layers inside."""
    if not fields:
        return ""
    words = " ".join(f"{path}={value}" for path, value in fields.items())
    ranks = _ranks(fields)
    more = "; layers are not cut inside here, so tensor multiplies fsdp (docs/scale.md)" if tensor else ""
    start = f" (--ranks={ranks})" if ranks else " (--ranks=N)"
    return f"{before}: taken as {words}{start}{more}"


def maxtext_note(values: Values) -> str:
    """What the sizes of ici_* and dcn_* were taken as."""
    keys = [axis_key(network, axis) for network in _NETWORKS for axis in AXES]
    set_keys = [f"{key}={values[key]}" for key in keys if values.get(key) not in (None, 1, LEFT)]
    tensor = any(_size(values, network, "tensor") > 1 for network in _NETWORKS)
    return note(", ".join(set_keys), of_maxtext(values), tensor)


def _ranks(fields: dict[str, Scalar]) -> int:
    """The ranks that a mesh needs; 0 where one of its sizes is what is left."""
    data, fsdp = (int(str(fields.get(f"mesh.{name}", LEFT))) for name in ("data", "fsdp"))
    return 0 if LEFT in (data, fsdp) else data * fsdp


def _size(values: Values, network: str, axis: str) -> int:
    key = axis_key(network, axis)
    if (value := values.get(key)) is None:
        return 1
    size = whole(key, value, LEFT)
    if size == 0:
        raise ValueError(f"{key}: expected -1 (what is left) or at least 1, got 0")
    return size


def _sizes(values: Values, axes: Sequence[str]) -> int:
    """The product of the sizes of axes in both networks; LEFT where one of them is."""
    sizes = [_size(values, network, axis) for network in _NETWORKS for axis in axes]
    return LEFT if LEFT in sizes else math.prod(sizes)


def devices_of(options: Mapping[str, str]) -> int:
    """The devices typed, 1 if none were; UserError for what is no number of devices."""
    return whole(f"[arguments] {DEVICES}", options.get(DEVICES, "1"), 1, _MOST)


def refuse_devices(of_device: bool, options: Mapping[str, str]) -> None:
    """Raise UserError if the option is typed in a grammar without batch sizes of one device."""
    if DEVICES in options and not of_device:
        raise UserError(
            f"[arguments] {DEVICES}: expected a command with per_device_* batch sizes (base_v2.yml, tokenformer.yml, "
            f"gpt2.yml, clm), got another one; its batch size is that of all devices: leave out {DEVICES}"
        )


def ranks_of(options: Mapping[str, str], environment: Mapping[str, str]) -> int:
    """Return the ranks that the command or a launcher starts; 1 for a single process."""
    counts = (options.get("--ranks", ""), *(environment.get(name, "") for name in reversed(PROCESS_COUNTS)))
    return max(1, *map(launcher_number, counts))


def whole_batch(name: str, of_a_device: float, devices: int) -> int:
    """Return the sequences of all devices together; ValueError with the way out if it is no whole number from 1."""
    exact = Fraction(str(of_a_device)) * devices
    if exact >= 1 and exact.denominator == 1:
        return int(exact)
    text = f"{name}: expected a whole number of sequences from 1, got {of_a_device:g}"
    least = Fraction(str(of_a_device)).denominator
    if of_a_device <= 0 or least > _MOST:
        raise ValueError(text)
    on = f" on {devices} device{'s' * (devices > 1)}"
    raise ValueError(
        f"{text}{on}; {DEVICES}={least} makes {sequences(int(Fraction(str(of_a_device)) * least))} of it"
    )


def sequences(count: int) -> str:
    """Return a number of sequences as text."""
    return f"{count:,} sequence{'s' * (count != 1)}"


def ranks_note(devices: int, ranks: int) -> str:
    """Return a note if several ranks share the batch of one device; empty otherwise."""
    if devices > 1 or ranks == 1:
        return ""
    return f"{ranks} ranks share this batch; type {DEVICES}={ranks} for the batch of {ranks} devices"
