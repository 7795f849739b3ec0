#include "runtime/plan/pipeline/divide.h"

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

#include "runtime/ir/rule.h"
#include "runtime/optim/optimizer_rule.h"
#include "runtime/plan/passes/passes.h"
#include "runtime/plan/pipeline/partition.h"
#include "runtime/plan/pipeline/simulate.h"
#include "runtime/plan/residency.h"

namespace dstrain {
namespace {

// A memory-bound operation takes about the time of as many FLOPs as it moves bytes, or more.
double work_of(const Program& program, const Instruction& op) {
  const Cost cost = cost_of(program, op);
  return std::max(cost.flops, cost.bytes);
}

// The bytes of model state that a rank holds for one element of a parameter.
double state_bytes(const Job& job, bool of_matrix) {
  const Place place = place_of(job, 0);
  const Residency held = residency_of(job, place);
  const auto value = static_cast<double>(size_of(job.dtype));
  const double moments = of_matrix ? 4 : 4 * static_cast<double>(state_slots(job.optimizer).size());
  const double master = is_16bit(job.dtype) ? 4 : 0;
  return value / divisor(held.parameters, place) +
         static_cast<double>(size_of(job.grad_dtype)) / divisor(held.gradients, place) +
         (moments + master) / divisor(held.optimizer, place);
}

// Returns for each layer the elements of parameters that it uses and another layer has: it needs copies of them and
// of their gradients, and counts them, as DeepSpeed does.
std::vector<int64_t> copied_parameters(const Program& program) {
  std::set<std::pair<int, int>> uses;  // layer, parameter
  for (const Instruction& op : program.instructions)
    for (const BufferId id : op.reads)
      if (id != kNone && program.at(id).parameter >= 0)
        uses.emplace(op.layer, program.at(id).parameter);
  std::vector<int64_t> copied(program.units.size());
  for (const auto& [layer, index] : uses) {
    const Parameter& p = program.parameters[static_cast<size_t>(index)];
    if (p.unit != layer) copied[static_cast<size_t>(layer)] += p.shape.elements();
  }
  return copied;
}

// What the stages need of memory besides model state: for each layer the bytes that wait for the backward phase of
// a micro-batch, and the most bytes that it uses within a phase.
struct Activations {
  std::vector<int64_t> kept, used;
};

Activations activations_of(const Program& program) {
  struct Life {
    int layer = -1;  // that writes it
    bool forward = false, backward = false;
  };
  std::vector<Life> lives(program.buffers.size());
  Activations result{std::vector<int64_t>(program.units.size()),
                     std::vector<int64_t>(program.units.size())};
  for (const Instruction& op : program.instructions) {
    for (const BufferId id : op.writes)
      if (id != kNone && lives[static_cast<size_t>(id)].layer < 0)
        lives[static_cast<size_t>(id)].layer = op.layer;
    int64_t operands = 0;
    for (const auto* list : {&op.reads, &op.writes})
      for (const BufferId id : *list) {
        if (id == kNone || program.at(id).lifetime != Lifetime::micro) continue;
        Life& life = lives[static_cast<size_t>(id)];
        (op.phase == Phase::forward ? life.forward : life.backward) = true;
        operands += program.at(id).bytes();
      }
    int64_t& used = result.used[static_cast<size_t>(op.layer)];
    used = std::max(used, operands);
  }
  for (size_t b = 0; b < lives.size(); ++b)
    if (lives[b].layer >= 0 && lives[b].forward && lives[b].backward &&
        program.buffers[b].lifetime == Lifetime::micro)
      result.kept[static_cast<size_t>(lives[b].layer)] += program.buffers[b].bytes();
  return result;
}

// Answers which of consecutive values is the largest, from the largest of 1, 2, 4, ... values.
class LargestOf {
 public:
  explicit LargestOf(const std::vector<int64_t>& values) : levels_{values} {
    for (size_t half = 1; 2 * half <= values.size(); half *= 2) {
      const std::vector<int64_t> below = levels_.back();
      std::vector<int64_t>& level = levels_.emplace_back();
      for (size_t i = 0; i + 2 * half <= values.size(); ++i)
        level.push_back(std::max(below[i], below[i + half]));
    }
  }
  int64_t within(size_t begin, size_t end) const {
    const size_t level = static_cast<size_t>(std::bit_width(end - begin)) - 1;
    return std::max(levels_[level][begin], levels_[level][end - (size_t{1} << level)]);
  }

