// Tokenizers as fields of GGUF files: tokens and their kinds, merges, scores, the names of pre-tokenizers, and what is refused.
#include "launcher/export/gguf/gguf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/core/error.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

using Catch::Contains;

// A byte-level tokenizer with these pre-tokenizer and members of its model.
std::string byte_level(const std::string& pre_tokenizer, const std::string& members = "") {
  return fmt::format(R"({{"added_tokens": [{{"id": 4, "content": "<end>", "special": true}},
                                          {{"id": 3, "content": "<x>"}}],
                         "pre_tokenizer": {}, "decoder": {{"type": "ByteLevel"}},
                         "model": {{"type": "BPE", "vocab": {{"a": 0, "b": 1, "ab": 2}},
                                    "merges": ["a b"]{}}}}})",
                     pre_tokenizer, members);
}

const std::string kByteLevel = R"({"type": "ByteLevel", "add_prefix_space": false})";

// A pre-tokenizer with a regular expression, as JSON text.
std::string split(const std::string& expression) {
  return R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "behavior": "Isolated",
             "pattern": {"Regex": ")" +
         expression +
         R"("}}, {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})";
}
const std::string kEnd = R"( ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+)";
const std::string kBegin = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|)";

GgufTokenizer fields_of(const std::string& json, int64_t vocabulary = 6,
                        const std::string& settings = R"({"eos_token": "<end>"})") {
  TempDir dir;
  dir.write("tokenizer.json", json);
  dir.write("tokenizer_config.json", settings);
  return gguf_tokenizer(dir.path(), vocabulary);
}

std::string refused(const std::string& json, int64_t vocabulary = 6) {
  try {
    fields_of(json, vocabulary);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

template <class T>
T value_of(const GgufTokenizer& tokenizer, const std::string& name) {
  const auto found = std::ranges::find(tokenizer.fields, name, &GgufField::key);
  INFO(name);
  REQUIRE(found != tokenizer.fields.end());
  return std::get<T>(found->value);
}
bool has(const GgufTokenizer& tokenizer, const std::string& name) {
  return std::ranges::find(tokenizer.fields, name, &GgufField::key) != tokenizer.fields.end();
}

using Texts = std::vector<std::string>;
using Kinds = std::vector<int32_t>;

TEST_CASE("a byte-level tokenizer has its tokens by id, those that are missing as padding") {
  const GgufTokenizer t = fields_of(byte_level(kByteLevel), 6,
                                    R"({"eos_token": "<end>", "chat_template": "{{ messages }}"})");
  CHECK(value_of<std::string>(t, "tokenizer.ggml.model") == "gpt2");
  CHECK(value_of<std::string>(t, "tokenizer.ggml.pre") == "gpt-2");
  CHECK(value_of<Texts>(t, "tokenizer.ggml.tokens") ==
        Texts{"a", "b", "ab", "<x>", "<end>", "[PAD5]"});
  CHECK(value_of<Kinds>(t, "tokenizer.ggml.token_type") == Kinds{1, 1, 1, 4, 3, 5});
  CHECK(value_of<Texts>(t, "tokenizer.ggml.merges") == Texts{"a b"});
  CHECK(value_of<uint32_t>(t, "tokenizer.ggml.eos_token_id") == 4);
  CHECK_FALSE(value_of<bool>(t, "tokenizer.ggml.add_bos_token"));
  CHECK_FALSE(has(t, "tokenizer.ggml.bos_token_id"));
  CHECK_FALSE(has(t, "tokenizer.ggml.scores"));
  CHECK(value_of<std::string>(t, "tokenizer.chat_template") == "{{ messages }}");
  CHECK(t.warnings.empty());
}

TEST_CASE("pre-tokenizers have the names of what llama.cpp does") {
  const auto name = [](const std::string& json) {
    return value_of<std::string>(fields_of(json), "tokenizer.ggml.pre");
  };
  const std::string qwen2 = split(kBegin + R"(\\p{N}|)" + kEnd),
                    llama3 = split(kBegin + R"(\\p{N}{1,3}|)" + kEnd);
  CHECK(name(byte_level(qwen2)) == "qwen2");
  CHECK(name(byte_level(llama3, R"(, "ignore_merges": true)")) == "llama-bpe");
  CHECK(name(byte_level(llama3)) == "smaug-bpe");
  CHECK(name(byte_level(R"({"type": "Sequence", "pretokenizers": [
                            {"type": "Digits", "individual_digits": true},)" +
                        kByteLevel + "]}")) == "smollm");
}

TEST_CASE("a tokenizer by which llama.cpp would divide texts otherwise is refused") {
  CHECK_THAT(refused(byte_level(R"({"type": "ByteLevel", "add_prefix_space": true})")),
             Contains("none of the pre-tokenizers"));
  CHECK_THAT(refused(byte_level(kByteLevel, R"(, "ignore_merges": true)")),
             Contains("with ignore_merges"));
  CHECK_THAT(refused(byte_level(kByteLevel), 4), Contains("5 ids, and the model 4"));
}

// One with SentencePiece's marks, whose model has these tokens behind those of bytes.
std::string with_marks(const std::string& tokens, const std::string& merges) {
  std::string vocabulary = R"("<unk>": 0)";
  for (int byte = 0; byte < 256; ++byte)
    vocabulary += fmt::format(R"(, "<0x{:02X}>": {})", byte, byte + 1);
  return fmt::format(R"({{"added_tokens": [{{"id": 0, "content": "<unk>", "special": false}}],
    "normalizer": {{"type": "Sequence", "normalizers": [{{"type": "Prepend", "prepend": "▁"}},
      {{"type": "Replace", "pattern": {{"String": " "}}, "content": "▁"}}]}},
    "decoder": {{"type": "Sequence", "decoders": [
      {{"type": "Replace", "pattern": {{"String": "▁"}}, "content": " "}},
      {{"type": "ByteFallback"}}, {{"type": "Fuse"}}]}},
    "model": {{"type": "BPE", "unk_token": "<unk>", "byte_fallback": true, "fuse_unk": true,
               "vocab": {{{}, {}}}, "merges": {}}}}})",
                     vocabulary, tokens, merges);
}

