// First fit: offsets for pieces of memory that are each in use for a part of a step. The largest piece is placed first,
// each at the lowest offset that is free for its whole lifetime.
#pragma once

#include <climits>
#include <cstdint>
#include <vector>

namespace dstrain {

// Bytes that are in use from one moment of a step to another, both included.
struct Piece {
  int64_t bytes = 0;
  int begin = INT_MAX, end = -1;
  int64_t offset = 0;
};

// Gives every piece its offset, `base` or more. Of equally large pieces the first in the list is placed first. Every
// offset is `base` plus sizes of pieces, so it is as aligned as these. Returns the end of the highest piece, or
// `base`. For N pieces it takes a time of about N log N, where the layers of a model are alike.
int64_t first_fit(std::vector<Piece*> pieces, int64_t base);

}  // namespace dstrain
