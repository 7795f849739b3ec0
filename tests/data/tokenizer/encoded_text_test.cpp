// Texts as token ids in memory, and what a directory says about its tokenizer.
#include "runtime/data/documents/encoded_text.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/core/error.h"
#include "runtime/data/tokenizer/tokenizer_directory.h"
#include "tests/data/tokenizer/golden_files.h"

namespace dstrain {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("encoded text: its tokens are the tokenizer's, and its bytes those of the text") {
  const TempDir dir;
  const Tokenizer tokenizer = golden_tokenizer("llama3");
  const std::string text = "caf\u00e9 \u65e5\u672c the quick\n";
  const std::string path = dir.write("a.txt", "\xef\xbb\xbf" + text);
  DocumentCounts counts;
  const auto source = open_encoded_text(tokenizer, path, LineOptions(7), counts);
  const std::vector<uint32_t> ids = tokenizer.encode(text);
  REQUIRE(source->tokens() == std::ssize(ids));
  std::vector<int32_t> inputs(ids.size() - 1), targets(ids.size() - 1);
  source->read(0, std::ssize(inputs), inputs.data(), targets.data());
  CHECK(std::equal(inputs.begin(), inputs.end(), ids.begin()));
  CHECK(std::equal(targets.begin(), targets.end(), ids.begin() + 1));
  const int64_t all = source->tokens();
  CHECK(source->bytes_of(0, all) == std::ssize(text));
  CHECK(source->bytes_of(1, all) == std::ssize(text) - std::ssize(tokenizer.bytes_of(ids.front())));
  CHECK_FALSE(source->bytes_of(1, all - 1).has_value());
  CHECK(source->unit() == "token");
  source->check_ids(0, all, {tokenizer.vocabulary_size(), "vocab_size"});
  CHECK(source->vocabulary().format == DataFormat::tokens);
  CHECK_THROWS_WITH(source->check_ids(0, all, {2, "vocab_size"}),
                    Contains("a.txt: token 0 of the text is ") &&
                        Contains("outside of the vocabulary: vocab_size is 2"));
}

TEST_CASE("encoded text: a space that the tokenizer puts in front is none of its bytes") {
  const TempDir dir;
  for (const char* const name : {"llama2", "mistral"}) {
    const Tokenizer tokenizer = golden_tokenizer(name);
    const std::string path = dir.write("a.txt", "France or");
    DocumentCounts counts;
    const auto source = open_encoded_text(tokenizer, path, LineOptions(), counts);
    const uint32_t first = tokenizer.encode("France or").front();
    REQUIRE(tokenizer.bytes_of(first) == " Fran");
    CHECK(source->bytes_of(0, source->tokens()) == 9);
    CHECK(source->bytes_of(1, source->tokens()) == 5);
  }
}

TEST_CASE("encoded text: what stands around documents of JSON lines has no bytes") {
  const TempDir dir;
  const Tokenizer tokenizer = golden_tokenizer("llama3");
  const std::string path = dir.write("a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"twenty\"}\n");
  DocumentCounts counts;
  const auto source =
      open_encoded_text(tokenizer, path, tokenizer.id_of("<|end_of_text|>"), counts);
  CHECK(source->bytes_of(0, source->tokens()) == 9);
  CHECK(source->bytes_of(1, source->tokens()) == 9);
  CHECK(counts.text_bytes == 9);
  CHECK(counts.documents == 2);
}

TEST_CASE(
    "encoded text: tokens that do not count in the loss have no targets, and no bytes are known") {
  const TempDir dir;
  const Tokenizer tokenizer = golden_tokenizer("llama3");
  const std::string line = "{\"prompt\": \"the quick\", \"completion\": \" brown fox\"}\n";
  const std::string path = dir.write("a.jsonl", "{\"text\": \"the quick brown fox\"}\n" + line);
  DocumentCounts counts;
  LineOptions options(7);
  const auto some = open_encoded_text(tokenizer, path, options, counts);
  REQUIRE(some->tokens() % 2 == 0);  // of both lines the same
  const int64_t each = some->tokens() / 2;
  std::vector<int32_t> labels(static_cast<size_t>(2 * each));
  some->ignore(0, 2 * each, labels.data());
  CHECK(std::count(labels.begin(), labels.begin() + each, -1) == 0);
  CHECK(std::count(labels.begin() + each, labels.end(), -1) == counts.tokens - counts.targets);
  CHECK(counts.targets < counts.tokens);
  std::vector<int32_t> last(static_cast<size_t>(each));
  some->ignore(each, each, last.data());
  CHECK(std::equal(last.begin(), last.end(), labels.begin() + each));
  CHECK_FALSE(some->bytes_of(0, some->tokens()).has_value());
  options.chat.loss_on = LossOn::all;
  const auto all = open_encoded_text(tokenizer, path, options, counts);
  all->ignore(0, each, last.data());
  std::fill(last.begin(), last.end(), 0);
  all->ignore(each, each, last.data());
  CHECK(std::count(last.begin(), last.end(), -1) == 0);
  CHECK(all->bytes_of(0, all->tokens()) == 2 * 19);
  // Which text a conversation's tokens are made of is the template's.
  const ChatTemplate chat_template("{{ messages[0].content }}", "t", {});
  options.chat.chat_template = &chat_template;
  dir.write("a.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"the quick\"}]}\n");
  const auto conversation = open_encoded_text(tokenizer, path, options, counts);
  CHECK_FALSE(conversation->bytes_of(0, conversation->tokens()).has_value());
  CHECK(counts.conversations == 1);
}

TEST_CASE("the ids after which a model stops are eos_token_id, a number or a list") {
  const TempDir dir;
  CHECK(stop_ids(dir.path()).empty());
  dir.write("config.json", "{\"eos_token_id\": 3}");
  CHECK(stop_ids(dir.path()) == std::vector<uint32_t>{3});
  dir.write("generation_config.json", "{\"eos_token_id\": null}");
  CHECK(stop_ids(dir.path()) == std::vector<uint32_t>{3});
  dir.write("generation_config.json", "{\"eos_token_id\": [5, 4]}");
  CHECK(stop_ids(dir.path()) == std::vector<uint32_t>{5, 4});
  dir.write("generation_config.json", "{\"eos_token_id\": \"x\"}");
  CHECK_THROWS_WITH(stop_ids(dir.path()),
                    Contains("generation_config.json: eos_token_id: expected a token id"));
}

TEST_CASE("a tokenizer's checksum is that of its file, and of the settings where they count") {
  const TempDir dir;
  CHECK_THROWS_AS(tokenizer_checksum(dir.path(), false), UserError);
  dir.write("tokenizer.json", "{}");
  const std::string plain = tokenizer_checksum(dir.path(), false),
                    whole = tokenizer_checksum(dir.path(), true);
  CHECK(plain != whole);
  dir.write("config.json", "{\"eos_token_id\": 3}");
  CHECK(tokenizer_checksum(dir.path(), false) == plain);
  CHECK(tokenizer_checksum(dir.path(), true) != whole);
  dir.write("tokenizer.json", "{ }");
  CHECK(tokenizer_checksum(dir.path(), false) != plain);
}

}  // namespace
}  // namespace dstrain
