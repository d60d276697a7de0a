"""Write a corpus of prose for `launch.py race`: the dictionary of the Debian package dict-gcide, as one text file.

    python bench/race/prose_corpus.py --out runs/prose.txt
    python launch.py race --recipes=small.py data.path=runs/prose.txt

apt-get downloads the package; nothing is installed. --deb uses a file that exists already. The text is not committed.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE = "dict-gcide"
INSIDE = "usr/share/dictd/gcide.dict.dz"
MEBIBYTES = 12  # about the size of the default corpus


def deb_file(folder: Path) -> Path:
    """Download the package into the folder and return its file."""
    if shutil.which("apt-get") is None:
        raise SystemExit(
            f"[prose_corpus] apt-get: expected Debian or Ubuntu; pass --deb={PACKAGE}_VERSION_all.deb"
        )
    subprocess.run(["apt-get", "-q", "download", PACKAGE], cwd=folder, check=True)
    return next(folder.glob(f"{PACKAGE}_*.deb"))


def text_of(deb: Path, folder: Path) -> str:
    """Return the text of the dictionary in a package file."""
    subprocess.run(["dpkg-deb", "-x", str(deb), str(folder)], check=True)
    return gzip.decompress((folder / INSIDE).read_bytes()).decode("utf-8", errors="replace")


def pieces(text: str, size: int) -> str:
    """Return about `size` characters of the text, in 64 equal parts from all over the alphabet."""
    parts = 64
    stride, length = len(text) // parts, min(size, len(text)) // parts
    found = []
    for part in range(parts):
        begin = text.find("\n\n", part * stride) + 2 if part else 0
        end = text.find("\n\n", begin + length)
        found.append(text[begin : end if end > 0 else None].strip())
    return "\n\n".join(found) + "\n"


def main() -> int:
    """Write the corpus."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", type=Path, required=True, help="file to write")
    p.add_argument("--deb", type=Path, help="package file, instead of a download")
    p.add_argument("--mebibytes", type=int, default=MEBIBYTES, help="size of the text")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        deb = a.deb or deb_file(Path(folder))
        text = pieces(text_of(deb, Path(folder)), a.mebibytes << 20)
    a.out.parent.mkdir(parents=True, exist_ok=True)
    a.out.write_text(text)
    print(f"{a.out}: {len(text.encode()):,} bytes of {PACKAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
