#include "runtime/plan/waits.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "runtime/ir/rule.h"
#include "runtime/plan/proof/byte_owners.h"

namespace dstrain {
namespace {

struct Span {
  Region region;
  int64_t begin, end;
};

// What an issue reads and writes.
class Touched {
 public:
  Touched(const Plan& plan, const Issue& issue) {
    const auto index = static_cast<size_t>(issue.instruction);
    const Instruction& op = plan.program.instructions[index];
    for (const BufferId id : op.reads) add(plan, id, issue, reads_);
    for (const BufferId id : op.writes) add(plan, id, issue, writes_);
    if (plan.workspace_bytes[index] > 0) {
      const Address& a = plan.workspace[index];
      writes_.push_back({a.region, a.offset, a.offset + plan.workspace_bytes[index]});
    }
  }
  // Returns the number of the channel's last operation that writes what the issue reads or writes, or reads what it
  // writes; less than 1 if there is none.
  int64_t last_conflict(const PostedBytes& posted, size_t channel) const {
    int64_t last = kNobody;
    const auto look_at = [&](const Span& span, bool writers) {
      last = std::max(
          last, posted.users(channel, span.region, writers).largest_owner(span.begin, span.end));
    };
    for (const Span& span : reads_) look_at(span, true);
    for (const Span& span : writes_) {
      look_at(span, true);
      look_at(span, false);
    }
    return last;
  }
  // Makes the issue the channel's operation with this number.
  void post(PostedBytes& posted, size_t channel, int64_t number) const {
    for (const Span& span : reads_)
      posted.users(channel, span.region, false).claim(span.begin, span.end, number);
    for (const Span& span : writes_)
      posted.users(channel, span.region, true).claim(span.begin, span.end, number);
  }

 private:
  static void add(const Plan& plan, BufferId id, const Issue& issue, std::vector<Span>& list) {
    if (id == kNone) return;
    const Address& a = plan.address[static_cast<size_t>(id)];
    const int64_t begin = a.offset_of(issue.micro);
    list.push_back({a.region, begin, begin + plan.program.at(id).bytes()});
  }
  std::vector<Span> reads_, writes_;
};

}  // namespace

void order_communication(Plan& plan, bool overlap, bool overlap_tensor) {
  const auto channels = static_cast<size_t>(plan.channels);
  std::vector<char> beside(channels);  // of the groups whose collectives run beside computation
  for (size_t c = 0; c < plan.comm_channels.size(); ++c) beside[c] = overlap ? 1 : 0;
  if (overlap_tensor && plan.place.ranks_in(Axis::tensor) > 1)
    beside[static_cast<size_t>(channel_of(plan.place, Axis::tensor))] = 1;
  plan.waits.assign(plan.order.size() * channels, 0);
  // By channel, how many operations have started, and how many are known to be complete.
  std::vector<int32_t> started(channels), complete(channels);
  PostedBytes posted(channels);
  for (size_t i = 0; i < plan.order.size(); ++i) {
    const Issue& issue = plan.order[i];
    const Instruction& op = plan.instruction_of(issue);
    const OpRule& rule = rule_of(op.op);
    const bool collective = rule.done_by == DoneBy::collective;
    const bool is_on_channel = is_posted(op.op);
    std::optional<Touched> mine;
    if (is_on_channel || complete != started) mine.emplace(plan, issue);
    for (size_t c = 0; c < channels; ++c) {
      // An operation follows the others of its own channel, but not those of the other channels.
      const bool follows =
          is_on_channel && c == static_cast<size_t>(op.channel) && keeps_order(op.op);
      if (!follows && complete[c] < started[c]) {
        // An exchange through the host needs peers that wait for none of this rank's messages.
        const auto channel = static_cast<int32_t>(c);
        const bool of_peers = channel < plan.first_other_channel();
        const bool all =
            !collective && of_peers &&
            (rule.queue == Queue::comm || (plan.comm_channels[c].is_group() && !beside[c]));
        const auto needed = all ? started[c] : static_cast<int32_t>(mine->last_conflict(posted, c));
        complete[c] = std::max(complete[c], needed);
      }
      plan.waits[i * channels + c] = complete[c];
    }
    if (!is_on_channel) continue;
    const auto channel = static_cast<size_t>(op.channel);
    mine->post(posted, channel, ++started[channel]);
  }
}

}  // namespace dstrain
