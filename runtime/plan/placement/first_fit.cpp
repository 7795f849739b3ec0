// Few pieces are compared with all that are placed. For more, the free offsets of a lifetime are looked up in a segment
// tree over time. A lifetime consists of a few nodes of the
// tree. What is in use in a node is kept as spans of bytes, in which neighbours are one: pieces that lie one behind the
// other, as those of the layers of a model do, are passed in one step.
#include "runtime/plan/placement/first_fit.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace dstrain {
namespace {

// A set of bytes.
class ByteSet {
 public:
  bool empty() const { return spans_.empty(); }

  void add(int64_t begin, int64_t end) {
    const auto first = std::ranges::lower_bound(spans_, begin, {}, &Span::end);
    const auto last = std::upper_bound(first, spans_.end(), end,
                                       [](int64_t at, const Span& s) { return at < s.begin; });
    if (first == last) {
      spans_.insert(first, {begin, end});
      return;
    }
    *first = {std::min(begin, first->begin), std::max(end, std::prev(last)->end)};
    spans_.erase(first + 1, last);
  }

  // Returns `at` if `bytes` from there on are free, else a later offset: nothing between the two is free.
  int64_t passed(int64_t at, int64_t bytes) const {
    const auto after = std::ranges::lower_bound(spans_, at + bytes, {}, &Span::begin);
    return after == spans_.begin() ? at : std::max(at, std::prev(after)->end);
  }

 private:
  struct Span {
    int64_t begin, end;
  };
  std::vector<Span> spans_;  // by offset; no two touch
};

// The bytes that are in use, by time.
class UsedBytes {
 public:
  // `times`: how many moments there are.
  explicit UsedBytes(size_t times) : leaves_(std::bit_ceil(times)), nodes_(2 * leaves_) {}

  void add(size_t first, size_t last, int64_t begin, int64_t end) {
    for_parts(first, last, [&](Node& node) {
      node.covering.add(begin, end);
      node.meeting.add(begin, end);
    });
    for_ancestors(first, last, [&](Node& node) { node.meeting.add(begin, end); });
  }

  // Returns the lowest offset from `at` on from which `bytes` are free at all moments from `first` to `last`.
  int64_t lowest_free(size_t first, size_t last, int64_t at, int64_t bytes) {
    sets_.clear();
    const auto look_in = [&](const ByteSet& spans) {
      if (!spans.empty()) sets_.push_back(&spans);
    };
    for_parts(first, last, [&](const Node& node) { look_in(node.meeting); });
    for_ancestors(first, last, [&](const Node& node) { look_in(node.covering); });
    for (size_t unchanged = 0, i = 0; unchanged < sets_.size(); i = (i + 1) % sets_.size()) {
      const int64_t next = sets_[i]->passed(at, bytes);
      unchanged = next == at ? unchanged + 1 : 0;
      at = next;
    }
    return at;
  }

 private:
  // An interval of moments.
  struct Node {
    ByteSet covering;  // what is in use in all of it, and not in all of the node above
    ByteSet meeting;   // what is in use at some moment of it, but for what covers a node above
  };

  // Visits the largest nodes that the moments consist of.
  template <class Visit>
  void for_parts(size_t first, size_t last, const Visit& visit) {
    size_t begin = first + leaves_, end = last + leaves_ + 1;
    for (; begin < end; begin /= 2, end /= 2) {
      if (begin % 2 == 1) visit(nodes_[begin++]);
      if (end % 2 == 1) visit(nodes_[--end]);
    }
  }
  // Visits all nodes above those, and of the nodes below them some.
  template <class Visit>
  void for_ancestors(size_t first, size_t last, const Visit& visit) {
    size_t a = first + leaves_, b = last + leaves_;
    while (a > 1) {
      a /= 2;
      b /= 2;
      visit(nodes_[a]);
      if (b != a) visit(nodes_[b]);
    }
  }

  size_t leaves_;
  std::vector<Node> nodes_;             // the children of node i are 2i and 2i + 1
  std::vector<const ByteSet*> sets_{};  // those that lowest_free() looks in
};

// Up to so many pieces comparing with all of them is faster.
constexpr size_t kFew = 2000;

// Gives the pieces, the largest first, their offsets.
void place_few(const std::vector<Piece*>& pieces, int64_t base) {
  std::vector<Piece> placed;  // by offset
  placed.reserve(pieces.size());
  for (Piece* piece : pieces) {
    int64_t at = base;
    for (const Piece& other : placed) {
      if (at + piece->bytes <= other.offset) break;
      if (other.begin <= piece->end && piece->begin <= other.end)
        at = std::max(at, other.offset + other.bytes);
    }
    piece->offset = at;
    placed.insert(std::ranges::upper_bound(placed, at, {}, &Piece::offset), *piece);
  }
}

void place_many(const std::vector<Piece*>& pieces, int64_t base) {
  std::vector<int> times;
  for (const Piece* piece : pieces) {
    times.push_back(piece->begin);
    times.push_back(piece->end);
  }
  std::ranges::sort(times);
  times.erase(std::unique(times.begin(), times.end()), times.end());
  const auto number_of = [&times](int time) {
    return static_cast<size_t>(std::ranges::lower_bound(times, time) - times.begin());
  };
  UsedBytes used(times.size());
  for (Piece* piece : pieces) {
    const size_t first = number_of(piece->begin), last = number_of(piece->end);
    piece->offset = used.lowest_free(first, last, base, piece->bytes);
    used.add(first, last, piece->offset, piece->offset + piece->bytes);
  }
}

}  // namespace

int64_t first_fit(std::vector<Piece*> pieces, int64_t base) {
  std::erase_if(pieces, [base](Piece* piece) {
    piece->offset = base;
    return piece->bytes == 0;
  });
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const Piece* a, const Piece* b) { return a->bytes > b->bytes; });
  pieces.size() <= kFew ? place_few(pieces, base) : place_many(pieces, base);
  int64_t top = base;
  for (const Piece* piece : pieces) top = std::max(top, piece->offset + piece->bytes);
  return top;
}

}  // namespace dstrain
