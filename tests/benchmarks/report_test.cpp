#include "benchmarks/cuda/report.h"

#include <catch2/catch.hpp>

namespace dstrain::bench {
namespace {

const Probes kProbes{.bytes_per_second = 4e12, .flops_per_second = 8e14};

TEST_CASE("the median of an odd and of an even number of times") {
  const Timing odd = timing_of({3, 1, 2});
  CHECK(odd.median == 2);
  CHECK((odd.lowest == 1 && odd.highest == 3 && odd.rounds == 3));
  CHECK(timing_of({4, 1, 2, 3}).median == 2.5);
}

TEST_CASE("a floor is the slower of moving and computing") {
  const Floor memory{.bytes = 4e9, .flops = 0}, products{.bytes = 4e8, .flops = 8e11};
  CHECK(floor_seconds(memory, kProbes) == Approx(1e-3));
  CHECK(bound_of(memory, kProbes) == "copy");
  CHECK(floor_seconds(products, kProbes) == Approx(1e-3));
  CHECK(bound_of(products, kProbes) == "gemm");
}

TEST_CASE("a figure is a time held against its floor") {
  const Case c{.name = "x", .op = OpKind::add, .attrs = {}, .in = {}, .out = {}, .floor = {4e9, 0}};
  const auto figure =
      case_json(c, {.median = 2e-3, .lowest = 1e-3, .highest = 3e-3, .rounds = 5}, kProbes);
  CHECK(figure["us"] == Approx(2000));
  CHECK(figure["gb_per_second"] == Approx(2000));
  CHECK(figure["tflops"] == 0);
  CHECK(figure["fraction"] == Approx(0.5));
  CHECK(figure["bound"] == "copy");
  CHECK(figure["rounds"] == 5);
  CHECK(row_of(figure).find("0.500") != std::string::npos);
}

TEST_CASE("a figure that failed says why and has no number") {
  const Case c{.name = "x", .op = OpKind::add, .attrs = {}, .in = {}, .out = {}, .floor = {4e9, 0}};
  const auto figure = failure_json(c, "an illegal memory access");
  CHECK(figure == nlohmann::json{{"name", "x"}, {"failed", "an illegal memory access"}});
  CHECK(row_of(figure).find("failed: an illegal memory access") != std::string::npos);
}

TEST_CASE("probes in the units of the table") {
  CHECK(probes_json(kProbes)["copy_gb_per_second"] == Approx(4000));
  CHECK(probes_json(kProbes)["gemm_tflops"] == Approx(800));
}

}  // namespace
}  // namespace dstrain::bench
