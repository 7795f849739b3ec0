#include "launcher/connection/handshake.h"

#include <optional>

#include "launcher/connection/message.h"
#include "launcher/connection/secret.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

using nlohmann::json;

// What is computed from the key and both challenges: a proof, or the key of one direction.
std::string of_challenges(const std::string& key, const char* purpose, const std::string& acceptor,
                          const std::string& connector) {
  return hmac_sha256(key, fmt::format("dstrain {} {} {}", purpose, acceptor, connector));
}

constexpr const char* kConnectorProof = "proof of the connector";
constexpr const char* kAcceptorProof = "proof of the acceptor";
constexpr const char* kFromConnector = "messages of the connector";
constexpr const char* kFromAcceptor = "messages of the acceptor";

// Returns a challenge of a message, which must be as long as ours.
std::string challenge_in(const json& message) {
  auto challenge = message.at("challenge").get<std::string>();
  if (challenge.size() != hmac_sha256("", "").size())
    throw MalformedMessage("a challenge of another length");
  return challenge;
}

}  // namespace

PendingConnections::Pending::Pending(Descriptor socket)
    : connection(std::make_unique<SocketChannel>(std::move(socket), kLongestGreeting)),
      challenge(random_hex()) {
  connection->channel.send({{"challenge", challenge}});
}

void PendingConnections::serve(const TcpListener& listener, int64_t now_ns, const Use& use) {
  pending_.accept(listener, now_ns);
  pending_.serve([&](Pending& pending) { return serve(pending, use); });
}

// Returns whether the connection is no longer to be kept here.
bool PendingConnections::serve(Pending& pending, const Use& use) {
  LineChannel& channel = pending.connection->channel;
  if (!pending.challenge.empty()) {
    const bool open = channel.receive([&](const json& message) { answer(pending, message); }, 1);
    if (!pending.challenge.empty()) return !open;
  }
  std::optional<json> greeting;
  const bool open = channel.receive([&greeting](const json& message) { greeting = message; }, 1);
  if (!greeting) return !open;
  message_fault([&] { use(pending.connection, *greeting); });
  if (!pending.connection) channel.admit();
  return true;
}

void PendingConnections::answer(Pending& pending, const json& message) {
  LineChannel& channel = pending.connection->channel;
  const std::string theirs = challenge_in(message);
  const auto proof = message.at("proof").get<std::string>();
  const auto of = [&](const char* purpose) {
    return of_challenges(key_, purpose, pending.challenge, theirs);
  };
  if (!equal_in_constant_time(proof, of(kConnectorProof))) {
    ++refused_;
    channel.send({{"refused", true}});
    throw MalformedMessage("the key is not known there");
  }
  channel.send({{"proof", of(kAcceptorProof)}});
  channel.authenticate({.send = of(kFromAcceptor), .receive = of(kFromConnector)});
  pending.challenge.clear();
}

Handshake::Handshake(Descriptor connection, std::string key)
    : key_(std::move(key)),
      own_challenge_(random_hex()),
      connection_(std::make_unique<SocketChannel>(std::move(connection), kLongestGreeting)) {}

Handshake::State Handshake::advance() {
  if (state_ != State::going_on) return state_;
  const bool open = connection_->channel.receive([this](const json& message) { read(message); }, 1);
  connection_->channel.flush();
  if (state_ == State::going_on && !open) state_ = State::failed;
  return state_;
}

void Handshake::read(const json& message) {
  const auto of = [this](const char* purpose) {
    return of_challenges(key_, purpose, challenge_, own_challenge_);
  };
  if (challenge_.empty()) {
    challenge_ = challenge_in(message);
    connection_->channel.send({{"challenge", own_challenge_}, {"proof", of(kConnectorProof)}});
    return;
  }
  if (message.contains("refused")) {
    state_ = State::refused;
    return;
  }
  if (!equal_in_constant_time(message.at("proof").get<std::string>(), of(kAcceptorProof)))
    throw MalformedMessage("the key is not known there");
  connection_->channel.authenticate({.send = of(kFromConnector), .receive = of(kFromAcceptor)});
  connection_->channel.admit();
  state_ = State::done;
}

}  // namespace dstrain
