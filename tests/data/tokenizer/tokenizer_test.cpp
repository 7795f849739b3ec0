#include "runtime/data/tokenizer/tokenizer.h"

#include <array>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <random>

#include "runtime/core/error.h"
#include "runtime/data/tokenizer/stream_decoder.h"
#include "tests/data/tokenizer/golden_files.h"

namespace dstrain {
namespace {

using Ids = std::vector<uint32_t>;

constexpr std::array kAll = {"gpt2", "llama3", "qwen2", "qwen3_5"};

// Returns a text of letters, spaces, newlines, marks, added tokens and bytes that are no UTF-8.
std::string random_text(std::mt19937& random, size_t parts) {
  const std::array<std::string, 26> pool = {
      "a",       "Bc",         " ",      "  ",           "\n",    "\n\n",
      "\t",      "1",          "23",     "'s",           "!",     ".",
      "\u00e9",  "e",          "\u0301", "\u00a0",       "<sep>", "<mask>",
      "<think>", "cafe\u0301", " solo",  "\u65e5\u672c", "\xff",  "\xe2\x82",
      "\ud55c",  "\u3000"};
  std::string text;
  for (size_t i = 0; i < parts; ++i) text += pool.at(random() % pool.size());
  return text;
}

TEST_CASE("tokenizer: a text's ids are those of its parts where may_cut says so") {
  std::mt19937 random(3);
  for (const char* const name : kAll) {
    const Tokenizer tokenizer = golden_tokenizer(name);
    int64_t cuts = 0, wrong = 0;
    for (int i = 0; i < 400; ++i) {
      const std::string text = random_text(random, 30);
      const Ids whole = tokenizer.encode(text);
      for (size_t at = 0; at <= text.size(); ++at) {
        if (!tokenizer.may_cut(text, static_cast<int64_t>(at))) continue;
        Ids parts = tokenizer.encode(std::string_view(text).substr(0, at));
        const Ids rest = tokenizer.encode(std::string_view(text).substr(at));
        parts.insert(parts.end(), rest.begin(), rest.end());
        ++cuts;
        wrong += parts != whole;
      }
    }
    INFO(name);
    CHECK(cuts > 400);
    CHECK(wrong == 0);
  }
}

TEST_CASE("tokenizer: what is decoded from a text's ids is the text") {
  std::mt19937 random(4);
  const Tokenizer tokenizer = golden_tokenizer("llama3");
  for (int i = 0; i < 200; ++i) {
    std::string text = random_text(random, 30);
    std::string scratch;
    unicode::Invalid invalid;
    text = std::string(unicode::lossy_utf8(text, scratch, invalid));
    CHECK(decode(tokenizer, tokenizer.encode(text), false) == text);
  }
}

TEST_CASE(
    "tokenizer: special tokens are left out of decoded text where asked, and cut characters are "
    "U+FFFD") {
  const Tokenizer tokenizer = golden_tokenizer("llama3");
  const Ids ids = tokenizer.encode("a<|eot_id|>b");
  REQUIRE(ids.size() == 3);
  CHECK(decode(tokenizer, ids, false) == "a<|eot_id|>b");
  CHECK(decode(tokenizer, ids, true) == "ab");
  CHECK(tokenizer.is_special(ids[1]));
  CHECK(decode(tokenizer, Ids{*tokenizer.id_of("\u00c3"), ids[0]}, false) == "\ufffda");
  CHECK(decode(tokenizer, Ids{1'000'000'000}, false).empty());
}

TEST_CASE(
    "tokenizer: bytes that are no UTF-8 become what Python's errors=\"replace\" makes of them") {
  const auto replaced = [](std::string_view text) {
    std::string scratch;
    unicode::Invalid invalid;
    return std::string(unicode::lossy_utf8(text, scratch, invalid));
  };
  const std::string r = "\ufffd";
  CHECK(replaced("a\xff z") == "a" + r + " z");
  CHECK(replaced("\xe2\x82") == r);  // cut short: one for all of it
  CHECK(replaced("\xe2\x82z") == r + "z");
  CHECK(replaced("\xf0\x9f\x98") == r);
  CHECK(replaced("\xf0\x9f\x98\xe2\x82\xac") == r + "\u20ac");
  CHECK(replaced("\xc0\xaf") == r + r);  // overlong
  CHECK(replaced("\xe0\x80\x80") == r + r + r);
  CHECK(replaced("\xed\xa0\x80") == r + r + r);          // a surrogate
  CHECK(replaced("\xf4\x90\x80\x80") == r + r + r + r);  // above U+10FFFF
  CHECK(replaced("\x80\xbf") == r + r);
  std::string scratch;
  unicode::Invalid invalid;
  unicode::lossy_utf8("ab\xff\xff", scratch, invalid);
  CHECK(invalid.places == 2);
  CHECK(invalid.first == 2);
}

// The merges of a piece by definition: the lowest rank of all, the leftmost first.
Ids merged_slowly(const std::vector<TokenMerge>& merges, Ids ids) {
  for (;;) {
    size_t best = ids.size(), best_rank = merges.size();
    for (size_t i = 0; i + 1 < ids.size(); ++i)
      for (size_t rank = 0; rank < best_rank; ++rank)
        if (merges[rank].left == ids[i] && merges[rank].right == ids[i + 1]) {
          best = i;
          best_rank = rank;
        }
    if (best == ids.size()) return ids;
    ids[best] = merges[best_rank].merged;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST_CASE("byte pairs: short and long pieces are merged by rank, then from the left") {
  std::mt19937 random(5);
  for (int round = 0; round < 30; ++round) {
    // Strings of a, b, c as tokens; any two whose concatenation is a token may be merged.
    std::unordered_map<std::string, uint32_t> tokens = {{"a", 0}, {"b", 1}, {"c", 2}};
    std::vector<TokenMerge> merges;
    for (int tries = 0; tries < 300; ++tries) {
      const auto any = [&] {
        return std::next(tokens.begin(), static_cast<std::ptrdiff_t>(random() % tokens.size()));
      };
      const auto left = any(), right = any();
      const std::string both = left->first + right->first;
      if (both.size() > 8) continue;
      const uint32_t left_id = left->second, right_id = right->second;
      const bool known = std::ranges::any_of(
          merges, [&](const TokenMerge& m) { return m.left == left_id && m.right == right_id; });
      if (known) continue;
      const uint32_t id =
          tokens.try_emplace(both, static_cast<uint32_t>(tokens.size())).first->second;
      merges.push_back({left_id, right_id, id});
    }
    std::shuffle(merges.begin(), merges.end(), random);
    std::array<uint32_t, 256> bytes{};
    bytes.fill(kNoToken);
    for (const char c : {'a', 'b', 'c'})
      bytes.at(static_cast<size_t>(c)) = static_cast<uint32_t>(c - 'a');
    const BytePairs pairs(bytes, merges, {});
    MergeScratch scratch;
    for (const size_t length :
         {size_t{0}, size_t{1}, size_t{2}, size_t{9}, size_t{96}, size_t{97}, size_t{400}}) {
      std::string piece;
      Ids symbols;
      while (piece.size() < length) piece += static_cast<char>('a' + random() % 3);
      for (const char c : piece) symbols.push_back(static_cast<uint32_t>(c - 'a'));
      Ids ids;
      pairs.encode(piece, scratch, ids);
      CHECK(ids == merged_slowly(merges, symbols));
    }
  }
}

TEST_CASE(
    "tokenizer: a piece that is whole in the vocabulary is not merged where merges are ignored") {
  const Tokenizer tokenizer = golden_tokenizer("llama3");
  CHECK(tokenizer.encode("x unmergeable").size() == 2);
  CHECK(tokenizer.encode("x unmergeables").size() > 2);
}

TEST_CASE("tokenizer: merges may be strings or pairs") {
  nlohmann::json file = nlohmann::json::parse(golden_file("gpt2.json"));
  nlohmann::json& merges = file["model"]["merges"];
  REQUIRE(merges.front().is_array());
  for (nlohmann::json& merge : merges)
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  merges.insert(merges.begin(), "#version: 0.2");
  const Tokenizer strings(file.dump(), "strings");
  const std::string text = golden_file("scripts.txt");
  CHECK(strings.encode(text) == golden_tokenizer("gpt2").encode(text));
}

}  // namespace
}  // namespace dstrain
