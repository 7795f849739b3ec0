// Checkpoints of f32 state that a run keeps in 16 bits, and the other way round.
#include <catch2/catch.hpp>

#include "runtime/core/convert_floats.h"
#include "runtime/storage/checkpoint/checkpoint_load.h"
#include "runtime/storage/checkpoint/checkpoint_save.h"
#include "tests/storage/checkpoint/threads_as_ranks.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

constexpr int64_t kValues = 3'000'001;  // more than two checksum blocks, of either type

// The master of one tensor, from element `begin` on.
StateRegister master(const Tensor& values, int64_t begin = 0) {
  return {{.name = "w",
           .slot = "master",
           .global_shape = {kValues},
           .dtype = values.dtype,
           .begin = begin,
           .local = values}};
}

TEST_CASE("masters and moments are converted to the type in which a run keeps them") {
  std::vector<float> wide(kValues), read(kValues);
  for (size_t i = 0; i < wide.size(); ++i) wide[i] = 0.37f * static_cast<float>(i) - 5000;
  std::vector<uint16_t> narrow(kValues), read_narrow(kValues), tail(100);
  const Tensor f32{wide.data(), {kValues}, DType::f32};
  const Tensor bf16s{narrow.data(), {kValues}, DType::bf16};
  convert_floats(f32, bf16s);
  const TempDir dir;
  const std::vector<std::string> errors = run_ranks(1, [&](Communicator& comm) {
    save_checkpoint(dir / "wide", {.step = 1}, master(f32), comm);
    save_checkpoint(dir / "narrow", {.step = 1}, master(bf16s), comm);
    StateRegister as_bf16 = master({read_narrow.data(), {kValues}, DType::bf16});
    load_checkpoint(dir / "wide", as_bf16, comm);
    StateRegister end = master({tail.data(), {100}, DType::bf16}, kValues - 100);
    load_checkpoint(dir / "wide", end, comm);
    StateRegister as_f32 = master({read.data(), {kValues}, DType::f32});
    load_checkpoint(dir / "narrow", as_f32, comm);
  });
  REQUIRE(errors == std::vector<std::string>(1));
  CHECK(read_narrow == narrow);
  CHECK(std::equal(tail.begin(), tail.end(), narrow.end() - 100));
  convert_floats(bf16s, f32);
  CHECK(read == wide);
}

}  // namespace
}  // namespace dstrain
