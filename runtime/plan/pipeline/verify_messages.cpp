#include "runtime/plan/pipeline/verify_messages.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/core/philox.h"
#include "runtime/ir/rule.h"

namespace dstrain {
namespace {

const Instruction& op_at(const Plan& plan, size_t i) {
  return plan.program.instructions[static_cast<size_t>(plan.order[i].instruction)];
}

bool is_message(const Instruction& op) {
  return op.op == OpKind::send || op.op == OpKind::recv;
}

// Returns what both sides of a message know of it.
std::string message_text(const Plan& plan, size_t i) {
  const Instruction& op = op_at(plan, i);
  const Buffer& b = plan.program.at(op.op == OpKind::send ? op.reads[0] : op.writes[0]);
  return fmt::format("{} of micro-batch {}, {} bytes", b.name, plan.order[i].micro, b.bytes());
}

class Pipeline {
 public:
  explicit Pipeline(std::span<const Plan* const> stages) : plans_(stages), stages_(stages.size()) {}

  void run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (size_t s = 0; s < stages_.size(); ++s)
        while (advance(s)) moved = true;
    }
    for (size_t s = 0; s < stages_.size(); ++s) {
      const Plan& plan = *plans_[s];
      const size_t at = stages_[s].next;
      if (at < plan.order.size())
        throw InternalError(fmt::format(
            "stage {} waits for ever at {} of {}, micro-batch {}", s, name_of(op_at(plan, at).op),
            plan.program.groups[static_cast<size_t>(op_at(plan, at).group)], plan.order[at].micro));
      for (int32_t c = from_previous; c < plan.comm_channels; ++c)
        if (complete(s, c) < posted(s, c).size())
          throw InternalError(fmt::format("stage {}: nobody takes {}", s,
                                          message_text(plan, posted(s, c)[complete(s, c)])));
    }
  }

 private:
  struct Stage {
    size_t next = 0;                                      // issue
    std::array<size_t, from_previous> collectives{};      // started, by group
    std::array<std::vector<size_t>, kChannels> posted{};  // issues of messages, by channel
  };

  std::vector<size_t>& posted(size_t stage, int32_t channel) {
    return stages_[stage].posted[static_cast<size_t>(channel)];
  }
  ChannelEnd other(size_t stage, int32_t channel) const {
    return other_end({static_cast<int>(stage), static_cast<Channel>(channel)},
                     static_cast<int>(stages_.size()));
  }
  // Returns how many operations of a channel are over: messages that both sides have reached.
  size_t complete(size_t stage, int32_t channel) {
    if (is_group(channel)) return stages_[stage].collectives[static_cast<size_t>(channel)];
    if (posted(stage, channel).empty()) return 0;
    const ChannelEnd end = other(stage, channel);
    return std::min(posted(stage, channel).size(),
                    posted(static_cast<size_t>(end.stage), end.channel).size());
  }

  // Runs the next instruction of a stage; returns whether it could.
  bool advance(size_t s) {
    const Plan& plan = *plans_[s];
    Stage& stage = stages_[s];
    if (stage.next == plan.order.size()) return false;
    const size_t i = stage.next;
    // What has no part in other ranks, copies and transfers of drives, is complete sooner or later.
    for (int32_t c = 0; c < plan.comm_channels; ++c)
      if (static_cast<size_t>(
              plan.waits[i * static_cast<size_t>(plan.channels) + static_cast<size_t>(c)]) >
          complete(s, c))
        return false;
    ++stage.next;
    const Instruction& op = op_at(plan, i);
    if (is_message(op))
      post(s, i, op.channel);
    else if (is_collective(op.op))
      ++stage.collectives[static_cast<size_t>(op.channel)];
    return true;
  }

  void post(size_t s, size_t issue, int32_t channel) {
    const ChannelEnd end = other(s, channel);
    std::vector<size_t>& mine = posted(s, channel);
    mine.push_back(issue);
    const std::vector<size_t>& theirs = posted(static_cast<size_t>(end.stage), end.channel);
    if (theirs.size() < mine.size()) return;
    const std::string here = message_text(*plans_[s], issue);
    const std::string there =
        message_text(*plans_[static_cast<size_t>(end.stage)], theirs[mine.size() - 1]);
    check(here == there, "stage {} exchanges {} where stage {} exchanges {}", s, here, end.stage,
          there);
  }

  std::span<const Plan* const> plans_;
  std::vector<Stage> stages_;
};

}  // namespace

void verify_messages(std::span<const Plan* const> stages) {
  Pipeline(stages).run();
}

uint64_t messages_checksum(const Plan& plan, Channel channel) {
  std::string text;
  for (size_t i = 0; i < plan.order.size(); ++i)
    if (is_message(op_at(plan, i)) && op_at(plan, i).channel == channel)
      text += message_text(plan, i) + "\n";
  return hash_name(text);
}

}  // namespace dstrain
