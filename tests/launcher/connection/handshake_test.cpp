#include "launcher/connection/handshake.h"

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <vector>

#include "launcher/connection/message.h"

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

bool is_closed(const Descriptor& connection) {
  char byte = 0;
  return ::recv(connection.get(), &byte, 1, MSG_DONTWAIT) == 0;
}

// A listener of this process, and what was greeted with.
struct Reception {
  TcpListener listener;
  PendingConnections pending;
  std::vector<json> greetings;
  int64_t now = 0;

  void serve() {
    pending.serve(listener, now, [this](auto&, const json& message) {
      greetings.push_back(message);
      integer_member(message, "host", 0, 7);
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
  const Descriptor other = connect_to(reception.listener);
  constexpr std::string_view greeting = "{\"host\": 1}\n";
  REQUIRE(::send(other.get(), greeting.data(), greeting.size(), 0) ==
          static_cast<ssize_t>(greeting.size()));
  reception.serve();
  CHECK(reception.greetings.empty());
  reception.now += kMakesRoomAfter;
  CHECK(reception.serve_until([&] { return !reception.greetings.empty(); }));
  CHECK(is_closed(silent.front()));
  CHECK_FALSE(is_closed(silent.back()));
  reception.now += kLongestGreetingTime + 1;
  reception.serve();
  CHECK(reception.pending.count() == 0);
  CHECK(is_closed(silent.back()));
}

}  // namespace
}  // namespace dstrain
