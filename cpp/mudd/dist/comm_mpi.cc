#include "mudd/dist/comm_mpi.h"

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <utility>
#include <vector>

#include "mudd/base/arena.h"
#include "mudd/dist/comm.h"
#include "mudd/dist/mappings.h"
#include "mudd/dist/mpi_host.h"
#include "mudd/dist/segment_file.h"

namespace mudd::dist {
namespace {

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  refuse(call, ": ", text);
}

using Clock = std::chrono::steady_clock;

constexpr int kGoodbye = 1 << 14;                       // tag, above the tags of the collectives (rank_comm.cc)
constexpr std::chrono::milliseconds kBetweenLooks{50};  // between two polls for goodbye messages
// Wait after a goodbye for messages that were sent before it, in several pieces.
constexpr std::chrono::seconds kLastMessages{2};

// Settings of Open MPI, if the user has none. Over TCP its long messages are single puts: the answer to the
// other side's request then waits for a whole put, and a link is used in one direction at a time.
constexpr std::pair<const char*, const char*> kDefaults[] = {
    {"OMPI_MCA_btl_tcp_flags", "send,inplace,need-ack,need-csum,hetero-rdma"},
    {"OMPI_MCA_btl_tcp_max_send_size", "524288"}};

class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(const MpiOptions& options) : options_(options) {}

  RankPlace open() override;
  RankPlace find_node() override;
  Request isend(const void* data, int64_t bytes, int to, int tag) override;
  Request irecv(void* data, int64_t bytes, int from, int tag) override;
  bool progress() override;
  bool test(Request request) override;
  bool window(int64_t bytes, WindowMemory& made) override;
  int64_t shared_bytes_free() const override { return *room_; }
  void split_nodes() override { place_.node_size = 1; }
  void abort(int code, const std::string& /*message*/) override { MPI_Abort(MPI_COMM_WORLD, code); }
  bool close() override;
  bool failure(std::string* /*message*/) const override { return false; }
  bool wants_own_thread() const override { return true; }

 private:
  struct Open {
    int receives = -1;  // bytes; -1: a send
    int other = -1;     // the peer
    int got = -1;
  };

  static void initialize();
  void measure_node(RankPlace& place);
  bool room_for_windows(RankPlace& place);
  Request keep(MPI_Request request, int receives, int other);
  void say_goodbye();
  void hear_goodbyes();
  void allocate(int64_t bytes, WindowMemory& made);

  MpiOptions options_;
  RankPlace place_;
  MPI_Comm all_ = MPI_COMM_WORLD, host_ = MPI_COMM_NULL;  // all: a duplicate after the ranks agree
  SegmentFile segment_;
  std::vector<MPI_Request> requests_;  // null: done, or unused
  std::vector<Open> open_;             // for each request
  std::vector<Request> unused_;
  std::vector<int> ended_;  // for MPI_Testsome
  std::vector<MPI_Status> statuses_;
  int progress_ = MPI_SUCCESS;              // its code
  std::vector<bool> met_;                   // ranks that this one has exchanged messages with
  std::vector<Clock::time_point> left_;     // time of a rank's goodbye; zero: none
  Clock::time_point heard_{};               // time of the last poll in hear_goodbyes()
  MPI_Request meeting_ = MPI_REQUEST_NULL;  // before a window is created, or before the end
  int64_t asked_[2] = {};                   // bytes of the window; free bytes here
  std::vector<int64_t> asked_by_node_;      // of all ranks of the host
  // Bytes that windows of this host may still allocate.
  std::shared_ptr<std::atomic<int64_t>> room_ = std::make_shared<std::atomic<int64_t>>(0);
};

void MpiTransport::initialize() {
  int before = 0, granted = 0;
  MPI_Initialized(&before);
  if (before) {
    MPI_Query_thread(&granted);
    if (granted < MPI_THREAD_SERIALIZED)
      refuse("MPI was initialized before with thread level ", granted,
             ", which forbids calls of other threads; import mudd_core first, or initialize with "
             "MPI_THREAD_SERIALIZED");
    return;
  }
  for (const auto& [name, value] : kDefaults) setenv(name, value, 0);
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &granted), "MPI_Init_thread");
  if (granted < MPI_THREAD_FUNNELED) refuse("MPI grants no threads: expected MPI_THREAD_FUNNELED, got ", granted);
}

RankPlace MpiTransport::open() {
  initialize();
  place_.host = host_name();
  MPI_Comm_rank(all_, &place_.rank);
  MPI_Comm_size(all_, &place_.world);
  met_.resize(static_cast<size_t>(place_.world));
  left_.resize(met_.size());
  return place_;
}

