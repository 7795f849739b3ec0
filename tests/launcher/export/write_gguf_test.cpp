// The tensors of GGUF files: their types, what becomes of their values, and where they are.
#include "launcher/export/gguf/write_gguf.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <string>

#include "runtime/core/blocks/weight_blocks.h"
#include "runtime/core/dtype.h"
#include "runtime/core/error.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

using models::GgufChange;
using models::GgufModel;

StateEntry weight(const std::string& name, const Shape& shape) {
  StateEntry entry;
  entry.name = name;
  entry.global_shape = shape;
  return entry;
}

GgufModel model() {
  return {.architecture = "llama",
          .names = {{"x.layers.*.q", "blk.*.attn_q", GgufChange::heads_interleaved},
                    {"x.norm", "output_norm", GgufChange::plus_one},
                    {"x.table", "token_embd"},
                    {"x.positions", "position_embd"}},
          .head_size = 4,
          .rope_freqs = {1, 8}};
}

const StateRegister kOwn{weight("x.table.weight", {2, 32}), weight("x.layers.11.q.weight", {8, 3}),
                         weight("x.layers.11.q.bias", {8}), weight("x.norm.weight", {3}),
                         weight("x.positions.weight", {4, 2})};

// Plans and writes a file of weights that have 1000 times their place in the register plus the number of the element.
std::string written(GgufType type, GgufPlan& plan, float scale = 1) {
  TempDir dir;
  plan.path = dir.path() + "/m.gguf";
  add_gguf_tensors(model(), kOwn, type, plan);
  plan.layout = gguf_layout({}, plan.tensors);
  write_gguf(plan, [scale](size_t w, int64_t begin, int64_t count, float* to) {
    CHECK(begin % kWeightGroup == 0);
    for (int64_t i = 0; i < count; ++i)
      to[i] = scale * static_cast<float>(1000 * static_cast<int64_t>(w) + begin + i);
  });
  CHECK_FALSE(std::filesystem::exists(plan.path + ".tmp"));
  return bytes_of_file(plan.path);
}

std::vector<float> floats(const std::string& bytes, const GgufPlan& plan, size_t tensor,
                          size_t count) {
  std::vector<float> values(count);
  std::memcpy(values.data(), bytes.data() + plan.layout.begins[tensor], 4 * count);
  return values;
}

TEST_CASE("tensors have names of their layers and types that llama.cpp takes") {
  GgufPlan plan;
  add_gguf_tensors(model(), kOwn, GgufType::q8_0, plan);
  const auto is = [&](size_t i, const std::string& name, GgufType type) {
    CHECK(plan.tensors[i].name == name);
    CHECK(plan.tensors[i].type == type);
  };
  REQUIRE(plan.tensors.size() == 6);
  is(0, "rope_freqs.weight", GgufType::f32);
  is(1, "token_embd.weight", GgufType::q8_0);
  is(2, "blk.11.attn_q.weight", GgufType::f16);  // rows of 3 values are no blocks
  is(3, "blk.11.attn_q.bias", GgufType::f32);
  is(4, "output_norm.weight", GgufType::f32);
  is(5, "position_embd.weight", GgufType::f32);
  CHECK(plan.tensors[2].shape == std::vector<int64_t>{8, 3});
}

TEST_CASE("values are changed as the names say, and the file is as long as it says") {
  GgufPlan plan;
  const std::string bytes = written(GgufType::f32, plan);
  CHECK(static_cast<int64_t>(bytes.size()) == plan.layout.bytes);
  CHECK(floats(bytes, plan, 0, 2) == std::vector<float>{1, 8});
  CHECK(floats(bytes, plan, 1, 3) == std::vector<float>{0, 1, 2});
  // Rows 0, 1, 2, 3 of a head become 0, 2, 1, 3, and those of the next one the same.
  CHECK(floats(bytes, plan, 2, 24) ==
        std::vector<float>{1000, 1001, 1002, 1006, 1007, 1008, 1003, 1004, 1005, 1009, 1010, 1011,
                           1012, 1013, 1014, 1018, 1019, 1020, 1015, 1016, 1017, 1021, 1022, 1023});
  CHECK(floats(bytes, plan, 3, 8) ==
        std::vector<float>{2000, 2002, 2001, 2003, 2004, 2006, 2005, 2007});
  CHECK(floats(bytes, plan, 4, 3) == std::vector<float>{3001, 3002, 3003});
}

TEST_CASE("values that f16 does not hold are refused, and no file stays") {
  GgufPlan plan;
  CHECK_THROWS_AS(written(GgufType::f16, plan, 1000), UserError);
  CHECK_FALSE(std::filesystem::exists(plan.path));
  CHECK_FALSE(std::filesystem::exists(plan.path + ".tmp"));
}

TEST_CASE("rows of a head of six take turns") {
  std::vector<float> rows{0, 1, 2, 3, 4, 5};
  interleave_heads(6, 1, rows);
  CHECK(rows == std::vector<float>{0, 3, 1, 4, 2, 5});
}

}  // namespace
}  // namespace dstrain
