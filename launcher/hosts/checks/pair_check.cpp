#include "launcher/hosts/checks/pair_check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runtime/core/error.h"
#include "runtime/core/rank_board.h"

namespace dstrain {
namespace {

constexpr int64_t kDeadline = 5'000'000'000;  // for a peer's answer
constexpr char kQuestion = '?', kAnswer = '!';

sockaddr* generic(sockaddr_in& address) {
  return reinterpret_cast<sockaddr*>(&address);
}

Descriptor open_socket() {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) fail_run("cannot make a socket: {}", std::strerror(errno));
  return socket;
}

}  // namespace

void from_json(const nlohmann::json& json, PeerAddress& peer) {
  json.at("name").get_to(peer.name);
  json.at("port").get_to(peer.port);
  json.at("addresses").get_to(peer.addresses);
}

void to_json(nlohmann::json& json, const PeerAddress& peer) {
  json = {{"name", peer.name}, {"port", peer.port}, {"addresses", peer.addresses}};
}

void from_json(const nlohmann::json& json, Unreached& peer) {
  json.at("name").get_to(peer.name);
  json.at("why").get_to(peer.why);
}

void to_json(nlohmann::json& json, const Unreached& peer) {
  json = {{"name", peer.name}, {"why", peer.why}};
}

PairCheck::PairCheck(int port) : listener_(open_socket()) {
  // Connections of an earlier check, which wait for their end, are no other program.
  const int yes = 1;
  ::setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_ANY);
  any.sin_port = htons(static_cast<uint16_t>(port));
  socklen_t size = sizeof any;
  if (::bind(listener_.get(), generic(any), sizeof any) != 0 ||
      ::listen(listener_.get(), SOMAXCONN) != 0 ||
      ::getsockname(listener_.get(), generic(any), &size) != 0)
    fail_run("cannot listen for other hosts{}: {}",
             port == 0 ? "" : fmt::format(" at port {}", port), std::strerror(errno));
  port_ = ntohs(any.sin_port);
}

void PairCheck::meet(const std::vector<PeerAddress>& peers) {
  begin_ns_ = monotonic_ns();
  peers_.emplace();
  for (const PeerAddress& peer : peers) {
    Peer& mine = peers_->emplace_back();
    mine.name = peer.name;
    mine.port = peer.port;
    mine.why = "it has no address";
    for (const std::string& text : peer.addresses) {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(static_cast<uint16_t>(peer.port));
      if (::inet_pton(AF_INET, text.c_str(), &address.sin_addr) != 1) continue;
      Attempt attempt{open_socket(), text};
      if (::connect(attempt.socket.get(), generic(address), sizeof address) != 0 &&
          errno != EINPROGRESS) {
        mine.why = fmt::format("{} port {}: {}", text, peer.port, std::strerror(errno));
        continue;
      }
      mine.attempts.push_back(std::move(attempt));
    }
  }
}

void PairCheck::answer_others() {
  for (int fd = 0;
       (fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;)
    guests_.emplace_back(fd);
  std::erase_if(guests_, [](const Descriptor& guest) {
    char question = 0;
    const ssize_t n = ::recv(guest.get(), &question, 1, 0);
    if (n < 0) return errno != EAGAIN;
    if (n == 1 && question == kQuestion) ::send(guest.get(), &kAnswer, 1, MSG_NOSIGNAL);
    return true;
  });
}

void PairCheck::advance(Peer& peer) {
  std::erase_if(peer.attempts, [&peer](Attempt& attempt) {
    const auto give_up = [&](int error) {
      peer.why = fmt::format("{} port {}: {}", attempt.address, peer.port, std::strerror(error));
      return true;
    };
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(attempt.socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return give_up(error);
    if (!attempt.sent) {
      if (::send(attempt.socket.get(), &kQuestion, 1, MSG_NOSIGNAL) != 1)
        return errno != EAGAIN && errno != ENOTCONN && give_up(errno);
      attempt.sent = true;
    }
    char answer = 0;
    const ssize_t n = ::recv(attempt.socket.get(), &answer, 1, 0);
    if (n < 0) return errno != EAGAIN && give_up(errno);
    if (n == 1 && answer == kAnswer) {
      peer.reached = true;
      return true;
    }
    peer.why = fmt::format("{} port {}: another program answered", attempt.address, peer.port);
    return true;
  });
}

std::optional<std::vector<Unreached>> PairCheck::serve() {
  answer_others();
  if (!peers_) return std::nullopt;
  const bool late = monotonic_ns() - begin_ns_ > kDeadline;
  std::vector<Unreached> failed;
  bool busy = false;
  for (Peer& peer : *peers_) {
    if (!peer.reached) advance(peer);
    if (peer.reached) continue;
    if (late && !peer.attempts.empty())
      peer.why = fmt::format("no answer from {} port {} within {} s", peer.attempts.front().address,
                             peer.port, kDeadline / 1'000'000'000);
    busy = busy || !peer.attempts.empty();
    failed.push_back({peer.name, peer.why});
  }
  if (busy && !late) return std::nullopt;
  peers_.reset();
  return failed;
}

}  // namespace dstrain
