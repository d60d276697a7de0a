"""Exchanges between ranks in Python: values, decisions, errors. The ranks are threads of this process."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from mudd_core.base.errors import FormatError, ReportedElsewhereError, UserError
from mudd_core.run.ranks.ranks import Ranks, exit_code
from rank_runs import on_ranks as on_comms


def on_ranks(world: int, body: Callable[[Ranks], Any], nodes: int = 1) -> list[Any]:
    return on_comms(lambda comm: body(Ranks(comm)), world, world // nodes)


def test_a_process_alone_calls_and_nothing_else() -> None:
    ranks = Ranks()
    assert ranks.gathered(3) == [3] and ranks.from_first(lambda: "x") == "x" and ranks.first
    assert ranks.any(True) and not ranks.any(False) and ranks.first_given(None) is None
    assert ranks.in_turn(lambda: 5) == ranks.together(lambda: 5) == 5
    ranks.agree({"anything": 1})


def test_values_of_any_size_come_in_the_order_of_ranks() -> None:
    def body(ranks: Ranks) -> Any:
        return ranks.gathered({"rank": ranks.rank, "text": "é" * 1000 * ranks.rank})

    for found in on_ranks(3, body):
        assert [(one["rank"], len(one["text"])) for one in found] == [(0, 0), (1, 1000), (2, 2000)]


def test_decisions_are_of_any_rank_or_of_the_first() -> None:
    def body(ranks: Ranks) -> Any:
        return (
            ranks.any(ranks.rank == 2),
            ranks.any(False),
            ranks.first_given(f"rank {ranks.rank}" if ranks.rank else None),
            ranks.from_first(lambda: {"made on": ranks.rank}),
        )

    assert on_ranks(3, body) == [(True, False, "rank 1", {"made on": 0})] * 3


def test_an_error_of_one_rank_is_everybodys_and_is_reported_once() -> None:
    def body(ranks: Ranks) -> Any:
        def action() -> int:
            if ranks.rank in (1, 2):
                raise FormatError("text.txt", 7, f"damaged on {ranks.rank}")
            return ranks.rank

        with pytest.raises((FormatError, ReportedElsewhereError)) as caught:
            ranks.together(action)
        assert ranks.gathered("and on") == ["and on"] * 4  # the ranks still make the same calls
        return type(caught.value).__name__, caught.value.exit_code

    told, elsewhere = ("FormatError", 65), ("ReportedElsewhereError", 65)
    assert on_ranks(4, body) == [elsewhere, told, elsewhere, elsewhere]


def test_files_are_made_by_the_first_rank_then_one_of_each_machine_then_the_rest() -> None:
    order: list[int] = []

    def body(ranks: Ranks) -> Any:
        return ranks.in_turn(lambda: order.append(ranks.rank))

    on_ranks(4, body, nodes=2)
    assert order[0] == 0 and order[1] == 2 and sorted(order[2:]) == [1, 3]


def test_what_differs_is_named_with_rank_and_host() -> None:
    def body(ranks: Ranks) -> Any:
        with pytest.raises((UserError, ReportedElsewhereError)) as caught:
            ranks.agree({"version": "1.0", "page size": 4096 if ranks.rank != 2 else 65536})
        return str(caught.value), caught.value.exit_code

    found = on_ranks(3, body)
    assert (
        found[0][0].startswith("[ranks] rank 2 on ")
        and "page size: expected 4096 as on rank 0" in found[0][0]
    )
    assert "got 65536" in found[0][0] and [code for _, code in found] == [2, 2, 2]


def test_a_full_disk_of_a_rank_has_the_code_of_a_failed_save() -> None:
    assert exit_code(OSError(errno.ENOSPC, "No space left on device")) == 74
    assert exit_code(OSError(errno.EIO, "Input/output error")) == 70
    assert exit_code(FormatError("tokens", 0, "damaged")) == 65
