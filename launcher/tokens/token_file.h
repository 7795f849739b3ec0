// TokenFile: a token file that is being written (docs/formats.md): nanoGPT's bare uint16, or llm.c's header with uint32
// where the vocabulary has more than 65,536 ids; and FILE.documents, where its documents begin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/storage/atomic_file.h"

namespace dstrain {

class TokenFile {
 public:
  // `vocabulary`: the number of ids that there can be. A symbolic link at a path is replaced, not followed. Throws RunError
  // if the files cannot be written.
  TokenFile(const std::string& path, const std::string& documents_path, int64_t vocabulary);

  int bytes_each() const { return wide_ ? 4 : 2; }
  int64_t tokens() const { return tokens_; }
  // Appends ids, all below the vocabulary. `starts`: the places among them where documents begin. Throws UserError if
  // there are more than the header can state.
  void append(std::span<const uint32_t> ids, std::span<const size_t> starts);
  // Puts both files in the place of those of their names. Without it nothing is left behind.
  void commit();

 private:
  NewFile file_, documents_;
  bool wide_;
  int64_t bytes_, tokens_ = 0, document_bytes_ = 0;
  std::vector<uint16_t> narrow_;  // memory of append()
};

}  // namespace dstrain
