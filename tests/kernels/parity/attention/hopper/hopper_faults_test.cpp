// Faults that the emulated device seeds into the attention kernels for Hopper: each must be found, by an error of the
// models or by a wrong result.
#include <string>

#include "runtime/core/error.h"
#include "tests/kernels/parity/attention/attention_bound.h"
#include "tests/kernels/parity/attention/attention_run.h"
#include "tests/kernels/parity/devices/emulated_gpu.h"

namespace dstrain::attention_test {
namespace {

using emulated::Fault;

// Heads of 64 elements up to the diagonal; of 128 with a window, and two heads of queries for one of keys.
Case seeded_case(int64_t head_size) {
  Case c;
  c.dtype = DType::bf16, c.head_size = head_size, c.seq = 260;
  if (head_size == 128)
    c.dtype = DType::f16, c.seq = 388, c.heads = 2, c.kv_heads = 1, c.window = 290;
  return c;
}

// Runs a pass with a fault. Returns the error, "wrong result", or nothing where the fault was not found.
std::string found_by(Fault fault, int64_t head_size, bool backward) {
  const Case c = seeded_case(head_size);
  AttentionRun f(c);
  const parity::EmulatedGpu device(true, fault);
  const Values qkv = f.qkv.values();
  try {
    if (!backward) {
      f.run_forward(2, device);
      const Forward expected = reference_forward(c, qkv), bound = forward_bound(c, qkv, expected);
      return parity::excess_of(f.y.values(), expected.y, bound.y).ratio <= 1 ? "" : "wrong result";
    }
    f.set_forward_results();
    f.run_backward(2, device);
  } catch (const InternalError& error) {
    return error.what();
  }
  const Values d_y = f.d_y.values(), y = f.y.values(), lse = f.lse.values();
  const Values expected = reference_backward(c, d_y, qkv, y, lse);
  const Values bound = backward_bound(c, d_y, qkv, y, lse, expected);
  return parity::excess_of(f.d_qkv.values(), expected, bound).ratio <= 1 ? "" : "wrong result";
}

void require_found(Fault fault, const std::string& text,
                   const std::vector<int64_t>& head_sizes = {64, 128}) {
  for (int64_t head_size : head_sizes)
    for (bool backward : {false, true}) {
      if (parity::kSanitized && (head_size == 128 || backward)) continue;
      const std::string by = found_by(fault, head_size, backward);
      INFO("D=" << head_size << (backward ? " backward" : " forward") << ", found: " << by);
      CHECK(by.find(text) != std::string::npos);
      CHECK_FALSE(by.empty());
    }
}

TEST_CASE("no fault is found where none is seeded") {
  CHECK(found_by(Fault::none, 64, false).empty());
  CHECK(found_by(Fault::none, 64, true).empty());
}

TEST_CASE("a barrier of the block that is left out is found") {
  require_found(Fault::no_block_barrier, "before it is initialised");
}

TEST_CASE("a barrier of a warpgroup that is left out is found") {
  require_found(Fault::no_group_barrier, "in shared memory");
}

TEST_CASE("an arrival that is left out is found as threads that wait for ever") {
  require_found(Fault::no_arrival, "wait for others that never come");
}

TEST_CASE("a wait for readers of a stage that is left out is found") {
  require_found(Fault::no_wait_for_readers, "");
}

TEST_CASE("a wait for copies that is left out is found") {
  require_found(Fault::no_wait_for_copies, "");
}

TEST_CASE("wrong numbers of announced bytes are found") {
  require_found(Fault::fewer_bytes, "16 bytes more than were announced");
  require_found(Fault::more_bytes, "lacks 0 of 1 arrivals and 16 bytes");
}

TEST_CASE("a wrong swizzle is found") {
  require_found(Fault::wrong_swizzle, "wrong result", {64});
}

TEST_CASE("a wait for products that is left out is found") {
  require_found(Fault::no_wait_for_products, "sums are read before their product is done");
}

}  // namespace
}  // namespace dstrain::attention_test
