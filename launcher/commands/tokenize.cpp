// dstrain tokenize: text files become a token file, by the tokenizer of a Hugging Face directory.
#include <fmt/format.h>

#include <algorithm>

#include "launcher/commands/commands.h"
#include "launcher/process/failure.h"
#include "launcher/tokens/tokenize_files.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"
#include "runtime/data/tokenizer/tokenizer_directory.h"

namespace dstrain {
namespace {

// Returns the token that ends each document of JSON lines; nothing where there are none, or the user wants none.
std::optional<uint32_t> end_for(const TokenizeArguments& arguments, const Tokenizer& tokenizer) {
  if (arguments.no_eos || std::ranges::none_of(arguments.files, has_json_lines))
    return std::nullopt;
  const auto end = end_of_text(arguments.model, tokenizer);
  if (!end)
    fail_user(
        "{}: neither tokenizer_config.json nor another file says which token ends a document: give "
        "it there as "
        "\"eos_token\", or leave it out with --no_eos",
        arguments.model);
  if (!tokenizer.suffix().empty() && tokenizer.suffix().back() == end->id)
    log::warn(
        "the post-processor puts the token {} behind documents, and so does tokenize: --no_eos "
        "leaves out the "
        "second one",
        end->id);
  return end->id;
}

}  // namespace

int run_tokenize(const TokenizeArguments& arguments) {
  const auto tokenizer = open_tokenizer(arguments.model);
  for (const std::string& warning : tokenizer->warnings()) log::warn("{}", warning);
  const auto end = end_for(arguments, *tokenizer);
  const DocumentCounts counts = tokenize_files(*tokenizer, arguments.files, end, arguments.output);
  for (const std::string& warning : warnings_of(counts)) log::warn("{}", warning);
  print_result(fmt::format("{}: {} tokens of {} documents, {} bytes of text; {} ids are possible\n",
                           arguments.output, counts.tokens, counts.documents, counts.bytes,
                           tokenizer->vocabulary_size()));
  return 0;
}

}  // namespace dstrain
