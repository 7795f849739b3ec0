#include "runtime/plan/divide.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

#include "runtime/ir/tensor_part.h"
#include "runtime/plan/cost/state_bytes.h"
#include "runtime/plan/passes/passes.h"
#include "runtime/plan/pipeline/partition.h"
#include "runtime/plan/pipeline/simulate.h"

namespace dstrain {
namespace {

// Returns whether any of what a rank holds is elsewhere than on its device.
bool leaves_device(const Job& job) {
  const OffloadConfig& offload = job.offload;
  return offload.optimizer != OffloadTo::none || offload.parameters != OffloadTo::none ||
         offload.activations != OffloadTo::none;
}

// Returns for each sublayer the elements of parameters that it uses and another layer has: it needs copies of them and
// of their gradients, and counts them, as DeepSpeed does. `elements`: those of a parameter that count.
template <class Elements>
std::vector<int64_t> copied_parameters(const Program& program, const Elements& elements) {
  std::set<std::pair<int, int>> uses;  // sublayer, parameter
  for (const Instruction& op : program.instructions)
    for (const BufferId id : op.reads)
      if (id != kNone && program.at(id).parameter >= 0)
        uses.emplace(op.sublayer, program.at(id).parameter);
  std::vector<int64_t> copied(program.sublayers.size());
  for (const auto& [sublayer, index] : uses) {
    const Parameter& p = program.parameter(index);
    if (p.unit != program.sublayers[static_cast<size_t>(sublayer)].layer)
      copied[static_cast<size_t>(sublayer)] += elements(p);
  }
  return copied;
}

// What the stages need of memory besides model state, for each sublayer: the bytes that wait for its backward phase of
// a micro-batch, and the most bytes of others that are in use while it runs.
struct Activations {
  std::vector<int64_t> kept, used;
};

Activations activations_of(const Program& program) {
  struct Life {
    size_t first = SIZE_MAX, last = 0;  // instructions that use it
    bool forward = false;               // written there
    int keeper = -1;                    // sublayer whose backward phase reads it first
  };
  std::vector<Life> lives(program.buffers.size());
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& op = program.instructions[i];
    for_operands(op, [&](BufferId id) {
      if (program.at(id).lifetime != Lifetime::micro) return;
      Life& life = lives[static_cast<size_t>(id)];
      life.first = std::min(life.first, i);
      life.last = i;
      if (op.phase == Phase::forward)
        life.forward = true;
      else if (life.forward && life.keeper < 0)
        life.keeper = op.sublayer;
    });
  }
  Activations result{std::vector<int64_t>(program.sublayers.size()),
                     std::vector<int64_t>(program.sublayers.size())};
  std::vector<int64_t> change(program.instructions.size() + 1);
  for (size_t b = 0; b < lives.size(); ++b) {
    const int64_t bytes = program.buffers[b].bytes();
    if (lives[b].keeper >= 0) {
      result.kept[static_cast<size_t>(lives[b].keeper)] += bytes;
    } else if (lives[b].first != SIZE_MAX) {
      change[lives[b].first] += bytes;
      change[lives[b].last + 1] -= bytes;
    }
  }
  int64_t live = 0;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    live += change[i];
    int64_t& used = result.used[static_cast<size_t>(program.instructions[i].sublayer)];
    used = std::max(used, live);
  }
  return result;
}

// Answers which of consecutive values is the largest, from the largest of 1, 2, 4, ... values.
class LargestOf {
 public:
  explicit LargestOf(const std::vector<double>& values) : levels_{values} {
    for (size_t half = 1; 2 * half <= values.size(); half *= 2) {
      const std::vector<double> below = levels_.back();
      std::vector<double>& level = levels_.emplace_back();
      for (size_t i = 0; i + 2 * half <= values.size(); ++i)
        level.push_back(std::max(below[i], below[i + half]));
    }
  }
  double within(size_t begin, size_t end) const {
    const size_t level = static_cast<size_t>(std::bit_width(end - begin)) - 1;
    return std::max(levels_[level][begin], levels_[level][end - (size_t{1} << level)]);
  }

