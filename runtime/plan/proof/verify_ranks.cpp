#include "runtime/plan/proof/verify_ranks.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/core/philox.h"
#include "runtime/ir/rule.h"

namespace dstrain {
namespace {

const Instruction& op_at(const Plan& plan, size_t i) {
  return plan.instruction_of(plan.order[i]);
}

// Returns what both sides of a message, or all ranks of a collective, know of it. What they know by the same name is the
// root of a buffer: views are of different slices.
std::string exchange_text(const Plan& plan, size_t i) {
  const Instruction& op = op_at(plan, i);
  const Program& p = plan.program;
  if (is_message(op.op)) {
    const Buffer& b = p.at(message_of(op));
    return fmt::format("{} of micro-batch {}, {} bytes", b.name, plan.order[i].micro, b.bytes());
  }
  return fmt::format("{} of {} to {} of micro-batch {}, {} to {} bytes", name_of(op.op),
                     p.at(p.root(op.reads[0])).name, p.at(p.root(op.writes[0])).name,
                     plan.order[i].micro, p.at(op.reads[0]).bytes(), p.at(op.writes[0]).bytes());
}

// Returns whether exchange_text() is the same, without making it.
bool same_exchange(const Plan& a, size_t issue_of_a, const Plan& b, size_t issue_of_b) {
  const Instruction &one = op_at(a, issue_of_a), &two = op_at(b, issue_of_b);
  const auto same = [&](BufferId mine, BufferId theirs, bool whole) {
    const Buffer& x = a.program.at(whole ? a.program.root(mine) : mine);
    const Buffer& y = b.program.at(whole ? b.program.root(theirs) : theirs);
    return x.name == y.name && a.program.at(mine).bytes() == b.program.at(theirs).bytes();
  };
  if (is_message(one.op) != is_message(two.op) ||
      a.order[issue_of_a].micro != b.order[issue_of_b].micro)
    return false;
  if (is_message(one.op)) return same(message_of(one), message_of(two), false);
  return one.op == two.op && same(one.reads[0], two.reads[0], true) &&
         same(one.writes[0], two.writes[0], true);
}

// Returns the first rank of the group of a place along some axes, by its number in the world.
int first_of_group(const Place& place, Axes group) {
  return world_rank(place.moved(group, 0));
}

// The replay of a step.
class Together {
 public:
  explicit Together(std::span<const Plan* const> plans) {
    for (const Plan* plan : plans) {
      const size_t channels = plan->comm_channels.size();
      index_of_[world_rank(plan->place)] = ranks_.size();
      ranks_.push_back({.plan = plan,
                        .posted = std::vector<std::vector<size_t>>(channels),
                        .groups = std::vector<Group*>(channels),
                        .complete = std::vector<size_t>(channels)});
    }
    for (size_t r = 0; r < ranks_.size(); ++r)
      for (size_t c = 0; c < plan_of(r).comm_channels.size(); ++c) {
        const Channel& channel = plan_of(r).comm_channels[c];
        if (!channel.is_group()) continue;
        Group& group = groups_[{c, first_of_group(plan_of(r).place, channel.group)}];
        group.members.push_back(r);
        ranks_[r].groups[c] = &group;
      }
  }

  void run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (size_t r = 0; r < ranks_.size(); ++r)
        while (advance(r)) moved = true;
    }
    for (size_t r = 0; r < ranks_.size(); ++r) check_end(r);
  }

 private:
  struct Group {
    std::vector<size_t> members{};
    std::vector<std::pair<size_t, size_t>> collectives{};  // the first rank to start it, its issue
  };
  struct Rank {
    const Plan* plan = nullptr;
    size_t next = 0;  // issue
    // By channel:
    std::vector<std::vector<size_t>> posted{};  // issues
    std::vector<Group*> groups{};               // null for links
    std::vector<size_t> complete{};             // operations that are known to be
  };

