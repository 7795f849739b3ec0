#include "runtime/data/file/file_sums.h"

#include <algorithm>

#include "runtime/core/checksum.h"
#include "runtime/core/threads/parts.h"

namespace dstrain {

uint64_t checksum_of_piece(const unsigned char* data, int64_t bytes, int64_t piece) {
  const int64_t begin = piece * kPieceBytes;
  return checksum_of(data + begin, std::min(kPieceBytes, bytes - begin));
}

FileSums sums_of(const unsigned char* data, int64_t bytes) {
  FileSums sums{.bytes = bytes, .whole = checksum_of_many(data, bytes), .pieces = {}};
  const int64_t pieces = pieces_of_file(bytes);
  sums.pieces.resize(static_cast<size_t>(pieces));
  run_in_turns(pieces > 1 ? thread_count() : 1, pieces, [&](int64_t piece) {
    sums.pieces[static_cast<size_t>(piece)] = checksum_of_piece(data, bytes, piece);
  });
  return sums;
}

}  // namespace dstrain
