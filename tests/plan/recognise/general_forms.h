// What the tests of recognition write in general operations.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/ir/builder/builder.h"
#include "runtime/ir/rule.h"

namespace dstrain {

// A program of one layer, with an input of `batch` samples.
struct GeneralForms {
  explicit GeneralForms(const Shape& sample, int64_t batch = 2)
      : builder(program, {.batch = batch}) {
    builder.unit("layer");
    x = builder.input("x", InputRole::features, DType::f32, sample);
  }

  GeneralForms(const GeneralForms&) = delete;
  GeneralForms& operator=(const GeneralForms&) = delete;

  Program program;
  Builder builder;
  BufferId x = kNone;
};

// Returns the names of a program's operations, in order.
inline std::string operations(const Program& program) {
  std::string names;
  for (const Instruction& op : program.instructions)
    names += (names.empty() ? "" : " ") + std::string(name_of(op.op));
  return names;
}

// Returns a view with these strides.
inline View strided(std::vector<int64_t> strides, int64_t offset = 0) {
  View view{.offset = offset};
  std::ranges::copy(strides, view.strides.begin());
  return view;
}

}  // namespace dstrain