 private:
  std::vector<std::vector<double>> levels_;
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

// Returns whether what ranks send is packed by units, in blocks that a cut within a layer would move.
bool packs_units(const Job& job) {
  return job.quantize.weights || job.quantize.gradients ||
         job.hook.kind == HookKind::batched_power_sgd;
}

// Returns the elements of a tensor rank's part of a parameter, with padding, so that all ranks of a group divide alike.
int64_t part_elements(const Parameter& p) {
  return held_shape(p.part, p.shape).elements();
}

// Returns the bytes of the parts of a pipeline.
PartBytes part_bytes(const Program& program, const Job& job) {
  const std::vector<int64_t> copied = copied_parameters(program, part_elements);
  std::vector<double> state(program.sublayers.size()), states{0}, kept{0};
  for (const Parameter& p : program.parameters)
    state[static_cast<size_t>(p.sublayer)] +=
        state_bytes(job, p).device * static_cast<double>(part_elements(p));
  const auto copy = static_cast<double>(size_of(job.dtype) + size_of(DType::f32));
  const Activations activations = activations_of(program);
  // Bytes of one micro-batch while a sublayer runs, with those that all sublayers before it keep.
  std::vector<double> reached;
  for (size_t i = 0; i < state.size(); ++i) {
    states.push_back(states.back() + state[i] + copy * static_cast<double>(copied[i]));
    const bool stays = job.offload.activations == OffloadTo::none;
    kept.push_back(kept.back() + (stays ? static_cast<double>(activations.kept[i]) : 0));
    reached.push_back(kept.back() + static_cast<double>(activations.used[i]));
  }
  return [states = std::move(states), kept = std::move(kept), reached = LargestOf(reached),
          held = parts_in_flight(job)](int part, int64_t first, int64_t last) {
    const auto from = static_cast<size_t>(first), to = static_cast<size_t>(last);
    const double before = held[static_cast<size_t>(part)] - 1;  // micro-batches that wait
    return static_cast<int64_t>(states[to] - states[from] + before * (kept[to] - kept[from]) +
                                reached.within(from, to) - kept[from]);
  };
}

// Returns the sublayers with their sizes.
std::vector<LayerSize> sublayer_sizes(const Program& program, const MachineRates& rates) {
  // Copies count whole, as all parameters do here: a tensor group divides those of all stages alike.
  const std::vector<int64_t> copied =
      copied_parameters(program, [](const Parameter& p) { return p.shape.elements(); });
  std::vector<LayerSize> sizes;
  for (size_t i = 0; i < program.sublayers.size(); ++i) {
    const Unit& layer = program.unit(program.sublayers[i].layer);
    sizes.push_back({.name = layer.name, .parameters = copied[i]});
  }
  for (const Parameter& p : program.parameters)
    sizes[static_cast<size_t>(p.sublayer)].parameters += p.shape.elements();
  for (const Instruction& op : program.instructions)
    sizes[static_cast<size_t>(op.sublayer)].work += instruction_seconds(program, op, rates);
  return sizes;
}

// Returns the layers with their sizes.
std::vector<LayerSize> layer_sizes(const Program& program,
                                   const std::vector<LayerSize>& sublayers) {
  std::vector<LayerSize> layers;
  for (const Unit& unit : program.units) {
    layers.push_back({.name = unit.name});
    for (int i = 0; i < unit.sublayers; ++i) {
      const LayerSize& size =
          sublayers[static_cast<size_t>(unit.first_sublayer) + static_cast<size_t>(i)];
      layers.back().parameters += size.parameters;
      layers.back().work += size.work;
    }
  }
  return layers;
}

}  // namespace

