// RankReporter: tells the other end of a channel what this host's ranks do: at once where something changes
// that it must know of, everything once a second. Stands on BoardView and messages.h.
#pragma once

#include <string>

#include "launcher/hosts/channel.h"
#include "launcher/supervise/board_view.h"

namespace dstrain {

// What else a report says.
struct ReportAddition {
  std::string state;       // what of it must be told at once
  nlohmann::json members;  // further members of the message
};

class RankReporter {
 public:
  // `view` outlives the reporter.
  explicit RankReporter(BoardView& view) : view_(view) {}

  // Looks at the ranks, and sends a message "ranks" where it is time. Where the other end does not listen only
  // changes are sent.
  void report(LineChannel& channel, bool listens = true, const ReportAddition& addition = {});

 private:
  std::string summary() const;

  BoardView& view_;
  std::string sent_;
  int64_t sent_ns_ = 0;
};

}  // namespace dstrain
