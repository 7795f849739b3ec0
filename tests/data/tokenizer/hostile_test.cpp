// Damaged and hostile files are one clear error each.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "runtime/core/error.h"
#include "runtime/data/tokenizer/stream_decoder.h"
#include "tests/data/tokenizer/golden_files.h"

namespace dstrain {
namespace {

using Catch::Matchers::Contains;
using nlohmann::json;

json good() {
  static const json file = json::parse(golden_file("qwen2.json"));
  return file;
}

void refuses(const std::string& text, const std::string& message) {
  INFO(message);
  CHECK_THROWS_WITH(Tokenizer(text, "DIR/tokenizer.json"),
                    Contains("DIR/tokenizer.json") && Contains(message));
  CHECK_THROWS_AS(Tokenizer(text, "t"), UserError);
}

// Changes a good file at a JSON pointer.
void refuses_with(const std::string& pointer, const json& value, const std::string& message) {
  json file = good();
  file[json::json_pointer(pointer)] = value;
  refuses(file.dump(), message);
}

TEST_CASE("tokenizer.json: what is not JSON, or is no tokenizer, is refused") {
  refuses("", "is not JSON");
  refuses("{\"model\"", "is not JSON");
  refuses("[]", "expected an object, found array");
  refuses("{}", "has no \"model\"");
  refuses(std::string(1'000'000, '['), "nested more than 64 deep");
  refuses("{\"model\": {\"vocab\": " + std::string(100, '[') + std::string(100, ']') + "}}",
          "nested more than");
}

TEST_CASE("tokenizer.json: ids that are doubled, too large or none are refused by name") {
  refuses_with("/model/vocab/a", 1'000'000'000,
               "model.vocab.a: expected a token id, an integer from 0 to 16777215");
  refuses_with("/model/vocab/a", -1, "expected a token id");
  refuses_with("/model/vocab/a", 1.5, "found 1.5");
  refuses_with("/model/vocab/a", "7", "found \"7\"");
  refuses_with("/model/vocab/a", good()["model"]["vocab"]["b"], "have the same id");
  refuses_with("/model/vocab", json::object(), "there is no token");
  refuses_with("/model/vocab", json::array(), "expected an object of tokens and ids");
  refuses_with("/added_tokens/0/id", 1'000'000'000, "added_tokens[0].id: expected a token id");
  refuses_with("/added_tokens/0/id", 5, "have the same id, 5");
  refuses_with("/added_tokens/1/content", good()["added_tokens"][0]["content"],
               "is in the list twice");
  refuses_with("/added_tokens/0/content", "a", "has id");
}

TEST_CASE("tokenizer.json: merges of what is not there, and merges without end, are refused") {
  refuses_with("/model/merges/0", "a", "model.merges[0]: expected two tokens with a space between");
  refuses_with("/model/merges/0", "a b c", "expected two tokens");
  refuses_with("/model/merges/0", json::array({"a"}), "expected two tokens");
  refuses_with("/model/merges/0", json::array({"a", 7}), "expected two tokens");
  refuses_with("/model/merges/0", json::array({"a", "nowhere"}),
               "the token \"nowhere\" is not in the vocabulary");
  refuses_with("/model/merges/0", json::array({"z", "q"}),
               "the merged token \"zq\" is not in the vocabulary");
  refuses_with("/model/merges", 5, "model.merges: expected an array, found 5");
  json cyclic = good();
  cyclic["model"]["vocab"][""] = 5000;
  cyclic["model"]["merges"].push_back(json::array({"", "a"}));
  refuses(cyclic.dump(), "a merge of an empty token has no end");
}

TEST_CASE("tokenizer.json: merges in any order end, and cannot run in circles") {
  json file = good();
  json& merges = file["model"]["merges"];
  std::reverse(merges.begin(), merges.end());
  for (size_t i = 0; i < 50; ++i) merges.push_back(merges[i]);  // doubled: the last counts
  const Tokenizer tokenizer(file.dump(), "t");
  const std::string text(100'000, 'e');
  CHECK(decode(tokenizer, tokenizer.encode(text), false) == text);
}

TEST_CASE("tokenizer.json: parts that are not available are refused by name") {
  refuses_with("/model/type", "Unigram",
               "this is a Unigram tokenizer; dstrain reads BPE, byte-level or with SentencePiece's "
               "marks: make a token file (.bin) with transformers");
  refuses_with("/model/dropout", 0.1, "merges are never dropped");
  refuses_with("/model/continuing_subword_prefix", "##", "not available");
  refuses_with("/model/end_of_word_suffix", "</w>", "not available");
  refuses_with("/normalizer", {{"type", "Lowercase"}}, "the normalizer Lowercase is not available");
  refuses_with("/pre_tokenizer", nullptr,
               "the decoder ByteLevel is not available where pre_tokenizer has no ByteLevel");
  refuses_with("/pre_tokenizer", {{"type", "Whitespace"}},
               "the pre-tokenizer Whitespace is not available");
  refuses_with("/pre_tokenizer/pretokenizers/0/behavior", "Removed",
               "the behavior Removed is not available");
  refuses_with("/pre_tokenizer/pretokenizers/0/invert", true, "\"invert\" is not available");
  refuses_with("/pre_tokenizer/pretokenizers/0/pattern", {{"Word", " "}},
               "expected a pattern \"Regex\" or \"String\"");
  refuses_with("/pre_tokenizer/pretokenizers/0/pattern", {{"String", ""}},
               "pattern.String: expected a text that is not empty");
  refuses_with("/post_processor", {{"type", "Odd"}}, "the post-processor Odd is not available");
  refuses_with("/decoder", {{"type", "Metaspace"}}, "the decoder Metaspace is not available");
  json circle = {{"type", "TemplateProcessing"},
                 {"single", {{{"SpecialToken", {{"id", "x"}}}}, {{"Sequence", {{"id", "A"}}}}}},
                 {"special_tokens", {{"x", {{"ids", {4'000'000}}}}}}};
  refuses_with("/post_processor", circle, "no token has the id 4000000");
  circle["special_tokens"] = json::object();
  refuses_with("/post_processor", circle, "special_tokens has no \"x\"");
}

// Changes the tokenizer of a form of SentencePiece's at a JSON pointer.
void refuses_changed(const std::string& name, const std::string& pointer, const json& value,
                     const std::string& message) {
  json file = json::parse(golden_file(name + ".json"));
  file[json::json_pointer(pointer)] = value;
  refuses(file.dump(), message);
}

TEST_CASE("tokenizer.json: parts beside SentencePiece's marks that are not available are named") {
  refuses_changed("llama2", "/normalizer/normalizers/0/prepend", "",
                  "prepend: expected a text that is not empty");
  refuses_changed("llama2", "/normalizer/normalizers/1/pattern", {{"Regex", " "}},
                  "only patterns \"String\" are available in a normalizer");
  refuses_changed("llama2", "/normalizer/normalizers/1/content", "",
                  "a normalizer that takes text away is not available");
  refuses_changed("llama2", "/pre_tokenizer",
                  {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "first"}},
                  "prepend_scheme \"first\" is not available beside the normalizer Prepend");
  refuses_changed("mistral", "/pre_tokenizer/replacement", "__",
                  "replacement: expected one character, found \"__\"");
  refuses_changed("mistral", "/pre_tokenizer/prepend_scheme", "last",
                  "expected \"always\", \"first\" or \"never\"");
  refuses_changed("mistral", "/pre_tokenizer/add_prefix_space", false,
                  "add_prefix_space is false, and prepend_scheme is \"first\"");
  const json digits{{"type", "Digits"}};
  json mistral = json::parse(golden_file("mistral.json"));
  refuses_changed("mistral", "/pre_tokenizer",
                  {{"type", "Sequence"}, {"pretokenizers", {digits, mistral["pre_tokenizer"]}}},
                  "no other pre-tokenizer may stand before Metaspace");
  refuses_changed("gemma", "/pre_tokenizer/behavior", "Removed",
                  "the behavior Removed is not available");
  refuses_changed("gemma", "/decoder", nullptr, "has no \"decoder\"");
  refuses_changed("gemma", "/decoder/decoders/0", {{"type", "WordPiece"}},
                  "the decoder WordPiece is not available here");
  refuses_changed("gemma", "/decoder/decoders/2", {{"type", "Strip"}},
                  "the order of decoders is not available");
  refuses_changed("llama2", "/decoder/decoders/3/stop", 1, "only the beginning of a text");
  refuses_changed("llama2", "/decoder/decoders/3/start", -1, "an integer from 0 to 1000");
  json unknown = json::parse(golden_file("unknown.json"));
  unknown["model"]["unk_token"] = "<none>";
  refuses(unknown.dump(), "model.unk_token: the vocabulary has no token \"<none>\"");
  unknown["model"]["unk_token"] = nullptr;
  const Tokenizer without(unknown.dump(), "t");
  REQUIRE(without.warnings().size() == 1);
  CHECK_THAT(without.warnings().front(), Contains("are left out of texts"));
  CHECK(without.encode("a\U0001f600a") == without.encode("aa"));
}

TEST_CASE(
    "tokenizer.json: bytes without a token are left out with a warning, or refused where others "
    "would take their place") {
  json file = good();
  file["model"]["vocab"].erase("\u00ff");
  const Tokenizer tokenizer(file.dump(), "t");
  REQUIRE(tokenizer.warnings().size() == 1);
  CHECK_THAT(tokenizer.warnings().front(), Contains("1 of the 256 bytes have no token"));
  file["model"]["unk_token"] = "a";
  refuses(file.dump(), "1 of the 256 bytes have no token");
}

}  // namespace
}  // namespace dstrain
