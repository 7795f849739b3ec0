// dstrain tokenize: text files become a token file, by the tokenizer of a Hugging Face directory.
#include <fmt/format.h>

#include "launcher/commands/commands.h"
#include "launcher/process/failure.h"
#include "launcher/tokens/tokenize_files.h"
#include "runtime/core/log/log.h"
#include "runtime/data/tokenizer/tokenizer_directory.h"

namespace dstrain {

int run_tokenize(const TokenizeArguments& arguments) {
  const auto tokenizer = open_tokenizer(arguments.model);
  std::vector<std::string> warnings = tokenizer->warnings();
  const auto end = arguments.no_eos
                       ? std::nullopt
                       : end_of_documents(arguments.model, *tokenizer, arguments.files, warnings);
  for (const std::string& warning : warnings) log::warn("{}", warning);
  const DocumentCounts counts =
      tokenize_files(*tokenizer, arguments.files, end, arguments.output, Links::followed);
  for (const std::string& warning : warnings_of(counts)) log::warn("{}", warning);
  print_result(fmt::format("{}: {} tokens of {} documents, {} bytes of text; {} ids are possible\n",
                           arguments.output, counts.tokens, counts.documents, counts.bytes,
                           tokenizer->vocabulary_size()));
  return 0;
}

}  // namespace dstrain
