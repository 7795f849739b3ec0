// Offload of activations: what the forward pass keeps for the backward pass leaves the device behind its last use
// there and comes back in time for its next one. It never changes meanwhile, so the numbers of a step do not either.
#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/plan/passes/passes.h"
#include "runtime/plan/transfers.h"

namespace dstrain {
namespace {

// What is read again sooner stays: in visits of layers from the last use to the next one.
constexpr size_t kLeastVisits = 4;
// What is smaller than this share of the largest kept value stays: statistics of norms and of attention.
constexpr int64_t kLeastShare = 16;

// A value that the backward pass reads: its last use in the forward pass and its first one in the backward pass, as
// positions in the list.
struct Kept {
  BufferId buffer = kNone;
  size_t last_use = 0, next_use = 0;
};

class ActivationOffload {
 public:
  ActivationOffload(Program& program, Space to, bool in_turns)
      : program_(program), to_(to), in_turns_(in_turns) {}

  void run() {
    find_visits();
    const size_t n = program_.instructions.size();
    before_.resize(n);
    after_.resize(n);
    for (const Kept& kept : find_kept()) move(kept);
    read_what_came_back();
    std::vector<Instruction> list;
    for (size_t i = 0; i < n; ++i) {
      std::ranges::move(before_[i], std::back_inserter(list));
      list.push_back(std::move(program_.instructions[i]));
      std::ranges::move(after_[i], std::back_inserter(list));
    }
    program_.instructions = std::move(list);
  }

 private:
  // Consecutive instructions of one layer in one phase.
  struct Visit {
    size_t first = 0, last = 0;
  };

  bool in_one_turn(size_t a, size_t b) const {
    const Instruction &one = program_.instructions[a], &two = program_.instructions[b];
    return !in_turns_ || (one.phase == two.phase && one.chunk == two.chunk);
  }

  void find_visits() {
    const std::vector<Instruction>& list = program_.instructions;
    const auto same = [](const Instruction& a, const Instruction& b) {
      return a.group == b.group && a.phase == b.phase && a.chunk == b.chunk;
    };
    for (size_t i = 0; i < list.size(); ++i) {
      if (i == 0 || !same(list[i - 1], list[i])) visits_.push_back({i, i});
      visits_.back().last = i;
      visit_of_.push_back(visits_.size() - 1);
    }
  }

  std::vector<Kept> find_kept() const {
    std::vector<char> stays(program_.buffers.size());
    std::map<BufferId, Kept> found;
    std::vector<char> again(program_.buffers.size());
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      const Instruction& op = program_.instructions[i];
      const bool forward = op.phase == Phase::forward;
      for (const auto* list : {&op.reads, &op.writes})
        for (const BufferId operand : *list) {
          if (operand == kNone) continue;
          const BufferId id = program_.root(operand);
          Kept& kept = found.try_emplace(id, Kept{id, i, i}).first->second;
          const auto index = static_cast<size_t>(id);
          if (forward)
            kept.last_use = i;
          else if (again[index] == 0)
            kept.next_use = i;
          if (!forward) again[index] = 1;
          // What the backward pass makes or overwrites is not kept.
          if (!forward && list == &op.writes) stays[index] = 1;
        }
    }
    int64_t largest = 0;
    std::vector<Kept> all;
    for (const auto& [id, kept] : found) {
      const Buffer& b = program_.at(id);
      const auto index = static_cast<size_t>(id);
      if (again[index] == 0 || stays[index] != 0 || b.lifetime != Lifetime::micro ||
          b.memory != MemoryClass::activations)
        continue;
      largest = std::max(largest, b.bytes());
      all.push_back(kept);
    }
    std::erase_if(all, [&](const Kept& kept) {
      const size_t visits = visit_of_[kept.next_use] - visit_of_[kept.last_use];
      return program_.at(kept.buffer).bytes() * kLeastShare < largest ||
             (!in_turns_ && visits < kLeastVisits);
    });
    std::ranges::sort(all, {}, &Kept::last_use);
    return all;
  }

  void move(const Kept& kept) {
    Buffer there = program_.at(kept.buffer);
    there.name = "kept:" + there.name;
    there.copy_of = kept.buffer;
    there.space = to_;
    Buffer back = program_.at(kept.buffer);
    back.name = "back:" + back.name;
    back.copy_of = kept.buffer;
    const BufferId away = program_.add_buffer(std::move(there));
    const BufferId again = program_.add_buffer(std::move(back));

    // Leaves when its layer has been computed; on to a disk when the next one has.
    size_t at = visits_[visit_of_[kept.last_use]].last;
    for (Instruction& hop : transfer(program_, kept.buffer, away, beside(at))) {
      after_[at].push_back(std::move(hop));
      const size_t next = visit_of_[at] + 1;
      if (next < visits_.size() && in_one_turn(at, visits_[next].last)) at = visits_[next].last;
    }
    // Comes back a visit before its next use, and from a disk two.
    std::vector<Instruction> hops = transfer(program_, away, again, beside(kept.next_use));
    std::vector<size_t> places(hops.size());
    at = visits_[visit_of_[kept.next_use]].first;
    for (size_t i = hops.size(); i-- > 0;) {
      const size_t visit = visit_of_[at];
      if (visit > 0 && in_one_turn(at, visits_[visit - 1].first)) at = visits_[visit - 1].first;
      places[i] = at;
    }
    for (size_t i = 0; i < hops.size(); ++i) before_[places[i]].push_back(std::move(hops[i]));
    back_.emplace(kept.buffer, again);
  }

  // Makes the backward pass read what has come back.
  void read_what_came_back() {
    std::unordered_map<BufferId, BufferId> moved;  // also views
    const auto back = [&](BufferId id) {
      const auto known = moved.find(id);
      if (known != moved.end()) return known->second;
      const BufferId root = program_.root(id);
      BufferId there = id;
      if (const auto found = back_.find(root); found != back_.end())
        there = id == root ? found->second : view_in(id, root, found->second);
      return moved[id] = there;
    };
    for (Instruction& op : program_.instructions)
      if (op.phase != Phase::forward)
        for (BufferId& id : op.reads)
          if (id != kNone) id = back(id);
  }

  // Returns the view of `to` that `view` is of `root`.
  BufferId view_in(BufferId view, BufferId root, BufferId to) {
    Buffer moved = program_.at(view);
    for (BufferId parent = moved.parent; parent != root; parent = program_.at(parent).parent)
      moved.parent_offset += program_.at(parent).parent_offset;
    moved.parent = to;
    moved.name = "back:" + moved.name;
    moved.copy_of = view;
    return program_.add_buffer(std::move(moved));
  }

  // Returns what transfers have in common with the instruction beside which they are posted.
  Instruction beside(size_t i) const {
    const Instruction& op = program_.instructions[i];
    return {.when = op.when, .group = op.group, .phase = op.phase, .chunk = op.chunk};
  }

  Program& program_;
  const Space to_;
  const bool in_turns_;  // phases of different micro-batches follow one another
  std::vector<Visit> visits_;
  std::vector<size_t> visit_of_;                          // of every instruction
  std::unordered_map<BufferId, BufferId> back_;           // by the values that leave
  std::vector<std::vector<Instruction>> before_, after_;  // what is added at every instruction
};

}  // namespace

void offload_activations(Program& program, const Job& job) {
  if (job.offload.activations == OffloadTo::none) return;
  const Space to = job.offload.activations == OffloadTo::nvme ? Space::disk : Space::host;
  ActivationOffload(program, to, job.pipeline.stages > 1).run();
}

}  // namespace dstrain
