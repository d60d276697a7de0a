"""Convert the meshes and devices of the original programs to fields of the config.

Their meshes shard weights, gradients and optimizer state across all devices. `--devices=N` multiplies the per_device_*
batch sizes; the run stores the global batch size.
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
LEFT = -1  # the axis uses all devices that the other axes leave
_NETWORKS = ("ici", "dcn")
# Axes of MaxText that shard a weight. For each of them, mudd_core shards the rows of the weight.
_CUT = ("fsdp", "fsdp_transpose", "tensor")
AXES = ("data", *_CUT, "expert")
# Unsupported axes of MaxText, with the entry of NOT_BUILT that gives the reason.
REFUSED_AXES = {"sequence": "context", "autoregressive": "context", "pipeline": "pipeline"}


def axis_key(network: str, axis: str) -> str:
    """Return the key of an axis size, for example `ici_fsdp_parallelism`."""
    return f"{network}_{axis}_parallelism"


def without(axis: str, ranks: str) -> str:
    """Return the reason why an axis is unsupported, with the advice to remove it.

    ranks: the use of its ranks without it.
    """
    return f"{NOT_BUILT[REFUSED_AXES.get(axis, axis)]}; leave this key out ({ranks})"


def of_maxtext(values: Values) -> dict[str, Scalar]:
    """Return the mesh fields for the ici_* and dcn_* sizes; none if every size is 1 or -1."""
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
    """Return the mesh fields for mu-Transformer's mesh, which shards every weight across all rows * cols devices."""
    return _fields(1, rows * cols, 1) if rows * cols > 1 else {}


def of_tensor(values: Values) -> dict[str, Scalar]:
    """Return the mesh fields for the benchmark's (devices / tensor) x tensor mesh: all ranks shard every weight."""
    return {"mesh.zero": 3} if whole("tensor_parallelism", values["tensor_parallelism"], 1) > 1 else {}


def _fields(data: int, fsdp: int, expert: int) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {"mesh.data": data, "mesh.fsdp": fsdp if fsdp == LEFT else fsdp * expert}
    experts: dict[str, Scalar] = {"mesh.expert": expert} if expert > 1 else {}
    return found | experts | {"mesh.zero": 1 if fsdp == 1 else 3}


def note(before: str, fields: dict[str, Scalar], tensor: bool = False) -> str:
    """Return a line that explains how a mesh is mapped; empty without a mesh.

    tensor: the mesh has a tensor-parallel axis.
    """
    if not fields:
        return ""
    words = " ".join(f"{path}={value}" for path, value in fields.items())
    ranks = _ranks(fields)
    more = (
        "; tensor parallelism is not built here, so tensor multiplies fsdp (docs/scale.md)" if tensor else ""
    )
    start = f" (--ranks={ranks})" if ranks else " (--ranks=N)"
    return f"{before}: mapped to {words}{start}{more}"


def maxtext_note(values: Values) -> str:
    """Return a line that explains how the ici_* and dcn_* sizes are mapped."""
    keys = [axis_key(network, axis) for network in _NETWORKS for axis in AXES]
    set_keys = [f"{key}={values[key]}" for key in keys if values.get(key) not in (None, 1, LEFT)]
    tensor = any(_size(values, network, "tensor") > 1 for network in _NETWORKS)
    return note(", ".join(set_keys), of_maxtext(values), tensor)


def _ranks(fields: dict[str, Scalar]) -> int:
    """Return the number of ranks that a mesh needs; 0 if one of its sizes is -1."""
    data, fsdp = (int(str(fields.get(f"mesh.{name}", LEFT))) for name in ("data", "fsdp"))
    return 0 if LEFT in (data, fsdp) else data * fsdp


def _size(values: Values, network: str, axis: str) -> int:
    key = axis_key(network, axis)
    if (value := values.get(key)) is None:
        return 1
    size = whole(key, value, LEFT)
    if size == 0:
        raise ValueError(f"{key}: expected -1 (all remaining ranks) or at least 1, got 0")
    return size


def _sizes(values: Values, axes: Sequence[str]) -> int:
    """Return the product of the axis sizes over both networks; LEFT if one of them is LEFT."""
    sizes = [_size(values, network, axis) for network in _NETWORKS for axis in axes]
    return LEFT if LEFT in sizes else math.prod(sizes)


def devices_of(options: Mapping[str, str]) -> int:
    """Return the value of --devices, 1 by default; raise UserError unless it is a valid number of devices."""
    return whole(f"[arguments] {DEVICES}", options.get(DEVICES, "1"), 1, _MOST)


def refuse_devices(of_device: bool, options: Mapping[str, str]) -> None:
    """Raise UserError if the option is used in a grammar that has no batch sizes per device."""
    if DEVICES in options and not of_device:
        raise UserError(
            f"[arguments] {DEVICES}: expected a command with per_device_* batch sizes (base_v2.yml, tokenformer.yml, "
            f"gpt2.yml, clm), got another one; its batch size is already for all devices: leave out {DEVICES}"
        )


def ranks_of(options: Mapping[str, str], environment: Mapping[str, str]) -> int:
    """Return the number of ranks that the command or a launcher starts; 1 for a single process."""
    counts = (options.get("--ranks", ""), *(environment.get(name, "") for name in reversed(PROCESS_COUNTS)))
    return max(1, *map(launcher_number, counts))


def whole_batch(name: str, of_a_device: float, devices: int) -> int:
    """Return the batch size of all devices.

    Raise ValueError, with a value that works, unless it is a positive integer.
    """
    exact = Fraction(str(of_a_device)) * devices
    if exact >= 1 and exact.denominator == 1:
        return int(exact)
    text = f"{name}: expected a whole number of sequences from 1, got {of_a_device:g}"
    least = Fraction(str(of_a_device)).denominator
    if of_a_device <= 0 or least > _MOST:
        raise ValueError(text)
    on = f" on {devices} device{'s' * (devices > 1)}"
    raise ValueError(
        f"{text}{on}; type {DEVICES}={least} for a batch of "
        f"{sequences(int(Fraction(str(of_a_device)) * least))}"
    )


def sequences(count: int) -> str:
    """Format a number of sequences."""
    return f"{count:,} sequence{'s' * (count != 1)}"


def ranks_note(devices: int, ranks: int) -> str:
    """Return a note if several ranks share the batch of one device, else an empty string."""
    if devices > 1 or ranks == 1:
        return ""
    return f"{ranks} ranks share this batch; type {DEVICES}={ranks} for the batch of {ranks} devices"
