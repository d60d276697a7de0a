// The Python object of a batch source, for bind_data.cc, bind_rows.cc and step_batches.cc.
#pragma once

#include <memory>
#include <utility>

#include "mudd/base/busy.h"
#include "mudd/data/batch_source.h"

namespace mudd::bind {

struct PySource {
  std::unique_ptr<BatchSource> source;
  BusyFlag busy;

  explicit PySource(std::unique_ptr<BatchSource> made) : source(std::move(made)) {}
  virtual ~PySource() = default;
};

}  // namespace mudd::bind
