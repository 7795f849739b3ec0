#include "launcher/nodes/relay.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <optional>
#include <utility>

#include "launcher/cli/command_names.h"
#include "launcher/connection/handshake.h"
#include "launcher/connection/tcp_socket.h"
#include "launcher/nodes/node_address.h"
#include "launcher/nodes/relay_end.h"
#include "launcher/process/stop_signals.h"
#include "runtime/core/error.h"
#include "runtime/core/rank_board.h"

namespace dstrain {
namespace {

constexpr int64_t kConnectTimeout = 10'000'000'000;
constexpr int kConnectionLost = 255;  // as ssh says it
constexpr int kParentTickMs = 100;

// Returns a connection to a node that has proved to know the key.
std::unique_ptr<SocketChannel> connect_to(const NodeAddress& address) {
  TcpConnector connector(address.addresses, address.port);
  const int64_t end = monotonic_ns() + kConnectTimeout;
  std::optional<Handshake> handshake;
  while (monotonic_ns() < end) {
    if (!handshake)
      if (auto socket = connector.connected()) handshake.emplace(std::move(*socket), address.token);
    const Handshake::State state = handshake ? handshake->advance() : Handshake::State::going_on;
    if (state == Handshake::State::done) return handshake->take();
    if (state != Handshake::State::going_on) handshake.reset();
    ::poll(nullptr, 0, 10);
  }
  fail_run("{} does not answer at port {} of {}", address.host, address.port,
           fmt::join(address.addresses, ", "));
}

}  // namespace

int relay(const std::vector<std::string>& words) {
  ignore_stop_signals();  // one to all processes of a run must not cut the run's connections
  std::signal(SIGPIPE, SIG_IGN);
  const pid_t parent = ::getppid();
  const size_t at = !words.empty() && words.front() == "--" ? 1 : 0;
  if (words.size() < at + 2)
    fail_user("{} is a part of dstrain that it starts itself, for hosts without ssh",
              kRelayCommand);
  const NodeAddress address = node_address(words[at]);
  const std::unique_ptr<SocketChannel> connection = connect_to(address);
  const std::string command = fmt::format(
      "{}", fmt::join(words.begin() + static_cast<ptrdiff_t>(at) + 1, words.end(), " "));
  const std::string where = fmt::format("{} at port {} of {}", address.host, address.port,
                                        fmt::join(address.addresses, ", "));
  connection->channel.send({{"do", "relay"}});  // the greeting
  connection->channel.send({{"command", command}});
  while (connection->channel.unsent() > 0) {
    ::poll(nullptr, 0, 10);
    connection->channel.flush();
  }
  DirectionKeys keys = connection->channel.keys_for(kRelayCommand);
  RelayEnd end(RelayEnd::Role::asks, std::move(connection->socket), std::move(keys), STDIN_FILENO,
               Descriptor(::dup(STDOUT_FILENO)));
  // An mpirun that is killed leaves its relays behind, and with them the daemons that still start on the nodes.
  while (!end.received_all() && !end.lost() && !end.reader_gone() && ::getppid() == parent)
    end.step(kParentTickMs);
  if (!end.fault().empty())
    fail_run(
        "the connection to {} cannot be trusted: {}; somebody in the network may change what "
        "hosts tell each other",
        where, end.fault());
  if (!end.begun()) fail_run("{} did not run the command", address.host);
  return end.received_all() ? 0 : kConnectionLost;
}

}  // namespace dstrain
