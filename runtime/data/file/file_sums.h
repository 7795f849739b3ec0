// FileSums: checksums of a file and of its pieces. Who reads a part of the file compares the pieces that hold it, so that
// a large file need not be read whole before a run begins (docs/formats.md, FILE.sums).
#pragma once

#include <cstdint>
#include <vector>

namespace dstrain {

inline constexpr int64_t kPieceBytes = int64_t{64} << 20;  // of each piece but the last

struct FileSums {
  int64_t bytes = 0;
  uint64_t whole = 0;            // checksum_of_many() of the file
  std::vector<uint64_t> pieces;  // checksum_of() of each piece
  bool operator==(const FileSums&) const = default;
};

// Returns how many pieces a file of so many bytes has.
inline int64_t pieces_of_file(int64_t bytes) {
  return (bytes + kPieceBytes - 1) / kPieceBytes;
}

// Returns the checksum of one piece of the `bytes` bytes at `data`.
uint64_t checksum_of_piece(const unsigned char* data, int64_t bytes, int64_t piece);

// Returns the checksums of the `bytes` bytes at `data`, which all threads compute.
FileSums sums_of(const unsigned char* data, int64_t bytes);

}  // namespace dstrain
