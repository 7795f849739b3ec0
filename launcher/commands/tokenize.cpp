// dstrain tokenize: text files become a token file, by the tokenizer of a Hugging Face directory.
#include <fmt/format.h>

#include "launcher/commands/commands.h"
#include "launcher/process/failure.h"
#include "runtime/config/text.h"
#include "runtime/core/log/log.h"
#include "runtime/data/documents/documents.h"
#include "runtime/data/file/file_kind.h"
#include "runtime/data/token_cache/line_settings.h"
#include "runtime/data/token_cache/tokenize_files.h"
#include "runtime/data/tokenizer/tokenizer_directory.h"

namespace dstrain {
namespace {

LossOn loss_on(const std::string& name) {
  if (name == "assistant") return LossOn::assistant;
  if (name == "completion") return LossOn::completion;
  return name == "all" ? LossOn::all : LossOn::usual;
}

// Returns why the file is doubted to be text; empty: it is not. Files of JSON lines are not read as text.
std::string doubt_about(const std::string& file) {
  return has_json_lines(file) ? "" : doubt_of_text(DataFile(file), TextIds::tokenizer);
}

}  // namespace

int run_tokenize(const TokenizeArguments& arguments) {
  const auto tokenizer = open_tokenizer(arguments.model);
  std::vector<std::string> warnings = tokenizer->warnings();
  const LineRules rules = line_rules(arguments.model, *tokenizer, arguments.files,
                                     {.chat_template = arguments.chat_template,
                                      .loss_on = loss_on(arguments.loss_on),
                                      .skip_invalid = arguments.skip_invalid,
                                      .no_eos = arguments.no_eos},
                                     warnings);
  for (const std::string& file : arguments.files)
    if (const std::string doubt = doubt_about(file); !doubt.empty())
      warnings.push_back(doubt + "; it is tokenized as text, with the syntax of its records");
  for (const std::string& warning : warnings) log::warn("{}", warning);
  const DocumentCounts counts =
      tokenize_files(*tokenizer, arguments.files, rules.options, arguments.output, Links::followed);
  for (const std::string& warning : warnings_of(counts)) log::warn("{}", warning);
  print_result(fmt::format(
      "{}: {} of {}, {} of text; {} ids are possible{}\n", arguments.output,
      counted(counts.tokens, "token"), counted(counts.documents, "document"),
      counted(counts.bytes, "byte"), tokenizer->vocabulary_size(),
      counts.targets == counts.tokens
          ? ""
          : fmt::format("; {} in the loss", counts.targets == 1
                                                ? "1 token counts"
                                                : fmt::format("{} tokens count", counts.targets))));
  return 0;
}

}  // namespace dstrain
