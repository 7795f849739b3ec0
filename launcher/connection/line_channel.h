// LineChannel: JSON objects, one per line, over a pair of descriptors: between the launching process and the agent on
// each host, between watchers, and between nodes. Never blocks. Invariant: whatever the other end sends, no exception
// of the JSON library leaves the channel; what is no message closes it with a reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/process/descriptor.h"

namespace dstrain {

// The longest message in bytes: of a process of the run, and of one that has not shown yet that it is one.
inline constexpr size_t kLongestMessage = size_t{64} << 20;
inline constexpr size_t kLongestGreeting = 4096;

// Ends a line that its writer could not finish, as another process says that writes after it. Such a line is dropped.
inline constexpr char kCancelsLine = '\x18';

// The keys of a connection's two directions, as one end has them.
struct DirectionKeys {
  std::string send, receive;
};

class LineChannel {
 public:
  // Takes descriptors to read from and to write to, and makes them non-blocking. The caller keeps owning them. A line
  // of more than `longest_line` bytes closes the channel.
  LineChannel(int in, int out, size_t longest_line = kLongestMessage);

  // Reads a message; an exception of message_fault() says that it is malformed.
  using Use = std::function<void(const nlohmann::json& message)>;

  // Reads what has arrived, and calls `use` for each message, `most` at most. A line that is no object, or that is
  // malformed, closes the channel. Returns false once the channel is closed and every message has been used.
  bool receive(const Use& use, size_t most = SIZE_MAX);
  // From now on every message is sent with an HMAC of `keys.send`, and must arrive with one of `keys.receive`, in the
  // order in which they were sent; else the channel closes.
  void authenticate(DirectionKeys keys);
  // Returns keys for another protocol that follows on this connection. They follow from those of authenticate(), which
  // must have been called.
  DirectionKeys keys_for(std::string_view protocol) const;
  // Admits the other end as a process of the run: lines may be of kLongestMessage bytes from now on.
  void admit() { longest_line_ = kLongestMessage; }
  // Why this end closed the channel; empty if the other end closed it, or it is open.
  const std::string& fault() const { return fault_; }

  void send(const nlohmann::json& message);
  // Writes what can be written now. The caller must repeat it until unsent() is 0.
  void flush();
  // Bytes that are still to be written.
  size_t unsent() const { return outgoing_.size(); }

 private:
  void read();
  std::optional<nlohmann::json> next();
  void close(const std::string& fault);

  int in_, out_;
  size_t longest_line_;
  std::string incoming_, outgoing_;
  DirectionKeys keys_;                // empty: messages carry no HMAC
  uint64_t sent_ = 0, received_ = 0;  // messages with an HMAC
  size_t scanned_ = 0;                // bytes of incoming_ that are known to have no line break
  bool closed_ = false;
  std::string fault_;
};

// A channel over a socket, which it owns.
struct SocketChannel {
  explicit SocketChannel(Descriptor connection, size_t longest_line = kLongestMessage)
      : socket(std::move(connection)), channel(socket.get(), socket.get(), longest_line) {}
  Descriptor socket;
  LineChannel channel;
};

// Any bytes as text that JSON can hold, and back. Each byte from 128 up becomes one character.
std::string to_json_text(std::string_view bytes);
std::string from_json_text(std::string_view text);

}  // namespace dstrain
