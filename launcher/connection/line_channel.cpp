#include "launcher/connection/line_channel.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "launcher/connection/message.h"
#include "launcher/connection/secret.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

// write() that fails with EPIPE if the reader has gone, instead of raising SIGPIPE.
ssize_t write_quietly(int out, std::string_view text) {
  sigset_t pipe, before, pending;
  ::sigemptyset(&pipe);
  ::sigaddset(&pipe, SIGPIPE);
  ::sigpending(&pending);
  ::pthread_sigmask(SIG_BLOCK, &pipe, &before);
  const ssize_t n = ::write(out, text.data(), text.size());
  const int error = errno;
  const timespec none{};
  if (n < 0 && error == EPIPE && ::sigismember(&pending, SIGPIPE) == 0)
    ::sigtimedwait(&pipe, nullptr, &none);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return n;
}

constexpr size_t kMacDigits = 64;

std::string mac_of(const std::string& key, uint64_t number, std::string_view text) {
  return hmac_sha256(key, fmt::format("{} {}", number, text));
}

}  // namespace

LineChannel::LineChannel(int in, int out, size_t longest_line)
    : in_(in), out_(out), longest_line_(longest_line) {
  for (const int fd : {in, out}) ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
}

void LineChannel::authenticate(DirectionKeys keys) {
  keys_ = std::move(keys);
}

DirectionKeys LineChannel::keys_for(std::string_view protocol) const {
  check(!keys_.send.empty() && !keys_.receive.empty(), "keys of a channel that has none");
  const std::string purpose = fmt::format("dstrain protocol {}", protocol);
  return {hmac_sha256(keys_.send, purpose), hmac_sha256(keys_.receive, purpose)};
}

bool LineChannel::receive(const Use& use, size_t most) {
  read();
  for (size_t i = 0; i < most; ++i) {
    const std::optional<nlohmann::json> message = next();
    if (!message) break;
    if (const std::string fault = message_fault([&] { use(*message); }); !fault.empty())
      close("a malformed message: " + fault);
  }
  return !closed_ || incoming_.find('\n') != std::string::npos;
}

void LineChannel::close(const std::string& fault) {
  closed_ = true;
  fault_ = fault;
  incoming_.clear();
  scanned_ = 0;
}

// Never holds more than the longest line and its line break, so that lines that are not used yet wait in the kernel.
void LineChannel::read() {
  std::array<char, 65536> buffer;
  while (!closed_ && incoming_.size() <= longest_line_) {
    const ssize_t n =
        ::read(in_, buffer.data(), std::min(buffer.size(), longest_line_ + 1 - incoming_.size()));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    closed_ = n <= 0;
    if (n > 0) incoming_.append(buffer.data(), static_cast<size_t>(n));
  }
  if (incoming_.size() > longest_line_ && incoming_.find('\n', scanned_) == std::string::npos)
    close(fmt::format("a message of more than {} bytes", longest_line_));
}

std::optional<nlohmann::json> LineChannel::next() {
  size_t end = incoming_.find('\n', scanned_);
  while (keys_.receive.empty() && end != std::string::npos && end > 0 &&
         incoming_[end - 1] == kCancelsLine) {
    incoming_.erase(0, end + 1);
    scanned_ = 0;
    end = incoming_.find('\n');
  }
  if (end == std::string::npos) {
    scanned_ = incoming_.size();
    return std::nullopt;
  }
  size_t begin = 0;
  if (!keys_.receive.empty()) {
    begin = std::min(kMacDigits, end);
    const std::string_view line(incoming_.data(), end);
    const std::string mac = mac_of(keys_.receive, received_++, line.substr(begin));
    if (!equal_in_constant_time(line.substr(0, begin), mac)) {
      close("a message that this connection's other end has not sent");
      return std::nullopt;
    }
  }
  nlohmann::json message =
      nlohmann::json::parse(incoming_.begin() + static_cast<ptrdiff_t>(begin),
                            incoming_.begin() + static_cast<ptrdiff_t>(end), nullptr, false);
  if (!message.is_object()) {
    close(fmt::format("expected a JSON object, got '{}'",
                      printable(incoming_.substr(0, std::min<size_t>(end, 200)))));
    return std::nullopt;
  }
  incoming_.erase(0, end + 1);
  scanned_ = 0;
  return message;
}

void LineChannel::send(const nlohmann::json& message) {
  // Paths and options have been checked, so what is replaced is in names that are only shown, as a host's.
  const std::string text = message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (!keys_.send.empty()) outgoing_ += mac_of(keys_.send, sent_++, text);
  outgoing_ += text + '\n';
  flush();
}

void LineChannel::flush() {
  while (!outgoing_.empty()) {
    const ssize_t n = write_quietly(out_, outgoing_);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) {  // the reader has gone, which receive() reports
      outgoing_.clear();
      return;
    }
    outgoing_.erase(0, static_cast<size_t>(n));
  }
}

// Latin-1 into UTF-8 and back.
std::string to_json_text(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      text += c;
    } else {
      text += static_cast<char>(0xC0 | byte >> 6);
      text += static_cast<char>(0x80 | (byte & 0x3F));
    }
  }
  return text;
}

std::string from_json_text(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x80 || i + 1 == text.size())
      bytes += text[i];
    else
      bytes +=
          static_cast<char>((byte & 0x03) << 6 | (static_cast<unsigned char>(text[++i]) & 0x3F));
  }
  return bytes;
}

}  // namespace dstrain
