// The letters that stand for bytes in the vocabularies of byte-level tokenizers: printable bytes of Latin-1 for
// themselves, U+0100 and on for the others.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dstrain {

// Returns the bytes that the letters of `token`, valid UTF-8, stand for; nothing if one of them stands for none.
std::optional<std::string> bytes_of_letters(std::string_view token);

// Returns the bytes that are decoded from a token: those of its letters, or else its own.
std::string decoded_bytes(std::string_view token);

}  // namespace dstrain
