// One launch of adam over many ranges of parameters gives the bits of one launch for each, and of the CPU.
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/cpu/cpu_library.h"
#include "kernels/cuda/library.h"
#include "runtime/core/devices/emulated_stream.h"

using namespace dstrain;

namespace {

constexpr int64_t kGuard = 8;

// The operands of an update; each starts `offset` elements into memory with guards around it.
struct Range {
  int64_t n, offset;
  float decay, lr_scale = 1;
  DType grad_type, copy_type;  // copy f32: none
  std::vector<float> grad, p, m, v;
  std::vector<uint16_t> narrow_grad, copy;
  std::vector<TensorSpec> in, out;
  std::vector<Tensor> reads, writes;

  Range(int64_t count, int64_t at, float weight_decay, DType g, DType c)
      : n(count), offset(at), decay(weight_decay), grad_type(g), copy_type(c) {
    std::mt19937 random(static_cast<unsigned>(n * 31 + at));
    std::normal_distribution<float> values(0, 1);
    for (auto* list : {&grad, &p, &m, &v})
      for (int64_t i = 0; i < n + offset + kGuard; ++i) list->push_back(values(random));
    for (float& x : v) x *= x;
    narrow_grad.assign(grad.size(), 0);
    for (size_t i = 0; i < grad.size(); ++i) narrow_grad[i] = from_float<bf16>(grad[i]).bits;
    copy.assign(grad.size(), 0xabcd);
    in = {{Shape{n}, g}};
    out = {{Shape{n}}, {Shape{n}}, {Shape{n}}, c == DType::f32 ? TensorSpec{} : TensorSpec{{n}, c}};
  }
  void bind() {
    void* const g = grad_type == DType::f32 ? static_cast<void*>(grad.data() + offset)
                                            : static_cast<void*>(narrow_grad.data() + offset);
    reads = {{g, {n}, grad_type}};
    writes = {{p.data() + offset, {n}}, {m.data() + offset, {n}}, {v.data() + offset, {n}}, {}};
    if (copy_type != DType::f32) writes[3] = {copy.data() + offset, {n}, copy_type};
  }
  KernelSpec spec(float eps = 1e-8f) const {
    return {OpKind::adam, AdamAttrs{.eps = eps, .weight_decay = decay, .lr_scale = lr_scale}, in,
            out, 1};
  }
  bool operator==(const Range& o) const {
    return p == o.p && m == o.m && v == o.v && copy == o.copy && grad == o.grad;
  }
};

StepState state_of(bool skip) {
  StepState s;
  s.lr = 0.01f;
  s.beta1 = 0.9;
  s.beta2 = 0.95;
  s.bias_correction1 = 0.19f;
  s.bias_correction2 = 0.0975f;
  s.grad_scale = 0.5f;
  s.skip = skip;
  return s;
}

// Returns `count` ranges of many sizes and alignments.
std::vector<Range> ranges_of(size_t count, DType grad, DType copy) {
  std::vector<Range> list;
  for (size_t i = 0; i < count; ++i) {
    const bool empty = i % 7 == 3 && copy == DType::f32;
    const int64_t n = empty ? 0 : i % 5 == 0 ? 2500 : static_cast<int64_t>(1 + i * 37 % 90);
    list.emplace_back(n, static_cast<int64_t>(i % 4), i % 3 == 0 ? 0.0f : 0.1f, grad, copy);
    list.back().lr_scale = i % 4 == 1 ? 0.25f : i % 4 == 2 ? 0.0f : 1.0f;
  }
  return list;
}

std::vector<KernelSpec> specs_of(const std::vector<Range>& list) {
  std::vector<KernelSpec> specs;
  for (const Range& r : list) specs.push_back(r.spec());
  return specs;
}

}  // namespace

TEST_CASE(
    "a launch over many ranges, decays and rates has the bits of a launch for each, and the "
    "CPU's") {
  EmulatedStream stream;
  const auto device = make_emulated_library(stream);
  const auto cpu = make_cpu_library();
  for (const auto& [grad, copy] : {std::pair{DType::f32, DType::f32},
                                   {DType::f32, DType::bf16},
                                   {DType::bf16, DType::bf16},
                                   {DType::f32, DType::f16}})
    for (const bool skip : {false, true}) {
      CAPTURE(name_of(grad), name_of(copy), skip);
      StepState state = state_of(skip);
      const std::vector<Range> start = ranges_of(60, grad, copy);
      std::vector<Range> together = start, single = start, host = start;
      const std::vector<KernelSpec> specs = specs_of(together);
      size_t count = 0;
      const auto group = device->make_multi_tensor(specs, count);
      REQUIRE(group);
      REQUIRE(count == 60);
      std::vector<KernelCall> calls;
      for (auto* list : {&together, &single, &host})
        for (Range& r : *list) {
          r.bind();
          KernelCall call;
          call.in = r.reads;
          call.out = r.writes;
          call.state = &state;
          if (list == &together) calls.push_back(call);
          if (list == &single) device->make(r.spec())->run(call);
          if (list == &host && r.n > 0) cpu->make(r.spec())->run(call);
        }
      group->run(calls);
      stream.synchronize();
      for (size_t i = 0; i < start.size(); ++i) {
        CAPTURE(i, start[i].n, start[i].offset);
        CHECK(together[i] == single[i]);
        CHECK(together[i] == host[i]);
        CHECK((together[i] == start[i]) == (skip || start[i].n == 0));
      }
    }
}

TEST_CASE("a group ends where a launch has no room, or where operands or constants differ") {
  EmulatedStream stream;
  const auto library = make_emulated_library(stream);
  const auto count_of = [&](const std::vector<KernelSpec>& specs) {
    size_t count = 0;
    return library->make_multi_tensor(specs, count) ? count : 0;
  };
  std::vector<Range> list = ranges_of(150, DType::f32, DType::bf16);
  std::vector<KernelSpec> specs = specs_of(list);
  CHECK(count_of(specs) == 60);
  specs.resize(2);
  CHECK(count_of(specs) == 2);
  specs.resize(1);
  CHECK(count_of(specs) == 0);
  specs = specs_of(list);
  specs[5] = list[5].spec(1e-6f);
  CHECK(count_of(specs) == 5);
  const std::vector<Range> other = ranges_of(150, DType::bf16, DType::bf16),
                           without = ranges_of(150, DType::f32, DType::f32);
  specs[3] = other[3].spec();
  CHECK(count_of(specs) == 3);
  specs[2] = without[2].spec();
  CHECK(count_of(specs) == 2);
  specs[1] = other[1].spec();
  CHECK(count_of(specs) == 0);
}
