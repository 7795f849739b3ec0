// The search for the fastest settings of a drive, and the measurement of one.
#include "runtime/storage/disk/disk_speed.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <utility>

#include "tests/storage/disk/fake_io.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

const AioChoices kFew{
    .block_sizes = {4096, 8192, 16'384}, .queue_depths = {1, 4}, .threads = {1, 2, 3}};

bool always() {
  return true;
}

TEST_CASE(
    "the fastest settings are found, and of equal ones those with the fewest bytes in flight") {
  int asked = 0;
  const auto speed = [&asked](const AioConfig& c) {
    ++asked;
    double s = c.block_size >= 8192 ? 1e9 : 5e8;  // larger blocks are no faster
    s *= c.queue_depth == 4 ? 1.5 : 1;
    s *= c.intra_op_parallelism == 2 ? 1.2 : 1;
    s *= c.single_submit ? 0.9 : 1;
    s *= c.overlap_events ? 1 : 0.8;
    return DiskSpeed{.read = s * (1 + 0.001 * (asked % 3)), .write = s};
  };
  const auto tuning = tune_aio(kFew, {.block_size = 4096, .queue_depth = 1}, speed, always);
  REQUIRE(tuning);
  CHECK(tuning->best.config == AioConfig{8192, 4, 2, false, true});
  CHECK(tuning->best.speed.write == 1.8e9);
  CHECK(tuning->given.config == AioConfig{4096, 1, 1, false, true});
  CHECK(tuning->given.speed.write == 5e8);
  CHECK(tuning->measured.size() == static_cast<size_t>(asked));
  // 6 pairs, 2 other numbers of threads, 2 other ways to submit, then 3 rounds of the 3 fastest and the given one.
  CHECK(asked == 6 + 2 + 2 + 3 * 4);
}

TEST_CASE("one lucky measurement does not decide") {
  bool first = true;
  const auto speed = [&first](const AioConfig& c) {
    const bool slow = c.block_size == 4096;
    const double s = slow ? (std::exchange(first, false) ? 9e9 : 1e8) : 1e9;
    return DiskSpeed{s, s};
  };
  const AioChoices choices{.block_sizes = {4096, 8192}, .queue_depths = {1}, .threads = {1}};
  const auto tuning = tune_aio(choices, {}, speed, always);
  REQUIRE(tuning);
  CHECK(tuning->best.config.block_size != 4096);
}

TEST_CASE("reads and writes count alike: the slower one is most of the time") {
  CHECK(DiskSpeed{1, 1}.both() == 1);
  CHECK(DiskSpeed{3, 1}.both() == 1.5);
  CHECK(DiskSpeed{0, 1}.both() == 0);
}

TEST_CASE("a search that is stopped has no result and measures no more") {
  int asked = 0;
  const int most = GENERATE(0, 1, 11);
  const auto speed = [&asked](const AioConfig&) {
    ++asked;
    return DiskSpeed{1, 1};
  };
  CHECK_FALSE(tune_aio(kFew, {}, speed, [&] { return asked < most; }));
  CHECK(asked == most);
}

TEST_CASE("a drive is measured with any settings, over files that stay as large as they are") {
  const int drives = GENERATE(1, 3);
  const AioConfig config{.block_size = GENERATE(4096, 100'000), .queue_depth = 3};
  const TempDir dir;
  FakeIo calls;
  const SwapFiles files(std::vector<std::string>(static_cast<size_t>(drives), dir.path()), 1 << 20,
                        calls);
  const DiskSpeedProbe probe(files, 60, always);
  const int before = calls.submissions;
  const DiskSpeed speed = probe.measure(config);
  CHECK(speed.read > 0);
  CHECK(speed.write > 0);
  CHECK(std::isfinite(speed.both()));
  CHECK(calls.submissions > before);
  for (int i = 0; i < drives; ++i) CHECK(calls.size(files.descriptor(i)) == 1 << 20);
}

TEST_CASE("a measurement that is told to end moves nothing more") {
  const TempDir dir;
  FakeIo calls;
  const SwapFiles files({dir.path()}, 8 << 20, calls);
  bool going = true;
  const DiskSpeedProbe probe(files, 60, [&going] { return going; });
  going = false;
  const int before = calls.submissions;
  probe.measure({.block_size = 8192, .queue_depth = 1});
  CHECK(calls.submissions == before);
}

TEST_CASE("a measurement ends when its time is over") {
  const TempDir dir;
  FakeIo calls;
  const SwapFiles files({dir.path()}, 8 << 20, calls);
  const DiskSpeedProbe probe(files, 0, always);
  const int before = calls.submissions;
  probe.measure({.block_size = 8192, .queue_depth = 1});
  CHECK(calls.submissions == before);
}

}  // namespace
}  // namespace dstrain
