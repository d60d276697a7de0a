#include "mudd/graph/node_observer.h"

#include <array>
#include <cmath>
#include <sstream>

#include "mudd/base/check.h"
#include "mudd/kernels/convert/convert.h"
#include "mudd/kernels/reduce/reduce.h"

namespace mudd {
namespace {

constexpr std::array kStages = {"state", "data", "forward", "recompute", "backward", "sum", "step", "update"};

float element(const Tensor& t, int64_t row, int64_t column) {
  float value = 0;
  const int64_t at = row * t.stride + column;
  if (t.dtype == DType::f32) return t.f32()[at];
  widen(1, static_cast<const bf16*>(t.data) + at, &value);
  return value;
}

std::string list_text(const std::vector<int64_t>& numbers) {
  std::string text;
  for (const int64_t one : numbers) text += (text.empty() ? "" : ", ") + std::to_string(one);
  return "[" + text + "]";
}

std::vector<int64_t> index_of(const std::vector<int64_t>& shape, int64_t at) {
  std::vector<int64_t> index(shape.size());
  for (size_t axis = shape.size(); axis-- > 0; at /= shape[axis]) index[axis] = at % shape[axis];
  return index;
}

}  // namespace

const char* name_of(StepStage stage) { return kStages[static_cast<size_t>(stage)]; }

StepStage parse_stage(const std::string& name) {
  for (size_t i = 0; i < kStages.size(); ++i)
    if (name == kStages[i]) return static_cast<StepStage>(i);
  fail("observer", "stage: expected a stage of a step, got '", name, "'");
}

std::string Observed::title() const {
  const size_t colon = place.rfind(':');
  const std::string label = colon == std::string::npos ? place : place.substr(colon + 1);
  const std::string module = colon == std::string::npos ? "" : place.substr(0, colon);
  const std::string where = label.substr(0, label.find('#')) == op ? module : place;
  return op + " (" + name_of(stage) + ")" + (where.empty() ? "" : " in " + where) + ": " + value +
         (run > 0 ? ", micro-batch " + std::to_string(run + 1) : "");
}

void NonFiniteCheck::see(const Observed& value) {
  const Tensor& t = value.tensor;
  const bool real = t.dtype == DType::f32 || t.dtype == DType::bf16;
  if (!found_.empty() || !real || value.of_ranks || all_finite(t)) return;
  for (int64_t row = 0; row < t.rows; ++row)
    for (int64_t column = 0; column < t.cols; ++column) {
      const float bad = element(t, row, column);
      if (std::isfinite(bad)) continue;
      const char* kind = std::isnan(bad) ? "nan" : bad > 0 ? "inf" : "-inf";
      std::ostringstream text;
      text << value.title() << ", " << name_of(t.dtype) << " " << list_text(value.shape) << ", " << kind << " at "
           << list_text(index_of(value.shape, row * t.cols + column));
      found_ = text.str();
      return;
    }
}

}  // namespace mudd
