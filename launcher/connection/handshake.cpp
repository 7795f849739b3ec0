#include "launcher/connection/handshake.h"

#include <random>
#include <utility>

#include "runtime/core/error.h"

namespace dstrain {

std::string random_token() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}", device(), device(), device());
}

void PendingConnections::serve(const TcpListener& listener, const Use& use) {
  while (auto socket = listener.accept())
    pending_.push_back(std::make_unique<SocketChannel>(std::move(*socket)));
  std::erase_if(pending_, [&use](std::unique_ptr<SocketChannel>& connection) {
    const bool open = connection->channel.receive();
    const auto message = connection->channel.next();
    if (!message) return !open || !connection->channel.fault().empty();
    use(connection, *message);
    return true;
  });
}

}  // namespace dstrain
