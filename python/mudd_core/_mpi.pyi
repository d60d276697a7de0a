"""
Messages over Open MPI; use mudd_core.dist.launched().
"""
from __future__ import annotations
import typing
__all__: list[str] = ['transport']
def transport(rank_is_node: bool, shared_bytes: int) -> typing.Any:
    """
    A transport for _core.join_ranks. Nothing of MPI runs before.
    """
