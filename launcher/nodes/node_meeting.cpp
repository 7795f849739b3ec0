#include "launcher/nodes/node_meeting.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "launcher/cli/option_readers.h"
#include "launcher/connection/handshake.h"
#include "launcher/connection/tcp_socket.h"
#include "launcher/placement/hostfile.h"
#include "launcher/placement/machine.h"
#include "launcher/placement/ranges_text.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"
#include "runtime/core/rank_board.h"

namespace dstrain {
namespace {

using nlohmann::json;

// Nodes are started one after the other, by hand or by a scheduler.
constexpr int64_t kForAllNodes = 600'000'000'000;
constexpr int kMeetingTickMs = 20;

// Writes everything that is unsent, for a second at most.
void send_out(SocketChannel& connection) {
  for (int i = 0; i < 50 && connection.channel.unsent() > 0; ++i) {
    ::poll(nullptr, 0, kMeetingTickMs);
    connection.channel.flush();
  }
}

}  // namespace

NodeMeeting::NodeMeeting(const LaunchOptions& options, int slots)
    : nnodes_(*options.nnodes), nodes_(static_cast<size_t>(nnodes_)) {
  nodes_.front() = {nullptr, {host_name(), {}, 0, ""}, slots};
  const int port = meeting_port(options);
  const std::optional<TcpListener> listener = TcpListener::at(port);
  if (!listener)
    fail_user(
        "cannot listen for other hosts at port {}: {}; choose another with --master_port, on all "
        "hosts",
        port, std::strerror(errno));
  log::info("node 0 of {}: waits for the others at port {}", nnodes_, port);
  PendingConnections pending;
  for (const int64_t begin = monotonic_ns(); !missing().empty();
       ::poll(nullptr, 0, kMeetingTickMs)) {
    if (monotonic_ns() - begin > kForAllNodes)
      fail_user(
          "after {} s node{} {} of {} {} not come to port {}: start them with --node_rank and this "
          "host's "
          "--master_addr",
          kForAllNodes / 1'000'000'000, missing().size() == 1 ? "" : "s", ranges_text(missing()),
          nnodes_, missing().size() == 1 ? "has" : "have", port);
    pending.serve(*listener, monotonic_ns(), [this](auto& connection, const json& message) {
      admit(connection, message.get<NodeIntroduction>());
    });
  }
  placement_.hostfile = "--no_ssh";
  std::vector<NodeAddress> addresses;
  for (const Node& node : nodes_) {
    placement_.hosts.push_back({node.address.host, first_numbers(node.slots), placement_.ranks()});
    if (node.connection) addresses.push_back(node.address);
  }
  publish_nodes(addresses);
}

// Adds a node. Tells one that does not fit into the run why, and drops it.
void NodeMeeting::admit(std::unique_ptr<SocketChannel>& connection, const NodeIntroduction& other) {
  if (const std::string why = reason_against(other); !why.empty()) {
    log::warn("node {} ({}) was refused: {}", other.rank, printable(other.address.host), why);
    connection->channel.send({{"do", "refuse"}, {"why", why}});
    send_out(*connection);
    return;
  }
  log::info("node {}: {}", other.rank, other.address.host);
  nodes_[static_cast<size_t>(other.rank)] = {std::move(connection), other.address,
                                             static_cast<int>(other.slots)};
}

// Returns why a node does not fit into the run; empty if it does. Its host's name becomes a word of commands, as one
// from a hostfile does.
std::string NodeMeeting::reason_against(const NodeIntroduction& other) const {
  const std::string& host = other.address.host;
  const auto same_host = [&](const Node& known) {
    return known.slots > 0 && known.address.host == host;
  };
  int64_t ranks = other.slots;
  for (const Node& known : nodes_) ranks += known.slots;
  if (other.nnodes != nnodes_) return fmt::format("--nnodes is {} on node 0", nnodes_);
  if (other.rank < 1 || other.rank >= nnodes_)
    return fmt::format("--node_rank {} is not below --nnodes {}", other.rank, nnodes_);
  if (nodes_[static_cast<size_t>(other.rank)].connection)
    return fmt::format("another node with --node_rank {} has come", other.rank);
  if (const std::string error = host_name_error(host); !error.empty())
    return fmt::format("its host name '{}' {}", printable(host), error);
  if (std::ranges::any_of(nodes_, same_host))
    return fmt::format("another node calls itself {}, too: give each host a name of its own", host);
  if (other.slots < 1) return "it offers no rank";
  if (other.slots > kMostRanks || ranks > kMostRanks)
    return fmt::format("a run has at most {} ranks, and it offers {}", kMostRanks, other.slots);
  return "";
}

std::vector<int> NodeMeeting::missing() const {
  std::vector<int> ranks;
  for (int rank = 1; rank < static_cast<int>(nnodes_); ++rank)
    if (!nodes_[static_cast<size_t>(rank)].connection) ranks.push_back(rank);
  return ranks;
}

NodeMeeting::~NodeMeeting() {
  for (Node& node : nodes_) {
    if (!node.connection) continue;
    node.connection->channel.send({{"do", "end"}, {"status", status_}});
    send_out(*node.connection);
  }
}

}  // namespace dstrain