 private:
  std::vector<std::vector<int64_t>> levels_;
};

// Returns for every part how many micro-batches it holds at most.
std::vector<int> parts_in_flight(const Job& job) {
  const PipelineConfig& p = job.pipeline;
  const int chunks = chunks_of(p);
  std::vector<int> held(static_cast<size_t>(p.stages * chunks));
  const auto micro_batches = static_cast<int>(job.batch.accumulation);
  for (int stage = 0; stage < p.stages; ++stage) {
    const std::vector<int> of_stage = in_flight(
        stage_order(p.schedule, p.stages, p.virtual_stages, stage, micro_batches), chunks);
    for (int chunk = 0; chunk < chunks; ++chunk)
      held[static_cast<size_t>(part_of(p.schedule, p.stages, stage, chunk))] =
          of_stage[static_cast<size_t>(chunk)];
  }
  return held;
}

}  // namespace

std::vector<int64_t> divide_layers(const Program& fused, const Job& job) {
  const PipelineConfig& pipeline = job.pipeline;
  const auto count = static_cast<int64_t>(fused.units.size());
  if (!pipeline.first_layers.empty()) {
    std::vector<int64_t> first = pipeline.first_layers;
    first.push_back(count);
    return first;
  }
  Program program = fused;
  recompute(program, job);
  std::vector<LayerSize> layers;
  for (const Unit& unit : program.units) {
    layers.push_back({.name = unit.name});
    for (const int p : unit.parameters)
      layers.back().parameters += program.parameters[static_cast<size_t>(p)].shape.elements();
  }
  const std::vector<int64_t> copied = copied_parameters(program);
  for (size_t layer = 0; layer < layers.size(); ++layer) layers[layer].parameters += copied[layer];
  for (const Instruction& op : program.instructions)
    layers[static_cast<size_t>(op.layer)].work += work_of(program, op);
  const Activations activations = activations_of(program);
  std::vector<int64_t> matrices(layers.size());  // elements that are updated as whole matrices
  for (const Parameter& p : program.parameters)
    if (p.as_matrix) matrices[static_cast<size_t>(p.unit)] += p.shape.elements();
  const double state = state_bytes(job, false), of_matrix = state_bytes(job, true);
  const int parts = pipeline.stages * chunks_of(pipeline);
  const std::vector<int> held =
      pipeline.partition == "memory" ? parts_in_flight(job) : std::vector<int>{};
  const auto copy = static_cast<double>(size_of(job.dtype) + size_of(DType::f32));
  std::vector<double> states{0}, kept{0};  // sums over the layers before one
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    const int64_t others = layers[layer].parameters - copied[layer] - matrices[layer];
    states.push_back(states.back() + state * static_cast<double>(others) +
                     of_matrix * static_cast<double>(matrices[layer]) +
                     copy * static_cast<double>(copied[layer]));
    kept.push_back(kept.back() + static_cast<double>(activations.kept[layer]));
  }
  const LargestOf used(activations.used);
  const PartBytes bytes = [&](int part, int64_t first, int64_t last) {
    const int64_t in_flight = held[static_cast<size_t>(part)];
    const auto from = static_cast<size_t>(first), to = static_cast<size_t>(last);
    return static_cast<int64_t>(states[to] - states[from] +
                                static_cast<double>(in_flight) * (kept[to] - kept[from])) +
           used.within(from, to);
  };
  return partition_by(pipeline.partition, layers, parts, bytes);
}

}  // namespace dstrain
