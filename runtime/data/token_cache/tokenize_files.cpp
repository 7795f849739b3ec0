#include "runtime/data/token_cache/tokenize_files.h"

#include <fmt/ranges.h>

#include <filesystem>
#include <system_error>

#include "runtime/core/error.h"
#include "runtime/core/files/atomic_file.h"
#include "runtime/core/log/live_line.h"
#include "runtime/core/text.h"
#include "runtime/data/token_cache/token_file.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

// Returns the bytes of all files. Throws UserError if one is the output.
int64_t bytes_of_input(const std::vector<std::string>& files, const std::string& output) {
  int64_t bytes = 0;
  for (const std::string& file : files) {
    std::error_code none;
    for (const std::string& written : {output, output + ".documents", output + ".targets"})
      if (fs::equivalent(file, written, none))
        fail_user("{} is to be read and written: give another --output", file);
    const auto size = fs::file_size(file, none);
    if (!none) bytes += static_cast<int64_t>(size);  // else opening the file says why
  }
  return bytes;
}

}  // namespace

DocumentCounts tokenize_files(const Tokenizer& tokenizer, const std::vector<std::string>& files,
                              const LineOptions& options, const std::string& output, Links links) {
  const int64_t all = bytes_of_input(files, output);
  const auto place = [links](const std::string& path) {
    return links == Links::followed ? file_to_replace(path) : path;
  };
  TokenFile tokens({place(output), place(output + ".documents"), place(output + ".targets")},
                   tokenizer.vocabulary_size());
  DocumentCounts counts;
  std::optional<LiveLine> line = LiveLine::where_shown();
  for (const std::string& file : files)
    encode_file(tokenizer, file, options, counts, [&](const EncodedPart& part, int64_t done) {
      tokens.append(part.ids, part.starts, part.counts);
      if (!line || !line->due()) return;
      const auto read = static_cast<double>(counts.bytes + done);
      const auto most = static_cast<double>(all);
      line->draw(fmt::format("{:.0f}% | {} of {} | {} tokens", all > 0 ? 100 * read / most : 100,
                             bytes_text(read), bytes_text(most), counts.tokens));
    });
  if (line) line->clear();
  tokens.commit();
  return counts;
}

std::vector<std::string> warnings_of(const DocumentCounts& counts) {
  std::vector<std::string> warnings;
  if (counts.invalid > 0)
    warnings.push_back(
        fmt::format("{} places are not UTF-8, the first at {}: each became U+FFFD, as in Python's "
                    "errors=\"replace\"",
                    counts.invalid, counts.first_invalid));
  if (counts.skipped > 0)
    warnings.push_back(fmt::format("{} left out, the first is {}",
                                   counts.skipped == 1
                                       ? "an invalid line was"
                                       : fmt::format("{} invalid lines were", counts.skipped),
                                   counts.first_skipped));
  if (counts.without_targets > 0)
    warnings.push_back(fmt::format("{} of {} documents have no token that counts in the loss",
                                   counts.without_targets, counts.documents));
  std::vector<std::string> names;
  for (const auto& [name, times] : counts.ignored)
    names.push_back(fmt::format("{} ({})", name, times));
  if (!names.empty())
    warnings.push_back(
        fmt::format("members of lines that are not used are left out: {}", fmt::join(names, ", ")));
  return warnings;
}

}  // namespace dstrain