// Called after Joining: a rank that runs another program would never make these calls.
RankPlace MpiTransport::find_node() {
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &all_), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(all_, MPI_ERRORS_RETURN);
  measure_node(place_);
  if (place_.node_size > 1 && !room_for_windows(place_)) place_.node_size = 1;
  return place_;
}

// Hosts must have equal rank counts and adjacent ranks, the same on all ranks.
void MpiTransport::measure_node(RankPlace& place) {
  if (place.world == 1) return;
  check_mpi(MPI_Comm_split_type(all_, MPI_COMM_TYPE_SHARED, place.rank, MPI_INFO_NULL, &host_),
            "MPI_Comm_split_type");
  MPI_Comm_set_errhandler(host_, MPI_ERRORS_RETURN);  // else a small /dev/shm exits the job without a message
  int here = 0, on_host = 0;
  MPI_Comm_rank(host_, &here);
  MPI_Comm_size(host_, &on_host);
  int found = segment_.find(here, on_host), all_found = 0;
  check_mpi(MPI_Allreduce(&found, &all_found, 1, MPI_INT, MPI_MIN, host_), "MPI_Allreduce");
  if (all_found) segment_.remove();
  if (options_.rank_is_node) return;
  place.node_size = on_host;
  const int mine[2] = {place.rank - here, place.node_size};
  std::vector<int> all(2 * static_cast<size_t>(place.world));
  check_mpi(MPI_Allgather(mine, 2, MPI_INT, all.data(), 2, MPI_INT, all_), "MPI_Allgather");
  for (int r = 0; r < place.world; ++r)
    if (all[2 * r + 1] != place.node_size || all[2 * r] != r / place.node_size * place.node_size)
      refuse("hosts: expected equally many ranks on each, neighbours in rank order; rank ", r, " has ",
             all[2 * r + 1], " on its host, rank ", place.rank, " has ", place.node_size,
             "; start with --map-by slot, or set dist.node=rank");
}

// Return false, with a warning, if a host has too little shared memory: every rank is then a separate host.
bool MpiTransport::room_for_windows(RankPlace& place) {
  int64_t free = free_bytes(window_folder()), least = 0;
  check_mpi(MPI_Allreduce(&free, &least, 1, MPI_INT64_T, MPI_MIN, all_), "MPI_Allreduce");
  *room_ = free / 20 * 19;
  if (least / 20 * 19 >= options_.shared_bytes) return true;
  place.warning = message(window_folder(), " has ", least >> 20, " MiB free, shared memory needs ",
                          options_.shared_bytes >> 20,
                          " MiB: ranks of one host exchange messages instead, with private weights (docker run "
                          "--shm-size=...)");
  return false;
}

Transport::Request MpiTransport::keep(MPI_Request request, int receives, int other) {
  met_[other] = true;
  if (unused_.empty()) {
    unused_.push_back(static_cast<Request>(requests_.size()));
    requests_.push_back(MPI_REQUEST_NULL);
    open_.emplace_back();
  }
  const Request kept = unused_.back();
  unused_.pop_back();
  requests_[kept] = request;
  open_[kept] = {.receives = receives, .other = other};
  return kept;
}

Transport::Request MpiTransport::isend(const void* data, int64_t bytes, int to, int tag) {
  hear_goodbyes();
  if (left_[to] != Clock::time_point{}) throw PeerLeftError(to);
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, tag, all_, &request), "MPI_Isend");
  return keep(request, -1, to);
}

Transport::Request MpiTransport::irecv(void* data, int64_t bytes, int from, int tag) {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, tag, all_, &request), "MPI_Irecv");
  return keep(request, static_cast<int>(bytes), from);
}

// One call tests all requests, because each call of MPI_Test polls the sockets again.
bool MpiTransport::progress() {
  if (requests_.size() == unused_.size()) return false;
  hear_goodbyes();
  ended_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int ended = 0;
  const int code =
      MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &ended, ended_.data(), statuses_.data());
  if (code != MPI_SUCCESS) progress_ = code;
  if (ended == MPI_UNDEFINED) return false;
  for (int i = 0; i < ended; ++i)
    if (open_[ended_[i]].receives >= 0) MPI_Get_count(&statuses_[i], MPI_BYTE, &open_[ended_[i]].got);
  return ended > 0;
}