  const Plan& plan_of(size_t rank) const { return *ranks_[rank].plan; }
  std::vector<size_t>& posted(size_t rank, int32_t channel) {
    return ranks_[rank].posted[static_cast<size_t>(channel)];
  }
  std::string text_of(size_t rank) const {
    const Place& place = plan_of(rank).place;
    return place.ranks() == 1 ? fmt::format("stage {}", place.stage())
                              : fmt::format("rank {} of stage {}", place.rank(), place.stage());
  }

  // Returns the rank at the other end of a link, and the link's channel there.
  std::pair<size_t, int32_t> other(size_t rank, int32_t channel) const {
    const Place& place = plan_of(rank).place;
    const Link link = *plan_of(rank).comm_channels[static_cast<size_t>(channel)].link;
    const LinkEnd end = other_end({place.stage(), link}, place.stages());
    const auto found = index_of_.find(world_rank(place.moved(Axis::pipe, end.stage)));
    check(found != index_of_.end(), "{} has a peer without a plan", text_of(rank));
    return {found->second, channel_of(place, end.link)};
  }

  // Returns how many operations of a channel are over: those that all sides have reached.
  size_t complete(size_t rank, int32_t channel) {
    size_t count = posted(rank, channel).size();
    if (count == 0) return 0;
    if (const Group* group = ranks_[rank].groups[static_cast<size_t>(channel)]) {
      for (const size_t member : group->members)
        count = std::min(count, posted(member, channel).size());
      return count;
    }
    const auto [peer, there] = other(rank, channel);
    return std::min(count, posted(peer, there).size());
  }

  // Runs the next instruction of a rank; returns whether it could.
  bool advance(size_t r) {
    const Plan& plan = plan_of(r);
    Rank& rank = ranks_[r];
    if (rank.next == plan.order.size()) return false;
    const size_t i = rank.next;
    // What has no part in other ranks, copies and transfers of drives, is complete sooner or later.
    for (int32_t c = 0; c < plan.first_other_channel(); ++c) {
      const auto needed = static_cast<size_t>(
          plan.waits[i * static_cast<size_t>(plan.channels) + static_cast<size_t>(c)]);
      size_t& known = rank.complete[static_cast<size_t>(c)];
      if (needed <= known) continue;
      known = complete(r, c);
      if (needed > known) return false;
    }
    ++rank.next;
    const Instruction& op = op_at(plan, i);
    if (is_message(op.op))
      post_message(r, i, op.channel);
    else if (is_collective(op.op))
      start_collective(r, i, op.channel);
    return true;
  }

  void post_message(size_t r, size_t issue, int32_t channel) {
    const auto [peer, there] = other(r, channel);
    std::vector<size_t>& mine = posted(r, channel);
    mine.push_back(issue);
    const std::vector<size_t>& theirs = posted(peer, there);
    if (theirs.size() >= mine.size()) compare(r, issue, peer, theirs[mine.size() - 1]);
  }

  void start_collective(size_t r, size_t issue, int32_t channel) {
    std::vector<size_t>& mine = posted(r, channel);
    Group& group = *ranks_[r].groups[static_cast<size_t>(channel)];
    if (mine.size() == group.collectives.size())
      group.collectives.emplace_back(r, issue);
    else
      compare(r, issue, group.collectives[mine.size()].first,
              group.collectives[mine.size()].second);
    mine.push_back(issue);
  }

  void compare(size_t a, size_t issue_of_a, size_t b, size_t issue_of_b) const {
    if (same_exchange(plan_of(a), issue_of_a, plan_of(b), issue_of_b)) return;
    const std::string here = exchange_text(plan_of(a), issue_of_a);
    const std::string there = exchange_text(plan_of(b), issue_of_b);
    throw InternalError(
        fmt::format("{} exchanges {} where {} exchanges {}", text_of(a), here, text_of(b), there));
  }

