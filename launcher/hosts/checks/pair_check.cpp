#include "launcher/hosts/checks/pair_check.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runtime/core/error.h"
#include "runtime/core/rank_board.h"

namespace dstrain {
namespace {

constexpr int64_t kTimeout = 5'000'000'000;  // for a peer's answer
constexpr char kQuestion = '?', kAnswer = '!';

TcpListener listen_at(int port) {
  if (auto listener = TcpListener::at(port)) return std::move(*listener);
  fail_run("cannot listen for other hosts{}: {}", port == 0 ? "" : fmt::format(" at port {}", port),
           std::strerror(errno));
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

PairCheck::PairCheck(int port) : listener_(listen_at(port)) {}

void PairCheck::meet(const std::vector<PeerAddress>& peers) {
  begin_ns_ = monotonic_ns();
  peers_.emplace();
  for (const PeerAddress& peer : peers) {
    Peer& mine = peers_->emplace_back();
    mine.name = peer.name;
    mine.port = peer.port;
    mine.why = "it has no address";
    for (const std::string& text : peer.addresses) {
      const auto address = socket_address(text, peer.port);
      if (!address) continue;
      Attempt attempt{open_tcp_socket(), text};
      if (const int error = start_connecting(attempt.socket, *address); error != 0) {
        mine.why = fmt::format("{} port {}: {}", text, peer.port, std::strerror(error));
        continue;
      }
      mine.attempts.push_back(std::move(attempt));
    }
  }
}

void PairCheck::answer_others() {
  unanswered_.accept(listener_, monotonic_ns());
  unanswered_.serve([](const Descriptor& connection) {
    char question = 0;
    const ssize_t n = ::recv(connection.get(), &question, 1, 0);
    if (n < 0) return errno != EAGAIN;
    if (n == 1 && question == kQuestion) ::send(connection.get(), &kAnswer, 1, MSG_NOSIGNAL);
    return true;
  });
}

void PairCheck::advance(Peer& peer) {
  std::erase_if(peer.attempts, [&peer](Attempt& attempt) {
    const auto give_up = [&](int error) {
      peer.why = fmt::format("{} port {}: {}", attempt.address, peer.port, std::strerror(error));
      return true;
    };
    if (const int error = socket_error(attempt.socket); error != 0) return give_up(error);
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
  const bool late = monotonic_ns() - begin_ns_ > kTimeout;
  std::vector<Unreached> failed;
  bool busy = false;
  for (Peer& peer : *peers_) {
    if (!peer.reached) advance(peer);
    if (peer.reached) continue;
    if (late && !peer.attempts.empty())
      peer.why = fmt::format("no answer from {} port {} within {} s", peer.attempts.front().address,
                             peer.port, kTimeout / 1'000'000'000);
    busy = busy || !peer.attempts.empty();
    failed.push_back({peer.name, peer.why});
  }
  if (busy && !late) return std::nullopt;
  peers_.reset();
  return failed;
}

}  // namespace dstrain
