// LineChannel: JSON objects, one a line, over a pair of descriptors, between the launching process and
// the agent on each host. Never blocks. Stands on nlohmann_json. Invariant: what is received is an
// object; anything else closes the channel with a reason.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace dstrain {

class LineChannel {
 public:
  // Descriptors to read from and write to; they stay the caller's, and become non-blocking.
  LineChannel(int in, int out);

  // Reads what has come. False once the channel is closed and all of it has been taken.
  bool receive();
  // The next object that has come.
  std::optional<nlohmann::json> take();
  // Why the channel is closed: "" where the other end closed it, or nobody has.
  const std::string& fault() const { return fault_; }

  void send(const nlohmann::json& message);
  // Writes what can be written now; call it until unsent() is 0.
  void flush();
  size_t unsent() const { return outgoing_.size(); }

 private:
  int in_, out_;
  std::string incoming_, outgoing_;
  size_t scanned_ = 0;  // of incoming_: no line break there
  bool closed_ = false;
  std::string fault_;
};

// Text as JSON can hold it: bytes that are no UTF-8 become one character each, and back.
std::string to_json_text(std::string_view bytes);
std::string from_json_text(std::string_view text);

}  // namespace dstrain
