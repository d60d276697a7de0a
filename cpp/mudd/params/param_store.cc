#include "mudd/params/param_store.h"

#include <algorithm>
#include <utility>

#include "mudd/base/check.h"
#include "mudd/base/parallel.h"
#include "mudd/kernels/gemm/gemm.h"
#include "mudd/kernels/gemm/pack_block.h"
#include "mudd/params/units.h"

namespace mudd {
namespace {

constexpr RoleInfo kRoles[] = {{"embedding", "table"}, {"matrix", "matrix"}, {"gain", "vector"},
                               {"bias", "vector"},     {"head", "table"},    {"router", "matrix"},
                               {"slots", "matrix"},    {"mix", "matrix"}};

// Parameters begin at multiples of 16 elements of a plane.
int64_t padded(int64_t elements) { return (elements + 15) / 16 * 16; }

}  // namespace

std::span<const RoleInfo> roles() { return kRoles; }
const char* name_of(Role role) { return kRoles[static_cast<int>(role)].name; }

Role parse_role(const std::string& name) {
  std::string known;
  for (size_t i = 0; i < std::size(kRoles); ++i) {
    if (name == kRoles[i].name) return static_cast<Role>(i);
    known += (known.empty() ? "" : ", ") + std::string(kRoles[i].name);
  }
  fail("parameter", "role: expected one of ", known, ", got '", name, "'");
}

bool may_be_narrow(const Parameter& p) {
  return p.shape.size() >= 2 && p.role != Role::router && p.role != Role::bias && p.role != Role::gain;
}

int64_t Parameter::size() const {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

int ParamStore::declare(const Parameter& parameter) {
  const int known = find(parameter.name);
  if (known >= 0) {
    check(at(known).shape == parameter.shape && at(known).role == parameter.role, "parameter", parameter.name,
          ": declared twice with different shapes or roles");
    return known;
  }
  check(!allocated(), "parameter", parameter.name, ": declared after the parameters were allocated");
  for (int64_t d : parameter.shape)
    check(d >= 1, "parameter", parameter.name, ": expected a shape of whole numbers from 1 on, got ", d);
  check(parameter.stored == DType::f32 || (may_be_narrow(parameter) && !parameter.trainable), "parameter",
        parameter.name, ": only frozen matrices are stored in 16 bits, and of them no router");
  numbers_.emplace(parameter.name, count());
  parameters_.push_back(parameter);
  return count() - 1;
}

int ParamStore::find(const std::string& name) const {
  const auto found = numbers_.find(name);
  return found == numbers_.end() ? -1 : found->second;
}

int64_t ParamStore::elements() const {
  int64_t n = 0;
  for (const Parameter& p : parameters_) n += p.size();
  return n;
}

int64_t ParamStore::trained_elements() const {
  int64_t n = 0;
  for (int i : trained()) n += at(i).size();
  return n;
}

std::vector<int> ParamStore::trained() const {
  std::vector<int> found;
  for (int i = 0; i < count(); ++i)
    if (at(i).trainable) found.push_back(i);
  return found;
}

int64_t ParamStore::plane_bytes() const {
  int64_t n = 0;
  for (const Parameter& p : parameters_) n += padded(p.size()) * size_of(p.stored);
  return n;
}

ParamStore::Memory ParamStore::take(int64_t bytes, bool shared) {
  Memory memory{.bytes = bytes};
  if (shared && shares() && !booked_only_) {
    memory.data = share_.memory(bytes);
  } else {
    memory.own = Arena(bytes, booked_only_);
    memory.data = memory.own.data();
  }
  return memory;
}

void ParamStore::allocate(bool booked_only, NodeShare share) {
  check(!allocated(), "parameter", "the parameters are allocated already");
  booked_only_ = booked_only;
  share_ = std::move(share);
  std::vector<Part> all;
  narrow_offsets_.assign(parameters_.size(), -1);
  int64_t narrow = 0;
  for (int i = 0; i < count(); ++i) {
    if (stored(i) == DType::f32) {
      all.push_back(whole(i));
      continue;
    }
    narrow_offsets_[i] = narrow;
    narrow += padded(at(i).size());
  }
  if (narrow > 0) narrow_ = take(narrow * size_of(DType::bf16), true);
  add_plane(DType::f32, all);
  packs_.resize(parameters_.size());
}

Tensor ParamStore::weights(int i) const {
  const Parameter& p = at(i);
  std::byte* data =
      narrow_offsets_[i] < 0 ? plane_data(0, i) : narrow_.data + narrow_offsets_[i] * size_of(p.stored);
  return {.data = data, .rows = p.rows(), .cols = p.cols(), .stride = p.cols(), .dtype = p.stored};
}

void ParamStore::train_only(const std::vector<int>& chosen) {
  for (int i : chosen)
    check(stored(i) == DType::f32, "train_only", at(i).name, ": it is stored in ", name_of(stored(i)),
          ", as only frozen parameters are");
  for (Parameter& p : parameters_) p.trainable = false;
  for (int i : chosen) at(i).trainable = true;
}

int ParamStore::add_plane(DType dtype, const std::vector<Part>& parts) {
  check(dtype == DType::f32 || dtype == DType::bf16, "parameter", "plane: expected float32 or bfloat16, got ",
        name_of(dtype));
  Plane plane{.dtype = dtype,
              .offsets = std::vector<int64_t>(parameters_.size(), -1),
              .parts = std::vector<Part>(parameters_.size())};
  int64_t elements = 0;
  for (const Part& part : parts) {
    if (part.size() == 0) continue;
    plane.offsets[part.parameter] = elements;
    plane.parts[part.parameter] = part;
    elements += padded(part.size());
  }
  plane.memory = take(elements * size_of(dtype), planes_.empty());
  planes_.push_back(std::move(plane));
  return planes() - 1;
}

void ParamStore::request_pack(int i, Pack how) {
  Memory& pack = packs(i, how);
  if (pack.data) return;
  pack = take(at(i).stack() * packed_stride(i, how), share_packs_);
  if (booked_only_) return;
  if (pack.own.data() || i % share_.size == share_.rank) pack_master(i, how);
  if (!pack.own.data()) share_.barrier();
}

int64_t ParamStore::packed_stride(int i, Pack how) const {
  const Parameter& p = at(i);
  return how == Pack::plain ? mudd::packed_bytes(p.matrix_rows(), p.cols(), compute_)
                            : mudd::packed_bytes(p.cols(), p.matrix_rows(), compute_);
}

void ParamStore::pack_master(int i, Pack how) {
  const Parameter& p = at(i);
  for (int64_t s = 0; s < p.stack(); ++s)
    pack_weight(weights(i).cells() + s * p.matrix_rows() * p.cols(), p.matrix_rows(), p.cols(),
                how == Pack::transposed, packed(i, how) + s * packed_stride(i, how), compute_);
}

std::byte* ParamStore::packed(int i, Pack how) const { return packs(i, how).data; }

std::byte* ParamStore::packed_by_update(int i, Pack how) const {
  const Memory& pack = packs(i, how);
  return shares() && pack.own.data() ? nullptr : pack.data;
}

bool ParamStore::has_own_copies() const {
  return shares() && std::any_of(packs_.begin(), packs_.end(),
                                 [](const Packs& p) { return p.plain.own.data() || p.transposed.own.data(); });
}

void ParamStore::refresh_own() {
  if (!shares() || !own_copies_stale_) return;
  for (int i = 0; i < count(); ++i)
    for (Pack how : {Pack::plain, Pack::transposed})
      if (packs(i, how).own.data()) pack_master(i, how);
  own_copies_stale_ = false;
}

void ParamStore::repack(int i) {
  for (Pack how : {Pack::plain, Pack::transposed})
    if (packed(i, how)) pack_master(i, how);
}

void ParamStore::repack(const Part& part) {
  const Parameter& p = at(part.parameter);
  const int64_t matrix = p.matrix_rows() * p.cols();
  for (int64_t s = part.begin / matrix; part.size() > 0 && s * matrix < part.end; ++s) {
    const auto panels = [&](Pack how) -> void* {
      std::byte* all = packed_by_update(part.parameter, how);
      return all ? all + s * packed_stride(part.parameter, how) : nullptr;
    };
    const PackedMatrix packed{.w = master(part.parameter) + s * matrix,
                              .rows = p.matrix_rows(),
                              .cols = p.cols(),
                              .plain = panels(Pack::plain),
                              .transposed = panels(Pack::transposed),
                              .compute = compute_};
    if (!packed.plain && !packed.transposed) continue;
    const int64_t first = std::max(part.begin - s * matrix, int64_t{0}) / p.cols();
    const int64_t end = std::min(part.end - s * matrix, matrix) / p.cols();
    parallel_for((end - first + kUnitRows - 1) / kUnitRows, [&](int64_t task, int) {
      const int64_t r = first + task * kUnitRows;
      pack_block(packed, r, std::min(r + kUnitRows, end), 0, p.cols());
    });
  }
}

void ParamStore::repack_all() {
  if (!shares()) {
    for (int i = 0; i < count(); ++i) repack(i);
    return;
  }
  share_.barrier();  // the masters are written by all
  for (int i = share_.rank; i < count(); i += share_.size)
    for (Pack how : {Pack::plain, Pack::transposed})
      if (packed_by_update(i, how)) pack_master(i, how);
  own_copies_stale_ = true;
  refresh_own();
  share_.barrier();
}

int64_t ParamStore::state_bytes() const {
  int64_t bytes = 0;
  for (int p = 1; p < planes(); ++p) bytes += planes_[p].memory.bytes;
  return bytes;
}

int64_t ParamStore::packed_bytes() const {
  int64_t bytes = 0;
  for (const Packs& p : packs_) bytes += p.plain.bytes + p.transposed.bytes;
  return bytes;
}

}  // namespace mudd
