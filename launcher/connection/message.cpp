#include "launcher/connection/message.h"

#include "runtime/core/error.h"

namespace dstrain {

std::string message_fault(const std::function<void()>& read) {
  try {
    read();
    return "";
  } catch (const nlohmann::json::exception& e) {
    return e.what();
  } catch (const MalformedMessage& e) {
    return e.what();
  }
}

int64_t integer_member(const nlohmann::json& message, const char* name, int64_t least,
                       int64_t most) {
  const auto member = message.find(name);
  const bool fits = member != message.end() && member->is_number_integer() &&
                    (!member->is_number_unsigned() ||
                     member->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
  if (!fits || member->get<int64_t>() < least || member->get<int64_t>() > most)
    throw MalformedMessage(
        fmt::format("expected '{}' to be an integer from {} to {}", name, least, most));
  return member->get<int64_t>();
}

}  // namespace dstrain
