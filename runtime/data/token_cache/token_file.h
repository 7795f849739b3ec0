// TokenFile: a token file that is being written (docs/formats.md): nanoGPT's bare uint16, or llm.c's header with uint32
// where the vocabulary has more than 65,536 ids; FILE.documents, where its documents begin; and FILE.targets, which of
// its tokens count in the loss, unless all do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/files/atomic_file.h"

namespace dstrain {

struct TokenFilePaths {
  std::string tokens, documents, targets;
};

class TokenFile {
 public:
  // `vocabulary`: the number of ids that there can be. A symbolic link at a path is replaced, not followed. Throws RunError
  // if the files cannot be written.
  TokenFile(const TokenFilePaths& paths, int64_t vocabulary);

  int bytes_each() const { return wide_ ? 4 : 2; }
  int64_t tokens() const { return tokens_; }
  // Appends ids, all below the vocabulary. `starts`: the places among them where documents begin. `counts`:
  // for each whether it counts in the loss; empty: all do. Throws UserError if there are more than the header can state.
  void append(std::span<const uint32_t> ids, std::span<const size_t> starts,
              std::span<const uint8_t> counts = {});
  // Puts the files in the place of those of their names. Without it nothing is left behind.
  void commit();

 private:
  void append_targets(std::span<const uint8_t> counts, int64_t count);

  NewFile file_, documents_;
  std::optional<NewFile> targets_;  // from the first token on that does not count
  std::string targets_path_;
  bool wide_;
  int64_t bytes_, tokens_ = 0, document_bytes_ = 0;
  std::vector<uint16_t> narrow_;  // memory of append()
};

}  // namespace dstrain
