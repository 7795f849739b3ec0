// The messages of a run that fails: three processes, the last of which causes the failure.
#include <fmt/core.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <future>
#include <regex>
#include <string>
#include <utility>
#include <vector>

namespace {

struct FailedRun {
  std::string output;
  int status = 0;

  // The line that rank `r` printed.
  std::string line_of(int r) const {
    std::smatch match;
    const std::regex line(fmt::format("rank {}: (.*?)\\n", r));
    return std::regex_search(output, match, line) ? match[1].str() : "";
  }
};

// With --enable-recovery mpirun lets the other ranks print after one has failed; else it kills them a second later.
FailedRun run(const std::string& how, const std::string& transport) {
  const std::string command = fmt::format(
      "DSTRAIN_COMM={} '{}' --enable-recovery --oversubscribe --bind-to none -np "
      "3 '{}/bin/failing_ranks' {} 2>&1",
      transport, DSTRAIN_MPIEXEC, DSTRAIN_BINARY_DIR, how);
  FILE* pipe = ::popen(command.c_str(), "r");
  FailedRun failed;
  if (!pipe) return failed;
  std::array<char, 4096> buffer{};
  while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe))
    failed.output.append(buffer.data(), n);
  failed.status = ::pclose(pipe);
  return failed;
}

// With shared memory, with messages, and with the last rank on another pretended machine, alone there or
// not; two at a time.
std::vector<FailedRun> run_all(const std::string& how) {
  std::vector<FailedRun> all;
  for (const auto& [one, other] : {std::pair("auto", "mpi"), std::pair("hosts:2", "hosts:0,1,1")}) {
    auto first = std::async(std::launch::async, run, how, one);
    all.push_back(run(how, other));
    all.push_back(first.get());
  }
  return all;
}

void check_line(const FailedRun& failed, int r, const std::string& pattern) {
  INFO(failed.output);
  CAPTURE(r, pattern);
  REQUIRE(std::regex_match(failed.line_of(r), std::regex(pattern)));
}

}  // namespace

TEST_CASE("the others name a rank that was killed, and do not wait for their deadline") {
  for (const FailedRun& failed : run_all("killed")) {
    for (int r : {0, 1}) {
      check_line(failed, r,
                 "(rank [01] stopped the run: )?rank 2 \\(pid \\d+\\) died while rank [01] "
                 "waited for it in all_reduce #4 \\(16 bytes of f32\\)");
    }
  }
}

TEST_CASE("every rank names both sides where sizes or kinds differ") {
  const std::string first =
      "(rank \\d stopped the run: )?the ranks do not do the same: "
      "rank 0 is at all_reduce #4 \\(16 bytes of f32\\), ";
  for (const FailedRun& size : run_all("size")) {
    for (int r : {0, 1, 2})
      check_line(size, r, first + "rank 2 at all_reduce #4 \\(20 bytes of f32\\)");
  }
  for (const FailedRun& large : run_all("large")) {
    for (int r : {0, 1, 2})
      check_line(large, r,
                 "(rank \\d stopped the run: )?the ranks do not do the same: rank 0 is at "
                 "all_reduce #4 \\(4194304 bytes of f32\\), rank 1 at all_reduce #4 "
                 "\\(16 bytes of f32\\)");
  }
  const FailedRun kind = run("kind", "auto");
  for (int r : {0, 1, 2}) check_line(kind, r, first + "rank 2 at barrier #4");
}

TEST_CASE("an all-to-all names who died and who does something else") {
  for (const FailedRun& failed : run_all("exchange_killed"))
    for (int r : {0, 1})
      check_line(failed, r,
                 "(rank [01] stopped the run: )?rank 2 \\(pid \\d+\\) died while rank [01] "
                 "waited for it in all_to_all #4 \\(8 bytes of f32\\)");
  for (const FailedRun& failed : run_all("exchange_kind"))
    for (int r : {0, 1, 2})
      check_line(failed, r,
                 "(rank \\d stopped the run: )?the ranks do not do the same: rank 0 is at "
                 "all_to_all #4 \\(8 bytes of f32\\), rank 2 at all_reduce #4 \\(16 bytes of "
                 "f32\\)");
}

TEST_CASE("an abort from another thread reaches every rank with its reason") {
  for (const FailedRun& failed : run_all("abort")) {
    for (int r : {0, 1, 2})
      check_line(failed, r, "rank 2 stopped the run: no space left on the disk");
  }
}

TEST_CASE("a rank that unwinds stops the others") {
  for (const FailedRun& failed : run_all("exception")) {
    for (int r : {0, 1})
      check_line(failed, r,
                 "rank 2 stopped the run: an error on that rank, which its own message tells");
    check_line(failed, 2, "its own trouble");
  }
}

TEST_CASE("a wait ends at the deadline, naming the rank and the operation") {
  for (const FailedRun& failed : run_all("deadline")) {
    for (int r : {0, 1})
      check_line(
          failed, r,
          "(rank [01] stopped the run: )?rank [01] waited [0-9.]+ s for rank 2 \\(pid \\d+\\) "
          "in all_reduce #4 \\(16 bytes of f32\\): the deadline is 0\\.4 s");
  }
}

TEST_CASE("a failure in a part of the ranks names ranks of the world and stops all") {
  const std::string stopped = "rank \\d stopped the run: ";
  const std::string dead = "rank 2 \\(pid \\d+\\) died while rank ";
  for (const auto& [how, operation] :
       {std::pair("part_killed", "all_reduce #2 \\(16 bytes of f32\\)"),
        std::pair("part_message", "message #2 \\(16 bytes of f32 from rank 2\\)")})
    for (const FailedRun& failed : run_all(how)) {
      const std::string in_part = dead + "1 waited for it in " + operation;
      const std::string in_world = dead + "0 waited for it in barrier #\\d+";
      for (int r : {0, 1})
        check_line(failed, r, "(" + stopped + ")?(" + in_part + "|" + in_world + ")");
    }
  for (const FailedRun& failed : run_all("part_kind"))
    for (int r : {0, 1, 2})
      check_line(failed, r,
                 "(" + stopped +
                     ")?the ranks do not do the same: rank 1 is at all_reduce #2 \\(16 bytes of "
                     "f32\\), rank 2 at message #2 \\(16 bytes of f32 from rank 2\\)");
  for (const FailedRun& failed : run_all("part_abort"))
    for (int r : {0, 1, 2})
      check_line(failed, r, "rank 2 stopped the run: no space left on the disk");
  for (const FailedRun& failed : run_all("part_deadline"))
    for (int r : {0, 1})
      check_line(failed, r,
                 "(" + stopped +
                     ")?rank 1 waited [0-9.]+ s for rank 2 \\(pid \\d+\\) in all_reduce #2 "
                     "\\(16 bytes of f32\\): the deadline is 0\\.4 s");
}

TEST_CASE("where the ranks of one machine cannot share memory, all use messages") {
  const FailedRun failed = run("refused", "hosts:2");
  check_line(failed, 0, "sum 3, 1 warnings the ranks cannot share memory.*Permission denied");
  check_line(failed, 2, "sum 3, 0 warnings ");
}

TEST_CASE("where a peer's memory cannot be opened messages are used, with one warning") {
  const FailedRun failed = run("refused", "auto");
  check_line(failed, 0,
             "sum 3, 1 warnings the ranks cannot share memory, messages are used instead "
             "\\(slower\\): cannot open a peer's shared memory at /proc/\\d+/fd/\\d+: Permission "
             "denied");
  check_line(failed, 1, "sum 3, 0 warnings ");
  REQUIRE(failed.status == 0);
}
