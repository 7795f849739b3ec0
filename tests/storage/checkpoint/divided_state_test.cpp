// Checkpoints of tensors that the ranks of a tensor group divide: saved in any division, loaded in any other.
#include <catch2/catch.hpp>
#include <fstream>

#include "runtime/core/error.h"
#include "runtime/storage/checkpoint/checkpoint_load.h"
#include "runtime/storage/checkpoint/checkpoint_places.h"
#include "runtime/storage/checkpoint/checkpoint_save.h"
#include "tests/storage/bytes_read.h"
#include "tests/storage/checkpoint/threads_as_ranks.h"
#include "tests/storage/divided_rank.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

using Catch::Contains;
using Errors = std::vector<std::string>;

Errors save_divided(const std::string& dir, const RanksDivide& divide,
                    const std::vector<DividedTensor>& tensors = divided_model()) {
  return run_ranks(divide.ranks(), [&](Communicator& comm) {
    DividedRank rank(tensors, divide, comm.rank());
    rank.fill(-3);
    save_checkpoint(dir, {.step = 1}, rank.state(), comm);
  });
}

// Loads a checkpoint on all ranks and checks its values. Returns the message of each rank's error, or "". `device`: that has
// the ranks' memory; null: the host.
Errors load_divided(const std::string& dir, const RanksDivide& divide,
                    const std::vector<DividedTensor>& tensors = divided_model(),
                    RemoteMemory* device = nullptr) {
  return run_ranks(divide.ranks(), [&](Communicator& comm) {
    DividedRank rank(tensors, divide, comm.rank());
    rank.spoil();
    for (StateEntry& entry : rank.state()) entry.device = device;
    load_checkpoint(dir, rank.state(), comm);
    if (const std::string name = rank.other_values(); !name.empty())
      fail_run("{} has other values", name);
  });
}

Errors no_errors(const RanksDivide& divide) {
  return Errors(static_cast<size_t>(divide.ranks()));
}

TEST_CASE("what ranks saved in any division is loaded in any other, and as whole tensors") {
  std::vector<RanksDivide> all{{1, 1}, {1, 3}};
  for (const int tensor : {2, 3, 4})
    for (const int slices : {1, 2})
      for (const bool turned : {false, true}) all.push_back({tensor, slices, turned});
  for (const RanksDivide& from : all) {
    const TempDir dir;
    REQUIRE(save_divided(dir.path(), from) == no_errors(from));
    for (const RanksDivide& to : all) {
      CAPTURE(from.tensor, from.slices, from.turned, to.tensor, to.slices, to.turned);
      CHECK(load_divided(dir.path(), to) == no_errors(to));
    }
  }
}

TEST_CASE(
    "a manifest names the part of a slice, and one of whole tensors has the form of version 1") {
  const TempDir dir;
  const std::vector<DividedTensor> one{{"w", {6, 4}, kByRows, 3}};
  REQUIRE(save_divided(dir / "parts", {2, 1}, one) == Errors(2));
  REQUIRE(save_divided(dir / "whole", {1, 2}, one) == Errors(2));
  const std::string parts = bytes_of_file(dir / "parts/checkpoints/step_1/manifest.json"),
                    whole = bytes_of_file(dir / "whole/checkpoints/step_1/manifest.json");
  CHECK_THAT(parts, Contains("\"version\":2") &&
                        Contains(R"("part":{"by":"rows","part":0,"parts":2,"sections":3})") &&
                        Contains(R"("part":{"by":"rows","part":1,"parts":2,"sections":3})"));
  CHECK_THAT(whole, Contains("\"version\":1") && !Contains("\"part\""));
}

TEST_CASE("tensors of several checksum blocks are read once, by whatever runs") {
  RemoteHost device;
  const std::vector<DividedTensor> rows{{"large", {1501, 1503}, kByRows}},
      columns{{"large", {1501, 1503}, kByColumns}};
  const int64_t bytes = int64_t{1501} * 1503 * 4;
  for (const auto& [saved_as, from] :
       {std::pair{rows, RanksDivide{1, 2}}, {rows, {3, 2}}, {columns, {3, 2}}}) {
    const TempDir dir;
    REQUIRE(save_divided(dir.path(), from, saved_as) == no_errors(from));
    for (RemoteMemory* const memory :
         {static_cast<RemoteMemory*>(nullptr), static_cast<RemoteMemory*>(&device)})
      for (const auto& [loaded_as, to] : {std::pair{rows, RanksDivide{1, 1}},
                                          {rows, {2, 1}},
                                          {columns, {2, 1}},
                                          {columns, {4, 1}}}) {
        CAPTURE(from.tensor, to.tensor, memory != nullptr);
        const int64_t before = bytes_read();
        CHECK(load_divided(dir.path(), to, loaded_as, memory) == no_errors(to));
        // Each rank needs blocks of all slices at most.
        CHECK(bytes_read() - before < to.ranks() * (bytes + (int64_t{1} << 20)));
      }
  }
}

