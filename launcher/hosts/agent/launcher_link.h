// LauncherLink: whether the machine of the launching process still answers, as an agent finds it out when the
// launching process itself is silent: suspended (Ctrl-Z), or blocked at a terminal that takes no more, it says
// nothing, while the kernel of its machine goes on to acknowledge what is sent there. Stands on tcp_table.h.
#pragma once

#include <optional>
#include <string>

#include "launcher/hosts/agent/tcp_table.h"

namespace dstrain {

// The ends of an ssh session, as sshd tells them in SSH_CONNECTION: "ADDRESS PORT ADDRESS PORT" of the client
// and of this host.
struct SshConnection {
  std::string client, server;
  int client_port = 0, server_port = 0;
};
std::optional<SshConnection> parse_ssh_connection(const std::string& text);

// Whether the client's machine acknowledges what it is sent. Pure. False where the connection is not among the
// sockets: nothing is known then.
bool client_answers(const SshConnection& connection, const std::vector<TcpSocket>& sockets);

class LauncherLink {
 public:
  // `here`: the launching process is on this machine, and cannot vanish without closing the connection.
  explicit LauncherLink(bool here);

  bool answers() const;

 private:
  bool here_;
  std::optional<SshConnection> connection_;
};

}  // namespace dstrain
