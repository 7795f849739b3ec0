#include "launcher/output/output_lines.h"

#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <sstream>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr int64_t kMs = 1'000'000;

// An OutputLines with what it has written so far.
struct Sink {
  explicit Sink(OutputLines::Options options)
      : lines(std::move(options),
              [this](StandardStream stream, TextKind, const std::string& piece) {
                text += piece;
                (stream == StandardStream::output ? output : error) += piece;
              }) {}
  // Takes bytes that a rank wrote to standard output.
  void add(int rank, std::string_view bytes, int64_t now_ns) {
    lines.add(rank, StandardStream::output, bytes, now_ns);
  }
  // What has been written since the last call.
  std::string news() { return std::exchange(text, {}); }
  std::string text, output, error;  // of both streams, of each
  OutputLines lines;
};

OutputLines::Options four_ranks() {
  OutputLines::Options options;
  options.ranks = 4;
  return options;
}

TEST_CASE("folded lines name the hosts of their ranks, many hosts are counted") {
  const auto folded = [](std::vector<std::string> hosts) {
    OutputLines::Options options;
    options.ranks = static_cast<int>(hosts.size());
    options.hosts = std::move(hosts);
    Sink sink(options);
    for (int r = 1; r < options.ranks; ++r) sink.add(r, "x\n", 0);
    return sink.news();
  };
  CHECK(folded({"node1", "node1", "node2", "node2"}) == "[ranks 1-3 node1 node2] x\n");
  CHECK(folded({"a", "b", "b"}) == "[ranks 1-2 b] x\n");
  CHECK(folded({"a", "b", "c", "d", "e"}) == "[ranks 1-4 b c d e] x\n");
  CHECK(folded({"a", "b", "c", "d", "e", "f"}) == "[ranks 1-5 on 5 hosts] x\n");
}

TEST_CASE("rank 0's lines pass at once as they are, those of others carry rank and host") {
  OutputLines::Options options = four_ranks();
  options.hosts = {"node1", "node1", "node2", "node2"};
  Sink sink(options);
  sink.add(0, "step=1\n[rank 0] x\n", 0);
  CHECK(sink.news() == "step=1\n[rank 0] x\n");
  sink.add(3, "[rank 3 node2] warning: slow disk\n", 0);
  sink.add(2, "a library speaks\n", 1);
  CHECK(sink.news().empty());
  sink.lines.flush_due(300 * kMs);
  CHECK(sink.news() == "[rank 3 node2] warning: slow disk\n[rank 2 node2] a library speaks\n");
}

TEST_CASE("what many ranks write within the window is one line") {
  Sink sink(four_ranks());
  sink.add(1, "[rank 1] warning: x\n", 0);
  sink.add(3, "[rank 3] warning: x\n", 50 * kMs);
  sink.lines.flush_due(199 * kMs);
  CHECK(sink.news().empty());
  sink.lines.flush_due(200 * kMs);
  CHECK(sink.news() == "[ranks 1,3] warning: x\n");
  SECTION("a later one is a line of its own") {
    sink.add(2, "[rank 2] warning: x\n", 201 * kMs);
    sink.lines.finish();
    CHECK(sink.news() == "[rank 2] warning: x\n");
  }
  SECTION("and nothing waits once every rank but 0 has written it") {
    for (const int rank : {2, 3, 1}) sink.add(rank, "y\n", 300 * kMs);
    CHECK(sink.news() == "[ranks 1-3] y\n");
  }
}

TEST_CASE("two ranks have nothing to fold: the line passes at once") {
  OutputLines::Options options;
  options.ranks = 2;
  Sink sink(options);
  sink.add(1, "hello\n", 0);
  CHECK(sink.news() == "[rank 1] hello\n");
}

TEST_CASE("a repeated line is folded repetition by repetition") {
  Sink sink(four_ranks());
  sink.add(1, "a\na\n", 0);
  sink.add(2, "a\na\na\n", 0);
  sink.lines.finish();
  CHECK(sink.news() == "[ranks 1-2] a\n[ranks 1-2] a\n[rank 2] a\n");
}

