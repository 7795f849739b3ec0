// The attention kernels for Hopper GPUs, on the emulated device: the shapes that they take, within the bounds of all
// kernels, and with the bits of the kernels for other GPUs.
#include <array>

#include "tests/kernels/parity/attention/attention_bound.h"
#include "tests/kernels/parity/attention/attention_run.h"
#include "tests/kernels/parity/devices/emulated_gpu.h"

namespace dstrain::attention_test {
namespace {

// Lengths of one tile of 64 rows and of several, more than a ring has stages, and on both sides of the edges of tiles.
std::vector<Case> hopper_cases() {
  std::vector<Case> cases;
  for (int64_t head_size : {64, 128})
    for (float dropout : {0.0f, 0.3f})
      for (int64_t seq : {4, 64, 68, 128, 140, 324, 460}) {
        Case c;
        c.dtype = DType::bf16, c.head_size = head_size, c.dropout = dropout, c.seq = seq;
        c.heads = seq < 100 ? 3 : 1, c.batch = seq < 300 ? 2 : 1;
        c.first_sample = (uint64_t{1} << 33) + 5;
        c.packed = seq != 128;
        cases.push_back(c);
      }
  return parity::sampled(cases, parity::kSanitized ? Sample::always(8) : Sample(1));
}

void check_both_passes(const Case& c) {
  INFO(describe(c));
  AttentionRun f(c);
  f.run_forward();
  const Values qkv = f.qkv.values();
  const Forward expected = reference_forward(c, qkv), bound = forward_bound(c, qkv, expected);
  parity::require_within("y", f.y.values(), expected.y, bound.y);
  parity::require_within("lse", f.lse.values(), expected.lse, bound.lse);
  f.run_backward();
  const Values d_y = f.d_y.values(), y = f.y.values(), lse = f.lse.values();
  const Values gradient = reference_backward(c, d_y, qkv, y, lse);
  parity::require_within("d_q, d_k, d_v", f.d_qkv.values(), gradient,
                         backward_bound(c, d_y, qkv, y, lse, gradient));
}

TEST_CASE("attention on Hopper equals its definition, forward and backward") {
  for (const Case& c : hopper_cases()) check_both_passes(c);
}

TEST_CASE("attention on Hopper has the bits of the kernels for other GPUs") {
  const parity::EmulatedGpu other(false);
  for (const Case& c : hopper_cases()) {
    if (c.seq > 200) continue;
    INFO(describe(c));
    AttentionRun f(c), g(c);
    f.run_forward();
    g.run_forward(2, other);
    parity::require_same_bits("y", f.y, g.y);
    parity::require_same_bits("lse", f.lse, g.lse);
    f.run_backward();
    g.run_backward(2, other);
    require_same_bits("d_q, d_k, d_v", f.d_qkv, g.d_qkv);
  }
}

}  // namespace
}  // namespace dstrain::attention_test