  void check_end(size_t r) {
    const Plan& plan = plan_of(r);
    const size_t at = ranks_[r].next;
    if (at < plan.order.size()) {
      const Instruction& op = op_at(plan, at);
      throw InternalError(fmt::format("{} waits for ever at {} of {}, micro-batch {}", text_of(r),
                                      name_of(op.op), plan.program.group_name(op),
                                      plan.order[at].micro));
    }
    for (int32_t c = 0; c < plan.first_other_channel(); ++c)
      if (const size_t over = complete(r, c); over < posted(r, c).size())
        throw InternalError(fmt::format("{}: not all others take part in {}", text_of(r),
                                        exchange_text(plan, posted(r, c)[over])));
  }

  std::vector<Rank> ranks_;
  std::map<int, size_t> index_of_;                  // of ranks, by number in the world
  std::map<std::pair<size_t, int>, Group> groups_;  // by channel and first rank
};

}  // namespace

void verify_ranks(std::span<const Plan* const> plans) {
  Together(plans).run();
}

void verify_ranks(std::span<const RankPlan* const> ranks) {
  const auto verify_each = [&](const auto& plan_of) {
    std::vector<const Plan*> plans;
    for (const RankPlan* rank : ranks) plans.push_back(plan_of(*rank));
    verify_ranks(plans);
  };
  for (size_t kind = 0; kind <= ranks.front()->other.size(); ++kind)
    verify_each([kind](const RankPlan& rank) { return rank.training().at(kind); });
  verify_each([](const RankPlan& rank) { return &rank.validate; });
}

std::vector<double> channel_checksums(const Plan& plan) {
  constexpr uint64_t exact = (uint64_t{1} << 53) - 1;  // integers that a double holds
  std::vector<std::string> texts(plan.comm_channels.size());
  for (size_t i = 0; i < plan.order.size(); ++i)
    if (const Instruction& op = op_at(plan, i); is_collective(op.op))
      texts[static_cast<size_t>(op.channel)] += exchange_text(plan, i) + "\n";
  std::vector<double> checksums;
  for (const std::string& text : texts)
    checksums.push_back(static_cast<double>(hash_name(text) & exact));
  return checksums;
}

void compare_collectives(const RankPlan& a, const RankPlan& b) {
  const auto compare = [](const Plan& one, const Plan& two) {
    const std::vector<double> mine = channel_checksums(one), theirs = channel_checksums(two);
    for (size_t c = 0; c < one.comm_channels.size(); ++c) {
      if (!one.comm_channels[c].is_group()) continue;
      const Axes group = one.comm_channels[c].group;
      check(first_of_group(one.place, group) != first_of_group(two.place, group) ||
                mine[c] == theirs[c],
            "ranks {} and {} have planned different collectives", world_rank(one.place),
            world_rank(two.place));
    }
  };
  for (size_t kind = 0; kind <= a.other.size(); ++kind)
    compare(*a.training().at(kind), *b.training().at(kind));
  compare(a.validate, b.validate);
}

void compare_checksums(std::span<const double> all, const Place& place, PipelineSchedule schedule) {
  const std::vector<Channel> channels = channels_of(place, schedule);
  const auto of = [&](int rank, size_t channel) {
    return all[static_cast<size_t>(rank) * channels.size() + channel];
  };
  for (int rank = 0; rank < place.ranks_in(kAllAxes); ++rank) {
    const Place here = place.moved(kAllAxes, rank);
    for (size_t c = 0; c < channels.size(); ++c) {
      if (!channels[c].is_group()) continue;
      const int first = first_of_group(here, channels[c].group);
      check(of(first, c) == of(rank, c), "ranks {} and {} have planned different collectives",
            first, rank);
    }
  }
  if (place.stages() == 1) return;
  for (const LinkEnd& sender : sending_ends(place.stages(), schedule)) {
    const LinkEnd receiver = other_end(sender, place.stages());
    const auto from = static_cast<size_t>(channel_of(place, sender.link)),
               to = static_cast<size_t>(channel_of(place, receiver.link));
    for (int r = 0; r < place.ranks(); ++r) {
      const int sends = world_rank(place, sender.stage, r),
                receives = world_rank(place, receiver.stage, r);
      check(of(sends, from) == of(receives, to), "ranks {} and {} have planned different messages",
            sends, receives);
    }
  }
}

}  // namespace dstrain
