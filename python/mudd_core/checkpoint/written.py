"""The records of written files, and the manifest's entries for them."""

from __future__ import annotations

from mudd_core.checkpoint import manifest as manifests
from mudd_core.checkpoint.write_plan import WritePlan

# The record of a file: bytes, CRC, then (begin, end, block CRCs) of each tensor; lists if there are several ranks.
Written = tuple[int, int, list[tuple[int, int, list[int]]]]


def described(
    plan: WritePlan, written: list[list[Written]]
) -> tuple[dict[str, manifests.ShardFile], dict[str, manifests.Tensor]]:
    """Return the manifest's entries for the files and tensors that all ranks have written."""
    files: dict[str, manifests.ShardFile] = {}
    slices: dict[str, list[manifests.Slice]] = {}
    kinds: dict[str, tuple[str, tuple[int, ...]]] = {}
    for planned, records in zip(plan.files, written, strict=True):
        for (file, members), (size, crc, places) in zip(planned.items(), records, strict=True):
            files[file] = manifests.ShardFile(size, crc)
            for part, (begin, end, crcs) in zip(members, places, strict=True):
                kinds[part.name] = part.dtype, part.shape
                slices.setdefault(part.name, []).append(
                    manifests.slice_of(part.shape, (part.begin, part.end), file, (begin, end), tuple(crcs))
                )
    tensors = {
        name: manifests.Tensor(*kinds[name], tuple(sorted(found, key=lambda part: part.offsets)))
        for name, found in slices.items()
    }
    return files, tensors
