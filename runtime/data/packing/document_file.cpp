#include "runtime/data/packing/document_file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "runtime/core/error.h"
#include "runtime/data/file/token_sums.h"

namespace dstrain {

DocumentFile::DocumentFile(const TokenSource& tokens) {
  const std::string& of = tokens.file().path();
  const std::string path = of + ".documents";
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown) && !unknown)
    fail_user(
        "{} is missing, which says where the documents of {} begin: `dstrain tokenize` writes it, "
        "and dstrain.data.packing \"none\" does without",
        path, of);
  file_ = std::make_unique<DataFile>(path);
  if (std::optional<TokenSums> sums = sums_beside(of)) {
    file_->expect(std::move(sums->documents));
    file_->checked(0, file_->bytes());
  }
  const auto wrong = [&](std::string_view why) {
    fail_user("{} {}: write it and {} again with `dstrain tokenize`", path, why, of);
  };
  if (file_->bytes() % 8 != 0 || file_->bytes() < 16)
    wrong("is no array of at least two 64-bit integers");
  if (begin(0) != 0) wrong("does not begin with token 0");
  for (int64_t d = 0; d < documents(); ++d)
    if (begin(d + 1) < begin(d)) wrong(fmt::format("falls behind its entry {}", d));
  if (begin(documents()) != tokens.tokens())
    wrong(
        fmt::format("ends with token {}, and {} has {}", begin(documents()), of, tokens.tokens()));
}

int64_t DocumentFile::begin(int64_t document) const {
  uint64_t value = 0;
  std::memcpy(&value, file_->data() + document * 8, sizeof(value));
  return static_cast<int64_t>(value);
}

int64_t DocumentFile::longest() const {
  int64_t tokens = 0;
  for (int64_t d = 0; d < documents(); ++d) tokens = std::max(tokens, begin(d + 1) - begin(d));
  return tokens;
}

}  // namespace dstrain
