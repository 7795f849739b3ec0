#include "launcher/connection/line_channel.h"

#include <unistd.h>

#include <catch2/catch.hpp>

#include "launcher/process/child.h"

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
  CHECK(loop.channel.next() == json{{"do", "hello"}, {"n", 1}});
  CHECK_FALSE(loop.channel.next());
  loop.raw("ive\"}\n{}\n");
  CHECK(loop.channel.receive());
  CHECK(loop.channel.next() == json{{"do", "alive"}});
  CHECK(loop.channel.next() == json::object());
  CHECK_FALSE(loop.channel.next());
}

TEST_CASE("more than a pipe holds is sent as it is read") {
  Loop loop;
  const std::string big(1 << 20, 'x');
  loop.channel.send({{"text", big}});
  CHECK(loop.channel.unsent() > 0);
  std::optional<json> got;
  for (int i = 0; i < 1000 && !got; ++i) {
    loop.channel.receive();
    loop.channel.flush();
    got = loop.channel.next();
  }
  REQUIRE(got);
  CHECK((*got)["text"] == big);
  CHECK(loop.channel.unsent() == 0);
}

TEST_CASE("a message that is not an object closes the channel, with a reason") {
  const std::string text =
      GENERATE(as<std::string>(), "bash: dstrain: not found\n", "[1]\n", "{\n");
  Loop loop;
  loop.raw(text);
  CHECK(loop.channel.receive());
  CHECK_FALSE(loop.channel.next());
  CHECK_FALSE(loop.channel.receive());
  CHECK(loop.channel.fault().find("expected a JSON object") != std::string::npos);
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
  CHECK(loop.channel.receive());
  CHECK(loop.channel.next());
  CHECK_FALSE(loop.channel.receive());
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
