// Weights of 8-bit floats with a scale for each block: which values they have, read in any pieces and parts, and what is refused.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "runtime/core/error.h"
#include "runtime/storage/weights/fp8_blocks.h"
#include "runtime/storage/weights/weights_reader.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

using Catch::Contains;

// A matrix in a file, and its scales.
struct Fp8Matrix {
  int64_t rows, columns;
  std::string bytes{};
  std::vector<float> scales{};

  Fp8Matrix(int64_t height, int64_t width) : rows(height), columns(width) {
    for (int64_t i = 0; i < rows * columns; ++i) {
      const auto bits = static_cast<uint8_t>(i * 37 + i / 251);
      bytes += static_cast<char>((bits & 127) == 127 ? 0 : bits);  // 127 is no number
    }
    for (int64_t i = 0; i < blocks(rows) * blocks(columns); ++i)
      scales.push_back(0.3f + 0.01f * static_cast<float>(i));
  }
  static int64_t blocks(int64_t elements) { return (elements + kFp8Block - 1) / kFp8Block; }
  float value(int64_t i) const {
    const int64_t block = i / columns / kFp8Block * blocks(columns) + i % columns / kFp8Block;
    return from_e4m3(static_cast<uint8_t>(bytes[static_cast<size_t>(i)])) *
           scales[static_cast<size_t>(block)];
  }
};

struct Scales {
  std::string_view type = "F32";
  std::vector<int64_t> shape{};
};

// Writes a file with the matrix "w.weight", and its scales unless they are left out.
std::string write_matrix(const TempDir& dir, const Fp8Matrix& m,
                         const std::optional<Scales>& scales) {
  std::vector<SafetensorsTensor> tensors{
      {.name = "w.weight", .type = {"F8_E4M3", 1}, .shape = {m.rows, m.columns}}};
  std::string values = m.bytes;
  if (scales) {
    // Tensors of a file lie one after the other, and values of 4 bytes at a multiple of 4.
    tensors.push_back(
        {.name = "w.weight_scale_inv", .type = {scales->type, 4}, .shape = scales->shape});
    values.append(reinterpret_cast<const char*>(m.scales.data()), 4 * m.scales.size());
  }
  return dir.write("model.safetensors", make_safetensors_header(tensors) + values);
}

StateRegister wanted(const Fp8Matrix& m) {
  return {{.name = "w.weight", .slot = "master", .global_shape = {m.rows, m.columns}}};
}

Scales right_scales(const Fp8Matrix& m) {
  return {.shape = {Fp8Matrix::blocks(m.rows), Fp8Matrix::blocks(m.columns)}};
}

std::string problem_of(const Fp8Matrix& m, const std::optional<Scales>& scales) {
  TempDir dir;
  try {
    const WeightsReader reader(write_matrix(dir, m, scales), wanted(m));
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST_CASE("8-bit floats: patterns have their values") {
  for (const auto& [bits, value] : {std::pair{0x00, 0.0},
                                    {0x01, 0x1p-9},
                                    {0x07, 7 * 0x1p-9},
                                    {0x08, 0x1p-6},
                                    {0x38, 1.0},
                                    {0x3f, 1.875},
                                    {0x7e, 448.0},
                                    {0xb8, -1.0},
                                    {0xfe, -448.0}})
    CHECK(from_e4m3(static_cast<uint8_t>(bits)) == static_cast<float>(value));
  CHECK(std::isnan(from_e4m3(0x7f)));
  CHECK(std::isnan(from_e4m3(0xff)));
  CHECK(std::signbit(from_e4m3(0x80)));
}

TEST_CASE("8-bit floats: any piece of a matrix is its elements times the scales of their blocks") {
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{4, 8}, {300, 260}, {2, 300'000}}) {
    const Fp8Matrix m(rows, columns);
    TempDir dir;
    const WeightsReader reader(write_matrix(dir, m, right_scales(m)), wanted(m));
    WeightsReader::Buffers buffers;
    const int64_t all = rows * columns;
    for (const auto& [begin, count] : {std::pair<int64_t, int64_t>{0, all},
                                       {1, all - 1},
                                       {all / 2 - 1, std::min<int64_t>(all / 2, 700)},
                                       {all - 1, 1}}) {
      std::vector<float> read(static_cast<size_t>(count));
      reader.read(0, begin, count, read.data(), buffers);
      int64_t other = 0;
      for (int64_t i = 0; i < count; ++i)
        other += read[static_cast<size_t>(i)] == m.value(begin + i) ? 0 : 1;
      CAPTURE(rows, columns, begin, count);
      CHECK(other == 0);
    }
    const TensorPart half{.by = TensorPart::By::columns, .parts = 2, .part = 1};
    std::vector<float> part(static_cast<size_t>(all / 2));
    reader.read(0, 0, all / 2, part.data(), buffers, half);
    CHECK(part.front() == m.value(columns / 2));
    CHECK(part.back() == m.value(all - 1));
  }
}

TEST_CASE("8-bit floats: scales that are missing, or are others, are refused") {
  const Fp8Matrix m(300, 260);
  CHECK(problem_of(m, right_scales(m)) == "no error");
  CHECK_THAT(problem_of(m, std::nullopt),
             Contains("w.weight is F8_E4M3, and its scales w.weight_scale_inv, F32 (3, 3), one of "
                      "each block of 128 x 128 are missing"));
  CHECK_THAT(problem_of(m, Scales{.shape = {9, 1}}), Contains("found F32 (9, 1)"));
  CHECK_THAT(problem_of(m, Scales{.type = "I32", .shape = {3, 3}}), Contains("found I32 (3, 3)"));
}

}  // namespace
}  // namespace dstrain
