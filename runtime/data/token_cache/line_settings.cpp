#include "runtime/data/token_cache/line_settings.h"

#include <algorithm>
#include <optional>

#include "runtime/core/error.h"
#include "runtime/data/tokenizer/tokenizer_directory.h"

namespace dstrain {
namespace {

// Returns the token that ends a text or a completion.
uint32_t end_of_documents(const std::string& directory, const Tokenizer& tokenizer,
                          std::vector<std::string>& warnings) {
  const auto end = end_of_text(directory, tokenizer);
  if (!end)
    fail_user(
        "{}: neither tokenizer_config.json nor another file says which token ends a document: give "
        "it there as \"eos_token\", or leave it out with --no_eos of dstrain tokenize",
        directory);
  if (!tokenizer.suffix().empty() && tokenizer.suffix().back() == end->id)
    warnings.push_back(
        fmt::format("the post-processor puts the token {} behind documents, and it follows once "
                    "more: --no_eos of dstrain tokenize leaves out the second one",
                    end->id));
  return end->id;
}

}  // namespace

LineRules line_rules(const std::string& directory, const Tokenizer& tokenizer,
                     const std::vector<std::string>& files, const LineSettings& settings,
                     std::vector<std::string>& warnings) {
  LineRules rules;
  const bool lines = std::ranges::any_of(files, has_json_lines);
  if (!settings.chat_template.empty()) {
    rules.chat_template =
        open_chat_template(directory, settings.chat_template, tokenizer, settings.named_by);
  } else if (lines) {
    try {
      rules.chat_template = open_chat_template(directory, "", tokenizer);
    } catch (const UserError& e) {
      rules.options.chat.why_none = e.what();
    }
  }
  if (lines && !settings.no_eos)
    rules.options.chat.end = end_of_documents(directory, tokenizer, warnings);
  rules.options.chat.chat_template = rules.chat_template.get();
  rules.options.chat.loss_on = settings.loss_on;
  rules.options.skip_invalid = settings.skip_invalid;
  rules.options.answers = settings.answers;
  return rules;
}

}  // namespace dstrain
