// The inputs of a model.
#include <algorithm>

#include "runtime/core/error.h"
#include "runtime/ir/builder/builder.h"

namespace dstrain {

bool ForwardOptions::has(InputRole role) const {
  switch (role) {
    case InputRole::labels:
      return with_loss;
    case InputRole::documents:
    case InputRole::positions:
      return documents;
    case InputRole::mask:
      return padding;
    default:
      return true;
  }
}

BufferId Builder::input(const std::string& name, InputRole role, DType dtype, const Shape& sample) {
  const BufferId loaded = declare_input(name, role, dtype, sample).buffer;
  // Floats are loaded in f32; a 16-bit run rounds them before anything reads them, but for those that a loss compares with.
  if (dtype != DType::f32 || options_.dtype == DType::f32 || is_of_objective(role)) return loaded;
  return emit(OpKind::cast, {}, {loaded},
              {.name = fresh(name), .shape = program_.at(loaded).shape, .dtype = options_.dtype});
}

const ProgramInput& Builder::declare_input(const std::string& name, InputRole role, DType dtype,
                                           const Shape& of_row) {
  Shape sample = of_row;
  if (is_of_tokens(role)) sample.dims[0] *= options_.objective.rows_per_sample();
  const auto known = std::ranges::find(program_.inputs, name, &ProgramInput::name);
  if (known != program_.inputs.end()) {
    check(
        known->role == role && program_.at(known->buffer).dtype == dtype && known->sample == sample,
        "input {} is declared as {} {} and used as {} {}", name, name_of(known->role),
        to_string(known->sample), name_of(role), to_string(sample));
    return *known;
  }
  check(has_dtype(role, dtype), "input {} is declared as {}: {} are {}", name, name_of(dtype),
        name_of(role), dtypes_of(role));
  check(may_repeat(role) || program_.input(role) == kNone, "input {} is the second one of {}", name,
        name_of(role));
  Shape shape{options_.batch};
  for (int i = 0; i < sample.rank; ++i) shape.append(sample[i]);
  const BufferId buffer = program_.add_buffer({.name = name,
                                               .shape = shape,
                                               .dtype = dtype,
                                               .lifetime = Lifetime::step,
                                               .per_micro = true});
  program_.inputs.push_back({name, role, sample, buffer});
  return program_.inputs.back();
}

BufferId Builder::documents(int64_t seq_len) {
  if (!options_.documents) return kNone;
  return input("documents", InputRole::documents, DType::i32, {seq_len});
}

}  // namespace dstrain
