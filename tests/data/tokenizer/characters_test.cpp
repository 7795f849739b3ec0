// Tokenizers whose pieces begin as characters, with SentencePiece's marks in the place of spaces.
#include <array>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <random>

#include "runtime/data/chat/conversation_encoder.h"
#include "runtime/data/tokenizer/stream_decoder.h"
#include "tests/data/tokenizer/golden_files.h"

namespace dstrain {
namespace {

using Ids = std::vector<uint32_t>;
using nlohmann::json;

constexpr std::array kForms = {"llama2", "mistral", "gemma", "unknown"};

Ids ids_of(const Tokenizer& tokenizer, const std::vector<std::string>& tokens) {
  Ids ids;
  for (const std::string& token : tokens) ids.push_back(tokenizer.id_of(token).value());
  return ids;
}

TEST_CASE("marks: a space is put in front of a text, or of each part, as the file says") {
  const std::string text = "or<|im_end|>or  or";
  const Tokenizer llama2 = golden_tokenizer("llama2");
  CHECK(llama2.encode(text) ==
        ids_of(llama2, {"\u2581", "or", "<|im_end|>", "\u2581", "or", "\u2581\u2581", "or"}));
  const Tokenizer mistral = golden_tokenizer("mistral");
  CHECK(mistral.encode(text) ==
        ids_of(mistral, {"\u2581", "or", "<|im_end|>", "or", "\u2581\u2581", "or"}));
  CHECK(mistral.encode(" or") == mistral.encode("or"));
  const Tokenizer gemma = golden_tokenizer("gemma");
  CHECK(gemma.encode(text) == ids_of(gemma, {"or", "<|im_end|>", "or", "\u2581\u2581", "or"}));
}

TEST_CASE("marks: what is no character of the vocabulary is its bytes, or one unknown token") {
  const Tokenizer llama2 = golden_tokenizer("llama2");
  CHECK(llama2.encode("a\U0001f600") ==
        ids_of(llama2, {"\u2581", "a", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>"}));
  const Tokenizer unknown = golden_tokenizer("unknown");
  CHECK(unknown.encode("a\U0001f600\U0001f601a") == ids_of(unknown, {"a", "<unk>", "a"}));
}

TEST_CASE("marks: merges may be strings or pairs") {
  json file = json::parse(golden_file("llama2.json"));
  for (json& merge : file["model"]["merges"])
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  const std::string text = golden_file("scripts.txt");
  CHECK(Tokenizer(file.dump(), "strings").encode(text) == golden_tokenizer("llama2").encode(text));
}

TEST_CASE("marks: a long text without pieces is merged, and decoded to itself") {
  std::string text;
  while (text.size() < 3'000'000) text += "or\u65e5\u672c\U0001f600,";
  for (const char* const name : {"llama2", "mistral", "gemma"}) {
    INFO(name);
    const Tokenizer tokenizer = golden_tokenizer(name);
    const Ids ids = tokenizer.encode(text);
    CHECK((decode(tokenizer, ids, false) == text));
    CHECK(ids.size() > text.size() / 4);
  }
}

TEST_CASE("marks: spans cover the text in order, and a mark in front has the first character's") {
  const std::string text = "France  or <|im_end|>\u00e9\U0001f600 or<sep>  \u65e5\u672c cafe\u0301";
  for (const char* const name : kForms) {
    INFO(name);
    const Tokenizer tokenizer = golden_tokenizer(name);
    Ids ids;
    std::vector<TokenSpan> spans;
    TextEncoder(tokenizer).encode_with_spans(text, ids, spans);
    CHECK(ids == tokenizer.encode(text));
    REQUIRE(spans.size() == ids.size());
    size_t end = 0;
    for (const TokenSpan& span : spans) {
      CHECK(span.begin <= end);
      CHECK(span.end >= end);
      CHECK(span.begin < span.end);
      end = span.end;
    }
    CHECK(end == text.size());
  }
  const Tokenizer tokenizer = golden_tokenizer("llama2");
  Ids ids;
  std::vector<TokenSpan> spans;
  TextEncoder(tokenizer).encode_with_spans("<s>\u00e9 or", ids, spans);
  const std::vector<std::pair<size_t, size_t>> expected = {{0, 3}, {3, 5}, {3, 5}, {5, 6}, {6, 8}};
  REQUIRE(ids == ids_of(tokenizer, {"<s>", "\u2581", "\u00e9", "\u2581", "or"}));
  for (size_t i = 0; i < spans.size(); ++i)
    CHECK(std::pair(spans[i].begin, spans[i].end) == expected[i]);
}

TEST_CASE(
    "marks: a mark in front of a completion counts in the loss, as its first character does") {
  const Tokenizer tokenizer = golden_tokenizer("llama2");
  std::map<std::string, int64_t> ignored;
  const ChatLine line = read_chat_line(R"({"prompt": "or \u00e9</s>", "completion": "or"})",
                                       [] { return "line"; }, ignored);
  EncodedConversation all;
  ConversationEncoder(tokenizer, ChatEncoding()).encode(line, all, ignored);
  CHECK(all.ids ==
        ids_of(tokenizer, {"<s>", "\u2581", "or", "\u2581", "\u00e9", "</s>", "\u2581", "or"}));
  CHECK(all.counts == std::vector<uint8_t>{0, 0, 0, 0, 0, 0, 1, 1});
}

TEST_CASE("marks: a run of bytes is text if all of it is, and a space in front is left out once") {
  const Tokenizer tokenizer = golden_tokenizer("llama2");
  const auto id = [&](const char* token) { return tokenizer.id_of(token).value(); };
  StreamDecoder decoder(tokenizer);
  CHECK(decoder.add(id("<s>")).empty());
  CHECK(decoder.add(id("\u2581\u2581")) == " ");
  for (const char* const byte : {"<0xF0>", "<0x9F>", "<0x98>", "<0x80>"})
    CHECK(decoder.add(id(byte)).empty());
  CHECK(decoder.add(id("\u2581")) == "\U0001f600 ");
  CHECK(decoder.add(id("<0x41>")).empty());
  CHECK(decoder.add(id("<0xF0>")).empty());
  CHECK(decoder.add(id("or")) == "\ufffd\ufffdor");
  CHECK(decoder.add(id("<0x0A>")).empty());
  CHECK(decoder.finish() == "\n");
  CHECK(decode(tokenizer, Ids{id("\u2581"), id("<s>"), id("or")}, false) == "<s>or");
  CHECK(decode(golden_tokenizer("gemma"), golden_tokenizer("gemma").encode(" or"), false) == " or");
}

TEST_CASE("marks: a special token that normalization changes is not left out of decoded text") {
  json file = json::parse(golden_file("llama2.json"));
  for (json& token : file["added_tokens"])
    if (token["content"] == "</s>") token["normalized"] = true;
  const Tokenizer tokenizer(file.dump(), "t");
  const Ids ids = tokenizer.encode("or </s>or<|im_end|>");
  CHECK(ids == ids_of(tokenizer, {"\u2581", "or", "</s>", "or", "<|im_end|>"}));
  CHECK(decode(tokenizer, ids, true) == "or </s>or");
  CHECK(tokenizer.is_special(ids[2]));
}

TEST_CASE("marks: tokens of byte fallback are named as the library names them") {
  CHECK(byte_of_token("<0x0A>") == 10);
  CHECK(byte_of_token("<0xfF>") == 255);
  CHECK(byte_of_token("<0x+F>") == 15);
  for (const char* const other : {"<0xG0>", "<0x0A", "0x0A>>", "<0x0A>>", "<0x\u00e9>", "<0x-1>"})
    CHECK(byte_of_token(other) == -1);
}

// Merges of a, b and marks, any two of whose results may be merged.
struct RandomMerges {
  TokenIds vocabulary = {{"a", 0}, {"b", 1}, {"\u2581", 2}};
  std::vector<TokenMerge> merges;

  explicit RandomMerges(std::mt19937& random) {
    for (int tries = 0; tries < 40; ++tries) {
      std::vector<std::pair<std::string, uint32_t>> tokens(vocabulary.begin(), vocabulary.end());
      const auto& [left, left_id] = tokens[random() % tokens.size()];
      const auto& [right, right_id] = tokens[random() % tokens.size()];
      if (left.size() + right.size() > 10) continue;
      const uint32_t id =
          vocabulary.try_emplace(left + right, static_cast<uint32_t>(vocabulary.size()))
              .first->second;
      merges.push_back({left_id, right_id, id});
    }
  }
};

TEST_CASE("marks: the parts that a piece is cut into have the ids of the whole") {
  std::mt19937 random(8);
  const std::array<const char*, 4> pool = {"a", "b", "\u2581", "\u00e9"};
  int64_t cuts = 0, wrong = 0;
  for (int round = 0; round < 200; ++round) {
    const RandomMerges drawn(random);
    UnknownCharacters unknown;
    unknown.token = 100;
    unknown.fuse = round % 2 == 0;
    TokenIds vocabulary = drawn.vocabulary;
    vocabulary["<unk>"] = unknown.token;
    const CharacterPairs pairs(vocabulary, drawn.merges, unknown, false);
    MergeScratch scratch;
    for (int texts = 0; texts < 20; ++texts) {
      std::string piece;
      for (int i = 0; i < 30; ++i) piece += pool.at(random() % pool.size());
      Ids whole, parts;
      pairs.encode(piece, scratch, whole);
      pairs.cut(piece, [&](std::string_view part) {
        pairs.encode(part, scratch, parts);
        ++cuts;
      });
      wrong += parts != whole;
    }
  }
  CHECK(wrong == 0);
  CHECK(cuts > 200 * 20 * 3 / 2);
}

}  // namespace
}  // namespace dstrain
