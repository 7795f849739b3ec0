#include "kernels/cpu/convolutions/runs.h"

#include <algorithm>

namespace dstrain {
namespace {

using Dimension = WindowAttrs::Dimension;

// A place of a window in one dimension, and the source there.
struct Place {
  int64_t k = 0, source = 0;
};

// Returns the places of one dimension where a target has a source.
std::vector<Place> places_of(const Dimension& d, int64_t target, bool of_positions) {
  std::vector<Place> places;
  for (int64_t k = 0; k < d.kernel; ++k) {
    const int64_t source = of_positions ? d.window(target, k) : d.element(target, k);
    if (source >= 0) places.push_back({k, source});
  }
  return places;
}

// Targets of the last dimension, and the places of the first one.
struct Piece {
  int64_t target = 0, count = 0;
  std::vector<Place> places{};
};

// Returns whether a target behind a piece has its places, with the sources that follow the piece's.
bool follows(const Piece& piece, const std::vector<Place>& places, int64_t source_step) {
  return std::ranges::equal(piece.places, places, [&](const Place& first, const Place& here) {
    return first.k == here.k && first.source + piece.count * source_step == here.source;
  });
}

// Returns the pieces of the last dimension.
std::vector<Piece> pieces_of(const Dimension& d, bool of_positions, bool joined,
                             int64_t target_step, int64_t source_step) {
  const int64_t targets = of_positions ? d.size : d.out;
  std::vector<Piece> pieces;
  for (int64_t first = 0; first < target_step; ++first)
    for (int64_t target = first; target < targets; target += target_step) {
      std::vector<Place> places = places_of(d, target, of_positions);
      if (joined && target > first && follows(pieces.back(), places, source_step))
        ++pieces.back().count;
      else
        pieces.push_back({target, 1, std::move(places)});
    }
  return pieces;
}

}  // namespace

ConvolutionRuns convolution_runs(const WindowAttrs& windows, bool of_positions) {
  const auto& [d0, d1, d2] = windows.dimensions;
  // With several samples the matrices of positions that are `stride` apart do not follow each other.
  const bool joined = windows.samples == 1 || d2.stride == 1;
  ConvolutionRuns all;
  if (joined) (of_positions ? all.target_step : all.source_step) = d2.stride;
  const std::vector<Piece> pieces =
      pieces_of(d2, of_positions, joined, all.target_step, all.source_step);
  const int64_t sources1 = of_positions ? d1.out : d1.size,
                sources2 = of_positions ? d2.out : d2.size,
                targets0 = of_positions ? d0.size : d0.out,
                targets1 = of_positions ? d1.size : d1.out,
                targets2 = of_positions ? d2.size : d2.out;
  std::vector<int64_t> number(static_cast<size_t>(windows.kernel()), -1);
  for (int64_t t0 = 0; t0 < targets0; ++t0)
    for (int64_t t1 = 0; t1 < targets1; ++t1) {
      const std::vector<Place> of_t0 = places_of(d0, t0, of_positions),
                               of_t1 = places_of(d1, t1, of_positions);
      for (const Piece& piece : pieces) {
        const size_t first = all.sources.size();
        for (const Place& p0 : of_t0)
          for (const Place& p1 : of_t1)
            for (const Place& p2 : piece.places) {
              const int64_t place = (p0.k * d1.kernel + p1.k) * d2.kernel + p2.k;
              number[static_cast<size_t>(place)] = 0;
              all.sources.push_back(
                  {place, (p0.source * sources1 + p1.source) * sources2 + p2.source});
            }
        all.runs.push_back({(t0 * targets1 + t1) * targets2 + piece.target, piece.count, first,
                            all.sources.size() - first});
      }
    }
  for (size_t place = 0; place < number.size(); ++place)
    if (number[place] == 0) {
      number[place] = static_cast<int64_t>(all.places.size());
      all.places.push_back(static_cast<int64_t>(place));
    }
  for (ConvolutionRuns::Source& source : all.sources)
    source.place = number[static_cast<size_t>(source.place)];
  return all;
}

}  // namespace dstrain
