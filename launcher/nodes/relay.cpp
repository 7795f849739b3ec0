#include "launcher/nodes/relay.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <memory>
#include <optional>

#include "launcher/cli/command_names.h"
#include "launcher/connection/handshake.h"
#include "launcher/connection/tcp_socket.h"
#include "launcher/nodes/node_address.h"
#include "launcher/process/stop_signals.h"
#include "runtime/core/error.h"
#include "runtime/core/rank_board.h"

namespace dstrain {
namespace {

constexpr int64_t kConnectTimeout = 10'000'000'000;

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

void write_bytes(int to, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(to, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_run("the relay's connection broke");
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

// Copies what can be read now. Returns false at the end of the input.
bool copy(int from, int to) {
  std::array<char, 65536> buffer;
  const ssize_t n = ::read(from, buffer.data(), buffer.size());
  if (n < 0) return errno == EINTR;
  write_bytes(to, {buffer.data(), static_cast<size_t>(n)});
  return n > 0;
}

}  // namespace

int relay(const std::vector<std::string>& words) {
  ignore_stop_signals();  // one to all processes of a run must not cut the run's connections
  std::signal(SIGPIPE, SIG_IGN);
  const size_t at = !words.empty() && words.front() == "--" ? 1 : 0;
  if (words.size() < at + 2)
    fail_user("{} is a part of dstrain that it starts itself, for hosts without ssh",
              kRelayCommand);
  const NodeAddress address = node_address(words[at]);
  const std::unique_ptr<SocketChannel> connection = connect_to(address);
  const Descriptor& node = connection->socket;
  const std::string command = fmt::format(
      "{}", fmt::join(words.begin() + static_cast<ptrdiff_t>(at) + 1, words.end(), " "));
  ::fcntl(node.get(), F_SETFL, ::fcntl(node.get(), F_GETFL) & ~O_NONBLOCK);
  connection->channel.send({{"do", "relay"}});  // the greeting
  connection->channel.send({{"command", command}});
  char answer = 0;  // must come before standard input is forwarded
  if (::read(node.get(), &answer, 1) != 1) fail_run("{} did not run the command", address.host);
  std::array<pollfd, 2> inputs{{{node.get(), POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}}};
  while (true) {
    ::poll(inputs.data(), inputs.size(), -1);
    if (inputs[0].revents != 0 && !copy(node.get(), STDOUT_FILENO)) return 0;
    if (inputs[1].revents != 0 && !copy(STDIN_FILENO, node.get())) {
      ::shutdown(node.get(), SHUT_WR);
      inputs[1].fd = -1;
    }
  }
}

}  // namespace dstrain
