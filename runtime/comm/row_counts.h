// RowCounts: how many rows each rank of a group sends to each, in an exchange of rows (Communicator::exchange_rows). What a
// rank sends lies in the order of the receivers, what it receives in the order of the senders.
#pragma once

#include <algorithm>
#include <cstdint>

namespace dstrain {

struct RowCounts {
  const int32_t* counts = nullptr;  // (ranks, ranks): rows that each rank has for each
  int ranks = 1;
  bool back = false;    // they go back: from those that have received them to those that sent them
  int64_t columns = 1;  // elements of a row

  // Returns how many elements rank `from` sends to rank `to`.
  int64_t elements(int from, int to) const {
    return int64_t{back ? counts[to * ranks + from] : counts[from * ranks + to]} * columns;
  }
  // Return in front of which element of what rank `from` sends that for rank `to` lies, and in front of which element of what
  // rank `to` receives.
  int64_t sent_before(int from, int to) const {
    int64_t sum = 0;
    for (int r = 0; r < to; ++r) sum += elements(from, r);
    return sum;
  }
  int64_t received_before(int from, int to) const {
    int64_t sum = 0;
    for (int r = 0; r < from; ++r) sum += elements(r, to);
    return sum;
  }
  // Return how many elements a rank sends, and receives, its own included.
  int64_t sent(int rank) const { return sent_before(rank, ranks); }
  int64_t received(int rank) const { return received_before(ranks, rank); }
  // Returns the elements that the two ranks exchange that exchange most.
  int64_t most() const {
    int64_t most = 0;
    for (int from = 0; from < ranks; ++from)
      for (int to = 0; to < ranks; ++to) most = std::max(most, elements(from, to));
    return most;
  }
  // Returns how many of elements [begin, begin + count) of what rank `from` sends to rank `to` there are.
  int64_t within(int from, int to, int64_t begin, int64_t count) const {
    return std::clamp(elements(from, to) - begin, int64_t{0}, count);
  }
};

}  // namespace dstrain
