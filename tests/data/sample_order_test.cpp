#include "runtime/data/sample_order.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <vector>

namespace dstrain {
namespace {

std::vector<int64_t> epoch(const SampleOrder& order, int64_t samples, int64_t number) {
  std::vector<int64_t> list(static_cast<size_t>(samples));
  for (int64_t i = 0; i < samples; ++i)
    list[static_cast<size_t>(i)] = order.sample_at(number * samples + i);
  return list;
}

std::vector<int64_t> counted(int64_t samples) {
  std::vector<int64_t> list(static_cast<size_t>(samples));
  std::iota(list.begin(), list.end(), int64_t{0});
  return list;
}

TEST_CASE("every sample comes once per epoch, for any number of samples") {
  for (const int64_t samples : {1, 2, 3, 4, 5, 7, 16, 17, 63, 64, 65, 255, 1000, 4097, 20000}) {
    const SampleOrder order(samples, true, 1337);
    for (const int64_t number : {0, 1, 1000000}) {
      CAPTURE(samples, number);
      std::vector<int64_t> list = epoch(order, samples, number);
      std::sort(list.begin(), list.end());
      REQUIRE(list == counted(samples));
    }
  }
}

TEST_CASE("random order differs between epochs and seeds, and repeats for the same") {
  const SampleOrder order(1000, true, 1), same(1000, true, 1), other(1000, true, 2);
  CHECK(epoch(order, 1000, 0) != counted(1000));
  CHECK(epoch(order, 1000, 0) != epoch(order, 1000, 1));
  CHECK(epoch(order, 1000, 0) != epoch(other, 1000, 0));
  CHECK(epoch(order, 1000, 3) == epoch(same, 1000, 3));
}

TEST_CASE("random order has no trend: neighbours fall far apart and positions are uniform") {
  constexpr int64_t kSamples = 4000;
  const SampleOrder order(kSamples, true, 7);
  const std::vector<int64_t> list = epoch(order, kSamples, 0);
  double correlation = 0, distance = 0;
  const double mean = (kSamples - 1) / 2.0, variance = (kSamples * kSamples - 1) / 12.0;
  for (size_t i = 0; i + 1 < list.size(); ++i) {
    correlation +=
        (static_cast<double>(list[i]) - mean) * (static_cast<double>(list[i + 1]) - mean);
    distance += std::abs(static_cast<double>(list[i]) - static_cast<double>(i));
  }
  CHECK(std::abs(correlation / variance / kSamples) < 0.06);  // four standard deviations
  CHECK(distance / kSamples == Approx(kSamples / 3.0).epsilon(0.06));
}

TEST_CASE("all orders of three samples occur equally often") {
  std::vector<int> seen(27);
  for (uint64_t seed = 0; seed < 6000; ++seed) {
    const std::vector<int64_t> list = epoch(SampleOrder(3, true, seed), 3, 0);
    ++seen[static_cast<size_t>(9 * list[0] + 3 * list[1] + list[2])];
  }
  for (const int index : {5, 7, 11, 15, 19, 21})
    CHECK(std::abs(seen[static_cast<size_t>(index)] - 1000) < 130);
}

TEST_CASE("sequential order counts, and starts over after the last sample") {
  const SampleOrder order(5, false, 1337);
  CHECK(epoch(order, 5, 0) == counted(5));
  CHECK(epoch(order, 5, 9) == counted(5));
  CHECK(order.sample_at(7) == 2);
}

TEST_CASE("a huge number of samples is walked quickly and stays inside") {
  constexpr int64_t kSamples = (int64_t{1} << 60) + 12345;
  const SampleOrder order(kSamples, true, 3);
  for (int64_t place = 0; place < 1000; ++place) {
    REQUIRE(order.sample_at(place) >= 0);
    REQUIRE(order.sample_at(place) < kSamples);
  }
}

}  // namespace
}  // namespace dstrain
