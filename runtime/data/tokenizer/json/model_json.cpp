#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "runtime/data/tokenizer/json/json_value.h"
#include "runtime/data/tokenizer/json/tokenizer_json.h"

namespace dstrain {
namespace {

using Vocabulary = TokenIds;

void refuse_other_models(const JsonValue& model) {
  const auto type = model.find("type");
  const std::string name = type ? type->text() : "BPE";
  if (name != "BPE") type->fail(fmt::format("this is a {} tokenizer; {}", name, kOtherTokenizer));
  for (const char* const affix : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const auto text = model.find(affix); text && !text->text().empty())
      text->fail("this is not available: the BPE that dstrain reads has none");
  if (const auto dropout = model.find("dropout"))
    if (!dropout->json().is_number() || dropout->json().get<double>() != 0)
      dropout->fail("merges are never dropped here: set it to null");
}

Vocabulary read_vocabulary(const JsonValue& vocab) {
  if (!vocab.json().is_object()) vocab.fail_expected("an object of tokens and ids");
  if (vocab.json().empty()) vocab.fail("there is no token");
  if (vocab.json().size() > kMostTokenIds)
    vocab.fail(fmt::format("there are {} tokens; at most {} are possible", vocab.json().size(),
                           kMostTokenIds));
  Vocabulary vocabulary;
  vocabulary.reserve(vocab.json().size());
  std::unordered_map<uint32_t, const std::string*> tokens;
  tokens.reserve(vocab.json().size());
  for (const auto& [token, value] : vocab.json().items()) {
    const auto at = vocabulary.emplace(token, 0).first;
    at->second = vocab.at(token).id();
    const auto [other, fresh] = tokens.try_emplace(at->second, &at->first);
    if (!fresh)
      vocab.fail(fmt::format("the tokens \"{}\" and \"{}\" have the same id, {}", *other->second,
                             token, at->second));
  }
  return vocabulary;
}

// Returns the two tokens of a merge: an array of them, or a string with a space between.
std::pair<std::string, std::string> tokens_of(const JsonValue& merge) {
  const nlohmann::json& value = merge.json();
  if (value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string())
    return {value[0].get<std::string>(), value[1].get<std::string>()};
  if (!value.is_string()) merge.fail_expected("two tokens");
  const std::string& text = merge.text();
  const size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
    merge.fail_expected("two tokens with a space between");
  return {text.substr(0, space), text.substr(space + 1)};
}

uint32_t id_of(const JsonValue& merge, const Vocabulary& vocabulary, const std::string& token,
               const char* what) {
  const auto at = vocabulary.find(token);
  if (at == vocabulary.end())
    merge.fail(fmt::format("the {} \"{}\" is not in the vocabulary", what, token));
  return at->second;
}

}  // namespace

TokenizerModel read_model(const JsonValue& model) {
  refuse_other_models(model);
  TokenizerModel result;
  result.vocabulary = read_vocabulary(model.at("vocab"));
  result.ignore_merges = model.flag("ignore_merges", false);
  result.unknown.byte_fallback = model.flag("byte_fallback", false);
  result.unknown.fuse = model.flag("fuse_unk", false);
  if (const auto unknown = model.find("unk_token")) {
    result.unk_token = unknown->text();
    const auto at = result.vocabulary.find(result.unk_token);
    if (at != result.vocabulary.end()) result.unknown.token = at->second;
  }
  const JsonValue merges = model.at("merges");
  merges.each([&result](const JsonValue& merge) {
    if (merge.json().is_string() && merge.text().starts_with("#version")) return;
    const auto [left, right] = tokens_of(merge);
    if (left.empty() || right.empty()) merge.fail("a merge of an empty token has no end");
    result.merges.push_back({id_of(merge, result.vocabulary, left, "token"),
                             id_of(merge, result.vocabulary, right, "token"),
                             id_of(merge, result.vocabulary, left + right, "merged token")});
  });
  return result;
}

std::vector<AddedToken> read_added_tokens(const JsonValue& list, const TokenizerModel& model) {
  std::unordered_map<uint32_t, std::string> by_id;
  for (const auto& [token, id] : model.vocabulary) by_id.emplace(id, token);
  std::unordered_set<std::string> contents;
  std::vector<AddedToken> added;
  list.each([&](const JsonValue& entry) {
    AddedToken token{.id = entry.at("id").id(), .content = entry.at("content").text()};
    token.special = entry.flag("special", false);
    token.normalized = entry.flag("normalized", !token.special);
    token.single_word = entry.flag("single_word", false);
    token.lstrip = entry.flag("lstrip", false);
    token.rstrip = entry.flag("rstrip", false);
    if (token.content.empty()) return;  // the library leaves it out, too
    if (!contents.insert(token.content).second)
      entry.fail(fmt::format("the token \"{}\" is in the list twice", token.content));
    const auto known = model.vocabulary.find(token.content);
    if (known != model.vocabulary.end() && known->second != token.id)
      entry.fail(fmt::format("the token \"{}\" has id {} here and {} in the vocabulary",
                             token.content, token.id, known->second));
    const auto [other, fresh] = by_id.try_emplace(token.id, token.content);
    if (!fresh && other->second != token.content)
      entry.fail(fmt::format("the tokens \"{}\" and \"{}\" have the same id, {}", other->second,
                             token.content, token.id));
    added.push_back(std::move(token));
  });
  return added;
}

}  // namespace dstrain
