"""tests/aarch64_suites.py and ./run soak aarch64: the verdict of a suite, the list of CI, and bad input."""

from __future__ import annotations

import subprocess
import sys

import pytest

import aarch64_suites as suites
from places import ROOT, TESTS

HASHES = ["gemm_f32: outputs 0123456789abcdef", "outputs fedcba9876543210"]


def outcome(
    monkeypatch: pytest.MonkeyPatch, theirs: list[str], code: int = 0, name: str = "gemm_test"
) -> suites.Outcome:
    """Return the comparison of these hashes with HASHES, or with none for a suite that prints none."""
    ours = [] if name in suites.NO_HASHES else HASHES

    def outputs(command: list[str], level: str) -> tuple[int, list[str]]:
        arm = command[0] == suites.QEMU[0]
        assert level == ("neon" if arm else "avx2")
        return (code, theirs) if arm else (0, ours)

    monkeypatch.setattr(suites, "outputs", outputs)
    (found,) = suites.compared([name])
    return found


def test_equal_hashes_pass_and_others_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert outcome(monkeypatch, HASHES).good
    other = outcome(monkeypatch, ["gemm_f32: outputs 1123456789abcdef", HASHES[1]])
    assert not other.good and "DIFFER: gemm_f32: outputs" in str(other)
    assert outcome(monkeypatch, HASHES[:1]).differ == ["outputs"]
    assert outcome(monkeypatch, HASHES[::-1]).differ == ["the order of the hashes"]
    assert not outcome(monkeypatch, []).good
    assert not outcome(monkeypatch, HASHES, code=1).good


def test_a_suite_without_hashes_must_be_in_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    assert outcome(monkeypatch, [], name="io_test").good
    assert not suites.Outcome("gemm_test", 0, 0, [], 1.0).good


def test_ci_compares_ten_suites_that_exist() -> None:
    known = {*suites.op_suites(), *suites.NO_HASHES}
    assert len(set(suites.QUICK)) == 10 and set(suites.QUICK) <= known
    assert {f"{name}.cc" for name in known} <= {path.name for path in (TESTS / "cpp").iterdir()}
    ci = (ROOT / ".ci" / "run").read_text()
    assert "./run soak aarch64 --quick" in ci and "MUDD_TEST_AARCH64=required" in ci


@pytest.mark.parametrize(
    ("program", "words", "path", "text"),
    [
        (
            "aarch64_suites.py",
            ["gemm_tests"],
            "",
            "expected suites of tests/cpp, as gemm_test, got gemm_tests",
        ),
        ("aarch64_suites.py", ["--quick"], "/nowhere", "missing: g++-aarch64-linux-gnu qemu-user"),
        ("aarch64.py", ["--folder=/nowhere"], "", "no module for ARM; type: ./run wheel --arch=aarch64"),
        ("soak_aarch64.py", ["--quick"], "/nowhere", "apt-get install g++-aarch64-linux-gnu qemu-user"),
    ],
)
def test_bad_input_is_2_and_says_what_to_type(program: str, words: list[str], path: str, text: str) -> None:
    done = subprocess.run(
        [sys.executable, str(TESTS / program), *words],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": path},
    )
    assert done.returncode == 2 and text in done.stdout + done.stderr
