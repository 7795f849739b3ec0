#include "launcher/supervise/watchers/watch_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

Descriptor watch_socket() {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) fail_run("cannot make a socket: {}", std::strerror(errno));
  return socket;
}

sockaddr* as_generic(sockaddr_in& address) {
  return reinterpret_cast<sockaddr*>(&address);
}

bool listens_at(const Descriptor& socket, int port) {
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_ANY);
  any.sin_port = htons(static_cast<uint16_t>(port));
  return ::bind(socket.get(), as_generic(any), sizeof any) == 0 &&
         ::listen(socket.get(), SOMAXCONN) == 0;
}

}  // namespace

WatchListener::WatchListener() : socket_(watch_socket()) {
  if (!listens_at(socket_, 0))
    fail_run("cannot listen for the watchers of other hosts: {}", std::strerror(errno));
}

WatchListener WatchListener::at(int port) {
  Descriptor socket = watch_socket();
  // Connections of an earlier run, which wait for their end, are no other program.
  const int yes = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (!listens_at(socket, port))
    fail_user(
        "cannot listen for other hosts at port {}: {}; choose another with --master_port, on all "
        "hosts",
        port, std::strerror(errno));
  return WatchListener(std::move(socket));
}

int WatchListener::port() const {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  ::getsockname(socket_.get(), as_generic(address), &size);
  return ntohs(address.sin_port);
}

std::optional<Descriptor> WatchListener::accept() const {
  const int fd = ::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) return std::nullopt;
  return Descriptor(fd);
}

WatchDialer::WatchDialer(const std::vector<std::string>& addresses, int port) {
  for (const std::string& text : addresses) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    if (::inet_pton(AF_INET, text.c_str(), &address.sin_addr) != 1) continue;
    Descriptor socket = watch_socket();
    if (::connect(socket.get(), as_generic(address), sizeof address) == 0 || errno == EINPROGRESS)
      attempts_.push_back(std::move(socket));
  }
}

std::optional<Descriptor> WatchDialer::connected() {
  for (Descriptor& socket : attempts_) {
    pollfd door{socket.get(), POLLOUT, 0};
    int error = 0;
    socklen_t size = sizeof error;
    if (::poll(&door, 1, 0) <= 0 || (door.revents & POLLOUT) == 0) continue;
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error == 0 && (door.revents & (POLLERR | POLLHUP)) == 0) return std::move(socket);
  }
  return std::nullopt;
}

}  // namespace dstrain
