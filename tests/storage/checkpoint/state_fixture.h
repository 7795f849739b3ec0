// The state of a model in slices, for the tests of checkpoints. Every byte is a pure function of its tensor, its
// place and a step, so that loaded values can be checked exactly.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "runtime/storage/state.h"

namespace dstrain {

// The description of one tensor of the state: its name, its slot (such as "master"), its shape and its dtype.
struct FixtureTensor {
  std::string name, slot;
  Shape shape;
  DType dtype = DType::f32;
};

// Odd sizes, a scalar, every width, and one tensor larger than two checksum blocks.
inline std::vector<FixtureTensor> small_model() {
  return {{"a.weight", "master", {33, 7}},
          {"a.weight", "exp_avg", {33, 7}},
          {"a.bias", "master", {5}},
          {"half", "params", {11, 3}, DType::bf16},
          {"bytes", "mask", {13}, DType::u8},
          {"trainer", "step", {1}, DType::f64},
          {"trainer", "hysteresis", {}, DType::i32},
          {"empty", "master", {0, 4}}};
}

inline std::vector<FixtureTensor> large_model() {
  std::vector<FixtureTensor> specs = small_model();
  specs.push_back({"large", "master", {1501, 1501}});
  return specs;
}

// The state of one rank, with memory of its own: its slices of the tensors, or all of them.
class FixtureRank {
 public:
  // Rank `rank` of `ranks` holds the rank-th slice of every tensor, in pieces of equal size.
  FixtureRank(const std::vector<FixtureTensor>& specs, int rank, int ranks) {
    for (const FixtureTensor& spec : specs) {
      const int64_t n = spec.shape.elements(), piece = (n + ranks - 1) / ranks;
      const int64_t begin = std::min(n, rank * piece), end = std::min(n, begin + piece);
      add(spec, begin, end - begin, true);
    }
  }
  // Every rank holds all tensors; `owner`: it also owns them.
  FixtureRank(const std::vector<FixtureTensor>& specs, bool owner) {
    for (const FixtureTensor& spec : specs) add(spec, 0, spec.shape.elements(), owner);
  }

  StateRegister& state() { return state_; }

  void fill(int64_t step) {
    each([step](const StateEntry& e, int64_t at, unsigned char& byte) {
      byte = value(e, at, step);
    });
  }
  bool has_values_of(int64_t step) {
    bool same = true;
    each([&](const StateEntry& e, int64_t at, unsigned char& byte) {
      same = same && byte == value(e, at, step);
    });
    return same;
  }

 private:
  void add(const FixtureTensor& spec, int64_t begin, int64_t count, bool owner) {
    bytes_.emplace_back(static_cast<size_t>(count * size_of(spec.dtype)));
    state_.push_back({.name = spec.name,
                      .slot = spec.slot,
                      .global_shape = spec.shape,
                      .dtype = spec.dtype,
                      .begin = begin,
                      .local = {bytes_.back().data(), {count}, spec.dtype},
                      .owner = owner});
  }

  // `at`: the byte's place in the whole tensor.
  template <class F>
  void each(F&& f) {
    for (const StateEntry& e : state_)
      for (int64_t i = 0; i < e.local.bytes(); ++i)
        f(e, e.begin * size_of(e.dtype) + i, e.local.as<unsigned char>()[i]);
  }

  static unsigned char value(const StateEntry& e, int64_t at, int64_t step) {
    const auto x =
        static_cast<uint64_t>(at * 31 + step * 7 + static_cast<int64_t>(e.slot.size()) * 3);
    return static_cast<unsigned char>((x * 0x9e3779b97f4a7c15ull) >> 56);
  }

  StateRegister state_;
  std::deque<std::vector<unsigned char>> bytes_;
};

}  // namespace dstrain
