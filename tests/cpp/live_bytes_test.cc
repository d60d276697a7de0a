// LiveBytes: a writer reads memory whose owner changes it after release().
#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "mudd/base/check.h"
#include "mudd/io/live_bytes.h"

using mudd::io::LiveBytes;

namespace {

struct Memory {
  std::string first = "abcdefgh", none, second = "ijklm";

  void lend(LiveBytes& live) const {
    live.lend({std::as_bytes(std::span(first)), std::as_bytes(std::span(none)), std::as_bytes(std::span(second))});
  }
  void change() {
    first.assign(8, '-');
    second.assign(5, '-');
  }
};

std::string read(LiveBytes& live, std::size_t bytes) {
  std::string out(bytes, '?');
  live.read(out.data(), bytes);
  return out;
}

}  // namespace

TEST_CASE("live bytes: reads cross the pieces, and more than all is an error") {
  Memory memory;
  LiveBytes live(0);
  memory.lend(live);
  CHECK(read(live, 3) == "abc");
  CHECK(read(live, 0) == "");
  CHECK(read(live, 7) == "defghij");
  CHECK_THROWS_AS(read(live, 4), mudd::Error);
  CHECK(read(live, 3) == "klm");
  live.release();  // everything is read, so there is nothing to wait for
  live.end();
}

TEST_CASE("live bytes: release keeps all bytes that are not read yet, from any position") {
  for (std::size_t before = 0; before <= 13; ++before) {
    Memory memory;
    LiveBytes live(13 - before);
    memory.lend(live);
    std::string found = read(live, before);
    live.release();
    live.release();  // a second time changes nothing
    memory.change();
    found += read(live, (13 - before) / 2);
    found += read(live, 13 - before - (13 - before) / 2);
    live.end();
    CHECK(found == "abcdefghijklm");
  }
}

TEST_CASE("live bytes: release waits for the bytes that it has no room for") {
  for (std::uint64_t room : {0, 1, 5, 6, 12}) {
    Memory memory;
    LiveBytes live(room);
    memory.lend(live);
    std::atomic<std::size_t> taken{0}, at_release{0};
    std::thread owner([&] {
      live.release();
      at_release = taken.load();
      memory.change();
    });
    std::string found;
    for (int i = 0; i < 13; ++i) {
      ++taken;  // before the read, so the owner never sees fewer than were read
      found += read(live, 1);
      std::this_thread::yield();
    }
    live.end();
    owner.join();
    CHECK(found == "abcdefghijklm");
    CHECK(at_release >= 13 - room);
  }
}

TEST_CASE("live bytes: the end of the writer frees the owner, and the room is used again") {
  Memory memory;
  LiveBytes live(13);
  for (int save = 0; save < 3; ++save) {
    memory.lend(live);
    read(live, 2);
    live.end();  // a full disk
    live.release();
    CHECK_THROWS_AS(read(live, 1), mudd::Error);
  }
  LiveBytes small(2);
  memory.lend(small);
  std::thread owner([&] { small.release(); });
  small.end();
  owner.join();
  CHECK(small.seconds() >= 0);
}
