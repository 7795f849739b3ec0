// Copying weights from files to files with other names and layouts, a bounded number of elements at a time.
#include "runtime/storage/weights/copy_weights.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/storage/weight_layout.h"
#include "runtime/storage/weights.h"
#include "runtime/storage/weights/weights_reader.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

float value_at(int64_t i) {
  return static_cast<float>(i % 65521);
}

TEST_CASE("weights are copied in pieces, to transposed tensors too") {
  const TempDir dir;
  // More than two pieces, none of which ends with a row.
  constexpr int64_t rows = 2100, columns = 4099;
  static_assert(rows * columns > 2 * kCopiedAtOnce);
  const StateRegister own{{.name = "w", .global_shape = {rows, columns}},
                          {.name = "b", .global_shape = {rows}}};
  const StateRegister theirs = mapped(own, {{"w", {{.tensor = "t.w", .transposed = true}}}});
  int64_t most = 0;
  std::vector<int64_t> read(own.size());
  const std::string first = dir / "first.safetensors", second = dir / "second.safetensors";
  WeightsWriter writer(first, theirs, {.dtype = [](const std::string&) { return DType::f32; }});
  copy_weights(
      own,
      [&](size_t weight, int64_t begin, int64_t count, float* to) {
        CHECK(begin == read[weight]);
        read[weight] += count;
        most = std::max(most, count);
        for (int64_t i = 0; i < count; ++i) to[i] = value_at(begin + i);
      },
      writer);
  writer.finish();
  CHECK(most == kCopiedAtOnce);
  CHECK(read == std::vector<int64_t>{rows * columns, rows});

  // And back.
  const WeightsReader reader(first, theirs);
  WeightsReader::Buffers buffers;
  WeightsWriter again(second, own);
  copy_weights(
      own,
      [&](size_t weight, int64_t begin, int64_t count, float* to) {
        reader.read(weight, begin, count, to, buffers);
      },
      again);
  again.finish();
  std::vector<float> w(static_cast<size_t>(rows * columns)), b(rows);
  load_weights(second,
               {{.name = "w",
                 .global_shape = {rows, columns},
                 .local = {w.data(), {rows * columns}, DType::f32}},
                {.name = "b", .global_shape = {rows}, .local = {b.data(), {rows}, DType::f32}}});
  int64_t wrong = 0;
  for (int64_t i = 0; i < rows * columns; ++i) wrong += w[static_cast<size_t>(i)] != value_at(i);
  for (int64_t i = 0; i < rows; ++i) wrong += b[static_cast<size_t>(i)] != value_at(i);
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace dstrain
