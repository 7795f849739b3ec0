#include "launcher/nodes/relay_end.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <csignal>
#include <string>

#include "launcher/connection/secret.h"

namespace dstrain {
namespace {

const DirectionKeys kKeys{hmac_sha256("secret", "there"), hmac_sha256("secret", "back")};

// Both ends of a relay, and the pipes of the programs at them.
struct Relay {
  Relay() : Relay(connected()) {}
  explicit Relay(std::array<int, 2> sockets)
      : raw(sockets[0]),
        asks(RelayEnd::Role::asks, Descriptor(sockets[0]), kKeys, asker.read.get(),
             std::move(answers.write)),
        runs(RelayEnd::Role::runs, Descriptor(sockets[1]), {kKeys.receive, kKeys.send},
             program.read.get(), std::move(questions.write)) {
    std::signal(SIGPIPE, SIG_IGN);
  }

  static std::array<int, 2> connected() {
    std::array<int, 2> sockets{-1, -1};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets.data()) == 0);
    return sockets;
  }
  void step() {
    for (int i = 0; i < 20; ++i) {
      asks.step(0);
      runs.step(0);
    }
  }
  static void write(Pipe& pipe, const std::string& text) {
    REQUIRE(::write(pipe.write.get(), text.data(), text.size()) ==
            static_cast<ssize_t>(text.size()));
  }
  // Returns what can be read; "end" is added at the end of the pipe.
  static std::string read(Pipe& pipe) {
    std::string text;
    std::array<char, 4096> buffer;
    ssize_t n = 0;
    while ((n = ::read(pipe.read.get(), buffer.data(), buffer.size())) > 0)
      text.append(buffer.data(), static_cast<size_t>(n));
    return n == 0 ? text + "end" : text;
  }

  Pipe asker, answers;      // what the asker writes and reads
  Pipe questions, program;  // what the program reads and writes
  int raw;                  // the asking end's socket
  RelayEnd asks, runs;
};

TEST_CASE("a relay carries what both programs write, to its end") {
  Relay relay;
  Relay::write(relay.asker, "question");
  Relay::write(relay.program, "answer");
  relay.step();
  CHECK(relay.asks.begun());
  CHECK(Relay::read(relay.questions) == "question");
  CHECK(Relay::read(relay.answers) == "answer");
  relay.asker.write = Descriptor();
  relay.step();
  CHECK(Relay::read(relay.questions) == "end");
  CHECK_FALSE(relay.asks.received_all());
  Relay::write(relay.program, "last words");
  relay.program.write = Descriptor();
  relay.step();
  CHECK(Relay::read(relay.answers) == "last wordsend");
  CHECK(relay.runs.sent_all());
  CHECK(relay.asks.received_all());
  CHECK_FALSE(relay.asks.lost());
}

TEST_CASE("a program that does not read holds up the one that writes, and nothing is lost") {
  Relay relay;
  std::string sent, got;
  for (int i = 0; i < 400 && (i < 200 || got.size() < sent.size()); ++i) {
    if (i < 200) {
      const std::string part(4096, static_cast<char>('a' + i % 26));
      sent += part;
      Relay::write(relay.asker, part);
    }
    relay.step();
    if (i >= 120) got += Relay::read(relay.questions);
  }
  CHECK(got == sent);
}

TEST_CASE("bytes that the other end of a relay has not sent end it at both ends, which say so") {
  Relay relay;
  relay.step();
  const std::string line = "{\"do\":\"stop\",\"signal\":15}\n";
  REQUIRE(::send(relay.raw, line.data(), line.size(), 0) == static_cast<ssize_t>(line.size()));
  relay.step();
  CHECK(relay.runs.lost());
  CHECK(relay.asks.lost());
  CHECK(relay.runs.fault() == "bytes arrived on it that its other end has not sent");
  CHECK(relay.asks.fault() == relay.runs.fault());
  CHECK(Relay::read(relay.questions) == "end");
  CHECK(Relay::read(relay.answers) == "end");
}

}  // namespace
}  // namespace dstrain
