#include "launcher/nodes/relay.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "launcher/cli/command_names.h"
#include "launcher/connection/tcp_socket.h"
#include "launcher/nodes/node_address.h"
#include "launcher/process/stop_signals.h"
#include "runtime/core/error.h"
#include "runtime/core/rank_board.h"

namespace dstrain {
namespace {

constexpr int64_t kConnectTimeout = 10'000'000'000;

Descriptor connect_to(const NodeAddress& address) {
  TcpConnector connector(address.addresses, address.port);
  const int64_t end = monotonic_ns() + kConnectTimeout;
  while (monotonic_ns() < end) {
    if (auto socket = connector.connected()) {
      ::fcntl(socket->get(), F_SETFL, ::fcntl(socket->get(), F_GETFL) & ~O_NONBLOCK);
      return std::move(*socket);
    }
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
  const Descriptor node = connect_to(address);
  const std::string command = fmt::format(
      "{}", fmt::join(words.begin() + static_cast<ptrdiff_t>(at) + 1, words.end(), " "));
  write_bytes(node.get(), nlohmann::json{{"token", address.token}}.dump() + '\n' +
                              nlohmann::json{{"command", command}}.dump() + '\n');
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
