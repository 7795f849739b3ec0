#include "benchmarks/cuda/predict.h"

#include <catch2/catch.hpp>
#include <numeric>

#include "runtime/core/error.h"

namespace dstrain::bench {
namespace {

double total(const std::vector<PredictedRow>& rows) {
  return std::accumulate(rows.begin(), rows.end(), 0.0,
                         [](double sum, const PredictedRow& row) { return sum + row.seconds; });
}

TEST_CASE("a predicted step is longer than its floor and follows the machine") {
  const Machine h200 = machine_named("H200");
  for (const PredictedModel& model : predicted_models()) {
    CAPTURE(model.name);
    const std::vector<PredictedRow> rows = predict(model, h200);
    double bytes = 0, flops = 0;
    for (const PredictedRow& row : rows)
      bytes += row.count * row.bytes, flops += row.count * row.flops;
    // 6 FLOPs for each parameter and token, and attention's products.
    const double tokens = static_cast<double>(model.batch) * 1024;
    CHECK(flops > 6 * static_cast<double>(model.parameters) * tokens * 0.98);
    CHECK(flops < 7 * static_cast<double>(model.parameters) * tokens);
    CHECK(total(rows) > flops / h200.flops_per_second);
    CHECK(total(rows) > bytes / h200.bytes_per_second);
    CHECK(total(predict(model, machine_named("H100"))) > total(rows));
    CHECK(total(predict(model, h200, false)) > total(rows));
    Machine slow = h200;
    slow.latency *= 100;  // the loads in flight are then too few
    CHECK(total(predict(model, slow)) > 2 * total(rows));
    Machine late = h200;
    late.launch += 1e-3;
    double launches = 0;
    for (const PredictedRow& row : rows) launches += row.count * row.launches;
    CHECK(total(predict(model, late)) == Approx(total(rows) + launches * 1e-3));
  }
}

TEST_CASE(
    "a predicted step is between those of other programs and what products alone would allow") {
  const Machine h100 = machine_named("H100");
  for (const PredictedModel& model : predicted_models()) {
    CAPTURE(model.name);
    const std::vector<PredictedRow> rows = predict(model, h100);
    const double rate = static_cast<double>(model.batch) * 1024 / total(rows);
    double flops = 0;
    for (const PredictedRow& row : rows) flops += row.count * row.flops;
    CHECK(rate < h100.deep_products / flops * static_cast<double>(model.batch) * 1024);
    REQUIRE(!model.peers.empty());
    for (const Peer& peer : model.peers) {
      CAPTURE(peer.name);
      CHECK(rate > peer.tokens_per_second);
      CHECK(rate < 2 * peer.tokens_per_second);
    }
  }
}

TEST_CASE("products and attention have the rates that their anchors have") {
  const Machine h100 = machine_named("H100");
  CHECK(h100.product_rate(768) == Approx(615e12));
  CHECK(h100.product_rate(1e9) == Approx(h100.deep_products));
  CHECK(h100.product_rate(1600) > h100.product_rate(768));
  const PredictedModel gpt2 = predicted_models()[0];
  const auto rate_of = [&](const std::string& name) {
    for (const PredictedRow& row : predict(gpt2, h100))
      if (row.name == name) return row.count * row.flops / row.seconds;
    FAIL("no row " << name);
    return 0.0;
  };
  // A launch costs little beside them.
  CHECK(rate_of("linear K=768 N=3072") == Approx(615e12).epsilon(0.02));
  CHECK(rate_of("attention C=768 D=64") == Approx(229e12).epsilon(0.02));
  CHECK(rate_of("attention_grad C=768 D=64") == Approx(180e12).epsilon(0.02));
}

TEST_CASE("the occupancy of a kernel is what its source states") {
  const std::string source = R"(
// SASS <?*16, true>: threads 128, blocks 6, loads 8
template <class T>
__global__ void __launch_bounds__(128)
    first(const T* x) {
}
void launch() { third(); }
// SASS: threads 256, blocks 2, shared 1024, loads 4
__global__ void second(int n) {
}
)";
  CHECK(occupancy_in(source, "first").warps == 24);
  CHECK(occupancy_in(source, "first").loads == 8);
  CHECK(occupancy_in(source, "second").bytes() == 16 * 32 * 4 * 16);
  CHECK_THROWS_WITH(occupancy_in(source, "third"), Catch::Contains("above third"));
}

TEST_CASE("a prediction names its assumptions and says that it is no measurement") {
  const std::string text = prediction_text(machine_named("H200"));
  CHECK(text.find("nothing of it was measured with dstrain") != std::string::npos);
  for (const Assumption& a : machine_named("H200").assumptions()) {
    CHECK(text.find(a.name) != std::string::npos);
    CHECK(text.find(a.source) != std::string::npos);
  }
  CHECK_THROWS_AS(machine_named("H300"), UserError);
}

}  // namespace
}  // namespace dstrain::bench
