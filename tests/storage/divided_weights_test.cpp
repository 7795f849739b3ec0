// Weight files of tensors that the ranks of a tensor group divide: each rank reads its part, whatever the file has.
#include <catch2/catch.hpp>
#include <limits>

#include "runtime/core/error.h"
#include "runtime/storage/weight_layout.h"
#include "runtime/storage/weights.h"
#include "runtime/storage/weights/weights_reader.h"
#include "runtime/storage/weights/weights_writer.h"
#include "tests/storage/bytes_read.h"
#include "tests/storage/divided_rank.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

using Catch::Contains;
using Floats = std::vector<float>;

// qkv is joined from three tensors, the second of which is transposed; down, up and half are transposed; narrow and few are
// the rows of one tensor; a bias has another name. The others are as they are.
WeightMap map_of_model() {
  return {{"qkv",
           {{.tensor = "q", .rows = 12},
            {.tensor = "k", .rows = 12, .transposed = true},
            {.tensor = "v"}}},
          {"down", {{.tensor = "h.down", .transposed = true}}},
          {"up", {{.tensor = "h.up", .transposed = true}}},
          {"half", {{.tensor = "h.half", .transposed = true}}},
          {"narrow", {{.tensor = "both", .first = 0}}},
          {"few", {{.tensor = "both", .first = 5}}},
          {"up.bias", {{.tensor = "h.up_bias"}}}};
}

StateRegister with_map(const StateRegister& state, bool map) {
  return map ? mapped(state, map_of_model()) : state;
}

