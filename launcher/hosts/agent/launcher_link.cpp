#include "launcher/hosts/agent/launcher_link.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "launcher/connection/tcp_socket.h"

namespace dstrain {
std::optional<SshConnection> parse_ssh_connection(const std::string& text) {
  SshConnection c;
  std::istringstream words(text);
  if (!(words >> c.client >> c.client_port >> c.server >> c.server_port)) return std::nullopt;
  return c;
}

bool client_answers(const SshConnection& c, const std::vector<TcpSocket>& sockets) {
  return std::any_of(sockets.begin(), sockets.end(), [&c](const TcpSocket& s) {
    return s.established && s.remote == c.client && s.remote_port == c.client_port &&
           s.local_port == c.server_port && s.retries < kVainRetries;
  });
}

LauncherLink::LauncherLink(bool watched) : watched_(watched) {
  if (const char* text = std::getenv("SSH_CONNECTION")) connection_ = parse_ssh_connection(text);
}

bool LauncherLink::answers() const {
  if (watched_) return true;
  return connection_ && client_answers(*connection_, tcp_sockets());
}

}  // namespace dstrain