bool MpiTransport::test(Request request) {
  check_mpi(progress_, "MPI_Testsome");
  const Open& open = open_.at(request);
  if (requests_[request] != MPI_REQUEST_NULL) {
    if (const auto left = left_[open.other]; left != Clock::time_point{} && Clock::now() - left > kLastMessages)
      throw PeerLeftError(open.other);
    return false;
  }
  if (open.receives != open.got) refuse("message: expected ", open.receives, " bytes, got ", open.got);
  unused_.push_back(request);
  return true;
}

// Meet the ranks of the host without blocking first, so that the blocking call returns quickly.
bool MpiTransport::window(int64_t bytes, WindowMemory& made) {
  if (place_.node_size == 1) {
    const auto arena = std::make_shared<Arena>(bytes);
    made = {{arena->data()}, {bytes}, arena};
    return true;
  }
  if (meeting_ == MPI_REQUEST_NULL) {
    asked_[0] = bytes;
    asked_[1] = *room_;
    asked_by_node_.resize(2 * static_cast<size_t>(place_.node_size));
    check_mpi(MPI_Iallgather(asked_, 2, MPI_INT64_T, asked_by_node_.data(), 2, MPI_INT64_T, host_, &meeting_),
              "MPI_Iallgather");
  }
  int done = 0;
  check_mpi(MPI_Test(&meeting_, &done, MPI_STATUS_IGNORE), "MPI_Test");
  if (!done) return false;
  meeting_ = MPI_REQUEST_NULL;
  allocate(bytes, made);
  return true;
}

void MpiTransport::allocate(int64_t bytes, WindowMemory& made) {
  int64_t together = 0, room = room_->load();
  for (int r = 0; r < place_.node_size; ++r) {
    together += asked_by_node_[2 * r];
    room = std::min(room, asked_by_node_[2 * r + 1]);
  }
  if (together > room)
    throw NoRoom(message(window_folder(), ": expected room for ", together >> 20, " MiB of shared memory, got ",
                         room >> 20, " MiB; enlarge it (docker run --shm-size=...), or set dist.node=rank"));
  MPI_Info info;
  MPI_Info_create(&info);
  MPI_Info_set(info, "alloc_shared_noncontig", "true");  // a separate page for each part
  void* base = nullptr;
  MPI_Win window;
  const int code = MPI_Win_allocate_shared(bytes, 1, info, host_, &base, &window);
  MPI_Info_free(&info);
  check_mpi(code, "MPI_Win_allocate_shared");
  const auto parts = std::make_shared<Mappings>(room_, together);
  for (int r = 0; r < place_.node_size; ++r) {
    MPI_Aint size = 0;
    int unit = 0;
    check_mpi(MPI_Win_shared_query(window, r, &size, &unit, &base), "MPI_Win_shared_query");
    made.bytes.push_back(asked_by_node_[2 * r]);
    made.parts.push_back(parts->add(base, made.bytes.back()));
  }
  check_mpi(MPI_Win_free(&window), "MPI_Win_free");
  made.keep = parts;
}

// Send only to ranks with a connection: the others wait for no message of this one.
void MpiTransport::say_goodbye() {
  for (int r = 0; r < place_.world; ++r) {
    if (!met_[r] || left_[r] != Clock::time_point{}) continue;
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Isend(nullptr, 0, MPI_BYTE, r, kGoodbye, all_, &request), "MPI_Isend");
    MPI_Request_free(&request);
  }
}

void MpiTransport::hear_goodbyes() {
  const auto now = Clock::now();
  if (now - heard_ < kBetweenLooks || place_.node_size == place_.world) return;
  heard_ = now;
  MPI_Status status;
  for (int misses = 0; misses < 2;) {  // the first poll may only fetch what the second one finds
    int waits = 0;
    check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, kGoodbye, all_, &waits, &status), "MPI_Iprobe");
    misses += waits == 0;
    if (!waits) continue;
    check_mpi(MPI_Recv(nullptr, 0, MPI_BYTE, status.MPI_SOURCE, kGoodbye, all_, MPI_STATUS_IGNORE), "MPI_Recv");
    left_[status.MPI_SOURCE] = now;
  }
}

bool MpiTransport::close() {
  if (meeting_ == MPI_REQUEST_NULL) {
    say_goodbye();
    check_mpi(MPI_Ibarrier(all_, &meeting_), "MPI_Ibarrier");
  }
  hear_goodbyes();
  int done = 0;
  check_mpi(MPI_Test(&meeting_, &done, MPI_STATUS_IGNORE), "MPI_Test");
  if (!done) return false;
  segment_.restore();
  MPI_Finalize();
  return true;
}

}  // namespace

std::unique_ptr<Transport> mpi_transport(const MpiOptions& options) {
  return std::make_unique<MpiTransport>(options);
}

}  // namespace mudd::dist
