// Generated samples against a direct implementation of their definition.
#include <cmath>

#include "runtime/core/philox.h"
#include "tests/data/dataset_fixture.h"
#include "tests/support/models.h"

namespace dstrain {
namespace {

Job benchmark_job(uint64_t seed, int64_t in_size, int64_t out_size) {
  Job job;
  job.seed = seed;
  job.model = BenchmarkModel{.in_size = in_size, .out_size = out_size};
  return job;
}

struct Batch {
  std::vector<float> x;
  std::vector<int32_t> labels;
};

Batch read_batch(const Dataset& data, Split split, int64_t first, int64_t count, int64_t in_size) {
  Batch b{std::vector<float>(static_cast<size_t>(count * in_size), -1),
          std::vector<int32_t>(static_cast<size_t>(count), -1)};
  const InputTensor batch[] = {
      {"samples", InputRole::features, {b.x.data(), {count, in_size}, DType::f32}},
      {"targets", InputRole::labels, {b.labels.data(), {count}, DType::i32}}};
  data.read(split, first, count, batch);
  return b;
}

Batch defined_batch(uint64_t seed, uint64_t first, int64_t count, int64_t in_size,
                    int64_t out_size) {
  Batch b;
  for (uint64_t i = first; i < first + static_cast<uint64_t>(count); ++i) {
    double sum = 0;
    for (int64_t j = 0; j < in_size; ++j) {
      const PhiloxBlock words =
          philox({static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
                 {static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32),
                  static_cast<uint32_t>(j / 4), 0});
      b.x.push_back(
          static_cast<float>(-10.0 + 20.0 * words[static_cast<size_t>(j % 4)] / 4294967296.0));
      sum += static_cast<double>(b.x.back()) * static_cast<double>(b.x.back());
    }
    b.labels.push_back(static_cast<int32_t>(static_cast<int64_t>(std::floor(sum)) % out_size));
  }
  return b;
}

TEST_CASE("the benchmark's samples are those of the definition, for odd sizes and counts") {
  for (const int64_t in_size : {1, 3, 4, 63, 64, 65, 130, 1000})
    for (const int64_t count : {1, 2, 4, 5, 37}) {
      CAPTURE(in_size, count);
      const uint64_t seed = 0x123456789abcdef0ull;
      const auto data = open_dataset(benchmark_job(seed, in_size, 10));
      const Batch got = read_batch(*data, Split::train, 41, count, in_size);
      const Batch want = defined_batch(seed, 41, count, in_size, 10);
      REQUIRE(got.x == want.x);
      REQUIRE(got.labels == want.labels);
    }
}

TEST_CASE("the benchmark's validation takes samples from 2^40 on, and both splits are endless") {
  const auto data = open_dataset(benchmark_job(7, 20, 5));
  CHECK(data->samples(Split::train) == int64_t{1} << 40);
  const Batch validation = read_batch(*data, Split::validation, 3, 2, 20);
  CHECK(validation.x == defined_batch(7, (uint64_t{1} << 40) + 3, 2, 20, 5).x);
  const Batch late = read_batch(*data, Split::train, (int64_t{1} << 33) + 1, 2, 20);
  CHECK(late.x == defined_batch(7, (uint64_t{1} << 33) + 1, 2, 20, 5).x);
}

TEST_CASE("a sample does not depend on the batch it is read in") {
  const auto data = open_dataset(benchmark_job(1337, 129, 100));
  const Batch whole = read_batch(*data, Split::train, 0, 300, 129);
  for (const int64_t i : {0, 1, 150, 299}) {
    const Batch one = read_batch(*data, Split::train, i, 1, 129);
    CHECK(std::equal(one.x.begin(), one.x.end(), whole.x.begin() + i * 129));
    CHECK(one.labels[0] == whole.labels[static_cast<size_t>(i)]);
  }
}

}  // namespace
}  // namespace dstrain
