#!/bin/bash
# Simulates the exchanges of a step on clusters of 16 and 64 nodes, of mesh.zero=1 on 256 too (SimGrid's SMPI: apt
# install libsimgrid-dev), and compares them with the formula of docs/scale.md, 2. Exit code 1: further than 20 % from it.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT
for n in 16 64 256; do
  cat > "$out/cluster.xml" <<END
<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="c" prefix="n" suffix="" radical="0-$((n - 1))" speed="1Gf" bw="2750MBps" lat="15us"/>
</platform>
END
  for i in $(seq 0 $((n - 1))); do echo "n$i"; done > "$out/hosts"
  [ -x "$out/collectives" ] || smpicxx -std=c++20 -O2 -Icpp bench/smpi/collectives.cc cpp/mudd/dist/messages.cc \
    cpp/mudd/dist/piece_sum.cc cpp/mudd/dist/piece_gather.cc cpp/mudd/dist/piece_exchange.cc cpp/mudd/dist/collectives.cc bench/smpi/no_sums.cc -o "$out/collectives"
  smpirun -np "$n" -platform "$out/cluster.xml" -hostfile "$out/hosts" --cfg=smpi/bw-factor:0:1 \
    --cfg=smpi/lat-factor:0:1 --log=root.thres:warning "$out/collectives" $((4 << 20)) 30e-6 2.75e9 $((n <= 64 ? 4 : 2))
done
