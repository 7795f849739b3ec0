// The words of an ssh command. Pure except for finding ssh on PATH. No shell on this host reads them; the shell on the
// other host gets its words quoted.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace dstrain {

// The settings of every ssh command that dstrain runs.
struct SshOptions {
  std::optional<int64_t> port;
  int connect_seconds = 10;
  bool relay =
      false;  // use `dstrain relay` instead: the hosts were started by hand (nodes/relay.h)
};

// Returns ssh and its options without a host, or the relay in its place. This ssh asks for no password, fails after a
// timeout, and notices a dead connection. Throws UserError if ssh is not on PATH.
std::vector<std::string> ssh_words(const SshOptions& options);

// Returns the command that runs `program`, with its words, on `host`.
std::vector<std::string> ssh_command(const SshOptions& options, const std::string& host,
                                     const std::vector<std::string>& program);

}  // namespace dstrain
