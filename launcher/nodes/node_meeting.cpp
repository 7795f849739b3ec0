#include "launcher/nodes/node_meeting.h"

#include <poll.h>

#include <algorithm>
#include <numeric>

#include "launcher/output/output_lines.h"
#include "launcher/placement/machine.h"
#include "launcher/supervise/watchers/watch_socket.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"

namespace dstrain {
namespace {

using nlohmann::json;

// Hosts are started one after the other, by hand or by a scheduler.
constexpr int64_t kForAllNodes = 600'000'000'000;
constexpr int kMeetingTickMs = 20;

// Sends all that waits, within a second.
void send_out(WatchLine& line) {
  for (int i = 0; i < 50 && line.channel.unsent() > 0; ++i) {
    ::poll(nullptr, 0, kMeetingTickMs);
    line.channel.flush();
  }
}

}  // namespace

NodeMeeting::NodeMeeting(const LaunchOptions& options, int slots)
    : nnodes_(*options.nnodes), nodes_(static_cast<size_t>(nnodes_)) {
  nodes_.front() = {nullptr, {host_name(), {}, 0, ""}, slots};
  const WatchListener listener = WatchListener::at(meeting_port(options));
  log::info("node 0 of {}: waits for the others at port {}", nnodes_, meeting_port(options));
  std::vector<std::unique_ptr<WatchLine>> guests;
  for (const int64_t begin = monotonic_ns(); !missing().empty();
       ::poll(nullptr, 0, kMeetingTickMs)) {
    if (monotonic_ns() - begin > kForAllNodes)
      fail_user(
          "after {} s node{} {} of {} {} not come to port {}: start them with --node_rank and this "
          "host's "
          "--master_addr",
          kForAllNodes / 1'000'000'000, missing().size() == 1 ? "" : "s", rank_ranges(missing()),
          nnodes_, missing().size() == 1 ? "has" : "have", meeting_port(options));
    while (auto socket = listener.accept())
      guests.push_back(std::make_unique<WatchLine>(std::move(*socket)));
    std::erase_if(guests, [this](std::unique_ptr<WatchLine>& guest) {
      const bool open = guest->channel.receive();
      const auto message = guest->channel.take();
      if (!message) return !open || !guest->channel.fault().empty();
      take(std::move(guest), *message);
      return true;
    });
  }
  placement_.hostfile = "--no_ssh";
  std::vector<NodeDoor> doors;
  for (const Node& node : nodes_) {
    HostRanks host{node.door.host, std::vector<int>(static_cast<size_t>(node.slots)),
                   placement_.ranks()};
    std::iota(host.slots.begin(), host.slots.end(), 0);
    placement_.hosts.push_back(std::move(host));
    if (node.line) doors.push_back(node.door);
  }
  publish_doors(doors);
}

// One that is no node of this run, or does not fit into it, is told so and left.
void NodeMeeting::take(std::unique_ptr<WatchLine> line, const json& introduction) {
  std::string why;
  try {
    Node node{nullptr, introduction.get<NodeDoor>(), introduction.at("slots").get<int>()};
    const auto rank = introduction.at("node").get<int64_t>();
    const auto same_host = [&](const Node& other) {
      return other.slots > 0 && other.door.host == node.door.host;
    };
    if (introduction.at("nnodes").get<int64_t>() != nnodes_)
      why = fmt::format("--nnodes is {} on node 0", nnodes_);
    else if (rank < 1 || rank >= nnodes_)
      why = fmt::format("--node_rank {} is not below --nnodes {}", rank, nnodes_);
    else if (nodes_[static_cast<size_t>(rank)].line)
      why = fmt::format("another node with --node_rank {} has come", rank);
    else if (std::ranges::any_of(nodes_, same_host))
      why = fmt::format("another node calls itself {}, too: give each host a name of its own",
                        node.door.host);
    else if (node.slots < 1)
      why = "it offers no rank";
    if (why.empty()) {
      log::info("node {}: {}", rank, node.door.host);
      node.line = std::move(line);
      nodes_[static_cast<size_t>(rank)] = std::move(node);
      return;
    }
  } catch (const json::exception&) {
    return;  // another program
  }
  line->channel.send({{"do", "refuse"}, {"why", why}});
  send_out(*line);
}

std::vector<int> NodeMeeting::missing() const {
  std::vector<int> ranks;
  for (int rank = 1; rank < static_cast<int>(nnodes_); ++rank)
    if (!nodes_[static_cast<size_t>(rank)].line) ranks.push_back(rank);
  return ranks;
}

NodeMeeting::~NodeMeeting() {
  for (Node& node : nodes_) {
    if (!node.line) continue;
    node.line->channel.send({{"do", "end"}, {"status", status_}});
    send_out(*node.line);
  }
}

}  // namespace dstrain