Floats whole_values(const StateEntry& entry) {
  Floats values(static_cast<size_t>(entry.global_shape.elements()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = DividedRank::value(entry, static_cast<int64_t>(i));
  return values;
}

void write_whole(const std::string& path, const StateRegister& list,
                 const WeightsFormat& format = {}) {
  WeightsWriter writer(path, list, format);
  for (const StateEntry& entry : list) {
    Floats values = whole_values(entry);
    writer.write(entry.name, 0, {values.data(), {static_cast<int64_t>(values.size())}, DType::f32});
  }
  writer.finish();
}

// Returns the first tensor that a rank has read wrongly; "" if none.
std::string wrongly_read(const std::string& path, const RanksDivide& divide, int r, bool map,
                         RemoteMemory* device, const std::vector<DividedTensor>& tensors) {
  DividedRank rank(tensors, divide, r);
  rank.spoil();
  for (StateEntry& entry : rank.state()) entry.device = device;
  load_weights(path, with_map(rank.state(), map));
  return rank.other_values();
}

std::vector<RanksDivide> ways_to_divide() {
  std::vector<RanksDivide> list{{1, 1}, {1, 3}};
  for (const int tensor : {2, 3, 4})
    for (const int slices : {1, 2, 5})
      for (const bool turned : {false, true}) list.push_back({tensor, slices, turned});
  return list;
}

TEST_CASE("each rank reads its part of tensors that are transposed, joined, split or as they are") {
  const TempDir dir;
  const std::vector<DividedTensor> model = divided_model();
  RemoteHost device;
  for (const bool map : {false, true}) {
    const StateRegister whole = with_map(DividedRank(model, {}, 0).state(), map);
    const std::string path = dir / (map ? "mapped" : "plain");
    write_whole(path, whole);
    for (const RanksDivide& divide : ways_to_divide())
      for (int r = 0; r < divide.ranks(); ++r)
        for (RemoteMemory* const memory :
             {static_cast<RemoteMemory*>(nullptr), static_cast<RemoteMemory*>(&device)}) {
          CAPTURE(map, divide.tensor, divide.slices, divide.turned, r, memory != nullptr);
          CHECK(wrongly_read(path, divide, r, map, memory, model) == "");
        }
  }
}

TEST_CASE("parts are read from 16-bit files") {
  const TempDir dir;
  std::vector<DividedTensor> model = divided_model();
  for (DividedTensor& tensor : model) tensor.dtype = DType::bf16;  // whose values 16 bits have
  write_whole(dir / "w", with_map(DividedRank(model, {}, 0).state(), true),
              {.dtype = [](const std::string&) { return DType::bf16; }});
  for (const RanksDivide& divide : ways_to_divide())
    for (int r = 0; r < divide.ranks(); ++r) {
      CAPTURE(divide.tensor, divide.slices, divide.turned, r);
      CHECK(wrongly_read(dir / "w", divide, r, true, nullptr, model) == "");
    }
}

TEST_CASE("a file has the same bytes when the ranges of parts are written to it") {
  const TempDir dir;
  const std::vector<DividedTensor> model = divided_model();
  write_whole(dir / "whole", with_map(DividedRank(model, {}, 0).state(), true));
  for (const RanksDivide& divide : ways_to_divide()) {
    const std::string path = dir / "parts";
    {
      WeightsWriter writer(path, with_map(DividedRank(model, divide, 0).state(), true));
      for (int r = 0; r < divide.ranks(); ++r) {
        DividedRank rank(model, divide, r);
        for (const StateEntry& entry : rank.state()) {
          if (!entry.owner) continue;
          Floats values = whole_values(entry);
          for_runs(entry.part, entry.global_shape, entry.begin, entry.local.elements(),
                   [&](const PartRun& run) {
                     writer.write(entry.name, run.whole,
                                  {values.data() + run.whole, {run.count}, DType::f32});
                   });
        }
      }
      writer.finish();
    }
    CAPTURE(divide.tensor, divide.slices, divide.turned);
    CHECK(bytes_of_file(path) == bytes_of_file(dir / "whole"));
  }
}

TEST_CASE(
    "parts by rows read each byte once, and those by columns of whole rows as often as there are "
    "parts") {
  constexpr int kParts = 4;
  constexpr int64_t kBytes = int64_t{2000} * 300 * 4, kFew = 200'000;
  const TempDir dir;
  const std::string path = dir / "w";
  const auto read_by_all = [&](TensorPart::By by, bool transposed) {
    const std::vector<DividedTensor> one{{"w", {2000, 300}, by}};
    const auto in_files = [&](StateRegister state) {
      if (transposed) state[0].parts = {{.tensor = "w", .transposed = true}};
      return state;
    };
    write_whole(path, in_files(DividedRank(one, {}, 0).state()));
    const int64_t before = bytes_read();
    for (int r = 0; r < kParts; ++r) {
      DividedRank rank(one, {kParts, 1}, r);
      load_weights(path, in_files(rank.state()));
      CHECK(rank.other_values() == "");
    }
    return bytes_read() - before;
  };
  CHECK(read_by_all(kByRows, false) < kBytes + kFew);
  CHECK(read_by_all(kByRows, true) < kBytes + kFew);
  CHECK(read_by_all(kByColumns, true) < kBytes + kFew);
  CHECK(read_by_all(kByColumns, false) < kParts * kBytes + kFew);
}

TEST_CASE("a file is read by long rows and by several windows of short ones") {
  const TempDir dir;
  for (const Shape& shape : {Shape{3, 70'000}, Shape{40'000, 17}}) {
    const std::vector<DividedTensor> one{{"w", shape, kByColumns}};
    write_whole(dir / "w", DividedRank(one, {}, 0).state());
    for (const RanksDivide& divide : {RanksDivide{4, 1}, {3, 2}})
      for (int r = 0; r < divide.ranks(); ++r) {
        CAPTURE(to_string(shape), divide.tensor, r);
        CHECK(wrongly_read(dir / "w", divide, r, false, nullptr, one) == "");
      }
  }
}

TEST_CASE("a value of a part that is no number is named by its place in the whole tensor") {
  const TempDir dir;
  const std::vector<DividedTensor> one{{"w", {6, 4}, kByColumns}};
  Floats values(24, 1.0f);
  values[10] = std::numeric_limits<float>::infinity();  // row 2, column 2
  {
    WeightsWriter writer(dir / "w", DividedRank(one, {}, 0).state());
    writer.write("w", 0, {values.data(), {24}, DType::f32});
    writer.finish();
  }
  load_weights(dir / "w", DividedRank(one, {2, 1}, 0).state());
  CHECK_THROWS_WITH(load_weights(dir / "w", DividedRank(one, {2, 1}, 1).state()),
                    Contains("element 10 of w is infinite"));
}

TEST_CASE("slices outside of a part and packed parts are errors of the program") {
  const TempDir dir;
  const std::vector<DividedTensor> one{{"w", {6, 5}, kByColumns}};
  write_whole(dir / "w", DividedRank(one, {}, 0).state());
  DividedRank rank(one, {2, 1}, 0);
  rank.state()[0].begin = 1;
  CHECK_THROWS_WITH(load_weights(dir / "w", rank.state()),
                    Contains("slice [1, 19) of w is outside"));
  rank.state()[0].begin = 0;
  rank.state()[0].blocks = BlockFormat::int8;
  CHECK_THROWS_AS(load_weights(dir / "w", rank.state()), InternalError);
}

}  // namespace
}  // namespace dstrain
