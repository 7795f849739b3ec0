#include "launcher/nodes/relay.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "launcher/nodes/node_link.h"
#include "launcher/supervise/watchers/watch_socket.h"
#include "runtime/core/error.h"
#include "runtime/core/rank_board.h"

namespace dstrain {
namespace {

constexpr int64_t kToReach = 10'000'000'000;

Descriptor reach_door(const NodeDoor& door) {
  WatchDialer dialer(door.addresses, door.port);
  const int64_t end = monotonic_ns() + kToReach;
  while (monotonic_ns() < end) {
    if (auto socket = dialer.connected()) {
      ::fcntl(socket->get(), F_SETFL, ::fcntl(socket->get(), F_GETFL) & ~O_NONBLOCK);
      return std::move(*socket);
    }
    ::poll(nullptr, 0, 10);
  }
  fail_run("{} does not answer at port {} of {}", door.host, door.port,
           fmt::join(door.addresses, ", "));
}

void pass_all(int to, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(to, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_run("the relay's connection broke");
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

// Copies what there is to read; false at its end.
bool pass_on(int from, int to) {
  std::array<char, 65536> buffer;
  const ssize_t n = ::read(from, buffer.data(), buffer.size());
  if (n < 0) return errno == EINTR;
  pass_all(to, {buffer.data(), static_cast<size_t>(n)});
  return n > 0;
}

}  // namespace

int relay(const std::vector<std::string>& words) {
  std::signal(SIGPIPE, SIG_IGN);
  const size_t at = !words.empty() && words.front() == "--" ? 1 : 0;
  if (words.size() < at + 2)
    fail_user("{} is a part of dstrain that it starts itself, for hosts without ssh",
              kRelayCommand);
  const NodeDoor door = door_of(words[at]);
  const Descriptor node = reach_door(door);
  const std::string command = fmt::format(
      "{}", fmt::join(words.begin() + static_cast<ptrdiff_t>(at) + 1, words.end(), " "));
  pass_all(node.get(), nlohmann::json{{"token", door.token}, {"command", command}}.dump() + '\n');
  char answer = 0;  // before it nothing of standard input may follow
  if (::read(node.get(), &answer, 1) != 1) fail_run("{} did not run the command", door.host);
  std::array<pollfd, 2> doors{{{node.get(), POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}}};
  while (true) {
    ::poll(doors.data(), doors.size(), -1);
    if (doors[0].revents != 0 && !pass_on(node.get(), STDOUT_FILENO)) return 0;
    if (doors[1].revents != 0 && !pass_on(STDIN_FILENO, node.get())) {
      ::shutdown(node.get(), SHUT_WR);
      doors[1].fd = -1;
    }
  }
}

}  // namespace dstrain
