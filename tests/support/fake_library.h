// A kernel library for tests of plans: it answers questions about sizes and makes no kernels.
#pragma once

#include "runtime/config/family/family.h"
#include "runtime/plan/plan.h"

namespace dstrain {

class FakeLibrary : public KernelLibrary {
 public:
  // Every linear asks for `workspace` bytes; weights of at least 1024 elements are packed where `packs`.
  // Gelu joins products where `fuses`, norms what is beside them where `joins`.
  explicit FakeLibrary(int64_t workspace = 0, bool packs = false, bool fuses = false,
                       bool joins = false)
      : workspace_(workspace), packs_(packs), fuses_(fuses), joins_(joins) {}
  int64_t workspace_bytes(const KernelSpec& spec) const override {
    return spec.op == OpKind::linear ? workspace_ : 0;
  }
  int64_t packed_bytes(const KernelSpec& spec) const override {
    const int64_t n = spec.in[1].shape.elements();
    return packs_ && n >= 1024 ? n * size_of(spec.in[1].dtype) : 0;
  }
  bool fuses(const KernelSpec& spec) const override {
    const bool norm = spec.op == OpKind::layer_norm_grad || spec.op == OpKind::add_layer_norm;
    return norm ? joins_ : fuses_;
  }
  std::unique_ptr<Kernel> make(const KernelSpec&) const override { return nullptr; }
  std::string description() const override { return "sizes only"; }

 private:
  int64_t workspace_;
  bool packs_, fuses_, joins_;
};

// Inputs of plans of our models with a FakeLibrary.
inline PlanInputs fake_inputs(int64_t workspace = 0, bool packs = false, bool fuses = false,
                              int threads = 1) {
  return {std::make_shared<FakeLibrary>(workspace, packs, fuses), threads};
}

}  // namespace dstrain