TEST_CASE("a damaged block of a part is found by whoever needs it") {
  const TempDir dir;
  const std::vector<DividedTensor> one{{"w", {64, 64}, kByColumns}};
  REQUIRE(save_divided(dir.path(), {2, 1}, one) == Errors(2));
  const std::string checkpoint = dir / "checkpoints/step_1",
                    file = checkpoint + "/rank_00001.safetensors";
  std::string bytes = bytes_of_file(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(file, std::ios::binary) << bytes;
  for (const Errors& errors :
       {load_divided(checkpoint, {1, 1}, one), load_divided(checkpoint, {1, 2}, one)})
    for (const std::string& error : errors) CHECK_THAT(error, Contains("w/master is damaged"));
  CHECK_THAT(load_divided(checkpoint, {2, 1}, one)[0], Contains("rank 1 could not read"));
}

TEST_CASE("parts are converted to the dtype of the run") {
  const TempDir dir;
  std::vector<DividedTensor> wide{{"w", {250, 1}, kByRows}, {"v", {10, 20}, kByColumns}},
      narrow = wide;
  for (DividedTensor& tensor : narrow) tensor.dtype = DType::bf16;
  // Saved in f32, with the values of the fixture in bf16.
  const Errors saved = run_ranks(2, [&](Communicator& comm) {
    DividedRank rank(wide, {2, 1}, comm.rank());
    for (StateEntry& entry : rank.state()) entry.dtype = DType::bf16;
    rank.fill(-3);
    for (StateEntry& entry : rank.state()) entry.dtype = DType::f32;
    save_checkpoint(dir.path(), {.step = 1}, rank.state(), comm);
  });
  REQUIRE(saved == Errors(2));
  for (const RanksDivide& to : {RanksDivide{1, 1}, {3, 1}, {2, 2, true}})
    CHECK(load_divided(dir.path(), to, narrow) == no_errors(to));
}

TEST_CASE("a part of what groups of ranks have values of their own of is their mean") {
  const TempDir dir;
  const std::vector<DividedTensor> one{{"w", {6, 4}, kByColumns}};
  const Errors saved = run_ranks(2, [&](Communicator& comm) {
    DividedRank rank(one, {1, 1}, 0);
    rank.fill(0);
    StateEntry& entry = rank.state()[0];
    entry.copies = 2;
    entry.copy = comm.rank();
    for (int64_t i = 0; i < 24; ++i) entry.local.as<float>()[i] += comm.rank() == 0 ? 5.0f : -5.0f;
    save_checkpoint(dir.path(), {.step = 1}, rank.state(), comm);
  });
  REQUIRE(saved == Errors(2));
  CHECK(load_divided(dir.path(), {2, 1}, one) == Errors(2));
}

TEST_CASE("parts of copies and slices outside of a part are errors of the program") {
  const auto error = [](const std::function<void(StateEntry&)>& change) {
    const TempDir dir;
    ThreadGroup group(1);
    ThreadComm comm(group, 0);
    DividedRank rank({{"w", {6, 4}, kByColumns}}, {2, 1}, 0);
    change(rank.state()[0]);
    try {
      save_checkpoint(dir.path(), {.step = 1}, rank.state(), comm);
    } catch (const InternalError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK_THAT(error([](StateEntry& e) { e.copies = 2; }), Contains("w/master is a part of"));
  CHECK_THAT(error([](StateEntry& e) { e.per_rank = true; }), Contains("w/master is a part of"));
  CHECK_THAT(error([](StateEntry& e) { e.begin = 1; }), Contains("this rank holds [1, 13)"));
  CHECK_THAT(error([](StateEntry&) {}),
             Contains("do not cover every tensor") &&
                 Contains("w/master: part 1 of 2: elements [0, 12) are missing"));
}

}  // namespace
}  // namespace dstrain
