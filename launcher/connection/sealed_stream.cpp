#include "launcher/connection/sealed_stream.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "launcher/connection/secret.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

// A frame: its header, the bytes, and the HMAC of both in hex digits. The header is the kind, the number of the bytes in
// two bytes, and 16 digits of the HMAC of these three, so that nobody can make this end wait for bytes.
constexpr size_t kHeadBytes = 3, kHeaderBytes = kHeadBytes + 16, kMacBytes = 64;
constexpr size_t kMostFrameBytes = 32768;
constexpr size_t kBuffer = 4 * (kHeaderBytes + kMostFrameBytes + kMacBytes);

std::string seal_of(const std::string& key, uint64_t number, std::string_view frame) {
  return hmac_sha256(key, fmt::format("{} {}", number, frame));
}

std::string sealed_header(const std::string& key, uint64_t number, const std::string& head) {
  return head + seal_of(key, number, head).substr(0, kHeaderBytes - kHeadBytes);
}

std::string head_of(Frame kind, size_t bytes) {
  return {static_cast<char>(kind), static_cast<char>(bytes >> 8), static_cast<char>(bytes & 0xFF)};
}

size_t bytes_in(std::string_view header) {
  return static_cast<size_t>(static_cast<unsigned char>(header[1])) << 8 |
         static_cast<unsigned char>(header[2]);
}

}  // namespace

SealedStream::SealedStream(int socket, DirectionKeys keys)
    : socket_(socket), keys_(std::move(keys)) {
  ::fcntl(socket_, F_SETFL, ::fcntl(socket_, F_GETFL) | O_NONBLOCK);
}

void SealedStream::send(Frame kind, std::string_view bytes) {
  do {
    const std::string_view part = bytes.substr(0, kMostFrameBytes);
    const std::string frame =
        sealed_header(keys_.send, sent_, head_of(kind, part.size())).append(part);
    outgoing_ += frame + seal_of(keys_.send, sent_++, frame);
    bytes.remove_prefix(part.size());
  } while (!bytes.empty());
  flush();
}

void SealedStream::flush() {
  while (!outgoing_.empty()) {
    const ssize_t n = ::send(socket_, outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) {  // the other end has gone, which receive() reports
      outgoing_.clear();
      return;
    }
    outgoing_.erase(0, static_cast<size_t>(n));
  }
}

bool SealedStream::receive(const Use& use) {
  std::array<char, 65536> buffer;
  while (!closed_ && incoming_.size() < kBuffer) {
    const ssize_t n = ::read(socket_, buffer.data(), std::min(buffer.size(), kBuffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    closed_ = n <= 0;
    if (n > 0) incoming_.append(buffer.data(), static_cast<size_t>(n));
  }
  while (next(use)) {
  }
  return !closed_;
}

// Uses a frame. Returns false if none has arrived as a whole.
bool SealedStream::next(const Use& use) {
  if (incoming_.size() < kHeaderBytes) return false;
  const std::string_view all(incoming_);
  const std::string header =
      sealed_header(keys_.receive, received_, incoming_.substr(0, kHeadBytes));
  if (!equal_in_constant_time(all.substr(0, kHeaderBytes), header)) {
    close();
    return false;
  }
  const size_t bytes = bytes_in(header), end = kHeaderBytes + bytes;
  if (all.size() < end + kMacBytes) return false;
  if (!equal_in_constant_time(all.substr(end, kMacBytes),
                              seal_of(keys_.receive, received_, all.substr(0, end)))) {
    close();
    return false;
  }
  ++received_;
  use(static_cast<Frame>(all[0]), all.substr(kHeaderBytes, bytes));
  incoming_.erase(0, end + kMacBytes);
  return true;
}

void SealedStream::close() {
  closed_ = true;
  fault_ = "bytes arrived on it that its other end has not sent";
  incoming_.clear();
}

}  // namespace dstrain
