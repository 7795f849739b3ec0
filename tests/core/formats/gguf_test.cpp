// The bytes of GGUF files.
#include "runtime/core/formats/gguf.h"

#include <catch2/catch.hpp>
#include <string>
#include <string_view>

namespace dstrain {
namespace {

using namespace std::string_literals;

// Numbers as the format has them.
std::string u32(char low) {
  return {low, 0, 0, 0};
}
std::string u64(char low) {
  return u32(low) + u32(0);
}
std::string text(std::string_view value) {
  return u64(static_cast<char>(value.size())) + std::string(value);
}

TEST_CASE(
    "a GGUF file begins with fields and the table of tensors, dimensions in the other order") {
  const GgufLayout layout = gguf_layout(
      {{"a", uint32_t{7}},
       {"b", 1.0F},
       {"c", true},
       {"d", "xy"s},
       {"e", std::vector<std::string>{"p", ""}},
       {"f", std::vector<int32_t>{-1}},
       {"g", std::vector<float>{0.5F}}},
      {{"m", {2, 3}, GgufType::f32}, {"n", {5}, GgufType::f16}, {"q", {2, 32}, GgufType::q8_0}});
  const std::string one_f32{0, 0, '\x80', 0x3f}, half_f32{0, 0, 0, 0x3f};
  std::string expected = "GGUF" + u32(3) + u64(3) + u64(7);
  expected += text("a") + u32(4) + u32(7);
  expected += text("b") + u32(6) + one_f32;
  expected += text("c") + u32(7) + "\x01"s;
  expected += text("d") + u32(8) + text("xy");
  expected += text("e") + u32(9) + u32(8) + u64(2) + text("p") + text("");
  expected += text("f") + u32(9) + u32(5) + u64(1) + "\xff\xff\xff\xff"s;
  expected += text("g") + u32(9) + u32(6) + u64(1) + half_f32;
  expected += text("m") + u32(2) + u64(3) + u64(2) + u32(0) + u64(0);
  expected += text("n") + u32(1) + u64(5) + u32(1) + u64(32);
  expected += text("q") + u32(2) + u64(32) + u64(2) + u32(8) + u64(64);
  expected.resize((expected.size() + 31) / 32 * 32);
  CHECK(layout.header == expected);
  const auto header = static_cast<int64_t>(expected.size());
  CHECK(layout.begins == std::vector<int64_t>{header, header + 32, header + 64});
  CHECK(layout.bytes == header + 64 + 96);  // 68 bytes of blocks, filled up
}

TEST_CASE("types of GGUF have their sizes") {
  CHECK(gguf_bytes(GgufType::f32, 64) == 256);
  CHECK(gguf_bytes(GgufType::f16, 64) == 128);
  CHECK(gguf_bytes(GgufType::bf16, 64) == 128);
  CHECK(gguf_bytes(GgufType::q8_0, 64) == 68);
  CHECK(gguf_layout({}, {}).bytes == 32);
}

}  // namespace
}  // namespace dstrain
