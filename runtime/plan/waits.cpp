#include "runtime/plan/waits.h"

#include <algorithm>
#include <array>
#include <vector>

#include "runtime/ir/rule.h"

namespace dstrain {
namespace {

struct Span {
  Region region;
  int64_t begin, end;
  bool meets(const Span& other) const {
    return region == other.region && begin < other.end && other.begin < end;
  }
};

class Touched {
 public:
  Touched(const Plan& plan, const Issue& issue) {
    const auto index = static_cast<size_t>(issue.instruction);
    const Instruction& op = plan.program.instructions[index];
    for (const BufferId id : op.reads) add(plan, id, issue, reads_);
    for (const BufferId id : op.writes) add(plan, id, issue, writes_);
    if (plan.workspace_bytes[index] > 0) {
      const Address& a = plan.workspace[index];
      add({a.region, a.offset, a.offset + plan.workspace_bytes[index]}, writes_);
    }
  }
  // Returns whether one of the two writes what the other reads or writes.
  bool conflicts(const Touched& other) const {
    bool near = false;
    for (size_t r = 0; r < bounds_.size(); ++r)
      near = near ||
             (bounds_[r].begin < other.bounds_[r].end && other.bounds_[r].begin < bounds_[r].end);
    if (!near) return false;
    return meet(writes_, other.writes_) || meet(writes_, other.reads_) ||
           meet(reads_, other.writes_);
  }

 private:
  struct Bounds {
    int64_t begin = INT64_MAX, end = INT64_MIN;
  };

  void add(const Plan& plan, BufferId id, const Issue& issue, std::vector<Span>& list) {
    if (id == kNone) return;
    const Address& a = plan.address[static_cast<size_t>(id)];
    const int64_t begin = a.offset + issue.micro * a.micro_stride;
    add({a.region, begin, begin + plan.program.at(id).bytes()}, list);
  }
  void add(const Span& span, std::vector<Span>& list) {
    list.push_back(span);
    Bounds& bounds = bounds_[static_cast<size_t>(span.region)];
    bounds.begin = std::min(bounds.begin, span.begin);
    bounds.end = std::max(bounds.end, span.end);
  }
  static bool meet(const std::vector<Span>& a, const std::vector<Span>& b) {
    return std::any_of(a.begin(), a.end(), [&](const Span& s) {
      return std::any_of(b.begin(), b.end(), [&](const Span& t) { return s.meets(t); });
    });
  }
  std::vector<Span> reads_, writes_;
  std::array<Bounds, kRegions> bounds_;  // of all spans, by region: rules out most pairs
};

}  // namespace

void order_communication(Plan& plan, bool overlap) {
  plan.waits.assign(plan.order.size(), 0);
  std::vector<Touched> started;
  size_t complete = 0;  // collectives that are known to be complete
  for (size_t i = 0; i < plan.order.size(); ++i) {
    const Issue& issue = plan.order[i];
    const OpRule& rule =
        rule_of(plan.program.instructions[static_cast<size_t>(issue.instruction)].op);
    if (rule.done_by == DoneBy::collective) {
      started.emplace_back(plan, issue);
      plan.waits[i] = static_cast<int32_t>(complete);
      continue;
    }
    const bool all = !overlap || rule.queue == Queue::comm;
    const Touched mine(plan, issue);
    size_t needed = all ? started.size() : complete;
    for (size_t c = started.size(); c > needed; --c)
      if (mine.conflicts(started[c - 1])) {
        needed = c;
        break;
      }
    plan.waits[i] = static_cast<int32_t>(complete = needed);
  }
}

}  // namespace dstrain
