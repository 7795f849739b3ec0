// LineChannel: JSON objects, one per line, over a pair of descriptors: between the launching process and the agent on
// each host, between watchers, and between nodes. Never blocks. Invariant: every received message is an object;
// anything else closes the channel with a reason.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/process/descriptor.h"

namespace dstrain {

class LineChannel {
 public:
  // Takes descriptors to read from and to write to, and makes them non-blocking. The caller keeps owning them.
  LineChannel(int in, int out);

  // Reads what has arrived. Returns false once the channel is closed and next() has returned every message.
  bool receive();
  // Returns the next message that has arrived.
  std::optional<nlohmann::json> next();
  // Why this end closed the channel; empty if the other end closed it, or it is open.
  const std::string& fault() const { return fault_; }

  void send(const nlohmann::json& message);
  // Writes what can be written now. The caller must repeat it until unsent() is 0.
  void flush();
  // Bytes that are still to be written.
  size_t unsent() const { return outgoing_.size(); }

 private:
  int in_, out_;
  std::string incoming_, outgoing_;
  size_t scanned_ = 0;  // bytes of incoming_ that are known to have no line break
  bool closed_ = false;
  std::string fault_;
};

// A channel over a socket, which it owns.
struct SocketChannel {
  explicit SocketChannel(Descriptor connection)
      : socket(std::move(connection)), channel(socket.get(), socket.get()) {}
  Descriptor socket;
  LineChannel channel;
};

// Any bytes as text that JSON can hold, and back. Each byte from 128 up becomes one character.
std::string to_json_text(std::string_view bytes);
std::string from_json_text(std::string_view text);

}  // namespace dstrain
