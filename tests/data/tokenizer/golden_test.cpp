// The ids of the tokenizers library, as checksums (golden/make_golden.py).
#include <array>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "runtime/core/threads/parts.h"
#include "runtime/data/tokenizer/stream_decoder.h"
#include "runtime/data/tokenizer/tokenizer.h"
#include "runtime/data/utf8.h"
#include "tests/data/tokenizer/golden_files.h"

namespace dstrain {
namespace {

using nlohmann::json;

constexpr uint32_t kBlock = 4096;
constexpr uint64_t kSeed = 34;
constexpr size_t kStrings = 100'000, kStringsEach = 1000;
constexpr size_t kDecoded = 10'000;

class Crc32 {
 public:
  Crc32() {
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit)
        value = (value & 1) != 0 ? value >> 1 ^ 0xedb88320u : value >> 1;
      table_.at(i) = value;
    }
  }
  void add(uint32_t word) {
    for (int byte = 0; byte < 4; ++byte) {
      crc_ = table_[(crc_ ^ word) & 0xff] ^ crc_ >> 8;
      word >>= 8;
    }
  }
  std::string text() const { return fmt::format("{:08x}", ~crc_); }

 private:
  std::array<uint32_t, 256> table_{};
  uint32_t crc_ = ~0u;
};

// Checksums of texts as make_golden.py makes them.
class Checksum {
 public:
  explicit Checksum(const Tokenizer& tokenizer) : encoder_(tokenizer) {}

  void add(std::string_view text) {
    ids_.clear();
    unicode::Invalid invalid;
    encoder_.encode(text, ids_, invalid);
    for (const uint32_t id : ids_) crc_.add(id);
    crc_.add(~0u);
  }
  std::string text() const { return crc_.text(); }

 private:
  TextEncoder encoder_;
  std::vector<uint32_t> ids_;
  Crc32 crc_;
};

std::string utf8_of(uint32_t code) {
  const auto tail = [code](int shift) { return static_cast<char>(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xc0 | code >> 6), tail(0)};
  if (code < 0x10000) return {static_cast<char>(0xe0 | code >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xf0 | code >> 18), tail(12), tail(6), tail(0)};
}

bool is_surrogate(uint64_t code) {
  return code >= 0xd800 && code < 0xe000;
}

// All code points but surrogates; of the planes that have no letters, each 64th.
bool is_tried(uint32_t code) {
  return !is_surrogate(code) && (code < 0x34000 || code >> 12 == 0xe0 || code % 64 == 0);
}

std::string block_checksum(const Tokenizer& tokenizer, uint32_t begin) {
  Checksum checksum(tokenizer);
  for (uint32_t code = begin; code < begin + kBlock; ++code) {
    if (!is_tried(code)) continue;
    const std::string c = utf8_of(code);
    checksum.add(c);
    checksum.add(c + "a" + c + "1" + c + " " + c);
  }
  return checksum.text();
}

// splitmix64.
class Words {
 public:
  uint64_t below(uint64_t end) {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (z ^ z >> 31) % end;
  }

 private:
  uint64_t state_ = kSeed;
};

std::vector<std::string> random_strings(const std::vector<std::string>& pool) {
  std::vector<std::string> strings;
  Words words;
  while (strings.size() < kStrings) {
    std::string text;
    for (uint64_t left = words.below(24); left > 0; --left) {
      const uint64_t kind = words.below(16);
      if (kind < 7) {
        text += pool[words.below(pool.size())];
        continue;
      }
      constexpr std::array<uint64_t, 3> ends = {0x3400, 0x20000, 0x110000};
      const uint64_t code =
          kind < 10 ? 0x20 + words.below(95) : words.below(ends.at((kind - 10) / 2));
      text += is_surrogate(code) ? "\xef\xbf\xbd" : utf8_of(static_cast<uint32_t>(code));
    }
    strings.push_back(text);
  }
  return strings;
}

// Returns the places where the checksums differ, computed on all threads.
template <class Compute>
std::vector<size_t> differences(const std::vector<std::string>& expected, const Compute& compute) {
  std::vector<std::string> found(expected.size());
  run_in_turns(thread_count(), std::ssize(expected),
               [&](int64_t i) { found[static_cast<size_t>(i)] = compute(static_cast<size_t>(i)); });
  std::vector<size_t> differing;
  for (size_t i = 0; i < expected.size(); ++i)
    if (found[i] != expected[i]) differing.push_back(i);
  return differing;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size(); at += lines.back().size())
    lines.push_back(text.substr(at, text.find('\n', at) + 1 - at));
  return lines;
}

TEST_CASE(
    "ids are those of the tokenizers library: code points, random strings, text in 28 "
    "scripts") {
  const json expected = json::parse(golden_file("expected.json"));
  const auto strings = random_strings(expected["pool"].get<std::vector<std::string>>());
  std::vector<std::string> scripts = lines_of(golden_file("scripts.txt"));
  scripts.push_back(golden_file("scripts.txt"));
  for (const auto& [name, checksums] : expected["ids"].items()) {
    INFO(name);
    const Tokenizer tokenizer(golden_file(name + ".json"), name + ".json");
    CHECK(tokenizer.warnings().empty());
    const auto of = [&checksums = checksums](const char* kind) {
      return checksums[kind].get<std::vector<std::string>>();
    };
    CHECK(of("blocks").size() * kBlock == utf8::kCodePoints);
    CHECK(differences(of("blocks"), [&](size_t i) {
            return block_checksum(tokenizer, static_cast<uint32_t>(i) * kBlock);
          }) == std::vector<size_t>{});
    CHECK(of("random").size() * kStringsEach == kStrings);
    CHECK(differences(of("random"), [&](size_t i) {
            Checksum checksum(tokenizer);
            for (size_t s = 0; s < kStringsEach; ++s) checksum.add(strings[i * kStringsEach + s]);
            return checksum.text();
          }) == std::vector<size_t>{});
    CHECK(of("scripts").size() == scripts.size());
    CHECK(differences(of("scripts"), [&](size_t i) {
            Checksum checksum(tokenizer);
            checksum.add(scripts[i]);
            return checksum.text();
          }) == std::vector<size_t>{});
  }
}

TEST_CASE("ids that come one after another become the text that the tokenizers library decodes") {
  const json expected = json::parse(golden_file("expected.json"));
  for (const auto& [name, checksums] : expected["ids"].items()) {
    INFO(name);
    const Tokenizer tokenizer(golden_file(name + ".json"), name + ".json");
    Words words;
    std::vector<std::string> found;
    while (found.size() < kDecoded / kStringsEach) {
      Crc32 crc;
      for (size_t i = 0; i < kStringsEach; ++i) {
        StreamDecoder decoder(tokenizer);
        std::string text;
        for (uint64_t left = words.below(24); left > 0; --left)
          text += decoder.add(static_cast<uint32_t>(
              words.below(static_cast<uint64_t>(tokenizer.vocabulary_size()))));
        text += decoder.finish();
        for (const char byte : text) crc.add(static_cast<unsigned char>(byte));
        crc.add(~0u);
      }
      found.push_back(crc.text());
    }
    CHECK(found == checksums["decoded"].get<std::vector<std::string>>());
  }
}

}  // namespace
}  // namespace dstrain
