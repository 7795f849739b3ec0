// Culprit: who began it, when a run comes to grief, found from what all hosts report. Pure. A rank that
// ended, stopped or failed for a reason of its own comes before those that failed for its sake; among
// the first kind the earliest, or whom it waited for; of those at the same moment one that vanished.
// Where all only waited too long it is the rank at the end of their waits.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launcher/supervise/host_view.h"

namespace dstrain {

// One host's part of the evidence, as its view has it.
struct HostReport {
  std::string name;
  std::string lost;
  int64_t lost_ns = 0;
  std::span<const RankReport> ranks;
  StarterReport starter{};
  Loss loss = Loss::host;
};

// The limits after which silence is a fault, in nanoseconds.
struct Patience {
  int64_t instruction = 600'000'000'000;  // without a sign of progress
  int64_t suspended = 2'000'000'000;      // as a stopped process
  int64_t start = 60'000'000'000;         // while ranks begin, without one more that does
};

struct Culprit {
  enum class Kind { vanished, suspended, hung, failed, host_lost, starter_ended, starter_stopped };
  struct Waiting {
    std::string in;          // "all_reduce blocks.3"; may be empty
    std::vector<int> ranks;  // ascending
  };
  Kind kind = Kind::vanished;
  std::string host;              // empty: this machine, the only one
  std::string lost;              // host_lost: why
  Loss loss = Loss::host;        // and what
  RankReport rank;               // of kinds host_lost and starter_*: no rank
  StarterReport starter;         // of the host
  double seconds = 0;            // hung or suspended for so long
  std::vector<Waiting> waiting;  // who waited for it where
};

// Whether anything is wrong yet.
bool any_trouble(std::span<const HostReport> hosts, const Patience& patience, int64_t now);

// Whether all that is wrong is that ranks complain about others, who have not been heard of yet.
bool only_complaints(std::span<const HostReport> hosts, const Patience& patience, int64_t now);

// The culprit; nobody where nothing is wrong.
std::optional<Culprit> find_culprit(std::span<const HostReport> hosts, const Patience& patience,
                                    int64_t now);

// "rank 1 (pid 4711 on node2)"
std::string name_of(const RankReport& rank, const std::string& host);

// "was killed by signal 9 (Killed)", "ended by itself with exit status 3", of what waitpid() says.
std::string ending_text(int wait_status);

// One line: who, where, why, and who waited for it where. `ending`: how a vanished rank ended ("was
// killed by signal 9 (Killed)"). A rank's complaint about the user's input stands alone.
std::string describe(const Culprit& culprit, const std::string& ending);

}  // namespace dstrain
