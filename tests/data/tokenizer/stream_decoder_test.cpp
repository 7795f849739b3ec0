// The text of ids that come one after another.
#include "runtime/data/tokenizer/stream_decoder.h"

#include <array>
#include <catch2/catch.hpp>
#include <random>

#include "runtime/config/text.h"
#include "runtime/data/tokenizer/unicode/lossy.h"
#include "tests/data/tokenizer/golden_files.h"

namespace dstrain {
namespace {

TEST_CASE("stream decoder: its parts are whole characters, and together the text of all ids") {
  std::mt19937 random(6);
  for (const char* const name :
       {"gpt2", "llama3", "qwen2", "qwen3_5", "llama2", "mistral", "gemma", "unknown"}) {
    INFO(name);
    const Tokenizer tokenizer = golden_tokenizer(name);
    int64_t wrong = 0, waited = 0;
    for (int round = 0; round < 400; ++round) {
      std::vector<uint32_t> ids;
      for (int i = 0; i < 40; ++i)
        ids.push_back(static_cast<uint32_t>(random()) %
                      static_cast<uint32_t>(tokenizer.vocabulary_size() + 3));
      StreamDecoder decoder(tokenizer);
      std::string text;
      for (const uint32_t id : ids) {
        const std::string part = decoder.add(id);
        wrong += first_invalid_utf8(part) != std::string::npos;
        waited += part.empty() && !tokenizer.is_special(id);
        text += part;
      }
      wrong += text + decoder.finish() != decode(tokenizer, ids, true);
    }
    CHECK(wrong == 0);
    CHECK(waited > 0);
  }
}

TEST_CASE("stream decoder: text comes back without a replacement, special tokens do not") {
  const std::string text = golden_file("scripts.txt");
  const Tokenizer tokenizer = golden_tokenizer("llama3");
  StreamDecoder decoder(tokenizer);
  std::string back;
  for (const uint32_t id : tokenizer.encode("<|begin_of_text|>" + text)) back += decoder.add(id);
  CHECK(back == text);
  CHECK(decoder.finish().empty());
}

TEST_CASE(
    "stream decoder: a character appears with its last byte, and U+FFFD where there is none") {
  const Tokenizer tokenizer = golden_tokenizer("gpt2");
  // The letters of the bytes f0 9f 98 80.
  const std::array<const char*, 4> letters = {"\u00f0", "\u0141", "\u013a", "\u0122"};
  const uint32_t a = tokenizer.encode("a").front();
  StreamDecoder decoder(tokenizer);
  for (size_t i = 0; i < 4; ++i)
    CHECK(decoder.add(*tokenizer.id_of(letters.at(i))) == (i == 3 ? "\U0001f600" : ""));
  CHECK(decoder.add(*tokenizer.id_of(letters[0])).empty());
  CHECK(decoder.add(a) == "\ufffda");
  CHECK(decoder.add(*tokenizer.id_of(letters[0])).empty());
  CHECK(decoder.add(*tokenizer.id_of(letters[1])).empty());
  CHECK(decoder.finish() == "\ufffd");
  CHECK(decoder.finish().empty());
}

TEST_CASE("begun bytes are those of a character whose other bytes may follow") {
  using unicode::begun_bytes;
  CHECK(begun_bytes("") == 0);
  CHECK(begun_bytes("abc") == 0);
  CHECK(begun_bytes("a\xc3") == 1);
  CHECK(begun_bytes("a\xc3\xa9") == 0);
  CHECK(begun_bytes("\xe2\x82") == 2);
  CHECK(begun_bytes("x\xf0\x9f\x98") == 3);
  CHECK(begun_bytes("\xf0\x9f\x98\x80") == 0);
  CHECK(begun_bytes("\x80\x80\x80") == 0);
  CHECK(begun_bytes("a\xff") == 0);
  CHECK(begun_bytes("a\xc1") == 0);      // overlong
  CHECK(begun_bytes("a\xed\xa0") == 0);  // a surrogate
  CHECK(begun_bytes("a\xf4\x90") == 0);  // above U+10FFFF
  CHECK(begun_bytes("a\xe2\x82\xff") == 0);
}

}  // namespace
}  // namespace dstrain
