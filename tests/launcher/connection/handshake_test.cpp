#include "launcher/connection/handshake.h"

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "launcher/connection/message.h"
#include "launcher/connection/secret.h"

namespace dstrain {
namespace {

using nlohmann::json;

Descriptor connect_to(const TcpListener& listener) {
  TcpConnector connector({"127.0.0.1"}, listener.port());
  for (int i = 0; i < 5000; ++i) {
    if (auto socket = connector.connected()) return std::move(*socket);
    ::usleep(1000);
  }
  FAIL("no connection");
  return Descriptor();
}

// Reads what has arrived. Returns whether the other end has closed the connection.
bool is_closed(const Descriptor& connection) {
  char byte = 0;
  ssize_t n = 0;
  while ((n = ::recv(connection.get(), &byte, 1, MSG_DONTWAIT)) > 0) {
  }
  return n == 0 || errno == ECONNRESET;
}

constexpr const char* kKey = "the key of this run";

TcpListener listen_here() {
  auto listener = TcpListener::at(0, "127.0.0.1");
  REQUIRE(listener.has_value());
  return std::move(*listener);
}

// A listener of this process, and what was greeted with.
struct Reception {
  TcpListener listener = listen_here();
  PendingConnections pending{kKey};
  std::vector<json> greetings;
  std::unique_ptr<SocketChannel> admitted;  // the last one
  int64_t now = 0;

  void serve() {
    pending.serve(listener, now, [this](auto& connection, const json& message) {
      greetings.push_back(message);
      integer_member(message, "host", 0, 7);
      admitted = std::move(connection);
    });
  }
  // Serves until `done`.
  template <class Done>
  bool serve_until(const Done& done) {
    for (int i = 0; i < 5000 && !done(); ++i) {
      serve();
      ::usleep(1000);
    }
    return done();
  }
};

TEST_CASE("whatever a stranger sends, its connection is closed and nothing else happens") {
  const auto text = GENERATE(as<std::string>(), "{\"token\":5}\n", "GET / HTTP/1.1\r\n", "[]\n",
                             "{\"host\": 1e99}\n", "\n", std::string(4097, '['));
  CAPTURE(text);
  Reception reception;
  const Descriptor stranger = connect_to(reception.listener);
  REQUIRE(::send(stranger.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  CHECK(reception.serve_until([&] { return is_closed(stranger); }));
  CHECK(reception.pending.count() == 0);
}

TEST_CASE("silent connections are few and age, and others still get through") {
  Reception reception;
  std::vector<Descriptor> silent;
  for (size_t i = 0; i < kMostNewConnections + 10; ++i)
    silent.push_back(connect_to(reception.listener));
  reception.serve();
  CHECK(reception.pending.count() == kMostNewConnections);
  Handshake other(connect_to(reception.listener), kKey);
  reception.serve();
  CHECK(other.advance() == Handshake::State::going_on);
  reception.now += kMakesRoomAfter;
  CHECK(reception.serve_until([&] { return other.advance() == Handshake::State::done; }));
  CHECK(is_closed(silent.front()));
  CHECK_FALSE(is_closed(silent.back()));
  reception.now += kLongestGreetingTime + 1;
  reception.serve();
  CHECK(reception.pending.count() == 0);
  CHECK(is_closed(silent.back()));
}

// Both ends of a connection between two who know the key.
struct Acquaintance {
  Acquaintance() {
    Handshake handshake(connect_to(reception.listener), kKey);
    REQUIRE(reception.serve_until([&] { return handshake.advance() == Handshake::State::done; }));
    connector = handshake.take();
    connector->channel.send({{"host", 1}});
    REQUIRE(reception.serve_until([this] { return reception.admitted != nullptr; }));
  }
  Reception reception;
  std::unique_ptr<SocketChannel> connector;
};

TEST_CASE("both ends prove that they know the key, and messages go both ways then") {
  Acquaintance both;
  CHECK(both.reception.greetings == std::vector<json>{{{"host", 1}}});
  const std::string big(1 << 20, 'x');
  std::vector<json> got;
  for (auto [from, to] : {std::pair{&both.connector, &both.reception.admitted},
                          std::pair{&both.reception.admitted, &both.connector}}) {
    (*from)->channel.send({{"text", big}});
    const size_t before = got.size();
    for (int i = 0; i < 5000 && got.size() == before; ++i) {
      (*from)->channel.flush();
      CHECK((*to)->channel.receive([&got](const json& message) { got.push_back(message); }));
    }
  }
  CHECK(got == std::vector<json>{{{"text", big}}, {{"text", big}}});
}

TEST_CASE("one that does not know the key is told so, and gets nowhere") {
  Reception reception;
  Handshake stranger(connect_to(reception.listener), "another key");
  CHECK(reception.serve_until([&] { return stranger.advance() == Handshake::State::refused; }));
  CHECK(reception.pending.refused() == 1);
  CHECK(reception.pending.count() == 0);
}

TEST_CASE("an acceptor that does not know the key is left") {
  const TcpListener impostor = listen_here();
  Handshake handshake(connect_to(impostor), kKey);
  std::optional<Descriptor> accepted;
  while (!(accepted = impostor.accept())) ::usleep(1000);
  const std::string challenge = random_hex();
  const std::string answers = json{{"challenge", challenge}}.dump() + "\n" +
                              json{{"proof", hmac_sha256("another key", challenge)}}.dump() + "\n";
  REQUIRE(::send(accepted->get(), answers.data(), answers.size(), 0) ==
          static_cast<ssize_t>(answers.size()));
  Handshake::State state = Handshake::State::going_on;
  for (int i = 0; i < 5000 && state == Handshake::State::going_on; ++i) {
    state = handshake.advance();
    ::usleep(1000);
  }
  CHECK(state == Handshake::State::failed);
}

TEST_CASE("a message that was changed, repeated, or put between closes the connection") {
  Acquaintance both;
  LineChannel& to = both.reception.admitted->channel;
  std::vector<json> got;
  const auto receive = [&] {
    return to.receive([&got](const json& message) { got.push_back(message); });
  };
  const auto until_closed = [&] {
    for (int i = 0; i < 5000; ++i, ::usleep(1000))
      if (!receive()) return true;
    return false;
  };
  const auto raw = [&both](const std::string& line) {
    REQUIRE(::send(both.connector->socket.get(), line.data(), line.size(), 0) ==
            static_cast<ssize_t>(line.size()));
  };
  SECTION("put between") {
    raw("{\"host\": 2}\n");
  }
  SECTION("shorter than a proof") {
    raw("{}\n");
  }
  SECTION("with another proof") {
    raw(std::string(64, '0') + "{\"host\": 2}\n");
  }
  SECTION("sent by the other end itself") {
    both.connector->channel.authenticate({hmac_sha256(kKey, "guess"), ""});
    both.connector->channel.send({{"host", 2}});
  }
  CHECK(until_closed());
  CHECK(got.empty());
  CHECK(to.fault() == "a message that this connection's other end has not sent");
}

}  // namespace
}  // namespace dstrain
