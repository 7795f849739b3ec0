// Reads any bytes as a line of fine-tuning data, which is encoded by a tokenizer of bytes or ends with one UserError.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/data/chat/conversation_encoder.h"

namespace {

std::string tokenizer_of_bytes() {
  nlohmann::json vocabulary;
  uint32_t other = 0x100;  // the letter of the next byte that is not printed
  for (uint32_t byte = 0; byte < 0x100; ++byte) {
    const bool is_printed = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
    std::string letter;
    dstrain::append_utf8(letter, is_printed ? byte : other++);
    vocabulary[letter] = byte;
  }
  return nlohmann::json{
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
      {"normalizer", {{"type", "NFC"}}}}
      .dump();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const dstrain::Tokenizer tokenizer(tokenizer_of_bytes(), "tokenizer.json");
  static const dstrain::ChatTemplate chat_template(
      "{% for m in messages %}<{{ m.role }}>{{ m.content }};{% endfor %}{% if "
      "add_generation_prompt %}<assistant>{% endif %}",
      "t", {});
  dstrain::ChatEncoding encoding;
  encoding.chat_template = &chat_template;
  try {
    std::map<std::string, int64_t> ignored;
    const dstrain::ChatLine line = dstrain::read_chat_line(
        {reinterpret_cast<const char*>(data), size}, [] { return "line"; }, ignored);
    dstrain::EncodedConversation encoded;
    dstrain::ConversationEncoder(tokenizer, encoding).encode(line, encoded, ignored);
    if (encoded.ids.size() != encoded.counts.size()) std::abort();
  } catch (const dstrain::UserError&) {
  }
  return 0;
}
