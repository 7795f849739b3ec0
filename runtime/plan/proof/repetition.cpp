#include "runtime/plan/proof/repetition.h"

#include <algorithm>
#include <tuple>

#include "runtime/ir/rule.h"

namespace dstrain {
namespace {

bool in_slot(const Instruction& op) {
  return op.when == When::every_micro || op.when == When::last_micro;
}

struct Bytes {
  int64_t begin = 0, end = 0;
};

// Spans of a region: neighbours of one owner are one.
using Spans = std::vector<std::tuple<int64_t, int64_t, int64_t>>;  // begin, end, owner

// Leaves out the owners up to `above`.
Spans spans_of(const ByteOwners& owners, int64_t above = INT64_MIN) {
  Spans list;
  for (const auto& [begin, span] : owners.spans()) {
    if (span.owner == kNobody || span.owner <= above) continue;
    if (!list.empty() && std::get<1>(list.back()) == begin &&
        std::get<2>(list.back()) == span.owner)
      std::get<1>(list.back()) = span.end;
    else
      list.emplace_back(begin, span.end, span.owner);
  }
  return list;
}

}  // namespace

Repetition::Repetition(const Plan& plan) : plan_(plan) {
  find_slots();
  find_rings();
}

void Repetition::find_slots() {
  const auto in_a_slot = [&](const Issue& issue) { return in_slot(plan_.instruction_of(issue)); };
  const auto first = std::ranges::find_if(plan_.order, in_a_slot) - plan_.order.begin();
  auto end = static_cast<size_t>(first);
  for (size_t i = end; i < plan_.order.size(); ++i) {
    const Instruction& op = op_of(i);
    if (!in_slot(op)) continue;
    if (receives_message(op)) continue;  // for a later task: it belongs to the one that it precedes
    const TaskIssues task{end, op.phase, op.chunk, plan_.order[i].micro};
    end = i + 1;
    if (tasks_.empty() || !tasks_.back().is_like(task)) tasks_.push_back(task);
  }
  tasks_.push_back({end, {}, 0, -1});
}

void Repetition::find_rings() {
  const Program& p = plan_.program;
  std::vector<char> used(p.buffers.size());
  std::array<std::vector<Bytes>, kRegions> fixed;
  for (size_t i = 0; i < p.instructions.size(); ++i) {
    const Instruction& op = p.instructions[i];
    if (!in_slot(op)) continue;
    for_operands(op, [&](BufferId id) { used[static_cast<size_t>(p.root(id))] = 1; });
    for (const BufferId id : op.writes)
      sound_ = sound_ && (id == kNone || !p.at(p.root(id)).per_micro);
    const Address& work = plan_.workspace[i];
    fixed[static_cast<size_t>(work.region)].push_back(
        {work.offset, work.offset + plan_.workspace_bytes[i]});
  }
  for (size_t b = 0; b < used.size(); ++b) {
    if (used[b] == 0) continue;
    const Address& a = plan_.address[b];
    const Ring ring{a.offset, a.copies > 1 ? a.stride : p.buffers[b].bytes(), a.copies};
    if (ring.stride == 0) continue;  // it has the address of a buffer that has bytes
    const auto region = static_cast<size_t>(a.region);
    if (a.copies > 1 && p.buffers[b].lifetime == Lifetime::micro)
      rings_[region].push_back(ring);
    else
      fixed[region].push_back({ring.offset, ring.end()});
  }
  for (size_t r = 0; r < rings_.size(); ++r) {
    std::vector<Ring>& rings = rings_[r];
    std::ranges::sort(rings, {}, &Ring::offset);
    for (size_t i = 1; i < rings.size(); ++i)
      sound_ = sound_ && rings[i - 1].end() <= rings[i].offset;
    for (const Bytes& bytes : fixed[r]) {
      if (bytes.begin == bytes.end) continue;  // no workspace
      const auto after = std::ranges::lower_bound(rings, bytes.end, {}, &Ring::offset);
      sound_ = sound_ && (after == rings.begin() || std::prev(after)->end() <= bytes.begin);
    }
  }
}

std::optional<size_t> Repetition::task_at(size_t issue) const {
  const auto it = std::ranges::lower_bound(tasks_, issue, {}, &TaskIssues::begin);
  if (it == tasks_.end() || it->begin != issue || it + 1 == tasks_.end()) return std::nullopt;
  return static_cast<size_t>(it - tasks_.begin());
}

bool Repetition::comes_twice(size_t task, const Period& period) const {
  std::array<size_t, kPhases> phases{};
  for (size_t k = task; k < task + period.tasks; ++k) {
    const TaskIssues &one = tasks_[k], &two = tasks_[k + period.tasks];
    if (one.phase != two.phase || one.chunk != two.chunk ||
        one.micro + period.micros != two.micro || one.micro == 0)
      return false;
    ++phases[static_cast<size_t>(one.phase)];
  }
  // Where a period has more of one phase than of another, memory is not as before.
  return std::ranges::all_of(phases, [&](size_t n) { return n == 0 || n == phases[0]; }) &&
         phases[0] > 0 && phases[1] > 0;
}

std::optional<Period> Repetition::period_at(size_t task) const {
  if (!sound_) return std::nullopt;
  for (size_t length = 1; task + 2 * length < tasks_.size(); ++length) {
    const Period period{length, tasks_[task + length].micro - tasks_[task].micro};
    if (period.micros > 0 && comes_twice(task, period)) return period;
  }
  return std::nullopt;
}

bool Repetition::repeats(size_t task, size_t again, const Period& period,
                         const std::vector<int32_t>& started,
                         const std::vector<int32_t>& started_again) const {
  if (again + period.tasks >= tasks_.size()) return false;
  const size_t first = tasks_[task].begin, second = tasks_[again].begin;
  const size_t length = tasks_[task + period.tasks].begin - first;
  if (tasks_[again + period.tasks].begin - second != length) return false;
  const auto later = static_cast<int32_t>((again - task) / period.tasks) * period.micros;
  const size_t channels = started.size();
  for (size_t k = 0; k < length; ++k) {
    const Issue &one = plan_.order[first + k], &two = plan_.order[second + k];
    if (one.instruction != two.instruction || one.micro + later != two.micro) return false;
    for (size_t c = 0; c < channels; ++c)
      if (plan_.waits[(first + k) * channels + c] - started[c] !=
          plan_.waits[(second + k) * channels + c] - started_again[c])
        return false;
  }
  return true;
}

const Repetition::Ring* Repetition::ring_at(Region region, int64_t byte) const {
  const std::vector<Ring>& rings = rings_[static_cast<size_t>(region)];
  const auto after = std::ranges::upper_bound(rings, byte, {}, &Ring::offset);
  if (after == rings.begin() || byte >= std::prev(after)->end()) return nullptr;
  return &*std::prev(after);
}

int64_t Repetition::next_edge(Region region, int64_t byte) const {
  if (const Ring* ring = ring_at(region, byte))
    return byte + ring->stride - (byte - ring->offset) % ring->stride;
  const std::vector<Ring>& rings = rings_[static_cast<size_t>(region)];
  const auto after = std::ranges::upper_bound(rings, byte, {}, &Ring::offset);
  return after == rings.end() ? INT64_MAX : after->offset;
}

int64_t Repetition::moved(Region region, int64_t byte, int64_t micros) const {
  const Ring* const ring = ring_at(region, byte);
  if (!ring) return byte;
  const int64_t at = byte - ring->offset, copy = (at / ring->stride + micros) % ring->copies;
  return ring->offset + copy * ring->stride + at % ring->stride;
}

void Repetition::move(Region region, int64_t begin, int64_t end, int64_t micros, int64_t owner,
                      ByteOwners& owners) const {
  for (int64_t at = begin; at < end;) {
    const int64_t edge = std::min(end, next_edge(region, at));
    const int64_t to = moved(region, at, micros);
    owners.claim(to, to + edge - at, owner);
    at = edge;
  }
}

ReplayState Repetition::moved(const ReplayState& state, int64_t micros,
                              const std::vector<int32_t>& started) const {
  ReplayState result(started.size());
  result.started = started;
  for (int r = 0; r < kRegions; ++r) {
    const auto region = static_cast<Region>(r);
    for (const auto& [begin, end, owner] : spans_of(state.regions[static_cast<size_t>(r)])) {
      const BufferId buffer = buffer_of(plan_, owner);
      const bool of_micro = buffer != kNone && plan_.program.at(buffer).lifetime == Lifetime::micro;
      move(region, begin, end, micros, of_micro ? owner + micros : owner,
           result.regions[static_cast<size_t>(r)]);
    }
    for (size_t c = 0; c < started.size(); ++c)
      for (const bool write : {false, true})
        for (const auto& [begin, end, number] :
             spans_of(state.posted.users(c, region, write), state.complete[c]))
          move(region, begin, end, micros, number + started[c] - state.started[c],
               result.posted.users(c, region, write));
  }
  for (size_t c = 0; c < started.size(); ++c)
    result.complete[c] = state.complete[c] + started[c] - state.started[c];
  return result;
}

bool same_state(const ReplayState& a, const ReplayState& b) {
  // What is under way in a channel, with the newest operation numbered 0.
  const auto under_way = [](const ReplayState& state, size_t c, Region region, bool write) {
    Spans list = spans_of(state.posted.users(c, region, write), state.complete[c]);
    for (auto& span : list) std::get<2>(span) -= state.started[c];
    return list;
  };
  for (int r = 0; r < kRegions; ++r) {
    const auto region = static_cast<Region>(r);
    const auto index = static_cast<size_t>(r);
    if (spans_of(a.regions[index]) != spans_of(b.regions[index])) return false;
    for (size_t c = 0; c < a.started.size(); ++c)
      for (const bool write : {false, true})
        if (under_way(a, c, region, write) != under_way(b, c, region, write)) return false;
  }
  return true;
}

}  // namespace dstrain
