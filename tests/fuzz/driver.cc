// fuzz_<target> --corpus DIR [--seconds S] [--runs N] [--seed K] [--failures DIR] [--keep DIR] [FILE...]
//
// Runs the corpus, then mutated inputs until S seconds or N runs are over. With FILEs it runs only these. Inputs
// that reach new code join the pool; --keep writes them into a folder as well. The same seed gives the same
// inputs.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "coverage.h"
#include "guard.h"
#include "mudd/base/check.h"

namespace fuzz {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string corpus, failures = ".", keep;
  double seconds = 5;
  std::uint64_t runs = ~0ull, seed = 1;
  std::vector<std::string> files;
};

Options options_of(int argc, char** argv) {
  Options out;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.rfind("--", 0) != 0) {
      out.files.push_back(word);
      continue;
    }
    const char* value = i + 1 < argc ? argv[++i] : "";
    if (word == "--corpus") out.corpus = value;
    else if (word == "--failures") out.failures = value;
    else if (word == "--keep") out.keep = value;
    else if (word == "--seconds") out.seconds = std::atof(value);
    else if (word == "--runs") out.runs = std::strtoull(value, nullptr, 10);
    else if (word == "--seed") out.seed = std::strtoull(value, nullptr, 10);
    else throw std::invalid_argument("unknown option " + word);
  }
  return out;
}

Bytes read_input(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

std::vector<Bytes> read_corpus(const std::string& folder) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> out;
  for (const fs::path& path : paths) out.push_back(read_input(path));
  return out;
}

class Session {
 public:
  Session(Options options, std::string scratch) : options_(std::move(options)), scratch_(std::move(scratch)) {}

  // True if the input reached code that none before it did.
  bool run(const Bytes& input) {
    enter_run(input, runs_++);
    start_coverage();
    try {
      try {
        target.run(input, scratch_);
        ++accepted_;
      } catch (const mudd::FormatError&) {
      }
      const bool fresh = end_coverage();
      leave_run();
      return fresh;
    } catch (const std::exception& e) {
      end_with(e.what());
    }
  }

  void fuzz() {
    std::vector<Bytes> pool = read_corpus(options_.corpus);
    if (pool.empty()) pool.emplace_back();
    for (const Bytes& input : pool) run(input);
    Random random(options_.seed);
    const auto start = std::chrono::steady_clock::now();
    double elapsed = 0;
    while (runs_ < options_.runs && elapsed < options_.seconds) {
      Bytes input = pool[random() % pool.size()];
      mutate(&input, pool[random() % pool.size()], target.words, random);
      if (target.repair != nullptr && random() % 4 != 0) target.repair(&input);
      if (run(input)) {
        if (!options_.keep.empty()) write_file(options_.keep + "/" + std::to_string(runs_), input);
        pool.push_back(std::move(input));
      }
      elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    std::printf(
        "fuzz %.*s: clean; %llu runs in %.1f s (%llu accepted), %zu edges, %zu inputs in the pool, seed %llu\n",
        static_cast<int>(target.name.size()), target.name.data(), static_cast<unsigned long long>(runs_), elapsed,
        static_cast<unsigned long long>(accepted_), edges_reached(), pool.size(),
        static_cast<unsigned long long>(options_.seed));
  }

 private:
  Options options_;
  std::string scratch_;
  std::uint64_t runs_ = 0, accepted_ = 0;
};

}  // namespace

void write_file(const std::string& path, std::span<const std::uint8_t> bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  require(file != nullptr, "a scratch file that can be written");
  if (!bytes.empty()) std::fwrite(bytes.data(), 1, bytes.size(), file);
  std::fclose(file);
}

}  // namespace fuzz

int main(int argc, char** argv) {
  try {
    fuzz::Options options = fuzz::options_of(argc, argv);
    const std::filesystem::path memory = "/dev/shm";  // ten times as fast as a disk
    const bool has_memory = std::filesystem::is_directory(memory);
    std::string folder = ((has_memory ? memory : std::filesystem::temp_directory_path()) / "fuzz-XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no temporary folder");
    const int status = fuzz::run_guarded(options.failures, options.seed, [&] {
      fuzz::Session session(options, folder + "/input");
      for (const std::string& file : options.files) session.run(fuzz::read_input(file));
      if (options.files.empty()) session.fuzz();
    });
    std::filesystem::remove_all(folder);
    return status;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "fuzz: %s\n", e.what());
    return 2;
  }
}
