#include "launcher/hosts/ssh.h"

#include "launcher/cli/command_names.h"
#include "launcher/process/program_path.h"
#include "runtime/config/shell_quote.h"
#include "runtime/core/error.h"

namespace dstrain {

std::vector<std::string> ssh_words(const SshOptions& options) {
  if (options.relay) return own_command({kRelayCommand});
  const std::string ssh = find_on_path("ssh");
  if (ssh.empty())
    fail_user("ssh is not on PATH, and other hosts need it: install it (Debian: openssh-client)");
  std::vector<std::string> words = {ssh,
                                    "-x",
                                    "-T",
                                    "-oBatchMode=yes",
                                    fmt::format("-oConnectTimeout={}", options.connect_seconds),
                                    "-oServerAliveInterval=2",
                                    "-oServerAliveCountMax=3"};
  if (options.port) words.push_back(fmt::format("-oPort={}", *options.port));
  return words;
}

std::vector<std::string> ssh_command(const SshOptions& options, const std::string& host,
                                     const std::vector<std::string>& program) {
  check(!host.empty() && !host.starts_with('-'), "'{}' as the name of a host", host);
  std::vector<std::string> words = ssh_words(options);
  words.push_back("--");
  words.push_back(host);
  words.push_back(shell_command(program));
  return words;
}

}  // namespace dstrain
