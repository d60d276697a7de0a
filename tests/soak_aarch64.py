"""Compare 64-bit ARM, under qemu-user, with x86-64: ./run soak aarch64 [--quick]; a log in bench/results.

Every suite of CTest that prints hashes must pass on ARM with the hashes of x86-64, at the levels neon and portable.
The suites of CI must do so with pages of 16 and 64 KiB, too.
The same command continues a log that has no end, leaving out what has been equal. --quick compares the ten suites of
CI at neon and writes no log.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests")]

import aarch64_suites as suites  # noqa: E402
from soak_log import END, Log  # noqa: E402


def all_suites(log: Log) -> bool:
    """Compare the suites that the log does not have yet; False if one fails or differs."""
    good = True
    for level in suites.SAME_TILE:
        names = [name for name in suites.op_suites() if not log.has(f"{level} {name}: exit 0, ")]
        for found in suites.compared(names, level):
            good &= found.good
            log.say(f"{level} {found}" if found.good else f"FAILED: {level} {found}")
    return good


def suites_with_pages(log: Log) -> bool:
    """Compare the suites of CI with larger pages on ARM; False if one fails or differs."""
    good = True
    for page in suites.PAGES[1:]:
        left_out = suites.NOT_PAGED if page == suites.PAGES[-1] else ()
        head = f"pages of {page >> 10} KiB,"
        names = [
            name for name in suites.QUICK if name not in left_out and not log.has(f"{head} {name}: exit 0, ")
        ]
        for outcome in suites.compared(names, page=page):
            good &= outcome.good
            log.say(f"{head} {outcome}" if outcome.good else f"FAILED: {head} {outcome}")
    return good


def main() -> int:
    """Run the soak; return 0 if every suite passes with the bits of x86-64, 2 if a package is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the ten suites of CI")
    parser.add_argument("--log", type=Path)
    asked = parser.parse_args()
    if lack := suites.missing():
        print(f"[soak aarch64] missing: {lack}; type: apt-get install {lack}")
        return 2
    if asked.quick:
        return suites.report(suites.QUICK)
    today = datetime.datetime.now(datetime.UTC).date()
    log = Log(asked.log or ROOT / "bench" / "results" / f"soak_aarch64_{today}.log", suites.head())
    begin = time.monotonic()
    suites.build({*suites.op_suites(), *suites.QUICK})
    good = all_suites(log)
    good &= suites_with_pages(log)
    result = "all suites have the bits of x86-64" if good else "SUITES DIFFER"
    log.say(f"{END}{time.monotonic() - begin:.0f} s; {result}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
