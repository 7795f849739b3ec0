// LauncherLink: lets an agent check whether the launching process's machine still answers. Silence of the process alone
// does not show that it is lost: if it is suspended (Ctrl-Z) or blocked in a write to a terminal, it sends nothing, but
// the kernel of its machine still acknowledges what the agent sends.
#pragma once

#include <optional>
#include <string>

#include "launcher/hosts/agent/tcp_table.h"

namespace dstrain {

// The two ends of an ssh connection.
struct SshConnection {
  std::string client, server;
  int client_port = 0, server_port = 0;
};
// Parses sshd's variable SSH_CONNECTION: "ADDRESS PORT ADDRESS PORT" of the client and of this host.
std::optional<SshConnection> parse_ssh_connection(const std::string& text);

// Returns whether the client's machine acknowledges what is sent to it. Returns false if the connection is not among
// the sockets. Pure.
bool client_answers(const SshConnection& connection, const std::vector<TcpSocket>& sockets);

class LauncherLink {
 public:
  // `watched`: the agent needs no check, because whoever started it ends the connection when it is lost: the launching
  // process itself, on this machine, or a node that was started by hand.
  explicit LauncherLink(bool watched);

  bool answers() const;

 private:
  bool watched_;
  std::optional<SshConnection> connection_;
};

}  // namespace dstrain
