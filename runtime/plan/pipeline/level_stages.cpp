#include "runtime/plan/pipeline/level_stages.h"

#include <algorithm>
#include <map>
#include <set>

#include "runtime/plan/pipeline/schedule.h"

namespace dstrain {
namespace {

using Division = std::vector<int64_t>;

constexpr int kCorrections = 8;  // of the model, at most

class Leveling {
 public:
  Leveling(int64_t layers, const PipelineConfig& pipeline, const PartBytes& model,
           const StageBytes& planned)
      : layers_(layers),
        pipeline_(pipeline),
        model_(model),
        planned_(planned),
        chunks_(chunks_of(pipeline)),
        parts_(pipeline.stages * chunks_) {}

  Division run() {
    if (layers_ <= parts_) return partition_uniform(layers_, parts_);
    correct();
    while (move_layer()) {
    }
    return best_;
  }

 private:
  int part_of_stage(int stage, int chunk) const {
    return part_of(pipeline_.schedule, pipeline_.stages, stage, chunk);
  }

  // Returns the bytes of every stage.
  std::vector<int64_t> bytes_of(const Division& first) {
    std::vector<int64_t> bytes;
    for (int stage = 0; stage < pipeline_.stages; ++stage) {
      std::vector<int64_t> key{stage};
      for (int chunk = 0; chunk < chunks_; ++chunk) {
        const auto part = static_cast<size_t>(part_of_stage(stage, chunk));
        key.insert(key.end(), {first[part], first[part + 1]});
      }
      const auto [it, fresh] = known_.try_emplace(std::move(key));
      if (fresh) it->second = planned_(first, stage);
      bytes.push_back(it->second);
    }
    return bytes;
  }

  // Keeps the division if it is better than the best one so far.
  bool take_if_better(const Division& first) {
    std::vector<int64_t> bytes = bytes_of(first);
    std::vector<int64_t> largest_first = bytes;
    std::ranges::sort(largest_first, std::greater{});
    if (!best_.empty() && largest_first >= largest_first_) return false;
    best_ = first;
    bytes_ = std::move(bytes);
    largest_first_ = std::move(largest_first);
    return true;
  }

  void correct() {
    std::vector<double> more(static_cast<size_t>(parts_));  // bytes of each part than by the model
    std::set<Division> seen;
    for (int i = 0; i < kCorrections; ++i) {
      const Division first =
          partition_smallest_maximum(layers_, parts_, [&](int part, int64_t begin, int64_t end) {
            return static_cast<double>(model_(part, begin, end)) + more[static_cast<size_t>(part)];
          });
      if (!seen.insert(first).second) return;
      take_if_better(first);
      const std::vector<int64_t> bytes = bytes_of(first);
      for (int stage = 0; stage < pipeline_.stages; ++stage) {
        int64_t rest = bytes[static_cast<size_t>(stage)];
        for (int chunk = 0; chunk < chunks_; ++chunk) {
          const int part = part_of_stage(stage, chunk);
          const auto p = static_cast<size_t>(part);
          rest -= model_(part, first[p], first[p + 1]);
        }
        for (int chunk = 0; chunk < chunks_; ++chunk)
          more[static_cast<size_t>(part_of_stage(stage, chunk))] =
              static_cast<double>(rest) / chunks_;
      }
    }
  }

  // Takes a layer from a part of the largest stage. Those between this part and the one that gains a layer get one from
  // their neighbour and give one. Returns whether any such change makes the division better.
  bool move_layer() {
    const auto largest = std::ranges::max_element(bytes_) - bytes_.begin();
    const Division from = best_;
    for (int chunk = 0; chunk < chunks_; ++chunk) {
      const int part = part_of_stage(static_cast<int>(largest), chunk);
      for (const int step : {1, -1})
        for (int to = part + step; to >= 0 && to < parts_; to += step)
          if (take_if_better(moved(from, part, to))) return true;
    }
    return false;
  }

  // Returns the division in which part `from` has a layer less and part `to` has one more; the same one if a part would
  // be empty.
  static Division moved(const Division& division, int from, int to) {
    Division result = division;
    for (int part = std::min(from, to) + 1; part <= std::max(from, to); ++part)
      result[static_cast<size_t>(part)] += from < to ? -1 : 1;
    for (size_t i = 1; i < result.size(); ++i)
      if (result[i] <= result[i - 1]) return division;
    return result;
  }

  const int64_t layers_;
  const PipelineConfig& pipeline_;
  const PartBytes& model_;
  const StageBytes& planned_;
  const int chunks_, parts_;
  std::map<std::vector<int64_t>, int64_t> known_;  // by a stage and the layers of its parts
  Division best_;
  std::vector<int64_t> bytes_, largest_first_;  // of the stages with `best_`
};

}  // namespace

std::vector<int64_t> level_stages(int64_t layers, const PipelineConfig& pipeline,
                                  const PartBytes& model, const StageBytes& planned) {
  return Leveling(layers, pipeline, model, planned).run();
}

}  // namespace dstrain