TEST_CASE("a line never joins one that would put it before its rank's earlier lines") {
  Sink sink(four_ranks());
  sink.add(1, "a\nb\n", 0);
  sink.add(2, "b\na\n", 0);
  sink.lines.finish();
  CHECK(sink.news() == "[rank 1] a\n[ranks 1-2] b\n[rank 2] a\n");
}

TEST_CASE("unfinished lines are put together, and the last one is not lost") {
  Sink sink(four_ranks());
  sink.add(1, "half", 0);
  sink.add(2, "other\n", 0);
  sink.add(1, " and half\nlast", 0);
  sink.add(0, "zero", 0);
  sink.lines.finish();
  const std::string text = sink.news();
  CHECK(text == "zero\n[rank 2] other\n[rank 1] half and half\n[rank 1] last\n");
}

TEST_CASE("rank 0's unfinished line is shown after the window, whole lines do not run into it") {
  Sink sink(four_ranks());
  sink.add(0, "loading", 0);
  sink.lines.flush_due(100 * kMs);
  CHECK(sink.news().empty());
  sink.lines.flush_due(250 * kMs);
  CHECK(sink.news() == "loading");
  SECTION("its rest follows directly") {
    sink.add(0, " done\n", 260 * kMs);
    CHECK(sink.news() == " done\n");
  }
  SECTION("another rank's line begins at a line's beginning") {
    for (const int rank : {1, 2, 3}) sink.add(rank, "x\n", 260 * kMs);
    CHECK(sink.news() == "\n[ranks 1-3] x\n");
    sink.add(0, " done\n", 270 * kMs);
    CHECK(sink.news() == " done\n");
  }
  SECTION("the end gives it its line break") {
    sink.lines.finish();
    CHECK(sink.news() == "\n");
  }
}

TEST_CASE("a rank does not speak for another") {
  Sink sink(four_ranks());
  sink.add(2, "[rank 1] x\n", 0);
  sink.lines.finish();
  CHECK(sink.news() == "[rank 2] [rank 1] x\n");
}

TEST_CASE("each stream keeps its lines, and equal lines of different streams are not folded") {
  Sink sink(four_ranks());
  sink.add(0, "step=1\n", 0);
  sink.lines.add(0, StandardStream::error, "warning: x\n", 0);
  sink.add(1, "y\n", 0);
  sink.lines.add(2, StandardStream::error, "y\n", 0);
  sink.lines.finish();
  CHECK(sink.output == "step=1\n[rank 1] y\n");
  CHECK(sink.error == "warning: x\n[rank 2] y\n");
}

TEST_CASE("the live line stays below all lines, and goes where rank 0 removes it") {
  const std::string clear = "\r\x1b[K";
  OutputLines::Options options = four_ranks();
  options.live_line = true;
  Sink sink(options);
  sink.lines.add(0, StandardStream::error, "step 1/2\r", 0);
  CHECK(sink.news() == clear + "step 1/2");
  sink.lines.add(0, StandardStream::error, "step 2/2\r", 0);
  CHECK(sink.news() == clear + clear + "step 2/2");
  sink.add(0, "step=2\n", 0);
  CHECK(sink.news() == clear + "step=2\n" + clear + "step 2/2");
  for (const int rank : {1, 2, 3}) sink.add(rank, "x\n", 0);
  CHECK(sink.news() == clear + "[ranks 1-3] x\n" + clear + "step 2/2");
  sink.lines.add(0, StandardStream::error, "\r", 0);
  CHECK(sink.news() == clear);
  sink.add(0, "the end\n", 0);
  sink.lines.finish();
  CHECK(sink.news() == "the end\n");
}

