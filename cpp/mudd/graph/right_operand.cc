#include "mudd/graph/right_operand.h"

#include "mudd/base/check.h"

namespace mudd {

RightOperand::RightOperand(const char* op, const Run& run, int input, Pack how, void* scratch)
    : kept(run.packed(input, how)) {
  if (kept) return;
  if (!scratch)
    throw StateError('[' + std::string(op) + "] input " + std::to_string(input) +
                     ": a parameter came without its packed copy");
  const Tensor& w = run.in(input);
  pack = {w.cells(), w.rows, w.cols, how == Pack::transposed, scratch};
}

}  // namespace mudd
