#include "runtime/plan/placement/first_fit.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <iterator>
#include <random>

#include "tests/plan/plans.h"

using namespace dstrain;

namespace {

bool meets(const Piece& a, const Piece& b) {
  return a.begin <= b.end && b.begin <= a.end;
}

// The definition: a piece begins at the base or at the end of a piece that is placed, at the lowest offset from which no
// piece of its lifetime is in its way.
void place_by_definition(std::vector<Piece>& pieces, int64_t base) {
  std::vector<Piece*> order;
  for (Piece& piece : pieces) order.push_back(&piece);
  std::ranges::stable_sort(order,
                           [](const Piece* a, const Piece* b) { return a->bytes > b->bytes; });
  for (auto piece = order.begin(); piece != order.end(); ++piece) {
    std::vector<const Piece*> others;
    std::copy_if(order.begin(), piece, std::back_inserter(others),
                 [&](const Piece* other) { return meets(**piece, *other); });
    std::vector<int64_t> starts{base};
    for (const Piece* other : others) starts.push_back(other->offset + other->bytes);
    std::ranges::sort(starts);
    (*piece)->offset = *std::ranges::find_if(starts, [&](int64_t at) {
      return std::ranges::all_of(others, [&](const Piece* other) {
        return other->offset + other->bytes <= at || at + (*piece)->bytes <= other->offset;
      });
    });
  }
}

int64_t place(std::vector<Piece>& pieces, int64_t base) {
  std::vector<Piece*> list;
  for (Piece& piece : pieces) list.push_back(&piece);
  return first_fit(std::move(list), base);
}

}  // namespace

TEST_CASE("first fit: every piece has the lowest offset that is free for its whole lifetime") {
  std::mt19937 random(1);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 200; ++round) {
    const bool many = round % 100 == 0;
    const int count = many ? 2500 : 1 + below(60), times = 1 + below(many ? 3000 : 80),
              sizes = 1 + below(round % 2 == 0 ? 3 : 40);
    std::vector<Piece> pieces;
    for (int i = 0; i < count; ++i) {
      const int begin = below(times);
      const int longest = below(many ? 20 : 3) == 0 ? times : 3;
      pieces.push_back({.bytes = 64 * below(sizes + 1),
                        .begin = begin,
                        .end = std::min(times - 1, begin + below(longest))});
    }
    std::vector<Piece> expected = pieces;
    place_by_definition(expected, 128);
    const int64_t top = place(pieces, 128);
    int64_t highest = 128;
    for (size_t i = 0; i < pieces.size(); ++i) {
      CAPTURE(round, i);
      if (pieces[i].bytes > 0) CHECK(pieces[i].offset == expected[i].offset);
      highest = std::max(highest, pieces[i].offset + pieces[i].bytes);
    }
    CHECK(top == highest);
  }
}

// A search through what is placed takes hours for as many pieces.
TEST_CASE(
    "first fit: what the layers of a deep model keep and use lies as closely as that of a shallow "
    "one") {
  constexpr int kLayers = 100000, kEnd = 2 * kLayers;
  std::vector<Piece> pieces;
  for (int i = 0; i < kLayers; ++i) {
    pieces.push_back({.bytes = 256, .begin = i, .end = kEnd - i});  // kept for the backward pass
    pieces.push_back({.bytes = 128, .begin = i, .end = i});         // used in a layer
    pieces.push_back(
        {.bytes = 128, .begin = kEnd - i, .end = kEnd - i});  // and in its backward pass
  }
  CHECK(place(pieces, 0) == 256 * int64_t{kLayers} + 128);
  for (int i = 0; i < kLayers; ++i) {
    const auto at = 3 * static_cast<size_t>(i);
    if (pieces[at].offset != 256 * int64_t{i} || pieces[at + 1].offset != 256 * int64_t{i + 1} ||
        pieces[at + 2].offset != pieces[at + 1].offset)
      FAIL("layer " << i << " lies elsewhere");
  }
}

TEST_CASE("first fit: nothing to place ends at the base") {
  CHECK(first_fit({}, 4096) == 4096);
}
