#include "runtime/data/packing/pack.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

// Samples that have room, by how much they have.
class OpenSamples {
 public:
  explicit OpenSamples(int32_t length) : samples_(static_cast<size_t>(length) + 1) {}

  // Returns the number of the sample that a part of so many tokens goes to.
  int64_t take(int32_t tokens, int32_t length) {
    const auto least = rooms_.lower_bound(tokens);
    int32_t room = length;
    int64_t sample = count_;
    if (least == rooms_.end()) {
      ++count_;
    } else {
      room = *least;
      std::vector<int64_t>& of_room = samples_[static_cast<size_t>(room)];
      sample = of_room.back();
      of_room.pop_back();
      if (of_room.empty()) rooms_.erase(least);
    }
    if (const int32_t left = room - tokens; left > 0) {
      samples_[static_cast<size_t>(left)].push_back(sample);
      rooms_.insert(left);
    }
    return sample;
  }
  int64_t count() const { return count_; }

 private:
  std::vector<std::vector<int64_t>> samples_;
  std::set<int32_t> rooms_;  // those that a sample has
  int64_t count_ = 0;
};

}  // namespace

int32_t longest_of(std::span<const DocumentPart> parts) {
  return std::ranges::max(parts, {}, &DocumentPart::tokens).tokens;
}

PackedSamples::PackedSamples(std::vector<DocumentPart> parts, int32_t length, bool several,
                             int64_t rows)
    : parts_(std::move(parts)), rows_(rows) {
  for (const DocumentPart& part : parts_) {
    check(part.tokens > 0 && part.tokens <= length, "a document of {} tokens in samples of {}",
          part.tokens, length);
    tokens_ += part.tokens;
  }
  check(documents() % rows == 0, "{} documents are no groups of {}", documents(), rows);
  const auto count = static_cast<size_t>(groups()), width = static_cast<size_t>(rows);
  if (!several) {
    for (size_t i = 0; i < count; ++i) ends_.push_back(static_cast<int64_t>(i) + 1);
    return;
  }
  const auto group = [&](size_t number) {
    return std::span<const DocumentPart>(parts_).subspan(number * width, width);
  };
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{},
                           [&](size_t number) { return longest_of(group(number)); });
  OpenSamples open(length);
  std::vector<int64_t> sample_of;
  sample_of.reserve(count);
  for (const size_t number : order)
    sample_of.push_back(open.take(longest_of(group(number)), length));

  // The groups in the order of their samples, those of a sample in the order in which they came.
  std::vector<int64_t> place(static_cast<size_t>(open.count()));
  for (const int64_t sample : sample_of) ++place[static_cast<size_t>(sample)];
  int64_t before = 0;
  for (int64_t& of_sample : place) before += std::exchange(of_sample, before);
  std::vector<DocumentPart> sorted(parts_.size());
  for (size_t i = 0; i < count; ++i) {
    const auto at = place[static_cast<size_t>(sample_of[i])]++ * rows;
    std::ranges::copy(group(order[i]), sorted.begin() + at);
  }
  parts_ = std::move(sorted);
  ends_ = std::move(place);
}

std::span<const DocumentPart> PackedSamples::sample(int64_t number) const {
  const auto i = static_cast<size_t>(number);
  const int64_t begin = number == 0 ? 0 : ends_[i - 1];
  return std::span(parts_).subspan(static_cast<size_t>(begin * rows_),
                                   static_cast<size_t>((ends_[i] - begin) * rows_));
}

}  // namespace dstrain
