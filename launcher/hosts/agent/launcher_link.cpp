#include "launcher/hosts/agent/launcher_link.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

namespace dstrain {
namespace {

// Data that was sent again so often without an acknowledgement counts as unanswered, which takes two seconds if an
// answer takes 20 ms. A link that loses frames rarely loses the same one so often.
constexpr int64_t kVainRetries = 3;

}  // namespace

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

LauncherLink::LauncherLink(bool here) : here_(here) {
  if (const char* text = std::getenv("SSH_CONNECTION")) connection_ = parse_ssh_connection(text);
}

bool LauncherLink::answers() const {
  return here_ || (connection_ && client_answers(*connection_, tcp_sockets()));
}

}  // namespace dstrain
