// Messages of other processes: JSON objects that arrive on a connection. Whatever another program sends, only this
// process's own errors leave the functions that read messages.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace dstrain {

// The exception for a message whose content is not what this program sends.
class MalformedMessage : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Calls `read`, which reads a message. Returns what is wrong with the message, from MalformedMessage or an exception of
// the JSON library; empty if nothing is. Passes on other exceptions.
std::string message_fault(const std::function<void()>& read);

// Returns a member of a message that is an integer from `least` to `most`. Throws MalformedMessage if it is none: the
// JSON library would convert any number.
int64_t integer_member(const nlohmann::json& message, const char* name, int64_t least,
                       int64_t most);

}  // namespace dstrain
