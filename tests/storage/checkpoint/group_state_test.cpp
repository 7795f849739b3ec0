// Checkpoints of groups of ranks that have values of their own: a row for each group, and the mean of all for others.
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
constexpr int64_t kRows = 3, kColumns = 5, kElements = kRows * kColumns;

float value_of(int64_t group, int64_t i) {
  return static_cast<float>(group * 100 + i);
}

// A weight of which each rank holds all, or a slice; `groups`: of ranks with values of their own.
StateEntry weight(std::vector<float>& values, Communicator& comm, int64_t groups, bool sliced) {
  const int64_t ranks = comm.size(), of_group = ranks / groups, rank = comm.rank();
  const int64_t n = sliced ? kElements / ranks : kElements;
  values.assign(static_cast<size_t>(n), -1);
  return {.name = "w",
          .slot = "exp_avg",
          .global_shape = {kRows, kColumns},
          .begin = sliced ? rank * n : 0,
          .local = {values.data(), {n}, DType::f32},
          .copies = groups,
          .copy = groups > 1 ? rank / of_group : 0,
          .owner = sliced || (groups > 1 ? rank % of_group : rank) == 0};
}

void save_groups(const std::string& dir, int ranks, int64_t groups) {
  const Errors errors = run_ranks(ranks, [&](Communicator& comm) {
    std::vector<float> values;
    StateRegister state{weight(values, comm, groups, false)};
    for (int64_t i = 0; i < kElements; ++i)
      values[static_cast<size_t>(i)] = value_of(state[0].copy, i);
    save_checkpoint(dir, {.step = 1}, state, comm);
  });
  REQUIRE(errors == Errors(static_cast<size_t>(ranks)));
}

// Loads on ranks in so many groups, and compares element i of group g with expected(g, i).
template <class Expected>
void load_groups(const std::string& dir, int ranks, int64_t groups, bool sliced, int64_t restored,
                 bool remark, const Expected& expected) {
  std::mutex one_by_one;  // Catch's assertions are not for several threads
  const Errors errors = run_ranks(ranks, [&](Communicator& comm) {
    std::vector<float> values;
    StateRegister state{weight(values, comm, groups, sliced)};
    const CheckpointInfo info = load_checkpoint(dir, state, comm);
    const std::lock_guard lock(one_by_one);
    for (size_t i = 0; i < values.size(); ++i)
      CHECK(values[i] == expected(state[0].copy, state[0].begin + static_cast<int64_t>(i)));
    CHECK(info.groups == restored);
    CHECK(info.codec_remarks.size() == (remark ? 1 : 0));
    if (remark) CHECK(info.codec_remarks[0].ends_with("their mean goes on"));
  });
  CHECK(errors == Errors(static_cast<size_t>(ranks)));
}

TEST_CASE("as many groups get their own values, others and ordinary runs their mean") {
  TempDir dir;
  save_groups(dir.path(), 4, 2);
  load_groups(dir.path(), 4, 2, false, 2, false, value_of);
  load_groups(dir.path(), 2, 2, false, 2, false, value_of);
  const auto mean = [](int64_t, int64_t i) { return (value_of(0, i) + value_of(1, i)) / 2; };
  load_groups(dir.path(), 4, 4, false, 1, true, mean);
  load_groups(dir.path(), 1, 1, false, 1, true, mean);
  load_groups(dir.path(), 3, 1, true, 1, true, mean);
}

TEST_CASE("every group begins with the values of an ordinary run") {
  TempDir dir;
  save_groups(dir.path(), 2, 1);
  const auto same = [](int64_t, int64_t i) { return value_of(0, i); };
  load_groups(dir.path(), 3, 3, false, 1, false, same);
}

TEST_CASE("groups of a tensor of another shape are refused") {
  TempDir dir;
  save_groups(dir.path(), 2, 2);
  const Errors errors = run_ranks(1, [&](Communicator& comm) {
    std::vector<float> values(kElements);
    StateRegister state{weight(values, comm, 1, false)};
    state[0].global_shape = {kColumns, kRows};
    load_checkpoint(dir.path(), state, comm);
  });
  CHECK(errors[0].find("(2, 3, 5)") != std::string::npos);
}

}  // namespace
}  // namespace dstrain
