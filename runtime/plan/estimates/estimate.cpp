#include "runtime/plan/estimates/estimate.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace dstrain {
namespace {

// DeepSpeed's additional_buffer_factor, by default.
constexpr double kBufferFactor = 1.5;

double gpus_of(const Cluster& cluster) {
  return static_cast<double>(cluster.nodes) * static_cast<double>(cluster.gpus_per_node);
}

std::string heading(const ModelSize& model, const Cluster& cluster, bool with_layer) {
  std::string text = fmt::format(
      "Estimated memory needed for params, optim states and gradients for a:\n"
      "HW: Setup with {} {}, {} {} per node.\n"
      "SW: Model with {}M total params",
      cluster.nodes, cluster.nodes > 1 ? "nodes" : "node", cluster.gpus_per_node,
      cluster.gpus_per_node > 1 ? "GPUs" : "GPU", model.parameters / 1'000'000);
  if (with_layer)
    text += fmt::format(", {}M largest layer params", model.largest_layer / 1'000'000);
  return text + ".\n  per CPU  |  per GPU |   Options\n";
}

std::string row(const MemoryNeed& need, const std::string& options) {
  return fmt::format(" {:7.3f}GB | {:6.3f}GB | {}\n", need.cpu_bytes / 0x1p30,
                     need.gpu_bytes / 0x1p30, options);
}

const char* device(bool offloaded) {
  return offloaded ? "cpu " : "none";
}

}  // namespace

ModelSize model_size(const Program& program) {
  ModelSize size;
  std::map<std::string, int64_t> layers;
  for (const Parameter& p : program.model_parameters()) {
    const int64_t elements = p.shape.elements();
    size.parameters += elements;
    int64_t& layer = layers[p.name.substr(0, p.name.rfind('.'))];
    layer += elements;
    size.largest_layer = std::max(size.largest_layer, layer);
  }
  return size;
}

MemoryNeed estimate_zero2(const ModelSize& model, const Cluster& cluster, bool offload_optimizer,
                          EstimatorVersion version) {
  const auto p = static_cast<double>(model.parameters);
  const double gpus = gpus_of(cluster);
  if (offload_optimizer) return {std::trunc(p * std::max(4 * gpus, 16.0) * kBufferFactor), 2 * p};
  const double cpu = p * 4 * static_cast<double>(cluster.gpus_per_node) * kBufferFactor;
  const double gpu = version == EstimatorVersion::today ? 2 * p + std::trunc(18 * p / gpus)
                                                        : 4 * p + std::trunc(16 * p / gpus);
  return {std::trunc(cpu), gpu};
}

MemoryNeed estimate_zero3(const ModelSize& model, const Cluster& cluster,
                          const Zero3Options& options) {
  const auto p = static_cast<double>(model.parameters);
  const auto layer = static_cast<double>(model.largest_layer);
  const double gpus = gpus_of(cluster);
  const double copies =
      4 * static_cast<double>(cluster.gpus_per_node);  // fp32, on every GPU's behalf
  const double layer_bytes = 4 * layer;
  if (!options.offload_optimizer)
    return {std::trunc((options.zero_init ? layer : p) * copies * kBufferFactor),
            layer_bytes + std::trunc(18 * p / gpus)};
  const double state = (options.offload_param ? 18.0 : 16.0) / static_cast<double>(cluster.nodes);
  const double cpu = p * (options.zero_init ? state : std::max(copies, state)) * kBufferFactor;
  return {std::trunc(cpu), layer_bytes + (options.offload_param ? 0 : std::trunc(2 * p / gpus))};
}

std::string zero2_table(const ModelSize& model, const Cluster& cluster) {
  return heading(model, cluster, false) +
         row(estimate_zero2(model, cluster, true), "offload_optimizer=cpu ") +
         row(estimate_zero2(model, cluster, false), "offload_optimizer=none") +
         row(estimate_zero2(model, cluster, false, EstimatorVersion::v0_10),
             "offload_optimizer=none (as DeepSpeed 0.10 says)");
}

std::string zero3_table(const ModelSize& model, const Cluster& cluster) {
  std::string text = heading(model, cluster, true);
  for (const auto& [optimizer, param] : {std::pair(true, true), {true, false}, {false, false}})
    for (const bool zero_init : {true, false})
      text +=
          row(estimate_zero3(
                  model, cluster,
                  {.offload_optimizer = optimizer, .offload_param = param, .zero_init = zero_init}),
              fmt::format("offload_param={}, offload_optimizer={}, zero_init={}", device(param),
                          device(optimizer), zero_init ? 1 : 0));
  return text;
}

}  // namespace dstrain
