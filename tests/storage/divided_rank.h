// The state of a rank of a tensor group, for the tests of checkpoints and weight files. Each value is a function of its
// tensor and of its place in the whole of it, so that whatever is saved in one division and loaded in another can be checked
// exactly.
#pragma once

#include <algorithm>
#include <deque>
#include <vector>

#include "runtime/core/convert_floats.h"
#include "runtime/storage/state.h"

namespace dstrain {

inline constexpr TensorPart::By kByRows = TensorPart::By::rows,
                                kByColumns = TensorPart::By::columns;

// A tensor, and how a tensor group divides it.
struct DividedTensor {
  std::string name;
  Shape shape;
  TensorPart::By by = TensorPart::By::nothing;
  int64_t sections = 1;
  DType dtype = DType::f32;
};

// Even and odd rows and columns, sections, further dimensions, vectors, 16 bits, and what is not divided. Sections are
// divided evenly among 1 to 4.
inline std::vector<DividedTensor> divided_model() {
  return {{"qkv", {36, 5}, kByRows, 3},
          {"qkv.bias", {36}, kByRows, 3},
          {"up", {7, 5}, kByRows},
          {"up.bias", {7}, kByRows},
          {"down", {6, 7}, kByColumns},
          {"narrow", {5, 3}, kByColumns},
          {"few", {2, 3}, kByRows},
          {"conv", {2, 3, 5}, kByColumns},
          {"norm", {5}},
          {"half", {11, 6}, kByColumns, 1, DType::bf16},
          {"table", {13, 4}, kByRows}};
}

// How the ranks of a run divide tensors: `tensor` parts of each, which `slices` ranks divide among themselves. The slices of
// a part follow one another in the memory of the part, padding included.
struct RanksDivide {
  int tensor = 1, slices = 1;
  bool turned =
      false;  // matrices that are divided by rows are divided by columns, and the other way round
  int ranks() const { return tensor * slices; }
};

class DividedRank {
 public:
  DividedRank(const std::vector<DividedTensor>& tensors, const RanksDivide& divide, int rank)
      : divide_(divide), tensor_(rank % divide.tensor), slice_(rank / divide.tensor) {
    for (const DividedTensor& tensor : tensors) add(tensor);
  }

  StateRegister& state() { return state_; }

  // Sets the values of all tensors; `padding`: of padding.
  void fill(float padding) {
    each([&](float expected, bool is_padding) { return is_padding ? padding : expected; });
  }
  // Sets all values to one that no tensor has.
  void spoil() {
    each([](float, bool) { return -1.0f; });
  }
  // Returns the first tensor that has not its values, or other padding than zeros; "" if all have them.
  std::string other_values() {
    std::string found;
    for (const StateEntry& entry : state_) {
      const std::vector<float> expected = values_of(entry, 0);
      std::vector<float> have(expected.size());
      const int64_t n = entry.local.elements();
      if (n > 0) convert_floats(entry.local, {have.data(), {n}, DType::f32});
      if (found.empty() && have != expected) found = entry.name;
    }
    return found;
  }

  // Returns element `at` of a whole tensor.
  static float value(const StateEntry& entry, int64_t at) {
    const auto seed = static_cast<int64_t>(entry.name.size()) * 3 + 1;
    return static_cast<float>(entry.dtype == DType::f32 ? at + seed : (at + seed) % 251 + 1);
  }

 private:
  void add(const DividedTensor& tensor) {
    TensorPart part;
    if (divide_.tensor > 1 && tensor.by != TensorPart::By::nothing) {
      const bool turns = divide_.turned && tensor.shape.rank > 1;
      part.by = !turns ? tensor.by : tensor.by == kByRows ? kByColumns : kByRows;
      part.sections = part.by == kByRows && !turns ? tensor.sections : 1;
      part.parts = divide_.tensor;
      part.part = tensor_;
    }
    // All ranks of the tensor group have the same slice of what is not divided, and the first one owns it.
    const int64_t all = held_elements(part, tensor.shape),
                  slice = (held_shape(part, tensor.shape).elements() + divide_.slices - 1) /
                          divide_.slices,
                  begin = std::min(all, slice * slice_), end = std::min(all, begin + slice);
    bytes_.emplace_back(static_cast<size_t>((end - begin) * size_of(tensor.dtype)));
    state_.push_back({.name = tensor.name,
                      .slot = "master",
                      .global_shape = tensor.shape,
                      .dtype = tensor.dtype,
                      .begin = begin,
                      .local = {bytes_.back().data(), {end - begin}, tensor.dtype},
                      .part = part,
                      .owner = part.by != TensorPart::By::nothing || tensor_ == 0});
  }

  // Calls set(value, is padding) for each value, which becomes what it returns.
  template <class Set>
  void each(const Set& set) {
    constexpr float kPadding = -2;
    for (const StateEntry& entry : state_) {
      std::vector<float> values = values_of(entry, kPadding);
      for (float& value : values) value = set(value, value == kPadding);
      const int64_t n = entry.local.elements();
      if (n > 0) convert_floats({values.data(), {n}, DType::f32}, entry.local);
    }
  }

  // Returns the values of an entry by the definition of its part.
  static std::vector<float> values_of(const StateEntry& entry, float padding) {
    std::vector<float> values(static_cast<size_t>(entry.local.elements()), padding);
    for_runs(entry.part, entry.global_shape, entry.begin, entry.local.elements(),
             [&](const PartRun& run) {
               for (int64_t i = 0; i < run.count; ++i)
                 values[static_cast<size_t>(run.held + i - entry.begin)] =
                     value(entry, run.whole + i);
             });
    return values;
  }

  RanksDivide divide_;
  int tensor_, slice_;
  StateRegister state_;
  std::deque<std::vector<std::byte>> bytes_;
};

// Memory of another owner, which is the host's, so that values pass through copies.
class RemoteHost final : public RemoteMemory {
 public:
  void download(void* host, const void* from, int64_t bytes) override {
    std::copy_n(static_cast<const std::byte*>(from), bytes, static_cast<std::byte*>(host));
  }
  void upload(void* to, const void* host, int64_t bytes) override {
    std::copy_n(static_cast<const std::byte*>(host), bytes, static_cast<std::byte*>(to));
  }
};

}  // namespace dstrain