TEST_CASE("with SentencePiece's marks tokens have scores in the order of their merges") {
  const std::string tokens = R"("▁": 257, "a": 258, "b": 259, "ab": 260, "▁ab": 261)";
  const GgufTokenizer t =
      fields_of(with_marks(tokens, R"(["a b", "▁ ab"])"), 263, R"({"eos_token": "b"})");
  CHECK(value_of<std::string>(t, "tokenizer.ggml.model") == "llama");
  CHECK(value_of<std::string>(t, "tokenizer.ggml.pre") == "default");
  CHECK(value_of<bool>(t, "tokenizer.ggml.add_space_prefix"));
  const auto scores = value_of<std::vector<float>>(t, "tokenizer.ggml.scores");
  CHECK(scores.size() == 263);
  CHECK(scores[260] == 0);
  CHECK(scores[261] == -1);
  CHECK(scores[258] < -1);
  const auto kinds = value_of<Kinds>(t, "tokenizer.ggml.token_type");
  CHECK((kinds[1] == 6 && kinds[256] == 6 && kinds[257] == 1 && kinds[262] == 5));
  CHECK(t.warnings.empty());
  // A token that llama.cpp makes of two others, and the tokenizer does not.
  const GgufTokenizer other =
      fields_of(with_marks(R"("▁": 257, "a": 258, "b": 259, "ab": 260, "▁ab": 261, "▁a": 262)",
                           R"(["a b", "▁ ab", "▁ a"])"),
                263, R"({"eos_token": "b"})");
  REQUIRE(other.warnings.size() == 1);
  CHECK_THAT(other.warnings[0], Contains("no such merge"));
}

TEST_CASE("without a tokenizer llama.cpp has ids alone") {
  const GgufTokenizer t = gguf_tokenizer("", 9);
  CHECK(value_of<std::string>(t, "tokenizer.ggml.model") == "none");
  REQUIRE(t.warnings.size() == 1);
  CHECK_THAT(t.warnings[0], Contains("no tokenizer"));
}

}  // namespace
}  // namespace dstrain