TEST_CASE("a live line is cut to the columns that the terminal has when it is drawn") {
  const std::string clear = "\r\x1b[K";
  OutputLines::Options options = four_ranks();
  int columns = 80;
  options.live_line = true;
  options.columns = [&columns] { return columns; };
  Sink sink(options);
  sink.lines.add(0, StandardStream::error, "step 1/2\r", 0);
  CHECK(sink.news() == clear + "step 1/2");
  columns = 6;
  sink.add(0, "step=2\n", 0);
  CHECK(sink.news() == clear + "step=2\n" + clear + "step ");
  columns = 80;
  sink.add(0, "step=3\n", 0);
  CHECK(sink.news() == clear + "step=3\n" + clear + "step 1/2");
}

TEST_CASE("a live line that is still drawn goes at the end") {
  OutputLines::Options options = four_ranks();
  options.live_line = true;
  Sink sink(options);
  sink.lines.add(0, StandardStream::error, "step 1/1\r", 0);
  sink.news();
  sink.lines.finish();
  CHECK(sink.news() == "\r\x1b[K");
}

TEST_CASE("without a terminal a carriage return is a part of its line") {
  Sink sink(four_ranks());
  sink.lines.add(0, StandardStream::error, "10 %\r20 %\n", 0);
  CHECK(sink.news() == "10 %\r20 %\n");
}

TEST_CASE("lines can begin with a time stamp, and are folded all the same") {
  OutputLines::Options options = four_ranks();
  int lines = 0;
  options.time_stamp = [&lines] { return std::to_string(++lines) + " "; };
  Sink sink(options);
  sink.add(0, "a\n", 0);
  for (const int rank : {1, 2, 3}) sink.add(rank, "b\n", 0);
  CHECK(sink.news() == "1 a\n2 [ranks 1-3] b\n");
}

TEST_CASE("a line without end is broken, not kept for ever") {
  Sink sink(four_ranks());
  for (int i = 0; i < 70; ++i) sink.add(0, std::string(1024, 'x'), 0);
  CHECK(sink.news() == std::string(1 << 16, 'x') + "\n");
  sink.lines.finish();
  CHECK(sink.news() == std::string(6 * 1024, 'x') + "\n");
}

// The ranks that a written line names.
std::vector<int> ranks_of(const std::string& line) {
  std::vector<int> ranks;
  std::istringstream list(line.substr(line.find(' ') + 1, line.find(']')));
  for (int rank = 0; list >> rank;) {
    ranks.push_back(rank);
    const char next = static_cast<char>(list.get());
    if (next == '-') {
      int last = 0;
      list >> last;
      while (rank < last) ranks.push_back(++rank);
      list.get();
    }
  }
  return ranks;
}

TEST_CASE("whatever comes in whatever pieces: every rank's lines come out, in order") {
  const int seed = GENERATE(range(0, 20));
  std::mt19937 random(static_cast<unsigned>(seed));
  OutputLines::Options options;
  options.ranks = 6;
  Sink sink(options);
  std::map<int, std::string> sent, unsent;
  for (int rank = 1; rank < 6; ++rank)
    for (int i = 0; i < 200; ++i) unsent[rank] += fmt::format("line {}\n", random() % 4);
  sent = unsent;
  for (int64_t now = 0; !unsent.empty(); now += kMs) {
    auto next = unsent.begin();
    std::advance(next, random() % unsent.size());
    auto& [rank, rest] = *next;
    const size_t bytes = std::min<size_t>(rest.size(), random() % 40);
    sink.add(rank, rest.substr(0, bytes), now);
    rest.erase(0, bytes);
    if (rest.empty()) unsent.erase(next);
    if (random() % 8 == 0) sink.lines.flush_due(now);
  }
  sink.lines.finish();
  std::map<int, std::string> got;
  std::istringstream text(sink.text);
  for (std::string line; std::getline(text, line);)
    for (const int rank : ranks_of(line)) got[rank] += line.substr(line.find("] ") + 2) + "\n";
  CHECK(got == sent);
}

}  // namespace
}  // namespace dstrain
