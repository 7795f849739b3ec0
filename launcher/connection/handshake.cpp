#include "launcher/connection/handshake.h"

#include <optional>
#include <random>
#include <utility>

#include "launcher/connection/message.h"
#include "runtime/core/error.h"

namespace dstrain {

std::string random_token() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}", device(), device(), device());
}

void PendingConnections::serve(const TcpListener& listener, int64_t now_ns, const Use& use) {
  pending_.accept(listener, now_ns);
  pending_.serve([&use](Pending& pending) {
    std::optional<nlohmann::json> greeting;
    const bool open = pending.connection->channel.receive(
        [&greeting](const nlohmann::json& message) { greeting = message; }, 1);
    if (!greeting) return !open;
    LineChannel& channel = pending.connection->channel;
    message_fault([&] { use(pending.connection, *greeting); });
    if (!pending.connection) channel.admit();
    return true;
  });
}

}  // namespace dstrain
