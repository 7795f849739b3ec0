#include "launcher/hosts/channel.h"

#include <unistd.h>

#include <catch2/catch.hpp>

#include "launcher/hosts/messages.h"
#include "launcher/ranks/child.h"

namespace dstrain {
namespace {

using nlohmann::json;

// A channel that reads what it has written.
struct Loop {
  Pipe pipe;
  LineChannel channel{pipe.read.get(), pipe.write.get()};
  void raw(const std::string& text) const {
    REQUIRE(::write(pipe.write.get(), text.data(), text.size()) ==
            static_cast<ssize_t>(text.size()));
  }
};

TEST_CASE("messages arrive whole and in order, however they are cut") {
  Loop loop;
  loop.channel.send({{"do", "hello"}, {"n", 1}});
  loop.raw("{\"do\": \"al");
  CHECK(loop.channel.receive());
  CHECK(loop.channel.take() == json{{"do", "hello"}, {"n", 1}});
  CHECK_FALSE(loop.channel.take());
  loop.raw("ive\"}\n{}\n");
  CHECK(loop.channel.receive());
  CHECK(loop.channel.take() == json{{"do", "alive"}});
  CHECK(loop.channel.take() == json::object());
  CHECK_FALSE(loop.channel.take());
}

TEST_CASE("more than a pipe holds is sent as it is taken") {
  Loop loop;
  const std::string big(1 << 20, 'x');
  loop.channel.send({{"text", big}});
  CHECK(loop.channel.unsent() > 0);
  std::optional<json> got;
  for (int i = 0; i < 1000 && !got; ++i) {
    loop.channel.receive();
    loop.channel.flush();
    got = loop.channel.take();
  }
  REQUIRE(got);
  CHECK((*got)["text"] == big);
  CHECK(loop.channel.unsent() == 0);
}

TEST_CASE("what is no object closes the channel, with a reason") {
  const std::string text =
      GENERATE(as<std::string>(), "bash: dstrain: not found\n", "[1]\n", "{\n");
  Loop loop;
  loop.raw(text);
  CHECK(loop.channel.receive());
  CHECK_FALSE(loop.channel.take());
  CHECK_FALSE(loop.channel.receive());
  CHECK(loop.channel.fault().find("expected a JSON object") != std::string::npos);
}

TEST_CASE("a message to one who has gone harms nobody") {
  Loop loop;
  loop.pipe.read = Descriptor();
  loop.channel.send({{"do", "alive"}});
  CHECK(loop.channel.unsent() == 0);
}

TEST_CASE("the end is seen after the last message") {
  Loop loop;
  loop.raw("{\"a\": 1}\n");
  loop.pipe.write = Descriptor();
  CHECK(loop.channel.receive());
  CHECK(loop.channel.take());
  CHECK_FALSE(loop.channel.receive());
  CHECK(loop.channel.fault().empty());
}

TEST_CASE("any bytes pass as JSON text") {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
  const std::string text = to_json_text(bytes);
  CHECK(from_json_text(json::parse(json(text).dump()).get<std::string>()) == bytes);
}

TEST_CASE("a rank's report keeps everything, its times as ages") {
  RankReport r;
  r.rank = 3;
  r.pid = 4711;
  r.gone = true;
  r.state = RankState::saving;
  r.step = 12;
  r.instruction = "linear \xff";
  r.waits_for = 1;
  r.waits_in = "all_reduce b";
  r.moved_ns = 900;
  r.alive_ns = 1200;  // after the moment of sending: by a hair
  r.failure_kind = FailureKind::peer;
  r.failure_ns = 400;
  r.failure = "rank 1 died";
  const RankReport got = rank_report_of(json::parse(to_message(r, 1000).dump()), 51000);
  CHECK(got.rank == 3);
  CHECK(got.pid == 4711);
  CHECK(got.gone);
  CHECK(got.state == RankState::saving);
  CHECK(got.step == 12);
  CHECK(got.instruction == r.instruction);
  CHECK(got.waits_for == 1);
  CHECK(got.waits_in == r.waits_in);
  CHECK(got.moved_ns == 50900);
  CHECK(got.alive_ns == 51000);
  CHECK(got.suspended_since == 0);
  CHECK(got.failure_kind == FailureKind::peer);
  CHECK(got.failure_ns == 50400);
  CHECK(got.failure == r.failure);
}

}  // namespace
}  // namespace dstrain
