#include "runtime/data/tokenizer/bpe/byte_letters.h"

#include <array>

#include "runtime/data/utf8.h"

namespace dstrain {
namespace {

constexpr int kLetters = 0x144;

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

// Entry c: the byte that letter c stands for; -1: none.
constexpr std::array<int16_t, kLetters> letter_bytes() {
  std::array<int16_t, kLetters> bytes{};
  bytes.fill(-1);
  int others = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const int letter = stands_for_itself(byte) ? byte : 256 + others++;
    bytes[static_cast<size_t>(letter)] = static_cast<int16_t>(byte);
  }
  return bytes;
}

constexpr std::array<int16_t, kLetters> kBytes = letter_bytes();

}  // namespace

std::optional<std::string> bytes_of_letters(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  for (size_t at = 0; at < token.size();) {
    const utf8::Character c =
        utf8::decode_valid(reinterpret_cast<const unsigned char*>(token.data()) + at);
    if (c.code >= kBytes.size() || kBytes.at(c.code) < 0) return std::nullopt;
    bytes += static_cast<char>(kBytes.at(c.code));
    at += static_cast<size_t>(c.bytes);
  }
  return bytes;
}

std::string decoded_bytes(std::string_view token) {
  return bytes_of_letters(token).value_or(std::string(token));
}

}  // namespace dstrain
