// The words of an ssh command. Pure. No shell on this side ever sees them; the one on the other side
// gets its words quoted.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace dstrain {

struct SshOptions {
  std::optional<int64_t> port;
  std::vector<std::string> words;  // further options
  int connect_seconds = 10;
  bool relay = false;  // no ssh: the hosts were started by hand (launcher/nodes/relay.h)
};

// ssh itself and its options, without a host; in its place the relay of this program, where there is no ssh: asks for no password, answers within the deadline, and
// notices a dead connection. Throws UserError where no ssh is on PATH.
std::vector<std::string> ssh_words(const SshOptions& options);

// ssh_words() to run `program` with its words on `host`.
std::vector<std::string> ssh_command(const SshOptions& options, const std::string& host,
                                     const std::vector<std::string>& program);

}  // namespace dstrain
