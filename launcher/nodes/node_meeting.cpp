#include "launcher/nodes/node_meeting.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>

#include "launcher/cli/option_readers.h"
#include "launcher/connection/handshake.h"
#include "launcher/connection/message.h"
#include "launcher/connection/network.h"
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
constexpr int64_t kBetweenRemarks = 60'000'000'000;
constexpr int kMeetingTickMs = 20;

// Writes everything that is unsent, for a second at most.
void send_out(SocketChannel& connection) {
  for (int i = 0; i < 50 && connection.channel.unsent() > 0; ++i) {
    ::poll(nullptr, 0, kMeetingTickMs);
    connection.channel.flush();
  }
}

std::string nodes_text(const std::vector<int>& ranks) {
  return fmt::format("node{} {}", ranks.size() == 1 ? "" : "s", ranges_text(ranks));
}

}  // namespace

NodeMeeting::NodeMeeting(const LaunchOptions& options, int slots, const std::string& secret)
    : nnodes_(*options.nnodes),
      nodes_(static_cast<size_t>(nnodes_)),
      before_signal_ends_([this](int number) { tell_end(128 + number); }) {
  nodes_.front().address = {host_name(), {}, 0, ""};
  nodes_.front().slots = slots;
  try {
    meet(options, secret);
  } catch (...) {
    tell_end(1);
    throw;
  }
  placement_.hostfile = "--no_ssh";
  std::vector<NodeAddress> addresses;
  for (const Node& node : nodes_) {
    placement_.hosts.push_back({node.address.host, first_numbers(node.slots), placement_.ranks()});
    if (!node.connection) continue;
    addresses.push_back(node.address);
    addresses.back().token = relay_key(secret, node.address.token);
  }
  published_ = publish_nodes(addresses);
  watch_ = std::thread([this] { watch(); });
}

void NodeMeeting::meet(const LaunchOptions& options, const std::string& secret) {
  const int port = meeting_port(options);
  const std::string address = address_of("--master_addr", options.master_addr);
  const std::optional<TcpListener> listener = TcpListener::at(port, address);
  if (!listener && errno == EADDRNOTAVAIL)
    fail_user("--master_addr {} is no address of this host, and this is node 0 ({})",
              options.master_addr, address);
  if (!listener)
    fail_user(
        "cannot listen for other hosts at port {}: {}; choose another with --master_port, on all "
        "hosts",
        port, std::strerror(errno));
  log::info("node 0 of {}: waits at port {} for {}", nnodes_, port, nodes_text(missing()));
  PendingConnections pending(secret);
  const int64_t begin = monotonic_ns();
  for (int64_t remarked = begin; true; ::poll(nullptr, 0, kMeetingTickMs)) {
    Stop stop;
    {
      const std::lock_guard lock(mutex_);
      stop = serve({{"do", "wait"}, {"for", missing()}});
      forget_gone_nodes();
      pending.serve(*listener, monotonic_ns(), [this](auto& connection, const json& message) {
        admit(connection, message.get<NodeIntroduction>());
      });
    }
    if (stop.count > 0) take_stop_signal(stop.signal, stop.count);
    if (missing().empty()) return;
    const int64_t now = monotonic_ns();
    if (now - begin > kForAllNodes)
      fail_user(
          "after {} s {} of {} {} not come to port {}: start {} with --node_rank and this "
          "host's --master_addr",
          kForAllNodes / 1'000'000'000, nodes_text(missing()), nnodes_,
          missing().size() == 1 ? "has" : "have", port, missing().size() == 1 ? "it" : "them");
    if (now - remarked < kBetweenRemarks) continue;
    remarked = now;
    log::info("node 0 of {}: still waits at port {} for {}", nnodes_, port, nodes_text(missing()));
  }
}

NodeMeeting::Stop NodeMeeting::serve(const json& message) {
  Stop stop;
  const int64_t now = monotonic_ns();
  const bool sends = now - sent_ns_ >= kHeartbeat;
  if (sends) sent_ns_ = now;
  for (Node& node : nodes_) {
    if (!node.connection) continue;
    LineChannel& channel = node.connection->channel;
    node.silence.update(now);
    node.open = channel.receive([&](const json& m) {
      node.silence.heard();
      const auto what = m.at("say").get<std::string>();
      if (what == "trace") take_trace_signal();
      if (what == "stop")
        stop = {static_cast<int>(integer_member(m, "signal", 1, NSIG)),
                static_cast<int>(integer_member(m, "count", 1, INT32_MAX))};
    });
    if (sends) channel.send(message);
    channel.flush();
  }
  return stop;
}

// A node whose process ended, or whose machine does not answer, may come again.
void NodeMeeting::forget_gone_nodes() {
  for (size_t rank = 1; rank < nodes_.size(); ++rank) {
    Node& node = nodes_[rank];
    if (!node.connection) continue;
    const bool lost = node.silence.ns() > kLongestSilence &&
                      !peer_answers(node.connection->socket.get()).value_or(false);
    if (node.open && !lost) continue;
    log::warn("node {} ({}) has gone: waits for it to come again", rank, node.address.host);
    node = Node();
  }
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
  nodes_[static_cast<size_t>(other.rank)] = {.connection = std::move(connection),
                                             .address = other.address,
                                             .slots = static_cast<int>(other.slots),
                                             .silence = Silence(monotonic_ns())};
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

void NodeMeeting::set_silence(int64_t seconds) {
  const std::lock_guard lock(mutex_);
  silence_s_ = seconds;
  sent_ns_ = 0;  // the next message is due
}

// A node ends when its connection does. It must not stay in the run when nothing it says is understood any more.
void NodeMeeting::drop_faulty_nodes() {
  for (size_t rank = 1; rank < nodes_.size(); ++rank) {
    Node& node = nodes_[rank];
    if (!node.connection || node.connection->channel.fault().empty()) continue;
    log::warn("node {} ({}) cannot be understood: {}; the connection to it is closed", rank,
              node.address.host, node.connection->channel.fault());
    node.connection.reset();
  }
}

// What a lost node means for the run is found out through its agent.
void NodeMeeting::watch() {
  while (!over_) {
    ::poll(nullptr, 0, kMeetingTickMs);
    Stop stop;
    {
      const std::lock_guard lock(mutex_);
      stop = serve({{"do", "alive"}, {"silence_s", silence_s_}});
      drop_faulty_nodes();
    }
    if (stop.count > 0) take_stop_signal(stop.signal, stop.count);
  }
}

void NodeMeeting::tell_end(int status) {
  const std::lock_guard lock(mutex_);
  for (Node& node : nodes_) {
    if (!node.connection) continue;
    node.connection->channel.send({{"do", "end"}, {"status", status}});
    send_out(*node.connection);
  }
}

NodeMeeting::~NodeMeeting() {
  over_ = true;
  if (watch_.joinable()) watch_.join();
  tell_end(status_);
}

}  // namespace dstrain
