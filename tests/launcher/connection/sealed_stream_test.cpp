#include "launcher/connection/sealed_stream.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "launcher/connection/secret.h"

namespace dstrain {
namespace {

using Frames = std::vector<std::pair<Frame, std::string>>;

const DirectionKeys kKeys{hmac_sha256("secret", "there"), hmac_sha256("secret", "back")};

// Two streams, and what lies between them: what the first one sends, to be passed on to the second one.
struct Line {
  std::array<int, 2> near{-1, -1}, far{-1, -1};
  std::array<Descriptor, 4> ends;
  Line() {
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, near.data()) == 0);
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, far.data()) == 0);
    for (size_t i = 0; i < 2; ++i) {
      ends[i] = Descriptor(near[i]);
      ends[2 + i] = Descriptor(far[i]);
    }
  }

  std::string sent() {
    std::string bytes(1 << 20, '\0');
    const ssize_t n = ::recv(near[1], bytes.data(), bytes.size(), MSG_DONTWAIT);
    bytes.resize(n < 0 ? 0 : static_cast<size_t>(n));
    return bytes;
  }
  void pass(const std::string& bytes) {
    REQUIRE(::send(far[0], bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  }
  Frames received(SealedStream& to) {
    Frames frames;
    open =
        to.receive([&](Frame kind, std::string_view bytes) { frames.emplace_back(kind, bytes); });
    return frames;
  }

  bool open = true;
};

TEST_CASE("frames arrive as they were sent, in whatever pieces") {
  Line line;
  SealedStream from(line.near[0], kKeys), to(line.far[1], {kKeys.receive, kKeys.send});
  const std::string any("\0\n\xff data", 8), big(40000, 'x');
  from.send(Frame::begin);
  from.send(Frame::data, any);
  from.send(Frame::data, big);
  from.send(Frame::end);
  Frames frames;
  for (std::string all = line.sent(); !all.empty(); all.erase(0, 999)) {
    line.pass(all.substr(0, 999));
    for (auto& frame : line.received(to)) frames.push_back(std::move(frame));
  }
  CHECK(line.open);
  CHECK(frames == Frames{{Frame::begin, ""},
                         {Frame::data, any},
                         {Frame::data, big.substr(0, 32768)},
                         {Frame::data, big.substr(32768)},
                         {Frame::end, ""}});
  line.ends[2] = Descriptor();
  CHECK(line.received(to).empty());
  CHECK_FALSE(line.open);
  CHECK(to.fault().empty());
}

TEST_CASE("a byte that is changed anywhere in a frame closes the stream before the frame is used") {
  Line line;
  SealedStream from(line.near[0], kKeys);
  from.send(Frame::data, "first");
  const std::string first = line.sent();
  from.send(Frame::data, "second");
  const std::string second = line.sent();
  for (size_t i = 0; i < second.size(); ++i) {
    CAPTURE(i);
    Line other;
    SealedStream to(other.far[1], {kKeys.receive, kKeys.send});
    std::string changed = second;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    other.pass(first + changed);
    CHECK(other.received(to) == Frames{{Frame::data, "first"}});
    CHECK_FALSE(other.open);
    CHECK(to.fault() == "bytes arrived on it that its other end has not sent");
  }
}

TEST_CASE("a frame that is put in, left out, repeated or sent back closes the stream") {
  Line line;
  SealedStream from(line.near[0], kKeys), to(line.far[1], {kKeys.receive, kKeys.send});
  std::array<std::string, 3> frames;
  for (std::string& frame : frames) {
    from.send(Frame::data, "text");
    frame = line.sent();
  }
  line.pass(frames[0]);
  REQUIRE(line.received(to) == Frames{{Frame::data, "text"}});
  SECTION("a line in clear") {
    line.pass("{\"do\":\"stop\",\"signal\":15}\n");
  }
  SECTION("left out") {
    line.pass(frames[2]);
  }
  SECTION("repeated") {
    line.pass(frames[0]);
  }
  SECTION("sent back") {
    SealedStream back(line.far[0], {kKeys.receive, kKeys.send});
    back.send(Frame::data, "text");
    back.send(Frame::data, "text");
  }
  CHECK(line.received(to).empty());
  CHECK_FALSE(line.open);
  CHECK_FALSE(to.fault().empty());
}

}  // namespace
}  // namespace dstrain
