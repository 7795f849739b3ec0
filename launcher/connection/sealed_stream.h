// SealedStream: bytes of other programs over a socket whose ends have proved to know a key (handshake.h). They travel in
// frames, each with an HMAC of its contents and its number in a key of its direction. Invariant: what receive() passes
// on is what the other end has sent, in its order and from its beginning. Nothing is encrypted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "launcher/connection/line_channel.h"

namespace dstrain {

// What a frame holds. `begin`: nothing; the other end is ready. `data`: bytes of a program. `end`: nothing; no data
// follows. `fault`: a text that says why the other end gives up.
enum class Frame : char { begin = 'b', data = 'd', end = 'e', fault = 'f' };

class SealedStream {
 public:
  // Takes a connected socket, which the caller keeps owning, and makes it non-blocking.
  SealedStream(int socket, DirectionKeys keys);

  // Sends frames of a kind with `bytes`, several if these are many.
  void send(Frame kind, std::string_view bytes = {});
  // Writes what can be written now. The caller must repeat it until unsent() is 0.
  void flush();
  size_t unsent() const { return outgoing_.size(); }

  using Use = std::function<void(Frame kind, std::string_view bytes)>;
  // Reads what has arrived, as far as it fits into a buffer, and calls `use` for each frame. Returns false once the
  // connection has ended, or this end has closed the stream, and every frame has been used.
  bool receive(const Use& use);
  // Why this end closed the stream: a frame that the other end has not sent. Empty if it did not.
  const std::string& fault() const { return fault_; }

 private:
  bool next(const Use& use);
  void close();

  int socket_;
  DirectionKeys keys_;
  std::string incoming_, outgoing_;
  uint64_t sent_ = 0, received_ = 0;  // frames
  bool closed_ = false;
  std::string fault_;
};

}  // namespace dstrain
