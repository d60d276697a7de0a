"""A rank as the command line runs it: one config for all ranks, agreement at the start, one message at the end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mudd_core import _core
from mudd_core.base.errors import DivergedError, FormatError, UserError
from mudd_core.base.launcher_cores import ASKED_BINDING
from mudd_core.cli import rank
from mudd_core.cli.argv import parse
from mudd_core.cli.rank import ended, join_options, shared_request
from mudd_core.config import config_hash, load_config
from mudd_core.run.ranks import rank_checks
from mudd_core.run.ranks.ranks import Ranks, rank_cores
from rank_runs import on_ranks


def codes(work: Callable[[Ranks], int], world: int = 3) -> list[int]:
    def run(comm: Any) -> int:
        ranks = Ranks(comm)
        return ended(lambda: work(ranks), ranks)

    return on_ranks(run, world)


def test_one_rank_runs_the_config_file_and_all_get_its_result(tmp_path: Path) -> None:
    file = tmp_path / "counting.py"
    file.write_text(
        "from pathlib import Path\nfrom mudd_core.config import Config\n"
        f"def get_config():\n    with open({str(tmp_path / 'count')!r}, 'a') as f:\n        f.write('x')\n"
        "    return Config(name='counting')\n"
    )
    words = [f"--config={file}", "train.steps=7", f"--workdir={tmp_path / 'run'}"]
    requests = on_ranks(lambda comm: shared_request(parse(words), Ranks(comm)), 3)
    assert (tmp_path / "count").read_text() == "x"
    wanted = config_hash(load_config(file, ["train.steps=7"]))
    for request in requests:
        assert request.required_config().train.steps == 7 and request.folder.path == tmp_path / "run"
        assert config_hash(request.required_config()) == wanted


def test_a_mistake_in_the_arguments_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert codes(
        lambda ranks: len(shared_request(parse(["--config=tiny.py", "train.stesp=3"]), ranks).words)
    ) == [
        2,
        2,
        2,
    ]
    said = capsys.readouterr().err
    assert said.count("did you mean 'train.steps'") == 1 and said.count("error:") == 1


@pytest.mark.parametrize(
    ("thing", "words"),
    [("arguments", ["--config=tiny.py", "train.seed=1"]), ("version", ["--config=tiny.py"])],
)
def test_another_program_on_one_rank_is_refused(
    thing: str, words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if thing == "version":
        agree = Ranks.agree

        def other(ranks: Ranks, facts: dict[str, Any]) -> None:
            agree(ranks, {**facts, "version": "9.9"} if ranks.rank == 2 and "version" in facts else facts)

        monkeypatch.setattr(Ranks, "agree", other)

    def work(ranks: Ranks) -> int:
        own = words if ranks.rank == 2 else ["--config=tiny.py"]
        return len(shared_request(parse(own), ranks).words)

    assert codes(work) == [2, 2, 2]
    said = capsys.readouterr().err
    assert f"[ranks] rank 2 on {os.uname().nodename}: {thing}: expected" in said and said.count("error:") == 1


@pytest.fixture
def no_cap() -> Iterator[None]:
    before = os.environ.get("MUDD_MAX_ISA")
    os.environ.pop("MUDD_MAX_ISA", None)
    yield
    os.environ.pop("MUDD_MAX_ISA", None)
    if before is not None:
        os.environ["MUDD_MAX_ISA"] = before


# The levels of x86-64 and of 64-bit ARM, and of an ARM CPU with bf16 instructions that x86-64 does not have.
LISTS = (
    ["portable", "avx2", "avx512", "avx512_bf16", "amx_bf16"],
    ["portable", "neon"],
    ["portable", "neon", "other_bf16"],
)


def levels_held(
    own: Sequence[str], node_size: int, monkeypatch: pytest.MonkeyPatch, *words: str
) -> tuple[list[int], dict[int, str]]:
    """Return the exit codes of ranks with these levels, and the common levels of ranks whose own is higher."""
    levels, held = threading.local(), dict[int, str]()
    monkeypatch.setattr(_core, "detected_isa", lambda: levels.value)
    monkeypatch.setattr(_core, "isa_levels", lambda: next(names for names in LISTS if levels.value in names))
    monkeypatch.setattr(rank_checks, "hold_to", lambda level: held.__setitem__(levels.rank, level))

    def work(comm: Any) -> int:
        ranks = Ranks(comm)
        levels.rank, levels.value = ranks.rank, own[ranks.rank]
        return ended(lambda: len(shared_request(parse(["--config=tiny.py", *words]), ranks).words) * 0, ranks)

    return on_ranks(work, len(own), node_size), held


@pytest.mark.parametrize("words", [(), ("dist.isa=same",)])
@pytest.mark.usefixtures("no_cap")
def test_machines_of_different_levels_train_together_in_fp32(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    codes, held = levels_held(["amx_bf16", "portable", "avx2"], 1, monkeypatch, *words)
    assert codes == [0] * 3 and not held and not capsys.readouterr().err


@pytest.mark.parametrize("words", [(), ("dist.isa=same",)])
@pytest.mark.usefixtures("no_cap")
def test_machines_of_x86_and_arm_train_together_in_fp32(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    codes, held = levels_held(["neon", "amx_bf16", "portable"], 1, monkeypatch, *words)
    assert codes == [0] * 3 and not held and not capsys.readouterr().err


@pytest.mark.usefixtures("no_cap")
def test_ranks_of_a_machine_use_one_level(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    codes, held = levels_held(["avx512", "avx2", "avx512", "avx512"], 2, monkeypatch)
    assert codes == [0] * 4 and held == {0: "avx2"}
    said = capsys.readouterr().err
    assert "has level avx2 only, so rank 0 uses avx2 instead of avx512: ranks of a machine share" in said


@pytest.mark.parametrize(
    ("own", "wanted"),
    [
        (["portable", "avx2", "avx512"], {}),
        (["amx_bf16", "avx2", "avx512_bf16"], {0: "avx512", 2: "avx512"}),
        (["amx_bf16", "avx512_bf16"], {0: "avx512_bf16"}),
        (["amx_bf16", "neon", "avx512_bf16"], {0: "avx512", 2: "avx512"}),
        (["amx_bf16", "other_bf16"], {0: "avx512", 1: "neon"}),
        (["avx512", "neon"], {}),
    ],
)
@pytest.mark.usefixtures("no_cap")
def test_ranks_in_bf16_use_the_best_unit_of_all_or_refuse(
    own: list[str],
    wanted: dict[int, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    codes, held = levels_held(own, 1, monkeypatch, "train.precision=bf16")
    assert codes == [0] * len(own) and held == wanted
    assert ("rank 1 on " in (said := capsys.readouterr().err)) == bool(wanted)
    assert ("bits in bf16 depend on the CPU's instructions" in said) == bool(wanted)
    assert (
        own[0] != "amx_bf16" or f"has level {own[1]} only, so rank 0 uses {wanted[0]} instead of amx" in said
    )
    codes, _ = levels_held(own, 1, monkeypatch, "train.precision=bf16", "dist.isa=same")
    assert codes == [2 if wanted else 0] * len(own)
    assert ("bf16 unit (dist.isa=same): expected 'amx_bf16' as on rank 0" in capsys.readouterr().err) == bool(
        wanted
    )


def test_an_error_of_one_rank_ends_the_job_with_its_code_and_one_message(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told: list[str] = []

    def work(ranks: Ranks) -> int:
        assert ranks.comm is not None
        fail = ranks.comm.fail
        ranks.comm.fail = lambda code, text: (told.append(f"{code} {text}"), fail(code, text))[1]  # type: ignore[method-assign]
        if ranks.rank == 1:
            raise FormatError("cache.h5", 9, "torn")
        ranks.barrier()  # never reached by all ranks
        return 0

    assert codes(work) == [70, 65, 70]
    assert told == ["65 FormatError: cache.h5 at byte 9: torn"]
    assert "error" not in capsys.readouterr().err  # the Comm prints the error


def test_an_internal_error_has_its_traceback() -> None:
    told: list[str] = []

    def work(ranks: Ranks) -> int:
        if ranks.rank == 2:
            assert ranks.comm is not None
            fail = ranks.comm.fail
            ranks.comm.fail = lambda code, text: (told.append(f"{code} {text}"), fail(code, text))[1]  # type: ignore[method-assign]
            return 1 // 0
        ranks.barrier()
        return 0

    assert codes(work) == [70, 70, 70]
    assert len(told) == 1 and told[0].startswith("70 Traceback") and "ZeroDivisionError" in told[0]


def test_what_ends_all_ranks_alike_is_told_by_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    def work(ranks: Ranks) -> int:
        raise DivergedError("ten in a row")

    assert codes(work) == [76, 76, 76]
    assert capsys.readouterr().err == "error: ten in a row\n"


def test_an_internal_error_behind_an_agreement_has_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert codes(lambda ranks: ranks.together(lambda: 1 // ranks.rank)) == [70, 70, 70]
    said = capsys.readouterr().err
    assert said.count("Traceback") == 1 and "ZeroDivisionError" in said


def test_an_error_behind_an_agreement_is_told_where_it_happened(capsys: pytest.CaptureFixture[str]) -> None:
    def work(ranks: Ranks) -> int:
        def action() -> None:
            if ranks.rank == 1:
                raise UserError("[memory] too little")

        ranks.together(action)
        return 0

    assert codes(work) == [2, 2, 2]
    assert capsys.readouterr().err == f"error: rank 1 on {os.uname().nodename}: [memory] too little\n"


# ---- cores ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mine", "others", "usable", "threads"),
    [
        (range(8), [range(8)], 8, 4),  # all ranks have one mask
        (range(4), [range(4, 8)], 4, 4),  # each rank has its own cores
        ([0], [[1]], 1, 1),
        (range(8), [range(8)], 6, 3),  # a CPU quota of 6
        (range(2), [range(2)] * 3, 2, 1),  # more ranks than cores
    ],
)
def test_a_rank_has_its_share_of_the_cores(mine: Any, others: Any, usable: int, threads: int) -> None:
    places = [("a", list(mine)), *(("a", list(other)) for other in others), ("b", list(mine))]
    assert rank_cores.threads_of_rank(("a", list(mine)), places, usable) == threads


def test_a_binding_that_mpirun_made_by_itself_is_widened(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[list[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: given.append(list(cores)))
    two = {"OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
    assert rank_cores.widen_binding(0, two, range(8)) == "" and given.pop() == [4, 5, 6, 7]
    assert rank_cores.widen_binding(3, two, range(8)) == "" and given.pop() == [3, 4, 5]
    assert rank_cores.widen_binding(6, two, range(8)) == "" and given.pop() == list(
        range(8)
    )  # the masks overlap
    assert rank_cores.widen_binding(1, two, range(8)) == "" and not given
    assert rank_cores.widen_binding(4, {}, range(8)) == "" and not given  # without mpirun
    one = {"OMPI_COMM_WORLD_LOCAL_SIZE": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
    assert rank_cores.widen_binding(0, one, range(8)) == "" and given.pop() == list(range(8))


def test_openmp_counts_the_cores_that_a_binding_by_default_hides() -> None:
    """Check the number of cores that OpenMP sees.

    With more threads than the cores that it counted when it was loaded, OpenMP's runtime hardly spins at barriers.
    """
    code = (
        "import os, ctypes\n"
        "all_cores = os.sched_getaffinity(os.getppid())\n"
        "os.sched_setaffinity(0, {min(all_cores)})\n"
        "import mudd_core\n"
        "assert os.sched_getaffinity(0) == {min(all_cores)}\n"
        "os.sched_setaffinity(0, all_cores)\n"
        "print(ctypes.CDLL('libgomp.so.1').omp_get_max_threads(), len(all_cores))\n"
    )
    for binding, wide in (("", True), ("core", False)):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_", "OMPI_"))}
        environment |= {"OMPI_COMM_WORLD_LOCAL_SIZE": "1", ASKED_BINDING: binding}
        argv = [sys.executable, "-c", code]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
        counted, cores = map(int, done.stdout.split())
        assert counted == (cores if wide else 1), binding


def test_a_binding_that_was_asked_for_stays_and_the_flag_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1})
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: pytest.fail("widened"))
    bound = {
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
        "OMPI_COMM_WORLD_LOCAL_RANK": "1",
        ASKED_BINDING: "core",
    }
    assert rank_cores.widen_binding(0, bound, range(8)) == ""
    assert rank_cores.widen_binding(4, bound, range(8)) == (
        "[launch] mpirun --bind-to core leaves a rank 1 core for train.threads=4; start it with "
        "--map-by slot:PE=4 or --bind-to none"
    )


# ---- joining ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [["dist.node=rank"], ["--dist.node", "rank"], ["--config.dist.node=rank"], ["++dist.node=rank"]]
)
def test_how_ranks_join_is_read_from_the_arguments(words: list[str]) -> None:
    assert join_options(["--config=other.py", *words, "train.steps=3"]).node == "rank"


def test_a_switch_of_how_ranks_join_leaves_the_next_argument() -> None:
    assert join_options(["--dist.debug", "--config=other.py", "train.steps=3"]).debug is True


def test_a_mistake_in_how_ranks_join_is_named() -> None:
    with pytest.raises(UserError, match=r"dist\.node: expected one of host, rank"):
        join_options(["dist.node=auto"])


def test_a_config_file_cannot_say_how_ranks_join(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "nodes.py"
    file.write_text(
        "from mudd_core.config import Config, DistConfig\n"
        "def get_config():\n    return Config(dist=DistConfig(node='rank'))\n"
    )
    monkeypatch.setattr(rank, "train", lambda *_: pytest.fail("trained"))
    words = [f"--config={file}"]
    assert on_ranks(lambda comm: rank.train_as_rank(parse(words), Ranks(comm), join_options(words)), 2) == [
        2,
        2,
    ]
    assert "type it on the command line: dist.node=rank" in capsys.readouterr().err
