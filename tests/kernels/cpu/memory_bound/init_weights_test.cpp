#include "kernels/cpu/memory_bound/init_weights.h"

#include "tests/kernels/parity/ops/run_op.h"

namespace dstrain::parity {
namespace {

const PhiloxKey kKey = stream_key(1337, hash_name("blocks.0.mlp.fc.weight"));

std::vector<float> normal(int64_t begin, int64_t count, int threads = 2, PhiloxKey key = kKey) {
  std::vector<float> x(static_cast<size_t>(count));
  fill_normal(x.data(), begin, count, 0.02f, key, threads);
  return x;
}

TEST_CASE("fresh weights are N(0, std): moments and tails") {
  const int64_t n = 4'000'000;
  const std::vector<float> x = normal(0, n);
  double sum = 0, square = 0, cube = 0, fourth = 0, neighbours = 0;
  int64_t beyond[5] = {};
  double last = 0;
  for (float value : x) {
    const double z = static_cast<double>(value) / 0.02;
    sum += z, square += z * z, cube += z * z * z, fourth += z * z * z * z;
    neighbours += z * last;
    last = z;
    for (int k = 1; k < 5; ++k) beyond[k] += std::abs(z) > k;
  }
  const auto count = static_cast<double>(n);
  // Five standard errors of each estimate.
  CHECK(sum / count == Approx(0).margin(5 / std::sqrt(count)));
  CHECK(square / count == Approx(1).margin(5 * std::sqrt(2 / count)));
  CHECK(cube / count == Approx(0).margin(5 * std::sqrt(15 / count)));
  CHECK(fourth / count == Approx(3).margin(5 * std::sqrt(96 / count)));
  CHECK(neighbours / count == Approx(0).margin(5 / std::sqrt(count)));
  for (int k = 1; k < 5; ++k) {
    const double share = std::erfc(k / std::sqrt(2.0));
    INFO("beyond " << k << " standard deviations");
    CHECK(static_cast<double>(beyond[k]) / count ==
          Approx(share).margin(5 * std::sqrt(share / count)));
  }
}

TEST_CASE("an element is Box and Muller's function of its Philox block") {
  const std::vector<float> x = normal(0, 4000);
  for (uint32_t b = 0; b < 1000; ++b) {
    const PhiloxBlock w = philox(kKey, {b, 0, 0, 0});
    for (size_t half = 0; half < 2; ++half) {
      const double u = ((w[2 * half] >> 8) + 1) * 0x1p-24, r = 0.02 * std::sqrt(-2 * std::log(u));
      const double angle =
          (static_cast<double>(w[2 * half + 1]) - 0x20000000) * (2 * M_PI / 0x1p32);
      CHECK(static_cast<double>(x[4 * b + 2 * half]) == Approx(r * std::cos(angle)).margin(2e-8));
      CHECK(static_cast<double>(x[4 * b + 2 * half + 1]) ==
            Approx(r * std::sin(angle)).margin(2e-8));
    }
  }
}

TEST_CASE("a shard is filled alone: any slice and any threads give the same bits") {
  const std::vector<float> whole = normal(0, 30000, 1);
  CHECK(normal(0, 30000, 2) == whole);
  CHECK(normal(0, 30000, 3) == whole);
  for (int64_t begin : {0, 1, 63, 64, 65, 1000, 29999})
    for (int64_t count : {0, 1, 7, 64, 130, 20000}) {
      const int64_t n = std::min<int64_t>(count, 30000 - begin);
      CHECK(normal(begin, n) ==
            std::vector<float>(whole.begin() + begin, whole.begin() + begin + n));
    }
}

TEST_CASE("elements beyond 2^34 use the high counter word") {
  const int64_t far = (int64_t{1} << 34) * 5;
  const std::vector<float> x = normal(far, 4), near = normal(0, 4);
  CHECK(x != near);
  std::vector<float> uniform(4);
  fill_uniform(uniform.data(), far, 4, 1, kKey, 1);
  const PhiloxBlock w = philox(kKey, {0, 5, 0, 0});
  for (size_t k = 0; k < 4; ++k)
    CHECK(uniform[k] == static_cast<float>(w[k] >> 8) * 0x1p-23f - 1.0f);
}

TEST_CASE("another parameter or seed gets other weights") {
  CHECK(normal(0, 64) != normal(0, 64, 1, stream_key(1337, hash_name("blocks.1.mlp.fc.weight"))));
  CHECK(normal(0, 64) != normal(0, 64, 1, stream_key(1338, hash_name("blocks.0.mlp.fc.weight"))));
}

TEST_CASE("uniform weights stay in their bounds and have a uniform's moments") {
  const int64_t n = 1'000'001;
  std::vector<float> x(n);
  fill_uniform(x.data(), 3, n, 0.25f, kKey, 2);
  double sum = 0, square = 0;
  for (float v : x) sum += v, square += static_cast<double>(v) * v;
  CHECK(*std::min_element(x.begin(), x.end()) >= -0.25f);
  CHECK(*std::max_element(x.begin(), x.end()) < 0.25f);
  CHECK(*std::min_element(x.begin(), x.end()) < -0.2499f);
  CHECK(*std::max_element(x.begin(), x.end()) > 0.2499f);
  CHECK(sum / n == Approx(0).margin(0.001));
  CHECK(square / n == Approx(0.0625 / 3).margin(0.0001));
}

TEST_CASE("filling stays inside its range") {
  for (int64_t count : {1, 63, 65, 200}) {
    const Guarded out(Shape{count}, DType::f32, 1);
    fill_normal(static_cast<float*>(out.data()), 5, count, 1, kKey, 1);
    CHECK(out.guards_intact());
    for (double v : out.values()) CHECK(std::isfinite(v));
  }
}

}  // namespace
}  // namespace dstrain::parity
