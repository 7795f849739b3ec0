// Codec state in checkpoints: restored bit for bit, added up where ranks differ, never a reason to refuse a checkpoint.
#include <catch2/catch.hpp>
#include <mutex>

#include "runtime/core/error.h"
#include "runtime/storage/checkpoint/checkpoint_load.h"
#include "runtime/storage/checkpoint/checkpoint_save.h"
#include "tests/storage/checkpoint/threads_as_ranks.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

using Errors = std::vector<std::string>;
constexpr int64_t kRow = 7;

// The state of one rank: a weight that all hold, a factor that all hold, and a row of errors.
class Rank {
 public:
  Rank(int rank, int ranks, bool codec = true, int64_t row = kRow)
      : weight(3), factor(4), error(static_cast<size_t>(row)) {
    add("w", "master", {3}, weight, 0, rank == 0, false);
    if (!codec) return;
    add("w", "codec.q", {4}, factor, 0, rank == 0, false);
    add("w", "codec.error", {ranks, row}, error, rank * row, true, true);
  }

  StateRegister state;
  std::vector<float> weight, factor, error;

 private:
  void add(const char* name, const char* slot, Shape shape, std::vector<float>& values,
           int64_t begin, bool owner, bool per_rank) {
    const auto n = static_cast<int64_t>(values.size());
    state.push_back({.name = name,
                     .slot = slot,
                     .global_shape = shape,
                     .begin = begin,
                     .local = {values.data(), {n}, DType::f32},
                     .per_rank = per_rank,
                     .owner = owner});
  }
};

float error_of(int rank, int64_t i) {
  return static_cast<float>(rank + 1) * 0.5f + static_cast<float>(i);
}

// Saves a checkpoint whose rank r has the errors error_of(r, i).
void save_codecs(const std::string& dir, int ranks, bool codec = true) {
  const Errors errors = run_ranks(ranks, [&](Communicator& comm) {
    Rank rank(comm.rank(), ranks, codec);
    rank.weight = {1, 2, 3};
    rank.factor = {4, 5, 6, 7};
    for (int64_t i = 0; i < kRow; ++i)
      rank.error[static_cast<size_t>(i)] = error_of(comm.rank(), i);
    save_checkpoint(dir, {.step = 1}, rank.state, comm);
  });
  REQUIRE(errors == Errors(static_cast<size_t>(ranks)));
}

using Check = std::function<void(const Rank&, int rank, const CheckpointInfo&)>;
void load(const std::string& dir, int ranks, const Check& check_rank, bool codec = true,
          int64_t row = kRow) {
  std::mutex one_by_one;  // Catch's assertions are not for several threads
  const Errors errors = run_ranks(ranks, [&](Communicator& comm) {
    Rank rank(comm.rank(), ranks, codec, row);
    const CheckpointInfo info = load_checkpoint(dir, rank.state, comm);
    const std::lock_guard lock(one_by_one);
    CHECK(rank.weight == std::vector<float>{1, 2, 3});
    check_rank(rank, comm.rank(), info);
  });
  CHECK(errors == Errors(static_cast<size_t>(ranks)));
}

TEST_CASE("as many ranks as saved it get their own errors, bit for bit") {
  for (const int ranks : {1, 3}) {
    TempDir dir;
    save_codecs(dir.path(), ranks);
    load(dir.path(), ranks, [](const Rank& rank, int r, const CheckpointInfo& info) {
      CHECK(info.codec_remarks.empty());
      CHECK(rank.factor == std::vector<float>{4, 5, 6, 7});
      for (int64_t i = 0; i < kRow; ++i)
        CHECK(rank.error[static_cast<size_t>(i)] == error_of(r, i));
    });
  }
}

TEST_CASE("other numbers of ranks share out the errors: their sum stays") {
  for (const int from : {1, 2, 5})
    for (const int to : {1, 2, 3, 8}) {
      if (from == to) continue;
      TempDir dir;
      save_codecs(dir.path(), from);
      CAPTURE(from, to);
      load(dir.path(), to, [&](const Rank& rank, int r, const CheckpointInfo& info) {
        CHECK(info.codec_remarks ==
              std::vector{fmt::format("error feedback of {} data-parallel ranks goes on in {}: "
                                      "what they had is added up",
                                      from, to)});
        CHECK(rank.factor == std::vector<float>{4, 5, 6, 7});
        for (int64_t i = 0; i < kRow; ++i) {
          float sum = 0;
          for (int saved = r; saved < from; saved += to) sum += error_of(saved, i);
          CHECK(rank.error[static_cast<size_t>(i)] == sum);
        }
      });
    }
}

TEST_CASE("codec state that is missing, has another shape or no use is no mismatch, and is told") {
  TempDir with, without;
  save_codecs(with.path(), 2);
  save_codecs(without.path(), 2, false);
  load(without.path(), 2, [](const Rank& rank, int, const CheckpointInfo& info) {
    REQUIRE(info.codec_remarks.size() == 1);
    CHECK(info.codec_remarks[0].ends_with("starts anew"));
    CHECK(rank.factor == std::vector<float>(4));
    CHECK(rank.error == std::vector<float>(kRow));
  });
  load(
      with.path(), 2,
      [](const Rank&, int, const CheckpointInfo& info) {
        REQUIRE(info.codec_remarks.size() == 1);
        CHECK(info.codec_remarks[0].ends_with("it is left out"));
      },
      false);
  load(
      with.path(), 2,
      [](const Rank& rank, int, const CheckpointInfo& info) {
        REQUIRE(info.codec_remarks.size() == 1);
        CHECK(info.codec_remarks[0].ends_with("starts anew"));
        CHECK(rank.error == std::vector<float>(9));
        CHECK(rank.factor == std::vector<float>{4, 5, 6, 7});
      },
      true, 9);
}

}  // namespace
TEST_CASE("packed rows go on in as many ranks as saved them, and start anew in others") {
  constexpr int64_t bytes = 6;
  const auto with_row = [](int rank, int ranks, std::vector<uint8_t>& row) {
    StateRegister state;
    state.push_back({.name = "u",
                     .slot = "codec.send_error",
                     .global_shape = {ranks, bytes},
                     .dtype = DType::u8,
                     .begin = rank * bytes,
                     .local = {row.data(), {bytes}, DType::u8},
                     .per_rank = true});
    return state;
  };
  TempDir dir;
  std::mutex one_by_one;
  CHECK(run_ranks(4, [&](Communicator& comm) {
          std::vector<uint8_t> row(bytes, static_cast<uint8_t>(comm.rank() + 1));
          StateRegister state = with_row(comm.rank(), 4, row);
          save_checkpoint(dir.path(), {.step = 1}, state, comm);
        }) == Errors(4));
  for (const int ranks : {2, 4, 8})
    CHECK(run_ranks(ranks, [&](Communicator& comm) {
            std::vector<uint8_t> row(bytes);
            StateRegister state = with_row(comm.rank(), ranks, row);
            const CheckpointInfo info = load_checkpoint(dir.path(), state, comm);
            const std::lock_guard lock(one_by_one);
            const int expected = ranks == 4 ? comm.rank() + 1 : 0;
            CHECK(row == std::vector<uint8_t>(bytes, static_cast<uint8_t>(expected)));
            REQUIRE(info.codec_remarks.size() == (ranks == 4 ? 0 : 1));
            if (ranks != 4) CHECK(info.codec_remarks[0].ends_with("starts anew"));
          }) == Errors(static_cast<size_t>(ranks)));
}

}  // namespace dstrain