std::vector<int64_t> divide_model(const Program& fused, const Job& job, const MachineRates& rates,
                                  const StageBytes& planned) {
  const PipelineConfig& pipeline = job.pipeline;
  const auto layers = static_cast<int64_t>(fused.units.size());
  // Returns the first sublayer of a layer, or for their number the number of sublayers.
  const auto sublayer_of = [&](int64_t layer) {
    return layer < layers ? int64_t{fused.units[static_cast<size_t>(layer)].first_sublayer}
                          : static_cast<int64_t>(fused.sublayers.size());
  };
  const auto of_layers = [&](std::vector<int64_t> first) {
    for (int64_t& layer : first) layer = sublayer_of(layer);
    return first;
  };
  if (!pipeline.first_layers.empty()) {
    std::vector<int64_t> first = pipeline.first_layers;
    first.push_back(layers);
    return of_layers(std::move(first));
  }
  Program program = fused;
  recompute(program, job);
  const std::vector<LayerSize> sublayers = sublayer_sizes(program, rates);
  const int parts = pipeline.stages * chunks_of(pipeline);
  const bool by_memory = pipeline.partition == "memory";
  const PartBytes bytes = by_memory ? part_bytes(program, job) : PartBytes{};
  const bool asks = by_memory && planned && leaves_device(job);
  if ((by_memory || pipeline.partition == "time") && !packs_units(job)) {
    if (asks) return level_stages(static_cast<int64_t>(sublayers.size()), pipeline, bytes, planned);
    return partition_by(pipeline.partition, sublayers, parts, bytes);
  }
  const PartBytes of_whole_layers = [&](int part, int64_t first, int64_t last) {
    return bytes(part, sublayer_of(first), sublayer_of(last));
  };
  if (asks)
    return of_layers(level_stages(layers, pipeline, of_whole_layers,
                                  [&](const std::vector<int64_t>& first, int stage) {
                                    return planned(of_layers(first), stage);
                                  }));
  return of_layers(partition_by(pipeline.partition, layer_sizes(program, sublayers), parts,
                                by_memory ? of_whole_layers : bytes));
}

std::vector<SublayerRun> runs_of(const Program& program) {
  std::vector<SublayerRun> units, runs;
  for (const Unit& unit : program.units)
    units.push_back({unit.first_sublayer, unit.first_sublayer + unit.sublayers - 1});
  std::ranges::stable_sort(units, {}, &SublayerRun::first);  // frozen units are the last ones
  for (const SublayerRun& unit : units) {
    if (!runs.empty() && unit.first <= runs.back().last + 1)
      runs.back().last = std::max(runs.back().last, unit.last);
    else
      runs.push_back(unit);
  }
  return runs;
}

std::string layers_text(const std::vector<Sublayer>& sublayers,
                        const std::vector<SublayerRun>& runs) {
  const auto at = [&](int i) -> const Sublayer& { return sublayers[static_cast<size_t>(i)]; };
  const int count = static_cast<int>(sublayers.size());
  std::vector<std::string> texts;
  for (const SublayerRun& run : runs) {
    const int64_t first_layer = at(run.first).layer, last_layer = at(run.last).layer;
    const bool begins = run.first == 0 || at(run.first - 1).layer != first_layer;
    const bool ends = run.last + 1 == count || at(run.last + 1).layer != last_layer;
    // Returns the number of a layer at an end of the run, and where it is not whole the name of the sublayer there.
    const auto end_text = [&](int i, bool whole) {
      return whole ? fmt::format("{}", at(i).layer) : fmt::format("{}.{}", at(i).layer, at(i).name);
    };
    const bool one = first_layer == last_layer;
    const std::string first = end_text(run.first, one ? begins && ends : begins);
    const std::string last = end_text(run.last, one ? begins && ends : ends);
    texts.push_back(first == last ? first : fmt::format("{} to {}", first, last));
  }
  return fmt::format("{}", fmt::join(texts, " and "));
}

}  // namespace dstrain
