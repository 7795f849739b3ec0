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
    const int64_t begin = a.offset_of(issue.micro);
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

// The operations of a channel that have started.
struct Started {
  std::vector<Touched> operations{};
  size_t complete = 0;  // operations that are known to be complete

  // Returns how many must be complete before `mine` can run.
  size_t needed_by(const Touched& mine) const {
    for (size_t c = operations.size(); c > complete; --c)
      if (mine.conflicts(operations[c - 1])) return c;
    return complete;
  }
};

}  // namespace

void order_communication(Plan& plan, bool overlap) {
  const auto channels = static_cast<size_t>(plan.channels);
  plan.waits.assign(plan.order.size() * channels, 0);
  std::vector<Started> started(channels);
  for (size_t i = 0; i < plan.order.size(); ++i) {
    const Issue& issue = plan.order[i];
    const Instruction& op = plan.program.instructions[static_cast<size_t>(issue.instruction)];
    const OpRule& rule = rule_of(op.op);
    const bool collective = rule.done_by == DoneBy::collective, posted = is_posted(op.op);
    const Touched mine(plan, issue);
    for (size_t c = 0; c < channels; ++c) {
      Started& channel = started[c];
      // An operation follows the others of its own channel, but not those of the other channels.
      if (!posted || c != static_cast<size_t>(op.channel) || !keeps_order(op.op)) {
        // An exchange through the host needs peers that wait for none of this rank's messages.
        const auto channel_index = static_cast<int32_t>(c);
        const bool of_peers = channel_index < plan.comm_channels;
        const bool all = !collective && of_peers &&
                         (rule.queue == Queue::comm || (is_group(channel_index) && !overlap));
        channel.complete = all ? channel.operations.size() : channel.needed_by(mine);
      }
      plan.waits[i * channels + c] = static_cast<int32_t>(channel.complete);
    }
    if (posted) started[static_cast<size_t>(op.channel)].operations.push_back(mine);
  }
}

}  // namespace dstrain
