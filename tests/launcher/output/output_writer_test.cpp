#include "launcher/output/output_writer.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <sstream>

#include "launcher/process/child.h"

namespace dstrain {
namespace {

constexpr int kLong = 60'000;  // milliseconds

std::string read_all(const Pipe& pipe) {
  std::string text;
  std::array<char, 4096> buffer{};
  for (ssize_t n = 0; (n = ::read(pipe.read.get(), buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<size_t>(n));
  return text;
}

// Fills a pipe, so that the next write to it waits, or fails where it is `flags` O_NONBLOCK; returns how many bytes that
// took.
size_t fill(const Pipe& pipe, int flags = 0) {
  ::fcntl(pipe.write.get(), F_SETFL, O_NONBLOCK);
  size_t bytes = 0;
  while (::write(pipe.write.get(), "x", 1) == 1) ++bytes;
  ::fcntl(pipe.write.get(), F_SETFL, flags);
  return bytes;
}

TEST_CASE("texts go to their stream, in order") {
  const Pipe output, error;
  OutputWriter writer(output.write.get(), error.write.get());
  writer.write(StandardStream::output, TextKind::event, "a\n");
  writer.write(StandardStream::error, TextKind::event, "b\n");
  writer.write(StandardStream::output, TextKind::progress, "c\n");
  REQUIRE(writer.wait(kLong));
  CHECK(read_all(output) == "a\nc\n");
  CHECK(read_all(error) == "b\n");
}

TEST_CASE("a stream that takes no text delays it, drops progress beyond the limit, and no event") {
  const Pipe output, error;
  const size_t filled = fill(output, GENERATE(0, O_NONBLOCK));
  OutputWriter writer(output.write.get(), error.write.get(), 100);
  for (int i = 0; i < 1000; ++i) {
    writer.write(StandardStream::output, TextKind::progress, "progress\n");
    if (i % 100 == 0) writer.write(StandardStream::output, TextKind::event, "event\n");
  }
  CHECK_FALSE(writer.wait(1));
  std::string text;
  while (!writer.wait(1)) text += read_all(output);
  text += read_all(output);
  text.erase(0, filled);
  size_t events = 0, progress = 0;
  for (size_t at = 0; (at = text.find("event\n", at)) != std::string::npos; ++at) ++events;
  for (size_t at = 0; (at = text.find("progress\n", at)) != std::string::npos; ++at) ++progress;
  CHECK(events == 10);
  CHECK(progress < 20);
  CHECK(text.size() == events * 6 + progress * 9);
  size_t dropped = 0;  // it may be told in parts
  std::istringstream said(read_all(error));
  for (std::string line; std::getline(said, line);) {
    CHECK(line.ends_with(" progress lines were dropped, because nothing read the output)"));
    dropped += std::stoul(line.substr(1));
  }
  CHECK(dropped == 1000 - progress);
}

TEST_CASE("a writer that goes does not wait for a stream that takes no text") {
  ::signal(SIGPIPE, SIG_IGN);  // its thread may still write when the pipe goes
  const Pipe output, error;
  fill(output);
  {
    OutputWriter writer(output.write.get(), error.write.get());
    writer.write(StandardStream::output, TextKind::event, "never read\n");
  }
  CHECK(read_all(error).empty());
}

TEST_CASE("a stream that nobody can read any more loses its texts, the other does not") {
  Pipe output;
  const Pipe error;
  ::signal(SIGPIPE, SIG_IGN);
  output.read = Descriptor();
  OutputWriter writer(output.write.get(), error.write.get());
  writer.write(StandardStream::output, TextKind::event, "lost\n");
  writer.write(StandardStream::error, TextKind::event, "kept\n");
  CHECK(writer.wait(kLong));
  CHECK(read_all(error) == "kept\n");
}

}  // namespace
}  // namespace dstrain
