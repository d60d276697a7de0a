"""launch.py doctor: it reports every simulated fault with its remedy, and exits with 0 without faults."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import pytest

from mudd_core import _core
from mudd_core.base import packages as package_lists
from mudd_core.base.surroundings import ENVIRONMENT, PROCESS_COUNTS
from mudd_core.dist import open_mpi
from mudd_core.engine import memory as engine_memory
from mudd_core.run.ranks.rank_cores import usable_cores
from mudd_core.tools.doctor import Finding, Level, disk, libraries, memory, packages, processor
from mudd_core.tools.doctor.command import CHECKS, checked
from places import ROOT

GIB = 1 << 30


def doctor(
    folder: Path, added: Mapping[str, str] | None = None, *words: str, before: tuple[str, ...] = ()
) -> tuple[int, str, str]:
    """Return (exit code, output, standard error) of the command in a fresh process. before: a program that starts
    it.
    """
    kept = {name: value for name, value in os.environ.items() if name not in (*ENVIRONMENT, *PROCESS_COUNTS)}
    argv = [*before, sys.executable, str(ROOT / "launch.py"), "doctor", *words]
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, cwd=folder, env={**kept, **(added or {})}
    )
    return done.returncode, done.stdout, done.stderr


def flat(text: str) -> str:
    return " ".join(text.split())


def found(check: str, place: Path = Path("runs")) -> list[Finding]:
    """Return the findings of a check that are not ok."""
    return [one for one in checked(check, place) if one.level != Level.OK]


def test_a_machine_without_faults_exits_with_0(tmp_path: Path) -> None:
    code, output, errors = doctor(tmp_path)
    assert (code, errors) == (0, "")
    assert {line.split()[0] for line in output.splitlines() if line[:1].strip()} == {*CHECKS, "training"}
    assert "training would work here: 0 faults" in output
    assert not list(tmp_path.iterdir())  # no files are left


def test_the_help_names_the_exit_codes(tmp_path: Path) -> None:
    code, output, _ = doctor(tmp_path, None, "--help")
    assert code == 0 and "--workdir" in output and "Exit codes: 0" in flat(output)
    code, _, errors = doctor(tmp_path, None, "--wrkdir=a")
    assert code == 2 and "--workdir" in errors


def test_the_module_form_works_without_a_checkout_in_the_folder(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "mudd_core", "doctor"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0 and "training would work here" in done.stdout


# Environment variables with a fault or a warning: exit code, a part of the output, and the remedy.
PLANTED = {
    "unknown level": ({"MUDD_MAX_ISA": "abacus"}, 2, "MUDD_MAX_ISA", "unset the variable"),
    "low level": (
        {"MUDD_MAX_ISA": "portable"},
        0,
        "limits the level to portable",
        "mend: unset MUDD_MAX_ISA",
    ),
    "too many threads": ({"OMP_NUM_THREADS": "4096"}, 0, "threads share", "mend: set train.threads="),
    "threads that are no number": (
        {"OMP_NUM_THREADS": "many"},
        0,
        "got 'many'",
        "mend: export OMP_NUM_THREADS=",
    ),
    "processes without MPI": ({"SLURM_NTASKS": "4"}, 2, "expected 1 process, got 4", "env -u SLURM_NTASKS"),
    "rank beyond the size": (
        {"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "2"},
        2,
        "OMPI_COMM_WORLD_RANK: expected at most 1",
        "do not change the variables that the launcher",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_an_environment_that_is_wrong_is_found(name: str, tmp_path: Path) -> None:
    environment, expected, text, mend = PLANTED[name]
    if name == "low level" and _core.detected_isa() == "portable":
        pytest.skip("the CPU has no higher level")
    code, output, _ = doctor(tmp_path, environment)
    assert code == expected and text in flat(output) and mend in flat(output)


def test_a_limit_of_the_address_space_is_found(tmp_path: Path) -> None:
    limit = (160 + 8 * (os.cpu_count() or 1) - 1) << 10
    code, output, _ = doctor(tmp_path, before=("sh", "-c", f'ulimit -v {limit}; exec "$@"', "sh"))
    assert code == 2 and "mend: raise the limit (ulimit -v unlimited)" in flat(output)


@pytest.mark.skipif(
    (os.cpu_count() or 1) < 2 or shutil.which("taskset") is None, reason="one core, or no taskset"
)
def test_a_binding_to_fewer_cores_is_found(tmp_path: Path) -> None:
    core = str(min(os.sched_getaffinity(0)))
    code, output, _ = doctor(tmp_path, before=("taskset", "-c", core))
    assert code == 0 and "bound to 1 of" in flat(output) and "mend: taskset -c 0-" in flat(output)


def test_a_second_copy_of_openmp_is_found(tmp_path: Path) -> None:
    lines = Path("/proc/self/maps").read_text().split()
    own = next(word for word in lines if "libgomp" in word)
    copy = tmp_path / "libgomp-copy.so.1"  # with another soname, like the copies in wheels
    copy.write_bytes(Path(own).read_bytes().replace(b"libgomp.so.1\0", b"libgomq.so.1\0"))
    code, output, _ = doctor(tmp_path, {"LD_PRELOAD": str(copy)})
    assert code == 0 and "2 copies of OpenMP" in flat(output) and "mend: unset LD_PRELOAD" in flat(output)


@pytest.mark.skipif(
    "_h5" not in str(list((ROOT / "python/mudd_core").glob("_h5*.so"))), reason="an installed wheel"
)
def test_a_damaged_hdf5_library_is_found(tmp_path: Path) -> None:
    listed = subprocess.run(
        ["ldd", *(ROOT / "python/mudd_core").glob("_h5*.so")], capture_output=True, text=True, check=True
    )
    name = re.search(r"libhdf5\S*", listed.stdout)
    if name is None:
        pytest.skip("HDF5 is linked into _h5")
    (tmp_path / name[0]).write_bytes(b"no library")
    code, output, _ = doctor(tmp_path, {"LD_LIBRARY_PATH": str(tmp_path)})
    assert code == 2 and name[0] in flat(output) and "mend: unset LD_LIBRARY_PATH" in flat(output)


def test_another_mpirun_first_in_the_path_is_found(tmp_path: Path) -> None:
    try:
        own = open_mpi.find_mpirun()
    except ValueError:
        pytest.skip("built without Open MPI")
    fake = tmp_path / "mpirun"
    fake.write_text("#!/bin/sh\necho HYDRA build details\n")
    fake.chmod(0o755)
    code, output, _ = doctor(tmp_path, {"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert code == 0 and f"{fake} (HYDRA build details) comes first in PATH" in flat(output)
    assert f"mend: export PATH={Path(own).parent}:$PATH" in flat(output)


def test_an_old_package_is_found(tmp_path: Path) -> None:
    old = tmp_path / "numpy-1.20.0.dist-info"
    old.mkdir()
    (old / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 1.20.0\n")
    code, output, _ = doctor(tmp_path, {"PYTHONPATH": str(tmp_path)})
    assert code == 2 and "numpy: expected 1.26 or newer, got 1.20.0" in flat(output)
    assert re.search(r"mend: \S*( -m )?pip install 'numpy>=1.26'", flat(output))


@pytest.mark.parametrize("module", ["numpy", "yaml", "tokenizers"])
def test_a_package_that_cannot_be_imported_is_found(module: str, tmp_path: Path) -> None:
    (tmp_path / f"{module}.py").write_text("raise ImportError('half of it is gone')\n")
    code, output, _ = doctor(tmp_path, {"PYTHONPATH": str(tmp_path)})
    assert code == 2 and "cannot be imported (half of it is gone) mend:" in flat(output)


def test_a_missing_package_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name in ("tokenizers", "pyarrow"):
            raise metadata.PackageNotFoundError(name)
        return metadata.version(name)

    monkeypatch.setattr(packages, "version", version)
    (fault,) = found("packages.packages")
    assert fault.level == Level.FAULT and fault.found == "tokenizers: expected 0.20 or newer, got none"
    assert any("for some inputs only: pyarrow" in one.found for one in checked("packages.packages", Path()))


def test_the_required_packages_are_those_of_the_project() -> None:
    lines = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert lines == [f"{package}>={least}" for package, least in package_lists.REQUIRED.items()]


def test_a_cpu_without_the_fast_kernels_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "detected_isa", lambda: "portable")
    monkeypatch.setattr(_core, "isa", lambda: "portable")
    monkeypatch.setattr(processor.platform, "machine", lambda: "x86_64")
    (warning,) = found("processor.level")
    assert "lacks AVX2" in warning.found and warning.mend


def test_a_quota_of_the_control_group_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr(processor, "usable_cores", lambda: usable_cores(tmp_path, "0::/\n"))
    assert any(
        "quota of the control group allows 1 of 4" in one.found and one.mend
        for one in found("processor.cores")
    )


@pytest.mark.parametrize(("left", "level"), [(500 << 20, Level.WARNING), (100 << 20, Level.FAULT)])
def test_a_memory_limit_is_found(
    left: int, level: Level, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "memory.max").write_text(f"{GIB}\n")
    (tmp_path / "memory.current").write_text(f"{GIB - left}\n")
    monkeypatch.setattr(memory, "available_bytes", lambda: engine_memory.available_bytes(tmp_path, "0::/\n"))
    (one,) = found("memory.limits")
    assert one.level == level and "memory limit of the control group" in one.found and "docker" in one.mend


def test_huge_pages_that_are_off_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "enabled").write_text("always madvise [never]\n")
    monkeypatch.setattr(memory, "HUGE_PAGES", tmp_path / "enabled")
    (warning,) = found("memory.limits")
    assert "huge pages are off" in warning.found and warning.mend.startswith("echo madvise | sudo tee")


def test_the_page_size_of_an_arm_machine_counts_in_free_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    values = {"SC_AVPHYS_PAGES": 40960, "SC_PAGE_SIZE": 65536}
    monkeypatch.setattr(os, "sysconf", values.__getitem__)
    monkeypatch.setattr(engine_memory, "PROC", tmp_path)  # without meminfo
    monkeypatch.setattr(memory, "available_bytes", lambda: engine_memory.available_bytes(tmp_path, ""))
    texts = [one.found for one in checked("memory.limits", Path()) if one.level == Level.OK]
    assert any("leaves 2.500 GiB" in text for text in texts) and any(
        "pages of 64 KiB" in text for text in texts
    )


@pytest.mark.parametrize("folder", ["missing", "small"])
def test_little_shared_memory_is_found(folder: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    monkeypatch.setattr(memory, "FOLDER", tmp_path / folder)
    monkeypatch.setattr(_core, "free_space", lambda _: 64 << 20)
    (warning,) = found("memory.shared")
    assert warning.level == Level.WARNING and "--shm-size" in warning.mend


@pytest.mark.parametrize(("free", "level"), [(10 << 20, Level.FAULT), (500 << 20, Level.WARNING)])
def test_a_full_disk_is_found(
    free: int, level: Level, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(_core, "free_space", lambda _: free)
    (one,) = found("disk.disk", tmp_path / "run")
    assert one.level == level and str(tmp_path) in one.found and "--workdir" in one.mend


def test_a_full_file_system_is_found(tmp_path: Path) -> None:
    mount = f"mount -t tmpfs -o size=8m none {tmp_path}"
    own = ("unshare", "--map-root-user", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh")
    if (
        shutil.which("unshare") is None
        or subprocess.run([*own, "true"], check=False, capture_output=True).returncode
    ):
        pytest.skip("no file system can be mounted here")
    code, output, _ = doctor(ROOT, None, f"--workdir={tmp_path / 'run'}", before=own)
    assert code == 2 and f"{tmp_path} has 8.0" in flat(output) and "choose another disk" in flat(output)


def test_a_folder_that_cannot_be_written_is_found(tmp_path: Path) -> None:
    code, output, _ = doctor(tmp_path, None, "--workdir=/proc/run")
    assert code == 2 and "/proc" in flat(output) and "--workdir" in flat(output)


def test_a_slow_disk_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(disk, "bytes_per_second", lambda _: 1e6)
    (warning,) = found("disk.disk", tmp_path)
    assert (
        warning.level == Level.WARNING and "a second" in warning.found and "train.save_every" in warning.mend
    )


def test_a_file_system_without_locks_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refused(file: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refused)
    (warning,) = found("disk.disk", tmp_path)
    assert warning.level == Level.WARNING and "no locks" in warning.found and "flock" in warning.mend
    assert not list(tmp_path.iterdir())


def test_a_build_without_mpi_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_mpi.importlib.util, "find_spec", lambda _: None)
    (warning,) = [one for one in libraries.mpi(Path()) if one.level != Level.OK]
    assert (
        warning.level == Level.WARNING and "without Open MPI" in warning.found and "openmpi" in warning.mend
    )


def test_a_check_that_fails_is_a_fault() -> None:
    (fault,) = found("no_such_check")
    assert fault.level == Level.FAULT and "no_such_check" in fault.found
