#include "runtime/plan/estimates/estimate.h"

#include <fmt/core.h>

#include <catch2/catch.hpp>

#include "runtime/plan/build_model.h"
#include "tests/support/models.h"

using namespace dstrain;

namespace {

ModelSize size_of_model(const ModelConfig& config) {
  Program program;
  Builder builder(program, {});
  build_model(builder, config);
  return model_size(program);
}

// GPT-lite as configured by default, with the 65 characters of the usual text.
ModelSize gptlite() {
  return size_of_model(GptLite{.vocab_size = 65});
}

std::string gb(double bytes) {
  return fmt::format("{:.3f}", bytes / 0x1p30);
}

// {cpu, gpu}
std::pair<double, double> bytes(const MemoryNeed& need) {
  return {need.cpu_bytes, need.gpu_bytes};
}

}  // namespace

TEST_CASE("the largest layer is one module: a linear with its bias") {
  const ModelSize size = gptlite();
  CHECK(size.parameters == 86'701'056);
  CHECK(size.largest_layer == 3072 * 768 + 3072);
}

TEST_CASE("a tied embedding is counted once and can be the largest layer") {
  const ModelSize size = size_of_model(GptLite{.n_layer = 1,
                                               .n_embd = 8,
                                               .n_head = 2,
                                               .block_size = 4,
                                               .tied_head = true,
                                               .vocab_size = 100});
  CHECK(size.largest_layer == 800);
}

TEST_CASE("the estimators' numbers for GPT-lite on eight GPUs") {
  const ModelSize model = gptlite();
  const Cluster cluster{.nodes = 1, .gpus_per_node = 8};
  CHECK(gb(estimate_zero2(model, cluster, true).gpu_bytes) == "0.161");
  CHECK(gb(estimate_zero2(model, cluster, false).gpu_bytes) == "0.343");
  CHECK(gb(estimate_zero2(model, cluster, false, EstimatorVersion::v0_10).gpu_bytes) == "0.484");
  CHECK(gb(estimate_zero3(model, cluster, {.offload_optimizer = true, .offload_param = true})
               .gpu_bytes) == "0.009");
  CHECK(gb(estimate_zero3(model, cluster, {}).gpu_bytes) == "0.190");
}

TEST_CASE("the estimators' numbers for 1e9 parameters on two nodes of eight GPUs") {
  const ModelSize model{.parameters = 1'000'000'000, .largest_layer = 50'000'000};
  const Cluster cluster{.nodes = 2, .gpus_per_node = 8};
  const auto zero3 = [&](bool optimizer, bool param, bool zero_init) {
    return bytes(estimate_zero3(model, cluster, {optimizer, param, zero_init}));
  };
  CHECK(zero3(true, true, true) == std::pair(13.5e9, 2e8));
  CHECK(zero3(true, true, false) == std::pair(48e9, 2e8));
  CHECK(zero3(true, false, true) == std::pair(12e9, 3.25e8));
  CHECK(zero3(true, false, false) == std::pair(48e9, 3.25e8));
  CHECK(zero3(false, false, true) == std::pair(2.4e9, 1.325e9));
  CHECK(zero3(false, false, false) == std::pair(48e9, 1.325e9));
  CHECK(bytes(estimate_zero2(model, cluster, true)) == std::pair(96e9, 2e9));
  CHECK(bytes(estimate_zero2(model, cluster, false)) == std::pair(48e9, 3.125e9));
  CHECK(bytes(estimate_zero2(model, cluster, false, EstimatorVersion::v0_10)) ==
        std::pair(48e9, 5e9));
}

TEST_CASE("the tables read as DeepSpeed prints them") {
  const ModelSize model = gptlite();
  CHECK(zero2_table(model, {.nodes = 1, .gpus_per_node = 8}) ==
        "Estimated memory needed for params, optim states and gradients for a:\n"
        "HW: Setup with 1 node, 8 GPUs per node.\n"
        "SW: Model with 86M total params.\n"
        "  per CPU  |  per GPU |   Options\n"
        "   3.876GB |  0.161GB | offload_optimizer=cpu \n"
        "   3.876GB |  0.343GB | offload_optimizer=none\n"
        "   3.876GB |  0.484GB | offload_optimizer=none (as DeepSpeed 0.10 says)\n");
  CHECK(zero3_table(model, {.nodes = 1, .gpus_per_node = 8}) ==
        "Estimated memory needed for params, optim states and gradients for a:\n"
        "HW: Setup with 1 node, 8 GPUs per node.\n"
        "SW: Model with 86M total params, 2M largest layer params.\n"
        "  per CPU  |  per GPU |   Options\n"
        "   2.180GB |  0.009GB | offload_param=cpu , offload_optimizer=cpu , zero_init=1\n"
        "   3.876GB |  0.009GB | offload_param=cpu , offload_optimizer=cpu , zero_init=0\n"
        "   1.938GB |  0.029GB | offload_param=none, offload_optimizer=cpu , zero_init=1\n"
        "   3.876GB |  0.029GB | offload_param=none, offload_optimizer=cpu , zero_init=0\n"
        "   0.106GB |  0.190GB | offload_param=none, offload_optimizer=none, zero_init=1\n"
        "   3.876GB |  0.190GB | offload_param=none, offload_optimizer=none, zero_init=0\n");
  CHECK(zero2_table(model, {.nodes = 2, .gpus_per_node = 1})
            .find("HW: Setup with 2 nodes, 1 GPU per node.") != std::string::npos);
}
