#include "launcher/connection/line_channel.h"

#include <unistd.h>

#include <catch2/catch.hpp>

#include "launcher/connection/message.h"
#include "launcher/process/child.h"

namespace dstrain {
namespace {

using nlohmann::json;

// A channel that reads what it has written.
struct Loop {
  Pipe pipe;
  LineChannel channel{pipe.read.get(), pipe.write.get()};
  std::vector<json> got;
  // Reads what has arrived. Returns whether the channel is open.
  bool receive() {
    return channel.receive([this](const json& message) { got.push_back(message); });
  }
  void raw(const std::string& text) const {
    REQUIRE(::write(pipe.write.get(), text.data(), text.size()) ==
            static_cast<ssize_t>(text.size()));
  }
};

TEST_CASE("messages arrive whole and in order, however they are cut") {
  Loop loop;
  loop.channel.send({{"do", "hello"}, {"n", 1}});
  loop.raw("{\"do\": \"al");
  CHECK(loop.receive());
  CHECK(loop.got == std::vector<json>{{{"do", "hello"}, {"n", 1}}});
  loop.raw("ive\"}\n{}\n");
  CHECK(loop.receive());
  CHECK(loop.got ==
        std::vector<json>{{{"do", "hello"}, {"n", 1}}, {{"do", "alive"}}, json::object()});
}

TEST_CASE("a line that its writer did not finish is dropped where another process says so") {
  Loop loop;
  loop.raw("{\"do\": \"al\x18\n{\"n\": 1}\n\x18\n{\"n\": 2}\n");
  CHECK(loop.receive());
  CHECK(loop.got == std::vector<json>{{{"n", 1}}, {{"n", 2}}});
}

TEST_CASE("messages beyond those that are asked for wait") {
  Loop loop;
  loop.raw("{\"n\": 1}\n{\"n\": 2}\n");
  loop.pipe.write = Descriptor();
  for (const int n : {1, 2}) {
    json got;
    CHECK(loop.channel.receive([&got](const json& message) { got = message; }, 1) == (n == 1));
    CHECK(got == json{{"n", n}});
  }
}

TEST_CASE("more than a pipe holds is sent as it is read") {
  Loop loop;
  const std::string big(1 << 20, 'x');
  loop.channel.send({{"text", big}});
  CHECK(loop.channel.unsent() > 0);
  for (int i = 0; i < 1000 && loop.got.empty(); ++i) {
    loop.receive();
    loop.channel.flush();
  }
  REQUIRE(loop.got.size() == 1);
  CHECK(loop.got[0]["text"] == big);
  CHECK(loop.channel.unsent() == 0);
}

TEST_CASE("a message that is not an object closes the channel, with a reason") {
  const std::string text =
      GENERATE(as<std::string>(), "bash: dstrain: not found\n", "[1]\n", "{\n", "\xff\n");
  Loop loop;
  loop.raw(text + "{}\n");
  CHECK_FALSE(loop.receive());
  CHECK(loop.got.empty());
  CHECK(loop.channel.fault().find("expected a JSON object") != std::string::npos);
}

TEST_CASE("a message that its reader cannot read closes the channel, whatever is wrong with it") {
  const auto text = GENERATE(as<std::string>(), "{}", "{\"n\": \"1\"}", "{\"n\": 1e300}",
                             "{\"n\": 18446744073709551615}", "{\"n\": 3}", "{\"n\": null}");
  CAPTURE(text);
  Loop loop;
  loop.raw(text + "\n{\"n\": 1}\n");
  std::vector<int64_t> got;
  CHECK_FALSE(loop.channel.receive(
      [&got](const json& message) { got.push_back(integer_member(message, "n", 0, 2)); }));
  CHECK(got.empty());
  CHECK(loop.channel.fault() == "a malformed message: expected 'n' to be an integer from 0 to 2");
}

TEST_CASE("a channel holds a line as long as it may be, and no longer one") {
  const Pipe pipe;
  LineChannel channel(pipe.read.get(), pipe.write.get(), kLongestGreeting);
  const std::string start = "{\"n\": \"", end = "\"}";
  const std::string longest = start + std::string(kLongestGreeting - 9, 'x') + end;
  REQUIRE(longest.size() == kLongestGreeting);
  const auto write = [&pipe](const std::string& bytes) {
    REQUIRE(::write(pipe.write.get(), bytes.data(), bytes.size()) ==
            static_cast<ssize_t>(bytes.size()));
  };
  int got = 0;
  const auto receive = [&] { return channel.receive([&got](const json&) { ++got; }); };
  write(longest + "\n" + longest + "\n");
  CHECK(receive());
  CHECK(receive());
  CHECK(got == 2);
  write(longest + "x");
  CHECK_FALSE(receive());
  CHECK(channel.fault() == "a message of more than 4096 bytes");
}

TEST_CASE("a message to a process that has ended has no effect") {
  Loop loop;
  loop.pipe.read = Descriptor();
  loop.channel.send({{"do", "alive"}});
  CHECK(loop.channel.unsent() == 0);
}

TEST_CASE("the end is seen after the last message") {
  Loop loop;
  loop.raw("{\"a\": 1}\n");
  loop.pipe.write = Descriptor();
  CHECK_FALSE(loop.receive());
  CHECK(loop.got.size() == 1);
  CHECK(loop.channel.fault().empty());
}

TEST_CASE("any bytes pass as JSON text") {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
  const std::string text = to_json_text(bytes);
  CHECK(from_json_text(json::parse(json(text).dump()).get<std::string>()) == bytes);
}

}  // namespace
}  // namespace dstrain
