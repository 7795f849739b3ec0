#include "launcher/hosts/checks/pair_check.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "launcher/connection/secret.h"
#include "runtime/core/error.h"
#include "runtime/core/rank_board.h"

namespace dstrain {
namespace {

constexpr int64_t kAnswerTimeout = 5'000'000'000;  // for a peer's answer
constexpr size_t kProof = 64;                      // bytes of a challenge, and of an HMAC

std::string question_of(const std::string& key, const std::string& challenge) {
  return challenge + hmac_sha256(key, "dstrain question " + challenge);
}

std::string answer_of(const std::string& key, const std::string& challenge) {
  return hmac_sha256(key, "dstrain answer " + challenge);
}

// Returns the `size` bytes that have arrived; nothing if there are fewer yet. At the end of the connection, or after an
// error, sets `error`, which is 0 for the end.
std::optional<std::string> received(const Descriptor& socket, size_t size,
                                    std::optional<int>& error) {
  std::string text(size, '\0');
  const ssize_t n = ::recv(socket.get(), text.data(), size, MSG_PEEK);
  if (n == static_cast<ssize_t>(size)) {
    ::recv(socket.get(), text.data(), size,
           0);  // what is left would reset the connection at its end
    return text;
  }
  if (n == 0) error = 0;
  if (n < 0 && errno != EAGAIN) error = errno;
  return std::nullopt;
}

TcpListener listen_at(int port, const std::string& address) {
  if (auto listener = TcpListener::at(port, address)) return std::move(*listener);
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

PairCheck::PairCheck(std::string key, int port, const std::string& address)
    : key_(std::move(key)), listener_(listen_at(port, address)) {}

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
      Attempt attempt{open_tcp_socket(), text, ""};
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
  unanswered_.serve([this](const Descriptor& connection) {
    std::optional<int> error;
    const auto question = received(connection, 2 * kProof, error);
    if (!question) return error.has_value();
    const std::string challenge = question->substr(0, kProof), answer = answer_of(key_, challenge);
    if (equal_in_constant_time(*question, question_of(key_, challenge)))
      ::send(connection.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    return true;
  });
}

void PairCheck::advance(Peer& peer) {
  std::erase_if(peer.attempts, [this, &peer](Attempt& attempt) {
    const auto give_up = [&](int error) {
      peer.why = fmt::format("{} port {}: {}", attempt.address, peer.port, std::strerror(error));
      return true;
    };
    if (const int failed = socket_error(attempt.socket); failed != 0) return give_up(failed);
    if (attempt.challenge.empty()) {
      const std::string challenge = random_hex(), question = question_of(key_, challenge);
      if (::send(attempt.socket.get(), question.data(), question.size(), MSG_NOSIGNAL) !=
          static_cast<ssize_t>(question.size()))
        return errno != EAGAIN && errno != ENOTCONN && give_up(errno);
      attempt.challenge = challenge;
    }
    std::optional<int> error;
    const auto answer = received(attempt.socket, kProof, error);
    if (!answer && !error) return false;
    if (error.value_or(0) != 0) return give_up(*error);
    if (answer && equal_in_constant_time(*answer, answer_of(key_, attempt.challenge))) {
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
  const bool late = monotonic_ns() - begin_ns_ > kAnswerTimeout;
  std::vector<Unreached> failed;
  bool busy = false;
  for (Peer& peer : *peers_) {
    if (!peer.reached) advance(peer);
    if (peer.reached) continue;
    if (late && !peer.attempts.empty())
      peer.why = fmt::format("no answer from {} port {} within {} s", peer.attempts.front().address,
                             peer.port, kAnswerTimeout / 1'000'000'000);
    busy = busy || !peer.attempts.empty();
    failed.push_back({peer.name, peer.why});
  }
  if (busy && !late) return std::nullopt;
  peers_.reset();
  return failed;
}

}  // namespace dstrain
