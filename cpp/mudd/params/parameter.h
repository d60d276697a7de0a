// Parameter: the declaration of one weight of a model. Part: a range of its elements.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mudd/base/types.h"

namespace mudd {

// The use of a parameter; decay, init and rates derive from it (contracts 11).
enum class Role : uint8_t { embedding, matrix, gain, bias, head, router, slots, mix, rows };
struct RoleInfo {
  const char* name;
  const char* kind;  // matrix, table (a row for each token) rows (of n-grams) or vector: the choice of optim.decay
};
std::span<const RoleInfo> roles();  // in the order of Role
const char* name_of(Role role);
Role parse_role(const std::string& name);

struct Parameter {
  std::string name;
  std::vector<int64_t> shape;
  Role role = Role::matrix;
  int64_t fan_in = 0, fan_out = 0;
  std::string init =
      "normal";             // normal | uniform | constant | zeros | ones | last_column (ones there, zeros else)
  double init_scale = 0.0;  // std of normal, half width of uniform, value of constant
  // Per-parameter factors of the optimizer (contracts 12).
  double lr_scale = 1.0, eps_scale = 1.0, decay_scale = 1.0;
  bool decay_independent = false;  // decay times the schedule's factor only, not times any learning rate
  bool trainable = true;           // false: no gradient, no state of an optimizer, no update
  DType stored = DType::f32;       // bf16 or f16: always frozen, without an fp32 master

  int64_t size() const;
  int64_t cols() const { return shape.empty() ? 1 : shape.back(); }
  int64_t rows() const { return size() / cols(); }
  // A parameter of three axes is a stack of matrices [in, out] (experts), each packed and updated separately.
  int64_t stack() const { return shape.size() == 3 ? shape[0] : 1; }
  int64_t matrix_rows() const { return rows() / stack(); }
};

// Elements [begin, end) of a parameter, row by row.
struct Part {
  int parameter = 0;
  int64_t begin = 0, end = 0;

  int64_t size() const { return end - begin; }
};

// The elements that a plane has for a parameter: one for each element, or one for each row or for each column of
// each matrix of its stack.
enum class PlaneAxis : uint8_t { elements, rows, columns };
// Return the shape of a parameter in such a plane. rows, columns: of a parameter with two axes or more.
std::vector<int64_t> shape_in(PlaneAxis axis, const Parameter& parameter);
// Return the elements of such a plane for a part of the parameter; columns: the part has whole matrices.
Part part_in(PlaneAxis axis, const Parameter& parameter, const Part& part);

// Return true if a parameter may be stored in 16 bits when it is frozen: matrices, tables and stacks. Vectors
// are small, and the router computes in fp32.
bool may_be_narrow(const Parameter& parameter);

}  // namespace mudd
