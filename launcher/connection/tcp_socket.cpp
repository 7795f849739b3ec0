#include "launcher/connection/tcp_socket.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

bool listens_at(const Descriptor& socket, int port, const std::string& address) {
  const std::optional<sockaddr_in> where = socket_address(address, port);
  check(where.has_value(), "'{}' as a numeric address", address);
  return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&*where), sizeof *where) == 0 &&
         ::listen(socket.get(), SOMAXCONN) == 0;
}

}  // namespace

Descriptor open_tcp_socket() {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) fail_run("cannot make a socket: {}", std::strerror(errno));
  return socket;
}

std::optional<sockaddr_in> socket_address(const std::string& address, int port) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_port = htons(static_cast<uint16_t>(port));
  if (::inet_pton(AF_INET, address.c_str(), &result.sin_addr) != 1) return std::nullopt;
  return result;
}

int start_connecting(const Descriptor& socket, const sockaddr_in& address) {
  const int result =
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  return result == 0 || errno == EINPROGRESS ? 0 : errno;
}

std::string own_address_of(const Descriptor& connection) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  ::getsockname(connection.get(), reinterpret_cast<sockaddr*>(&address), &size);
  std::array<char, INET_ADDRSTRLEN> text{};
  ::inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size());
  return text.data();
}

int socket_error(const Descriptor& socket) {
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

std::optional<bool> peer_answers(int socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  return info.tcpi_state == TCP_ESTABLISHED && info.tcpi_retransmits < kVainRetries &&
         info.tcpi_probes < kVainRetries;
}

std::optional<TcpListener> TcpListener::at(int port, const std::string& address) {
  Descriptor socket = open_tcp_socket();
  const int yes = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (!listens_at(socket, port, address)) return std::nullopt;
  return TcpListener(std::move(socket));
}

int TcpListener::port() const {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

std::optional<Descriptor> TcpListener::accept() const {
  const int fd = ::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) return std::nullopt;
  return Descriptor(fd);
}

TcpConnector::TcpConnector(const std::vector<std::string>& addresses, int port) {
  for (const std::string& text : addresses) {
    const auto address = socket_address(text, port);
    if (!address) continue;
    Descriptor socket = open_tcp_socket();
    if (start_connecting(socket, *address) == 0) attempts_.push_back(std::move(socket));
  }
}

std::optional<Descriptor> TcpConnector::connected() {
  for (Descriptor& socket : attempts_) {
    pollfd state{socket.get(), POLLOUT, 0};
    if (::poll(&state, 1, 0) <= 0 || (state.revents & POLLOUT) == 0) continue;
    if (socket_error(socket) == 0 && (state.revents & (POLLERR | POLLHUP)) == 0)
      return std::move(socket);
  }
  return std::nullopt;
}

}  // namespace dstrain
